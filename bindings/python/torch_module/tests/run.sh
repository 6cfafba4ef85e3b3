#!/usr/bin/env bash
# Builds the modules for versions of PyTorch, and drives every function of the interface through PyTorch's entry points, beside the real
# libc10 and libc10_cuda and over a stub of CUDA's runtime:
#
#     backends/cuda/simulator/run.sh bindings/python/torch_module/tests/run.sh LIBRARY FOLDER CACHE 2.7 2.11 ...
#
# LIBRARY is vrampool's C library. The modules stay in FOLDER.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
library=$(realpath "$1") folder=$2 cache=$3
shift 3
"$here/../build.sh" "$folder" "$cache" "$@"
folder=$(realpath "$folder")
driver=${LD_LIBRARY_PATH%%:*}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for cuda in 12 13; do
    mkdir "$work/$cuda"
    echo "libcudart.so.$cuda { *; };" >"$work/map"
    ${CXX:-g++} -std=c++17 -O1 -fPIC -shared -fvisibility=hidden -isystem "$cache/$1/include" "-Wl,--version-script=$work/map" \
        -Wl,-soname,libcudart.so.$cuda -o "$work/$cuda/libcudart.so.$cuda" "$here/runtime.cpp" -L "$driver" -lcuda
done
for version in "$@"; do
    minor=${version#2.}
    standard=c++17
    [ "$minor" -lt 14 ] || standard=c++20
    cuda=$(grep -ao 'libcudart\.so\.[0-9]*' "$cache/$version/lib/libc10_cuda.so" | head -n 1)
    ${CXX:-g++} -std=$standard -O1 -DTORCH_MINOR="$minor" -isystem "$cache/$version/include" -o "$work/interface" "$here/interface.cpp" \
        -L "$cache/$version/lib" -lc10 -lc10_cuda "$work/${cuda##*.}/$cuda" -ldl -Wl,-rpath-link,"$work/${cuda##*.}" -Wl,--allow-shlib-undefined
    LD_LIBRARY_PATH="$cache/$version/lib:$work/${cuda##*.}:$LD_LIBRARY_PATH" "$work/interface" "$folder/torch_2_$minor.so" "$library"
done
