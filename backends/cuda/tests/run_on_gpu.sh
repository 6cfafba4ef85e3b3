#!/usr/bin/env bash
# Every test of the CUDA backend on the GPUs of this machine, none skipped; again without a GPU in sight; and again under
# compute-sanitizer's memcheck where it is installed. Needs Rust and a driver, no toolkit.
set -euo pipefail
cd "$(dirname "$0")/.."

VRAMPOOL_REQUIRE=cuda cargo test --locked
CUDA_VISIBLE_DEVICES='' cargo test --locked

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1 || true)
if [ -z "$sanitizer" ]; then
    echo "skipped: compute-sanitizer is not installed"
    exit
fi
# Errors that a call answers are what tests ask for; `lost` breaks its context on purpose.
tests=(--test conformance --test gpu --test waiting --test capture --test out_of_memory)
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$sanitizer --tool memcheck --leak-check full \
    --report-api-errors no --error-exitcode 1"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER"
VRAMPOOL_REQUIRE=cuda cargo test --locked "${tests[@]}"
