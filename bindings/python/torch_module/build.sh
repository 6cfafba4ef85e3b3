#!/usr/bin/env bash
# Builds the modules for versions of PyTorch into a folder, from headers that fetch.py brings:
#
#     build.sh FOLDER CACHE [2.11 2.10 ...]      those of `supported` by default
#
# FOLDER/torch_2_11.so and so on. `CXX` is the compiler, g++ by default; `PYTHON` one with pip.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 cache=$2
shift 2
supported=(2.7 2.8 2.9 2.10 2.11 2.12 2.13 2.14 2.15)
[ $# -gt 0 ] || set -- "${supported[@]}"
mkdir -p "$folder"
"${PYTHON:-python3}" "$here/fetch.py" "$cache" "$@"
for version in "$@"; do
    minor=${version#2.}
    standard=c++17
    [ "$minor" -lt 14 ] || standard=c++20
    ${CXX:-g++} -std=$standard -O2 -fPIC -shared -fvisibility=hidden -fno-plt -Wall -Wextra -Wno-unused-parameter -DTORCH_MINOR="$minor" \
        -isystem "$cache/$version/include" -I "$here/../../c/include" -Wl,--no-undefined-version -Wl,-z,nodelete -s \
        -o "$folder/torch_2_$minor.so" "$here"/*.cpp -L "$cache/$version/lib" -lc10 -lc10_cuda -ldl -lpthread
done
