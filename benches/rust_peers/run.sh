#!/usr/bin/env bash
# Writes benches/results/peers/rust_peers.jsonl: allocators written in Rust on the traces, three rounds. Needs no GPU; about a minute after the
# build.
set -euo pipefail
cd "$(dirname "$0")"
to=../results/peers/rust_peers.jsonl
cargo build --release --locked
cargo run --release --locked --quiet -- ../traces/*.csv.gz >"$to.new"
mv "$to.new" "$to"
