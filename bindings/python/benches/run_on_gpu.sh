#!/usr/bin/env bash
# Everything that this folder shows, on a machine with a GPU, PyTorch and CuPy: run_on_gpu.sh WHEEL FOLDER [PART...]. Takes
# at most SECONDS_IN_ALL seconds (560), of them at most PROGRAM_SECONDS (330) for the programs of compare.py. Each part has
# a limit, and parts for which no time is left are not begun. Only `tests` may run while others use the
# GPU. The folder gets report.txt, which is what is printed, and results.tar.gz with all output.
set -uo pipefail
mkdir -p "$2"
if [ -z "${REPORTED:-}" ]; then
    REPORTED=1 "$0" "$@" 2>&1 | tee "$2/report.txt"
    exit "${PIPESTATUS[0]}"
fi
wheel=$(realpath "$1")
folder=$(realpath "$2")
shift 2
parts=("$@")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$(dirname "$0")"
python=${PYTHON:-python3}
most=${SECONDS_IN_ALL:-560}

# A wheel of plain files: unpacked is installed.
"$python" -m zipfile -e "$wheel" "$out/.package" || exit 1
export PYTHONPATH="$out/.package${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1 PYTHONUTF8=1

said=()
failed=0
part() { # SECONDS NAME COMMAND...
    local limit=$1 name=$2 begin=$SECONDS status=0 left=$((most - SECONDS))
    shift 2
    [ ${#parts[@]} = 0 ] || [[ " ${parts[*]} " == *" $name "* ]] || return 0
    if [ $left -lt 10 ]; then
        said+=("$(printf '%-15s not begun: no time is left' "$name")")
        failed=1
        return
    fi
    printf '\n== %s\n' "$name"
    timeout --kill-after=5 $((limit < left ? limit : left)) "$@" >"$out/$name.txt" 2>"$out/$name.err" || status=$?
    tail -n 60 "$out/$name.txt" | cut -c 1-600
    if [ $status = 0 ]; then
        said+=("$(printf '%-15s well, %d s' "$name" $((SECONDS - begin)))")
    else
        said+=("$(printf '%-15s FAILED (%d), %d s' "$name" $status $((SECONDS - begin)))")
        failed=1
        tail -n 25 "$out/$name.err"
    fi
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
"$python" -c 'import torch, vrampool; print("PyTorch", torch.__version__, "vrampool", vrampool.__version__)'

in_all=$most
programs_end=$((SECONDS + ${PROGRAM_SECONDS:-330}))
most=$((programs_end < in_all ? programs_end : in_all))
# The longest first: on a fresh machine the first import of transformers takes a minute by itself.
for workload in generate train_gpt2 diffusion_unet serve_decode train_bert train_gnn train_resnet50 input_pipeline; do
    steps=32
    [ "$workload" != generate ] || steps=16
    part 130 "$workload" "$python" compare.py "$workload" --quick --allocators native,expandable,vrampool \
        --steps $steps --rounds $steps --out "$out/$workload"
done
most=$in_all
part 60 empty_pairs "$python" empty_pairs.py --quick --steps 9 --out "$out"
tests=(env VRAMPOOL_REQUIRE=gpu,torch,cupy "$python" -m pytest -q -p no:cacheprovider -c ../pyproject.toml --rootdir .. ../tests)
part 60 tests_alone "${tests[@]}" -m whole_device
part 320 tests "${tests[@]}" -m "not whole_device"

printf '\n'
printf '%s\n' "${said[@]}"
tar -C "$out" --exclude=./.package -czf "$folder/results.tar.gz" .
exit $failed
