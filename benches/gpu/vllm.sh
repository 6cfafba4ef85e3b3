#!/usr/bin/env bash
# Runs vLLM's tests of its memory allocator against vrampool's drop-in: vllm.sh WHEEL TEST_CUMEM. TEST_CUMEM is
# tests/basic_correctness/test_cumem.py of a checkout of vLLM; of vLLM itself nothing is needed, and tests with a model are left out.
# Needs a GPU, PyTorch and pytest. Each test and how it ended is printed.
set -euo pipefail
wheel=$(realpath "$1")
tests=$(realpath "$2")
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m zipfile -e "$wheel" "$work"
# The few names of vLLM that the file imports.
mkdir -p "$work/vllm/device_allocator" "$work/vllm/utils" "$work/suite/basic_correctness"
cat >"$work/vllm/__init__.py" <<'END'
class _NeedsModel:
    def __init__(self, *arguments, **named):
        raise RuntimeError("no model here")


LLM = SamplingParams = AsyncEngineArgs = AsyncLLMEngine = _NeedsModel
END
touch "$work/vllm/device_allocator/__init__.py"
echo 'from vrampool.vllm import *; from vrampool.vllm import CuMemAllocator' >"$work/vllm/device_allocator/cumem.py"
cat >"$work/vllm/platforms.py" <<'END'
class current_platform:
    device_type = "cuda"

    @staticmethod
    def is_rocm():
        return False

    @staticmethod
    def is_cuda():
        return True

    @staticmethod
    def is_xpu():
        return False

    @staticmethod
    def mem_get_info():
        import torch

        return torch.cuda.mem_get_info()
END
echo 'GiB_bytes = 1 << 30' >"$work/vllm/utils/__init__.py"
cp "$work/vllm/utils/__init__.py" "$work/vllm/utils/mem_constants.py"
mkdir -p "$work/vllm/engine"
touch "$work/vllm/engine/__init__.py"
echo 'from vllm import AsyncEngineArgs' >"$work/vllm/engine/arg_utils.py"
touch "$work/suite/__init__.py" "$work/suite/basic_correctness/__init__.py"
cat >"$work/suite/utils.py" <<'END'
import functools
import multiprocessing
import os
import sys
import traceback

# As vLLM's own: an allocator is for a process. A child is forked before CUDA is used.


def _in_child(test, arguments, named):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            test(*arguments, **named)
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"


def create_new_process_for_each_test(method=None):
    def decorate(test):
        @functools.wraps(test)
        def inner(*arguments, **named):
            _in_child(test, arguments, named)

        return inner

    return decorate


def requires_fp8(test):
    import pytest

    return pytest.mark.skip(reason="needs a model")(test)


def large_gpu_mark(*_arguments, **_named):
    import pytest

    return pytest.mark.skip(reason="needs a model")
END
cp "$tests" "$work/suite/basic_correctness/test_cumem.py"
cd "$work"
PYTHONPATH="$work" "$python" -m pytest -v -rA -p no:cacheprovider --rootdir "$work" suite/basic_correctness/test_cumem.py \
    -k "not end_to_end and not deep_sleep"
