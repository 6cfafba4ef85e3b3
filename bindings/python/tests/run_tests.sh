#!/usr/bin/env bash
# Builds the wheel, checks it, installs it into a clean environment, and runs the tests and the check of types there. On the
# simulated CUDA driver all tests run with two devices, and those of devices with one. Needs cargo, Python 3.10 or later, and the registries of
# both. The target folder is cargo's; the profile is the one that checks build anyway.
#
# run_tests.sh --wheel FILE tests a wheel that is built already, and needs no cargo.
set -euo pipefail
wheel=
[ "${1:-}" != --wheel ] || wheel=$(realpath "$2")
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
export VRAMPOOL_PROFILE=${VRAMPOOL_PROFILE:-dev}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/env"
pip() { "$work/env/bin/pip" --disable-pip-version-check --quiet "$@"; }
in_environment() { "$work/env/bin/$1" "${@:2}"; }
pip install 'pytest>=8' 'mypy>=1.15' numpy 'pyright[nodejs]>=1.1.400'
if [ -z "$wheel" ]; then
    pip install 'build>=1.2' 'twine>=6.1' 'hatchling>=1.28' editables 'py-rattler-build>=0.50' 'abi3audit>=0.0.20'
    build() { in_environment python -m build --no-isolation --outdir "$work/dist" "$@" . >"$work/build.log" 2>&1; }
    build --wheel || { cat "$work/build.log" && exit 1; }
    wheel=$(echo "$work"/dist/vrampool-*.whl)
    in_environment twine check --strict "$wheel"
    # The profile of tests keeps paths, which debuggers use.
    options=()
    [ "$VRAMPOOL_PROFILE" = release ] || options+=(--any-path)
    in_environment python check_wheel.py "${options[@]}" "$wheel"
    # Of Python's functions only those that the oldest Python of the wheel's name has.
    [[ $wheel != *-abi3-* ]] || in_environment abi3audit --strict "$wheel"
    in_environment python conda/check.py
    # A source distribution would lack the crates.
    ! build --sdist
    grep -q 'there is no source distribution' "$work/build.log"
    # In place, and away again.
    pip install --no-build-isolation --no-deps --editable .
    (cd "$work" && env/bin/python -c 'import vrampool; vrampool.Pool("host", host_capacity=1 << 26).allocate(4096).free()')
    pip uninstall --yes vrampool
    rm -f -r src/vrampool/_native.*.so src/vrampool/lib
fi
pip install "$wheel"
# From elsewhere than the sources: what is tested is what was installed.
cp -r tests benches pyproject.toml hatch_build.py check_wheel.py "$work"
cd "$work"
unset PYTHONPATH VRAMPOOL_LIBRARY
if [ -z "${VRAMPOOL_SIMULATOR:-}" ]; then
    env/bin/python -m pytest -q -p no:cacheprovider
else
    VRAMPOOL_SIMULATOR=$VRAMPOOL_SIMULATOR,devices=2 env/bin/python -m pytest -q -p no:cacheprovider
    VRAMPOOL_SIMULATOR=$VRAMPOOL_SIMULATOR,devices=1 env/bin/python -m pytest -q -p no:cacheprovider -k device
fi
env/bin/python -m mypy --cache-dir "$work/types" -p vrampool
env/bin/python -m mypy --cache-dir "$work/types" tests benches hatch_build.py check_wheel.py
# Fields of ctypes' structures are made at run time, where a type checker sees none.
(cd tests && ../env/bin/python -m mypy.stubtest vrampool --concise --allowlist stubtest_allowlist.txt --ignore-unused-allowlist)
env/bin/pyright --pythonpath env/bin/python "$(env/bin/python -c 'import vrampool; print(*vrampool.__path__)')"
