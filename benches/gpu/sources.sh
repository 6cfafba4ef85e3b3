#!/usr/bin/env bash
# Fetches the files of others that vllm.sh runs: sources.sh FOLDER. From PyPI: vLLM's test of its memory allocator with the files that it
# imports, and torch_memory_saver's helper of its examples. The examples themselves are in no package: put the folder test/examples of
# its repository into FOLDER/torch_memory_saver/examples.
set -euo pipefail
mkdir -p "$1"
folder=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Sets `unpacked` to the folder of a package's sources. pip unpacks them before it asks for what their build requires, and stops there.
unpack() { # NAME VERSION
    mkdir -p "$work/$1"
    TMPDIR="$work/$1" "$python" -m pip --disable-pip-version-check download --quiet --no-deps --no-binary :all: --no-build-isolation --no-clean \
        --dest "$work/$1/files" "$1==$2" >"$work/$1.log" 2>&1 || true
    ! ls "$work/$1/files/"*.tar.gz >/dev/null 2>&1 || tar -xzf "$work/$1/files/"*.tar.gz -C "$work/$1"
    unpacked=$(find "$work/$1" -name PKG-INFO -not -path '*.egg-info/*' -printf '%h\n' | head -n 1)
    [ -n "$unpacked" ] || { cat "$work/$1.log" >&2; exit 1; }
}
unpack vllm 0.33.0
"$python" -c '
import shutil, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import tree
for name in (*tree.FILES, tree.LIBRARIES[0], *tree.EXTENSION):
    to = Path(sys.argv[3]) / "vllm" / name
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(sys.argv[2]) / name, to)
' "$here/serving" "$unpacked" "$folder"
unpack torch_memory_saver 0.0.10
mkdir -p "$folder/torch_memory_saver"
cp "$unpacked/torch_memory_saver/testing_utils.py" "$unpacked/torch_memory_saver/utils.py" "$folder/torch_memory_saver"
