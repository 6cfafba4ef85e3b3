#!/usr/bin/env bash
# Builds peers.cu against PyTorch, RMM, vrampool's C library and, where it is there, cuArena: peers.sh BINARIES WORK. BINARIES has
# libvrampool_c.so, vrampool.h, the wheels librmm_cu13-*.whl and rapids_logger-*.whl, and cuArena's sources in cuArena/; WORK gets the
# program `peers`. Needs nvcc and PyTorch.
set -euo pipefail
binaries=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
here=$(realpath "$(dirname "$0")")
python=${PYTHON:-python3}
for wheel in "$binaries"/librmm_cu13-*.whl "$binaries"/rapids_logger-*.whl; do
    "$python" -m zipfile -e "$wheel" "$work/wheels"
done
torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
abi=$("$python" -c 'import torch; print(int(torch._C._GLIBCXX_USE_CXX11_ABI))')
rmm=$work/wheels/librmm logger=$work/wheels/rapids_logger
cuarena=()
if [ -d "$binaries/cuArena" ]; then
    cuarena=(-DCUARENA -I"$binaries/cuArena/include" "$binaries/cuArena/src/allocator.cu" "$binaries/cuArena/src/sysinfo.cpp")
else
    echo "BINARIES has no cuArena: peers is built without it"
fi
nvcc -O3 -DNDEBUG -std=c++20 -arch=native --extended-lambda --expt-relaxed-constexpr -w -D_GLIBCXX_USE_CXX11_ABI="$abi" \
    -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE -DCCCL_IGNORE_DEPRECATED_CPP_DIALECT \
    -I"$rmm/include/rapids" -I"$rmm/include" -I"$logger/include" -I"$torch/include" -I"$torch/include/torch/csrc/api/include" -I"$binaries" \
    "$here/peers.cu" "${cuarena[@]}" "$binaries/libvrampool_c.so" -L"$rmm/lib64" -lrmm -L"$logger/lib64" -lrapids_logger -L"$torch/lib" -lc10 -lc10_cuda -lcuda \
    -Xlinker -rpath,"$binaries" -Xlinker -rpath,"$rmm/lib64" -Xlinker -rpath,"$logger/lib64" -Xlinker -rpath,"$torch/lib" -o "$work/peers"
