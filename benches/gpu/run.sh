#!/usr/bin/env bash
# Everything that only a GPU can show, on the first GPU of this machine: run.sh BINARIES RESULTS [PART...]
#
# BINARIES is what collect.sh made. Of RESULTS, results.jsonl has a line for each thing that was run, peers.jsonl and the folders beside
# it the figures. Parts are listed below, each with its limit in seconds; what lacks something (PyTorch, nvcc, RMM) says so and
# counts as not run. On the simulated driver (VRAMPOOL_SIMULATOR is set), ask for `suites`, `sanitizer` and `streams`, which make sense there.
# Exits with 1 if anything failed.
set -uo pipefail
binaries=$(realpath "$1")
mkdir -p "$2"
results=$(realpath "$2")
shift 2
parts=("$@")
here=$(realpath "$(dirname "$0")")
root=$(realpath "$here/../..")
python=${PYTHON:-python3}
cd "$root"

if [ -n "${VRAMPOOL_SIMULATOR:-}" ]; then
    gpu="simulated" driver="simulated"
else
    IFS=, read -r gpu driver < <(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
    [ -n "$gpu" ] || { echo "there is no NVIDIA GPU here" >&2; exit 1; }
fi
commit=${VRAMPOOL_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
# It is no setting of the library, which warns of names that it does not know.
unset VRAMPOOL_COMMIT
versions=$("$python" -c 'import platform, sys
try: import torch; found = torch.__version__
except ImportError: found = "none"
print(platform.python_version() + ", PyTorch " + found)' 2>/dev/null || echo unknown)

failed=0
summary=()
# One line of results.jsonl: PART NAME OUTCOME SECONDS WHY.
note() {
    printf '{"part":"%s","name":"%s","outcome":"%s","seconds":%s,"why":"%s","gpu":"%s","driver":"%s","python":"%s","commit":"%s","date":"%s"}\n' \
        "$1" "$2" "$3" "$4" "${5:-}" "$gpu" "${driver# }" "$versions" "$commit" "$(date -u +%F)" >>"$results/results.jsonl"
    summary+=("$(printf '%-13s %-40s %-8s %4s s  %s' "$1" "$2" "$3" "$4" "${5:-}")")
    [ "$3" != failed ] || failed=1
}
# Runs a command within a limit, and notes how it ended: PART NAME SECONDS COMMAND...
try() {
    local part=$1 name=$2 limit=$3 begin=$SECONDS status=0 seconds
    shift 3
    # A processor that plays the device's part as well takes longer.
    [ -z "${VRAMPOOL_SIMULATOR:-}" ] || limit=$((limit * 10))
    mkdir -p "$results/$part"
    timeout --kill-after=5 "$limit" "$@" >"$results/$part/$name.txt" 2>&1 || status=$?
    seconds=$((SECONDS - begin))
    if [ $status = 0 ]; then
        note "$part" "$name" passed "$seconds"
    else
        note "$part" "$name" failed "$seconds" "exit code $status"
        tail -n 25 "$results/$part/$name.txt"
    fi
}
# Begins a part, if it is asked for.
part() {
    [ ${#parts[@]} = 0 ] || [[ " ${parts[*]} " == *" $1 "* ]] || return 1
    # What an earlier run said of it is no longer so.
    [ ! -e "$results/results.jsonl" ] || { grep -v "^{\"part\":\"$1\"" "$results/results.jsonl" >"$results/kept.jsonl" || true; mv "$results/kept.jsonl" "$results/results.jsonl"; }
    printf '\n== %s\n' "$1"
}
lacks() { # PART NAME WHAT
    note "$1" "$2" "not run" 0 "$3"
}

export VRAMPOOL_TEST_BACKENDS=cuda
cuda_suites=(vrampool-cuda.{gpu,conformance,capture,waiting,lost,out_of_memory,physical}
    vrampool.{cuda,cuda_capture,cuda_out_of_memory,cupy,devices} vrampool-broker.{cuda_second_process,devices} vrampool-{sleep,trace}.devices
    vrampool-demos.vrampool-demos vrampool-c.{torch_on_cuda,streams_on_cuda,all_or_nothing})

# 1. The CUDA suites, as they run on the simulated driver, and its file of facts.
if part suites; then
    export VRAMPOOL_REQUIRE=cuda
    for suite in "${cuda_suites[@]}"; do
        try suites "$suite" 90 "$binaries/$suite" --test-threads 4
    done
    # A machine that shows no GPU, and says so.
    [ -n "${VRAMPOOL_SIMULATOR:-}" ] ||
        try suites vrampool-cuda.absent 30 env CUDA_VISIBLE_DEVICES= VRAMPOOL_REQUIRE= "$binaries/vrampool-cuda.absent"
    try suites facts 120 "$binaries/vrampool-cuda-simulator.facts"
fi

# 1. The same under compute-sanitizer. Errors that a call returns are what tests ask for; `lost` breaks its context on purpose.
if part sanitizer; then
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1 || true)
    if [ -z "$sanitizer" ]; then
        lacks sanitizer memcheck "compute-sanitizer is not installed"
    else
        memcheck=("$sanitizer" --tool memcheck --leak-check full --report-api-errors no --error-exitcode 1)
        export VRAMPOOL_REQUIRE=cuda
        # Not `waiting`: here a launch returns when its kernel has ended, and that suite's kernels must go on.
        for suite in vrampool-cuda.{gpu,capture,out_of_memory,physical} vrampool.{cuda,cuda_capture,cupy} vrampool-c.{torch_on_cuda,streams_on_cuda,all_or_nothing}; do
            try sanitizer "$suite" 60 "${memcheck[@]}" "$binaries/$suite" --test-threads 4
        done
        # Kernels that share memory between their threads: those of the program.
        try sanitizer racecheck 60 "$sanitizer" --tool racecheck --error-exitcode 1 "$binaries/vrampool" train --backend cuda --epochs 1
    fi
fi

# 3. Speed beside peers, in one process.
if part speed; then
    if ! command -v nvcc >/dev/null || ! "$python" -c 'import torch' 2>/dev/null; then
        lacks speed peers "nvcc and PyTorch are needed"
    elif ! ls "$binaries"/librmm*.whl >/dev/null 2>&1; then
        lacks speed peers "BINARIES has no wheels of librmm-cu13 and rapids-logger"
    else
        try speed build 150 "$here/peers.sh" "$binaries" "$results/speed/work"
        mkdir -p "$results/speed/work/traces"
        for trace in benches/traces/*.csv.gz; do
            gunzip -c "$trace" >"$results/speed/work/traces/$(basename "$trace" .gz)"
        done
        try speed peers 150 bash -c "'$results/speed/work/peers' '$results/speed/work/traces/'*.csv >'$results/peers.jsonl'"
        try speed behind 10 "$python" benches/tables.py --behind --gpu "$results"
        rm -rf "$results/speed/work"
    fi
fi
if part replay; then
    backend=(--backend cuda)
    for source in virtual fixed driver; do
        flags=(--source virtual)
        [ $source != fixed ] || flags=(--size-classes fixed --max-cached-bytes unlimited --max-buffers-per-bucket unlimited)
        [ $source != driver ] || flags=(--source driver)
        try replay "$source" 90 "$binaries/vrampool" replay "${backend[@]}" "${flags[@]}" --passes 12 --json benches/traces/{gpt2,resnet50,multistream,serve_mixed}.csv.gz
    done
    # First passes where 0.95 of each trace's peak is mapped before.
    initial() {
        for trace in gpt2 resnet50 multistream serve_mixed; do
            bytes=$("$python" -c 'import json, sys
rows = (json.loads(line) for line in open(sys.argv[1]) if line.startswith("{"))
print(max(row["peak_requested"] for row in rows if row["trace"] == sys.argv[2]) * 95 // 100)' "$results/replay/virtual.txt" "$trace")
            "$binaries/vrampool" replay "${backend[@]}" --source virtual --initial "$bytes" --passes 2 --json "benches/traces/$trace.csv.gz" || return 1
        done
    }
    export -f initial
    export binaries results python
    try replay initial 60 bash -c "backend=(${backend[*]}); initial"
    try replay touch 90 "$binaries/vrampool" replay "${backend[@]}" --source virtual --touch benches/traces/{gpt2,resnet50,multistream,serve_mixed}.csv.gz
    try replay bench 90 "$binaries/vrampool" bench "${backend[@]}" --json --only pair,cuarena_1,cuarena_2,cuarena_3,cuarena_4,cuarena_5,cuarena_6
    try replay sleep 60 "$binaries/vrampool" bench "${backend[@]}" --json --only sleep --sleep-gib 8
    try replay train 60 "$binaries/vrampool" train "${backend[@]}" --json
    try replay soak 60 "$binaries/vrampool" soak "${backend[@]}" --seconds 40
    # The figures, a line each, with the run that they are of.
    for run in virtual fixed driver initial bench sleep train; do
        { grep -h '^{' "$results/replay/$run.txt" || true; } | sed "s/^{/{\"run\":\"$run\",/"
    done >"$results/replay.jsonl"
fi

# 4. PyTorch and CuPy over both routes, and vLLM's allocator: first what has the device for itself, because it takes times and looks at what
# memory is free.
wheel=$(ls "$binaries"/vrampool-*.whl 2>/dev/null | head -n 1)
has_pytorch() { # PART
    if [ -z "$wheel" ] || ! "$python" -c 'import torch' 2>/dev/null; then
        lacks "$1" all "PyTorch and vrampool's wheel are needed"
        return 1
    fi
}
if part pytorch && has_pytorch pytorch; then
    limit=${PYTORCH_SECONDS:-450}
    try pytorch workloads $((limit + 10)) env SECONDS_IN_ALL="$limit" bindings/python/benches/run_on_gpu.sh "$wheel" "$results/pytorch" \
        generate train_gpt2 diffusion_unet serve_decode train_bert train_gnn train_resnet50 input_pipeline \
        empty_pairs tests_alone
fi
# 7. Streams whose kernels take time: one pool beside a pool for each stream, and PyTorch with each allocator.
unpacked_wheel() { # Sets `package` to the folder of vrampool's Python package.
    package=$(mktemp -d)
    "$python" -m zipfile -e "$wheel" "$package"
}
if part streams; then
    flags=(--device cuda --rounds 5)
    [ -z "${VRAMPOOL_SIMULATOR:-}" ] || flags=(--device cuda --quick --kernel-us 500)
    try streams bench 200 "$binaries/vrampool.streams" "${flags[@]}" --out "$results/streams.jsonl"
    if has_pytorch streams; then
        unpacked_wheel
        try streams pytorch 150 env PYTHONPATH="$package" "$python" bindings/python/benches/streams.py --out "$results/streams"
        rm -r "$package"
    fi
fi
# The interface of PyTorch's allocator: small cases, each beside PyTorch's own allocator, and then the time of programs, alone.
if part interface && has_pytorch interface; then
    unpacked_wheel
    try interface cases 280 env INTERFACE_SECONDS=260 PYTHONPATH="$package" "$python" "$here/interface/run.py" "$results/interface"
    try interface speed 280 env PYTHONPATH="$package" "$python" "$here/interface/speed.py" "$results/interface" 200
    rm -r "$package"
fi
# The same on several GPUs: FSDP and DDP steps, and all-reduces.
if part distributed && has_pytorch distributed; then
    gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
    if [ "$gpus" -lt 2 ]; then
        lacks distributed steps "two GPUs are needed"
    else
        unpacked_wheel
        # PyTorch's allocator twice: its two ratios differ by what processes differ, 1 to 2 %.
        try distributed steps 340 env PYTHONPATH="$package" "$python" bindings/python/benches/distributed.py --ranks "$gpus" \
            --allocators native,expandable,vrampool,native --out "$results/distributed"
        rm -r "$package"
    fi
fi
if part pytorch_tests && has_pytorch pytorch_tests; then
    try pytorch_tests tests 330 env SECONDS_IN_ALL=320 bindings/python/benches/run_on_gpu.sh "$wheel" "$results/pytorch_tests" tests
fi

# 6. vrampool in the place of vLLM's allocator and of torch_memory_saver: their tests, and cycles of sleep and wake.
if part vllm; then
    if [ ! -d "$binaries/serving" ] || ! "$python" -c 'import torch, pytest' 2>/dev/null || [ -z "$wheel" ]; then
        lacks vllm all "PyTorch, pytest, vrampool's wheel and what sources.sh fetches are needed"
    else
        try vllm all 580 "$here/vllm.sh" "$wheel" "$binaries/serving" "$results/vllm"
    fi
fi

# 5. OpenCL and wgpu on the same GPU.
if part opencl; then
    export VRAMPOOL_REQUIRE=opencl VRAMPOOL_TEST_BACKENDS=opencl
    # The GPU's driver alone: others that are installed, such as PoCL, are not what this is about.
    vendors=$(mktemp -d)
    echo libnvidia-opencl.so.1 >"$vendors/nvidia.icd"
    export OCL_ICD_VENDORS="$vendors/"
    unset OCL_ICD_FILENAMES
    for suite in vrampool-opencl.{conformance,device,order,lost,out_of_resources} vrampool.opencl vrampool{,-broker,-trace}.devices vrampool-demos.vrampool-demos; do
        try opencl "$suite" 90 "$binaries/$suite"
    done
    try opencl train 60 "$binaries/vrampool" train --backend opencl --json
fi
if part wgpu; then
    export VRAMPOOL_REQUIRE=wgpu VRAMPOOL_TEST_BACKENDS=wgpu
    for suite in vrampool-wgpu.{conformance,gpu,lost,out_of_memory} vrampool.wgpu vrampool{,-broker,-trace}.devices vrampool-demos.vrampool-demos; do
        try wgpu "$suite" 180 "$binaries/$suite"
    done
    try wgpu train 60 "$binaries/vrampool" train --backend wgpu --json
fi

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
exit $failed
