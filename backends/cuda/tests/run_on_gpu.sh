#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, on the GPUs of this machine, nothing skipped: every test of the CUDA backend and of the
# pool on it; again without a GPU in sight; again under compute-sanitizer's memcheck where it is installed; and the program:
# training, recorded traces with every buffer verified, benchmarks. Needs Rust and a driver, no toolkit, 40 GiB on the GPU
# for the largest trace, and a few minutes.
set -euo pipefail
cd "$(dirname "$0")/../../.."

backend=(-p vrampool-cuda)
pool=(-p vrampool --all-features --bin vrampool --test cuda --test devices --test cupy --test cuda_capture --test cuda_out_of_memory \
    --test cuda_second_process --test solve_program)
VRAMPOOL_REQUIRE=cuda cargo test --locked "${backend[@]}"
# The driver answers as the simulated one does.
VRAMPOOL_REQUIRE=cuda cargo test --locked -p vrampool-cuda-simulator --test facts
VRAMPOOL_REQUIRE=cuda cargo test --locked -p vrampool-c --test torch_on_cuda
VRAMPOOL_REQUIRE=cuda cargo test --locked "${pool[@]}"
CUDA_VISIBLE_DEVICES='' cargo test --locked "${backend[@]}"
CUDA_VISIBLE_DEVICES='' cargo test --locked "${pool[@]}"

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1 || true)
if [ -z "$sanitizer" ]; then
    echo "skipped: compute-sanitizer is not installed"
else
    # Errors that a call answers are what tests ask for; `lost` breaks its context on purpose, and what counts rounds or
    # replays whole programs takes too long here.
    runner="$sanitizer --tool memcheck --leak-check full --report-api-errors no --error-exitcode 1"
    (
        export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$runner"
        export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$runner"
        export VRAMPOOL_REQUIRE=cuda
        cargo test --locked "${backend[@]}" --test conformance --test gpu --test waiting --test capture \
            --test out_of_memory --test physical
        cargo test --locked "${pool[@]}" -- --skip recorded --skip another_streams --skip the_limit --skip random_work \
            --skip a_second_process
    )
fi

cargo vrampool train --backend cuda
cargo vrampool replay --backend cuda --touch benches/traces/*.csv.gz
cargo vrampool replay --backend cuda --touch --source arena --limit 40GiB --size-classes exact --max-cached 0 \
    benches/traces/*.csv.gz
cargo vrampool replay --backend cuda --touch --source virtual benches/traces/*.csv.gz
cargo vrampool replay --backend cuda --touch --source driver --size-classes geometric --threads 2 benches/traces/*.csv.gz
cargo vrampool bench --backend cuda --only pair,cuarena_1,cuarena_2,cuarena_3,cuarena_4,cuarena_5,cuarena_6
