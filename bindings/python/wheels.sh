#!/usr/bin/env bash
# Builds wheels for Linux with the C library of Debian 10 and later (glibc 2.28), and checks them:
#
#   bindings/python/wheels.sh FOLDER [x86_64|aarch64]...       both by default
#
# Each wheel is built by cargo-zigbuild and ziglang of PyPI. The standard library of Rust is the toolchain's where that has the
# target (rustup target add), and is built from Debian's rust-web-src otherwise (rustc-web, cargo-web). The checks: auditwheel and twine
# accept the wheel, check_wheel.py finds its licenses and no path of this machine, and each Python of PYTHONS_x86_64 and
# PYTHONS_aarch64 (commands, separated by spaces; for another machine the path of a script that starts an emulator) imports it and allocates.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || { sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//p;}' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
machines=("$@")
[ $# -gt 0 ] || machines=(x86_64 aarch64)
glibc=2.28

# Always the same folder: it stands in flags that cargo compares.
stubs=${CARGO_TARGET_DIR:-$here/../../target}/python/unwinder
mkdir -p "$stubs"
stubs=$(cd "$stubs" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/pip" --disable-pip-version-check install --quiet 'hatchling>=1.28' 'build>=1.2' 'twine>=6.1' 'auditwheel>=6.2' 'cargo-zigbuild>=0.20' \
    'ziglang>=0.13' 'py-rattler-build>=0.50'
export PATH="$work/env/bin:$PATH"

# What libgcc_s has of stack unwinding. Zig would link an unwinder of its own into the module, which cannot unwind for that of
# libstdc++: PyTorch's exceptions are thrown through the module.
unwinder() {
    local machine=$1 name
    local first="DeleteException GetDataRelBase GetGR GetIP GetLanguageSpecificData GetRegionStart GetTextRelBase RaiseException Resume SetGR SetIP"
    local later="Backtrace FindEnclosingFunction GetCFA Resume_or_Rethrow"
    {
        printf 'GCC_3.0 { global:'
        printf ' _Unwind_%s;' $first
        printf ' };\nGCC_3.3 { global:'
        printf ' _Unwind_%s;' $later
        printf ' } GCC_3.0;\nGCC_4.2.0 { global: _Unwind_GetIPInfo; } GCC_3.3;\n'
    } >"$work/unwinder.map"
    for name in $first $later GetIPInfo; do
        printf 'void _Unwind_%s(void) {}\n' "$name"
    done >"$work/unwinder.c"
    mkdir -p "$stubs/$machine"
    python -m ziglang cc -target "$machine-linux-gnu.$glibc" -shared -nostdlib -Wl,-soname,libgcc_s.so.1 "-Wl,--version-script=$work/unwinder.map" \
        -o "$stubs/$machine/libgcc_s.so.1" "$work/unwinder.c"
}

python "$here/conda/check.py"
for machine in "${machines[@]}"; do
    target=$machine-unknown-linux-gnu
    printf '== %s\n' "$target"
    unwinder "$machine"
    export VRAMPOOL_PROFILE=release VRAMPOOL_TARGET=$target VRAMPOOL_GLIBC=$glibc
    settings=(RUSTFLAGS="${RUSTFLAGS:-} -Clink-arg=$stubs/$machine/libgcc_s.so.1")
    if [ ! -d "$(rustc --print target-libdir --target "$target")" ]; then
        [ -d /usr/src/rustc-web ] || [ -x /usr/bin/rustc ] || { echo "there is no standard library for $target" >&2; exit 1; }
        settings+=(CARGO=/usr/bin/cargo RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 VRAMPOOL_CARGO_ARGUMENTS=-Zbuild-std)
    fi
    env "${settings[@]}" python -m build --wheel --no-isolation --outdir "$work/$machine/wheel" "$here"
    mkdir -p "$work/$machine"
    wheel=$(echo "$work/$machine/wheel"/vrampool-*-manylinux_"${glibc/./_}_$machine".whl)
    auditwheel show "$wheel" | tee "$work/$machine/audit"
    grep -q "manylinux_${glibc/./_}_$machine" "$work/$machine/audit"
    twine check --strict "$wheel"
    if [ "$machine" = x86_64 ]; then
        # The same wheel with the modules for PyTorch, whose libraries no policy of wheels knows.
        PYTHON=${PYTHON:-python3} "$here/torch_module/build.sh" "$work/torch" "${CARGO_TARGET_DIR:-$here/../../target}/torch_headers"
        rm "$wheel"
        env "${settings[@]}" VRAMPOOL_TORCH_MODULES="$work/torch" python -m build --wheel --no-isolation --outdir "$work/$machine/wheel" "$here"
    fi
    python "$here/check_wheel.py" "$wheel"
    python -m zipfile -e "$wheel" "$work/$machine/installed"
    pythons=PYTHONS_$machine
    for python in ${!pythons:-}; do
        env -u VRAMPOOL_LIBRARY PYTHONPATH="$work/$machine/installed" "$python" -c '
import platform, vrampool
with vrampool.Pool("host", host_capacity=1 << 26) as pool, pool.allocate(4096) as block:
    print("Python", platform.python_version(), "on", platform.machine(), "allocates", block.nbytes, "bytes by vrampool", vrampool.__version__)'
    done
    cp "$wheel" "$folder"
done
ls -l "$folder"/vrampool-*.whl
