#!/usr/bin/env bash
# Runs a command on the simulated CUDA driver: builds it, and puts it before any other on the loader's path.
#
#     backends/cuda/simulator/run.sh cargo test -p vrampool-cuda
#     VRAMPOOL_SIMULATOR=devices=2,strict=1 backends/cuda/simulator/run.sh cargo test -p vrampool --features cuda --test cuda
#
# README.md lists the settings. The environment says that a CUDA device and the simulated driver are required, so that none
# is skipped.
set -euo pipefail
manifest=$(cd "$(dirname "$0")" && pwd)/Cargo.toml
target=$(cargo metadata --manifest-path "$manifest" --format-version 1 --no-deps --locked |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
cargo build --quiet --locked --manifest-path "$manifest" --jobs 2
driver="$target/simulator"
mkdir -p "$driver"
# A new file: a program that has the old one open keeps it.
cp "$target/debug/libvrampool_cuda_simulator.so" "$driver/new.$$"
mv "$driver/new.$$" "$driver/libcuda.so.1"
ln -sf libcuda.so.1 "$driver/libcuda.so"
export LD_LIBRARY_PATH="$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export VRAMPOOL_SIMULATOR=${VRAMPOOL_SIMULATOR-strict=1}
export VRAMPOOL_REQUIRE=${VRAMPOOL_REQUIRE:+$VRAMPOOL_REQUIRE,}cuda,cuda-simulator
exec "$@"
