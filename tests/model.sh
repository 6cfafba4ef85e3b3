#!/usr/bin/env bash
# Every interleaving of a few threads: tests/model, whose threads, locks and atomics are the model checker's.
set -euo pipefail
cd "$(dirname "$0")/.."
# Only the library itself is built for the model, and fast; what it depends on is what the other tests use.
program=$(cargo rustc --locked --lib --profile test --no-default-features --message-format=json -- --cfg model -C opt-level=3 |
    grep -o '"executable":"[^"]*"' | cut -d '"' -f 4)
"$program" model::
