#!/usr/bin/env bash
# Builds all that run.sh needs, and puts it into a folder that can be carried to a machine with a GPU: collect.sh FOLDER, or
# collect.sh FOLDER tests for the test programs alone. Needs Rust and Python 3. Programs run there if its C library is as new as
# this machine's.
set -euo pipefail
mkdir -p "$1"
folder=$(realpath "$1")
cd "$(dirname "$0")/../.."

# Each test program under the name of its package and its own.
python=${PYTHON:-python3}
programs=(--workspace --all-features --locked --no-run --quiet --message-format=json)
{ cargo test "${programs[@]}" && cargo test --manifest-path backends/cuda/simulator/Cargo.toml "${programs[@]}"; } |
    "$python" -c '
import json, shutil, subprocess, sys
from pathlib import Path
wanted = {
    "vrampool-cuda": "absent gpu conformance capture waiting lost out_of_memory physical",
    "vrampool": "cuda cuda_capture cuda_out_of_memory cupy devices opencl wgpu",
    "vrampool-broker": "cuda_second_process devices",
    "vrampool-demos": "vrampool-demos",
    "vrampool-trace": "devices",
    "vrampool-c": "torch_on_cuda streams_on_cuda all_or_nothing",
    "vrampool-cuda-simulator": "facts",
    "vrampool-sleep": "devices",
    "vrampool-opencl": "conformance device order lost out_of_resources",
    "vrampool-wgpu": "conformance gpu lost out_of_memory",
}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("reason") != "compiler-artifact" or not message.get("executable"):
        continue
    target = message["target"]["name"]
    package = Path(message["manifest_path"]).parent
    names = {"broker": "vrampool-broker", "demos": "vrampool-demos", "cuda": "vrampool-cuda", "c": "vrampool-c", "simulator": "vrampool-cuda-simulator", "sleep": "vrampool-sleep",
             "opencl": "vrampool-opencl", "trace": "vrampool-trace", "wgpu": "vrampool-wgpu"}
    package = "vrampool" if (package / "benches/gpu").is_dir() else names.get(package.name, package.name)
    # Of the program, its unit tests; not the program itself.
    is_test = message["target"]["kind"] in (["test"], ["bin"]) and message["profile"]["test"]
    if target in wanted.get(package, "").split() and is_test:
        to = Path(sys.argv[1]) / f"{package}.{target}"
        shutil.copy(message["executable"], to)
        subprocess.run(["strip", to], check=True)
' "$folder"
[ "${2:-}" != tests ] || exit 0

cargo build --release -p vrampool-demos -p vrampool-c -p vrampool-python -p vrampool-cumem-allocator --all-features --locked --bin vrampool-demos --lib
target=$(cargo metadata --format-version 1 --no-deps --locked | "$python" -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
cargo bench -p vrampool --features cuda,opencl --locked --bench streams --no-run --quiet --message-format=json |
    "$python" -c '
import json, shutil, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] == "streams":
        shutil.copy(message["executable"], sys.argv[1])
' "$folder/vrampool.streams"
strip "$folder/vrampool.streams"
cp "$target/release/vrampool-demos" "$target/release/libvrampool_c.so" bindings/c/include/vrampool.h "$folder"
mv "$folder/vrampool-demos" "$folder/vrampool"
strip "$folder/vrampool"
strip --strip-debug "$folder/libvrampool_c.so"
rm -f "$folder"/vrampool-*.whl
strip --strip-debug -o "$folder/native.so" "$target/release/libvrampool_python.so"
strip --strip-debug -o "$folder/libcumem_allocator.so" "$target/release/libcumem_allocator.so"
bindings/python/torch_module/build.sh "$folder/torch" "$target/torch_headers"
VRAMPOOL_TORCH_MODULES="$folder/torch" VRAMPOOL_BUILT_LIBRARY="$folder/native.so" "$python" -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir "$folder" bindings/python
rm "$folder/native.so" "$folder/libcumem_allocator.so"
benches/gpu/sources.sh "$folder/serving"
