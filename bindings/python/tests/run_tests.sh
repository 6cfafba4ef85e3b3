#!/usr/bin/env bash
# Builds the wheel, installs it into a clean environment, and runs the tests and the check of types there. On the
# simulated CUDA driver the tests run with one device and with two. Needs cargo, Python 3.10 or later, and the registries of
# both. The target folder is cargo's; the profile is the one that checks build anyway.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
export VRAMPOOL_PROFILE=${VRAMPOOL_PROFILE:-dev}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/env"
"$work/env/bin/pip" --disable-pip-version-check wheel --quiet --no-deps --wheel-dir "$work" .
"$work/env/bin/pip" --disable-pip-version-check install --quiet "$work"/vrampool-*.whl 'pytest>=8' 'mypy>=1.15' numpy 'pyright[nodejs]>=1.1.400'
# From elsewhere than the sources: what is tested is what was installed.
cp -r tests benches pyproject.toml hatch_build.py "$work"
cd "$work"
unset PYTHONPATH VRAMPOOL_LIBRARY
if [ -z "${VRAMPOOL_SIMULATOR:-}" ]; then
    env/bin/python -m pytest -q -p no:cacheprovider
else
    for devices in 1 2; do
        VRAMPOOL_SIMULATOR=$VRAMPOOL_SIMULATOR,devices=$devices env/bin/python -m pytest -q -p no:cacheprovider
    done
fi
env/bin/python -m mypy --cache-dir "$work/types" -p vrampool
env/bin/python -m mypy --cache-dir "$work/types" tests benches hatch_build.py
# Fields of ctypes' structures are made at run time, where a type checker sees none.
(cd tests && ../env/bin/python -m mypy.stubtest vrampool --concise --allowlist stubtest_allowlist.txt --ignore-unused-allowlist)
env/bin/pyright --pythonpath env/bin/python "$(env/bin/python -c 'import vrampool; print(*vrampool.__path__)')"
