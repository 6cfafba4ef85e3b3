#!/bin/sh
# Builds the C library and installs it with its header, pkg-config files and CMake package:
#
#   bindings/c/install.sh [OPTION]... [-- CARGO_ARGUMENT...]
#
#   --prefix DIR      installation folder, an absolute path; default /usr/local
#   --libdir DIR      folder of libraries, below the prefix; default lib (Debian: lib/x86_64-linux-gnu)
#   --includedir DIR  folder of the header, below the prefix; default include
#   --datadir DIR     folder of documentation, below the prefix; default share
#   --profile NAME    cargo's profile; default release
#   --features LIST   features beside the default ones
#   --no-default-features
#
# DESTDIR in the environment is put before every path that is written to, and stands in no installed file. CC, STRIP, CARGO and
# RUSTC name the tools, PYTHON one for the list of licenses (STRIP=: keeps debug information, PYTHON=: leaves the list out),
# CARGO_BUILD_TARGET the target of a cross build. Arguments after -- are those of cargo rustc.
#
# The shared library is linked here from the static one, so both come from one compilation. Cargo's own shared library has no
# symbol versions: rustc passes a version script without a name to the linker, and GNU ld refuses a second one.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
fail() {
    printf 'install.sh: %s\n' "$1" >&2
    exit 1
}

prefix=/usr/local libdir=lib includedir=include datadir=share profile=release features= no_default=
while [ $# -gt 0 ]; do
    option=$1
    shift
    case $option in
    --) break ;;
    --help | -h)
        sed -n '2,/^set -eu/{/^set -eu/d;s/^# \{0,1\}//p;}' "$0"
        exit
        ;;
    --no-default-features)
        no_default=$option
        continue
        ;;
    --*=*) value=${option#*=} option=${option%%=*} ;;
    --*)
        [ $# -gt 0 ] || fail "$option needs a value (--help lists the options)"
        value=$1
        shift
        ;;
    esac
    case $option in
    --prefix) prefix=$value ;;
    --libdir) libdir=$value ;;
    --includedir) includedir=$value ;;
    --datadir) datadir=$value ;;
    --profile) profile=$value ;;
    --features) features=$features${features:+,}$value ;;
    *) fail "unknown option $option (--help lists the options)" ;;
    esac
done

case $prefix in
/) prefix= ;;
/*) prefix=${prefix%/} ;;
*) fail "--prefix $prefix is not an absolute path" ;;
esac
case $prefix$libdir$includedir$datadir in
*[!A-Za-z0-9_/.+~-]*) fail "a folder has characters other than letters, digits and _/.+~-, which pkg-config or CMake would read otherwise" ;;
esac
# An installed tree can be moved as a whole, so all its folders are below one.
below_prefix() {
    folder=${2#"$prefix"/}
    case $folder in
    '' | /* | .. | ../* | */.. | */../*) fail "$1 $2 is not below the prefix ${prefix:-/}" ;;
    esac
    printf %s "${folder%/}"
}
libdir=$(below_prefix --libdir "$libdir")
includedir=$(below_prefix --includedir "$includedir")
datadir=$(below_prefix --datadir "$datadir")

cargo=${CARGO:-cargo} python=${PYTHON:-python3} cc=${CC:-cc} strip=${STRIP:-strip}
manifest=$here/Cargo.toml header=$here/include/vrampool.h symbols=$here/vrampool.map

configuration=$(${RUSTC:-rustc} --print cfg ${CARGO_BUILD_TARGET:+--target "$CARGO_BUILD_TARGET"})
setting() { printf '%s\n' "$configuration" | sed -n "s/^$1=\"\(.*\)\"\$/\1/p"; }
system=$(setting target_os) pointer_bytes=$(($(setting target_pointer_width) / 8))

command -v "$python" >/dev/null || fail "$python is missing, which lists the licenses of linked crates; PYTHON=: leaves the list out"

abi=$(sed -n 's/^#define VRAMPOOL_ABI_VERSION //p' "$header")
metadata=$("$cargo" metadata --locked --no-deps --format-version 1 --manifest-path "$manifest")
version=$(printf %s "$metadata" | sed 's/.*"name":"vrampool-c","version":"\([^"]*\)".*/\1/')
target=$(printf %s "$metadata" | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
case $version in
0.*) series=$(printf %s "$version" | cut -d. -f1,2) ;;
*) series=${version%%.*} ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Paths of the machine that builds do not stand in the library. The separator of this variable may stand in a path.
separator=$(printf '\037')
remap() { CARGO_ENCODED_RUSTFLAGS=${CARGO_ENCODED_RUSTFLAGS:+$CARGO_ENCODED_RUSTFLAGS$separator}--remap-path-prefix=$1; }
if [ -z "${CARGO_ENCODED_RUSTFLAGS:-}" ]; then
    for flag in ${RUSTFLAGS:-}; do
        CARGO_ENCODED_RUSTFLAGS=${CARGO_ENCODED_RUSTFLAGS:+$CARGO_ENCODED_RUSTFLAGS$separator}$flag
    done
