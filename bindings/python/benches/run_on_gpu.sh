#!/usr/bin/env bash
# Everything that this folder shows, on a machine with a GPU, PyTorch and CuPy: run_on_gpu.sh WHEEL FOLDER. Takes less than
# nine minutes; each part has a limit of its own, and the last lines say which parts went well. The folder gets report.txt,
# which is what is printed, and results.tar.gz with all that was said and made.
set -uo pipefail
wheel=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
exec > >(tee "$folder/report.txt") 2>&1
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}

"$python" -m pip install --quiet --no-deps --no-index --target "$out/.package" "$wheel" || exit 1
export PYTHONPATH="$out/.package${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
cd "$here"

said=()
failed=0
part() { # SECONDS NAME COMMAND...
    local limit=$1 name=$2 begin=$SECONDS status=0
    shift 2
    timeout --kill-after=5 "$limit" "$@" >"$out/$name.txt" 2>"$out/$name.err" || status=$?
    said+=("$(printf '%-12s %s in %d s' "$name" "$([ $status = 0 ] && echo well || echo "FAILED ($status)")" $((SECONDS - begin)))")
    if [ $status != 0 ]; then
        failed=1
        tail -n 15 "$out/$name.err"
    fi
    tail -n 40 "$out/$name.txt" | cut -c 1-400
}

{ nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  "$python" -c 'import torch, vrampool; print("PyTorch", torch.__version__, "vrampool", vrampool.__version__)'; } >"$out/machine.txt" 2>&1
cat "$out/machine.txt"

part 60 tests env VRAMPOOL_REQUIRE=gpu,torch,cupy "$python" -m pytest -q -p no:cacheprovider -c ../pyproject.toml --rootdir .. ../tests
part 40 oom "$python" oom.py --quick
part 40 sleep "$python" sleep.py --quick
part 40 snapshot "$python" snapshot.py --quick --out "$out/snapshot"
part 50 cupy_job "$python" cupy_job.py --quick
part 60 empty_pairs "$python" empty_pairs.py --quick --steps 9 --out "$out"
for workload in train_resnet50 train_gpt2 generate input_pipeline; do
    part 75 "$workload" "$python" compare.py "$workload" --quick --out "$out/$workload"
done

printf '\n'
printf '%s\n' "${said[@]}"
tar -C "$out" --exclude=./.package -czf "$folder/results.tar.gz" .
exit $failed
