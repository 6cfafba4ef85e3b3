#!/usr/bin/env bash
# Writes benches/results/host/size_classes.jsonl: the bytes that a pool holds on each trace, by size classes and by source.
# size_classes.sh [VRAMPOOL], the program; default: `cargo vrampool`. The bytes are the same on every machine.
set -euo pipefail
cd "$(dirname "$0")/.."
program=("$@")
[ ${#program[@]} -gt 0 ] || program=(cargo vrampool)
to=benches/results/host/size_classes.jsonl
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# replay NAME FILE OPTION...: one line for each pass, with the name of the choice and without the times.
replay() {
    "${program[@]}" replay "$2" --json --passes 2 "${@:3}" | python3 -c '
import json, sys
for line in sys.stdin:
    row = json.loads(line)
    kept = {key: row[key] for key in ("trace", "pass", "peak_requested", "peak_live", "peak_held", "peak_reserved", "hit_rate", "bucket_hit_rate")}
    print(json.dumps({"choice": sys.argv[1], **kept}))
' "$1"
}
for trace in benches/traces/*.csv.gz; do
    for classes in fixed power-of-two geometric exact; do
        replay "$classes" "$trace" --size-classes "$classes" --max-cached-bytes unlimited --max-buffers-per-bucket unlimited
    done
    "${program[@]}" fit "$trace" --output "$folder/classes" >/dev/null
    replay fitted "$trace" --size-classes "fitted:$folder/classes" --max-cached-bytes unlimited --max-buffers-per-bucket unlimited
    rm "$folder/classes"
    replay arena "$trace" --source arena --size-classes exact --max-cached-bytes 0
    replay virtual "$trace" --source virtual
    replay default "$trace"
done >"$folder/results"
mv "$folder/results" "$to"