fi
remap "${CARGO_HOME:-$HOME/.cargo}/registry/src=registry"
remap "$(cd "$here/../.." && pwd)=vrampool"
export CARGO_ENCODED_RUSTFLAGS

# A folder of its own: these flags are others than those of `cargo build`, which would build everything anew after this.
target=$target/c
native=$target/vrampool-native-libraries${CARGO_BUILD_TARGET:+.$CARGO_BUILD_TARGET}
mkdir -p "$target"
# The option that may be empty is one word or none.
# shellcheck disable=SC2086
"$cargo" rustc --locked --lib --crate-type staticlib --manifest-path "$manifest" --target-dir "$target" --profile "$profile" \
    $no_default --features "$features" --message-format=json-render-diagnostics "$@" -- --print "native-static-libs=$native" >"$work/messages"
built=$(sed -n 's/.*"filenames":\["\([^"]*libvrampool_c\.a\)".*/\1/p' "$work/messages")
[ -f "$built" ] || fail "cargo built no libvrampool_c.a for $system: install.sh supports Unix"
native_libraries=$(cat "$native")

cp "$built" "$work/libvrampool_c.a"
"$strip" -S "$work/libvrampool_c.a"
roots=$work/roots
sed -n 's/^ *\(vrampool_[a-z0-9_]*\);$/\1/p' "$symbols" >"$roots"

# What keeps the library loaded after dlclose: its threads may still run.
case $system in
macos)
    soname=libvrampool_c.$abi.dylib link_name=libvrampool_c.dylib static_library="\${libdir}/libvrampool_c.a"
    sed 's/^/_/' "$roots" >"$work/exported"
    set -- -dynamiclib -install_name "$prefix/$libdir/$soname" -current_version "$version" -compatibility_version "$abi" \
        "-Wl,-exported_symbols_list,$work/exported" -Wl,-dead_strip
    undefined=-Wl,-u,_
    ;;
*)
    soname=libvrampool_c.so.$abi link_name=libvrampool_c.so static_library=-l:libvrampool_c.a
    set -- -shared "-Wl,-soname,$soname" "-Wl,--version-script,$symbols" -Wl,-z,nodelete -Wl,-z,defs -Wl,-z,relro -Wl,-z,now \
        -Wl,--gc-sections -Wl,--as-needed
    undefined=-Wl,-u,
    ;;
esac
while read -r function; do
    set -- "$@" "$undefined$function"
done <"$roots"
# Words of LDFLAGS and of the list are separate arguments.
# shellcheck disable=SC2086
"$cc" -o "$work/$soname" "$@" ${LDFLAGS:-} "$work/libvrampool_c.a" $native_libraries
[ "$system" = macos ] || "$strip" -S "$work/$soname"

# shellcheck disable=SC2086
"$python" "$here/licenses.py" "$work/licenses" $no_default --features "$features" ${CARGO_BUILD_TARGET:+--target "$CARGO_BUILD_TARGET"}

fill() {
    sed -e "s|@prefix@|$prefix|" -e "s|@libdir@|$libdir|" -e "s|@includedir@|$includedir|" -e "s|@version@|$version|" \
        -e "s|@series@|$series|" -e "s|@shared_name@|$soname|" -e "s|@soname@|$soname|" -e "s|@pointer_bytes@|$pointer_bytes|" \
        -e "s|@static_library@|$static_library|" -e "s|@native_libraries@|$native_libraries|" \
        -e "s|@native_libraries_list@|$(printf %s "$native_libraries" | tr ' ' ';')|" \
        -e "s|@up@|$(printf %s "$libdir/cmake/vrampool" | sed 's,[^/][^/]*,..,g')|" "$here/package/$1.in" >"$work/$1"
}
root=${DESTDIR:-}$prefix
put() {
    mkdir -p "$root/$2"
    # Replaced, not written to: a program may have the old one mapped.
    cp "$1" "$root/$2/.${1##*/}.$$"
    chmod "$3" "$root/$2/.${1##*/}.$$"
    mv -f "$root/$2/.${1##*/}.$$" "$root/$2/${1##*/}"
    printf '%s\n' "$root/$2/${1##*/}"
}
put "$header" "$includedir" 644
put "$work/libvrampool_c.a" "$libdir" 644
put "$work/$soname" "$libdir" 755
ln -sf "$soname" "$root/$libdir/$link_name"
printf '%s\n' "$root/$libdir/$link_name"
for file in vrampool.pc vrampool-static.pc; do
    fill "$file"
    put "$work/$file" "$libdir/pkgconfig" 644
done
for file in vrampool-config.cmake vrampool-config-version.cmake; do
    fill "$file"
    put "$work/$file" "$libdir/cmake/vrampool" 644
done
for file in LICENSE-MIT LICENSE-APACHE; do
    put "$here/$file" "$datadir/doc/vrampool" 644
done
for file in "$work/licenses"/*; do
    [ ! -f "$file" ] || put "$file" "$datadir/doc/vrampool" 644
done
