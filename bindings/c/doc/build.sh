#!/bin/sh
# Writes the reference pages of the C interface as HTML: bindings/c/doc/build.sh FOLDER. Needs Doxygen 1.9.1 or newer. A warning
# is an error.
set -eu
[ $# -eq 1 ] || { echo "usage: build.sh FOLDER" >&2 && exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
version=$(sed -n 's/^#define VRAMPOOL_VERSION_[A-Z]* //p' include/vrampool.h | paste -sd. -)
{ cat doc/Doxyfile && printf 'PROJECT_NUMBER = %s\nOUTPUT_DIRECTORY = "%s"\n' "$version" "$folder"; } | doxygen -
