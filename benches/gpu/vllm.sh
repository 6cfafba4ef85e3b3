#!/usr/bin/env bash
# vrampool in the place of vLLM's allocator and of torch_memory_saver, on a GPU: vllm.sh WHEEL SOURCES RESULTS. SOURCES is what sources.sh
# made. Needs PyTorch and pytest. RESULTS gets a line of results.jsonl for each part, and the output of each:
#
# * vLLM's tests of its allocator that need no model, all 14, with vrampool's extension module below vLLM's own class, and with vrampool's
#   class in its place;
# * torch_memory_saver's examples, in both modes;
# * 100 cycles of sleep and wake by each way: free memory within 2 MiB, contents the same, the wake at 0.9 of the pinned rate; and, where
#   vLLM's own extension module can be built, the same on that, for comparison.
#
# Exits with 1 if anything failed.
set -uo pipefail
wheel=$(realpath "$1")
sources=$(realpath "$2")
mkdir -p "$3"
results=$(realpath "$3")
here=$(realpath "$(dirname "$0")")
python=${PYTHON:-python3}
gib=${CYCLES_GIB:-4}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m zipfile -e "$wheel" "$work/package" || exit 1
failed=0
: >"$results/results.jsonl"

# Runs a command, notes how it ended, and shows the end of its output if it failed: NAME SECONDS COMMAND...
try() {
    local name=$1 limit=$2 begin=$SECONDS status=0
    shift 2
    timeout --kill-after=5 "$limit" "$@" >"$results/$name.txt" 2>&1 || status=$?
    printf '{"part":"vllm","name":"%s","status":%s,"seconds":%s,"last":%s}\n' "$name" "$status" "$((SECONDS - begin))" \
        "$(tail -n 1 "$results/$name.txt" | "$python" -c 'import json, sys; print(json.dumps(sys.stdin.read().strip()))')" >>"$results/results.jsonl"
    tail -n 1 "$results/results.jsonl"
    [ "$status" = 0 ] || { failed=1; tail -n 40 "$results/$name.txt"; }
}

# vLLM's tests: all that need no model pass, and there are 14 of them.
"$python" "$here/serving/tree.py" "$sources/vllm" "$work/vllm" || exit 1
tests() { # WHAT
    # Each test has a process of its own, and an interpreter of pytest's that never used CUDA.
    (cd "$work/vllm" && VRAMPOOL_VLLM=$1 PYTHONPATH="$work/vllm:$work/package" "$python" -m pytest -v -rA -p no:cacheprovider --rootdir "$work/vllm" \
        tests/basic_correctness/memory/cumem/test_cumem.py -k "not preserves_generation and not only_weights_asleep") | tee "$work/$1.txt"
    grep -q '14 passed' "$work/$1.txt" && ! grep -Eq '[0-9]+ (failed|error|skipped)' "$work/$1.txt"
}
export -f tests
export work python here
for what in extension class; do
    try "test_cumem_$what" 150 bash -c "tests $what"
done

# torch_memory_saver's examples: its helpers beside the module of the wheel.
shims=$(PYTHONPATH="$work/package" "$python" -m vrampool.memory_saver)
cp -r "$shims" "$work/saver"
cp "$sources/torch_memory_saver/"*.py "$work/saver/torch_memory_saver/"
example() { # NAME MODE [ERROR]
    local file="$sources/torch_memory_saver/examples/$1.py"
    if [ ! -e "$file" ]; then
        echo "{\"part\":\"vllm\",\"name\":\"example_$1_$2\",\"status\":\"not run\"}" | tee -a "$results/results.jsonl"
        return
    fi
    try "example_$1_$2" 90 env PYTHONPATH="$work/saver:$work/package" "$python" "$here/serving/example.py" "$file" "${@:2}"
}
for mode in torch preload; do
    for name in simple cpu_backup cuda_graph rl_example; do
        example "$name" "$mode"
    done
done
example multi_device_torch_mode torch
# Memory outside of regions is not paused, which a program that asks for it is notified of.
export TMS_INIT_ENABLE=1 TMS_INIT_ENABLE_CPU_BACKUP=1
example training_engine preload UnsupportedError
unset TMS_INIT_ENABLE TMS_INIT_ENABLE_CPU_BACKUP

for way in class saver extension; do
    try "cycles_$way" 170 env VRAMPOOL_VLLM="${way/saver/}" PYTHONPATH="$work/vllm:$work/package" "$python" "$here/serving/cycles.py" "$way" --gib "$gib"
done
# vLLM's class maps a segment and then copies it, one after the other: its rate on its own module is what the extension can reach.
module="$work/vllm/vllm/cumem_allocator$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')"
if g++ -O2 -shared -fPIC "$sources/vllm/csrc/cumem_allocator.cpp" -I "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')" \
    -I "${CUDA_HOME:-/usr/local/cuda}/include" -o "$module" -l:libcuda.so.1 2>"$results/native_build.txt"; then
    timeout --kill-after=5 170 env PYTHONPATH="$work/vllm:$work/package" "$python" "$here/serving/cycles.py" native --gib "$gib" >"$results/cycles_native.txt" 2>&1
    tail -n 1 "$results/cycles_native.txt"
else
    echo "cycles_native: not run, vLLM's extension module cannot be built here" | tee "$results/cycles_native.txt"
fi
exit $failed
