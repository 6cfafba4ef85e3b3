#!/usr/bin/env bash
# Counts instructions by those benchmarks of the working folder that count them; compare.py compares two outputs.
set -euo pipefail
for bench in arena_instructions pool_instructions; do
    # A base of a change may not have it yet.
    [ ! -e "benches/$bench.rs" ] || cargo bench --quiet --locked --bench "$bench" -- instructions
done
[ ! -e bindings/c/benches/pair_instructions.rs ] || cargo bench --quiet --locked -p vrampool-c --bench pair_instructions
