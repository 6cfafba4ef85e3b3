"""A folder in which vLLM's tests of its memory allocator run without vLLM: tree.py SOURCES FOLDER.

SOURCES has vLLM's source package, or the files of it that `FILES` lists. They are copied as they are. What they import beside each other is
replaced by the few names that they use. VRAMPOOL_VLLM selects what vrampool replaces when the tests run: `extension` or `class`.
"""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path

TEST = "tests/basic_correctness/memory/cumem/test_cumem.py"

#: Files of vLLM that are used as they are.
FILES = (
    TEST,
    "vllm/compilation/cudagraph_pool.py",
    "vllm/device_allocator/__init__.py",
    "vllm/device_allocator/alloc_conf.py",
    "vllm/device_allocator/cumem.py",
    "vllm/device_allocator/sleep_mode_backend.py",
    "vllm/distributed/device_communicators/cuda_wrapper.py",
    "vllm/v1/worker/workspace.py",
)

#: The sources of vLLM's own extension module, with which vrampool's is compared.
EXTENSION = ("csrc/cumem_allocator.cpp", "csrc/cumem_allocator_compat.h")

#: A file of which some functions are used: its imports need all of vLLM.
LIBRARIES = ("vllm/utils/system_utils.py", ("find_loaded_libraries", "find_loaded_library"))

STUBS = {
    "vllm/__init__.py": """
class _NeedsModel:
    def __init__(self, *arguments, **named):
        raise RuntimeError("there is no model here")


LLM = SamplingParams = _NeedsModel
""",
    "vllm/config.py": "class VllmConfig:\n    use_cumem_cudagraph_pool = False\n",
    "vllm/distributed/device_communicators/pynccl_allocator.py": """
_graph_pool_id = None


def set_graph_pool_id(graph_pool_id):
    global _graph_pool_id
    _graph_pool_id = graph_pool_id
""",
    "vllm/envs.py": """
import os


def __getattr__(name):
    if not name.startswith("VLLM_"):
        raise AttributeError(name)
    return os.environ.get(name)
""",
    "vllm/logger.py": "import logging\n\n\ndef init_logger(name):\n    return logging.getLogger(name)\n",
    "vllm/platforms.py": """
class _Platform:
    device_type = "cuda"

    def is_cuda(self):
        return True

    def is_cuda_alike(self):
        return True

    def is_cpu(self):
        return False

    def is_rocm(self):
        return False

    def is_xpu(self):
        return False

    def graph_pool_handle(self):
        import torch

        return torch.cuda.graph_pool_handle()


current_platform = _Platform()
""",
    "vllm/utils/math_utils.py": "def round_up(x, y):\n    return (x + y - 1) // y * y\n",
    "vllm/utils/torch_utils.py": "PIN_MEMORY = True\n",
    "vllm/v1/worker/ubatching.py": "def dbo_current_ubatch_id():\n    return 0\n",
    "tests/conftest.py": """
import os

# As vLLM calls it in each of its processes.
from vrampool import vllm_plugin

vllm_plugin.register()
if os.environ["VRAMPOOL_VLLM"] == "class":
    import vrampool.vllm
    from vllm.distributed.device_communicators.cuda_wrapper import CudaRTLibrary

    # A test sets memory by it.
    vrampool.vllm.libcudart = CudaRTLibrary()
""",
    "tests/utils.py": """
import functools
import os
import sys
import traceback


def create_new_process_for_each_test(method=None):
    # As vLLM's own: a child is forked before CUDA is used.
    def decorate(test):
        @functools.wraps(test)
        def inner(*arguments, **named):
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

        return inner

    return decorate
""",
}


def functions_of(file: Path, names: tuple[str, ...]) -> str:
    """The text of some functions of a file."""
    text = file.read_text()
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name in names]
    return "\n\n".join(ast.get_source_segment(text, node) or "" for node in found) + "\n"


def make(sources: Path, folder: Path) -> None:
    """Writes the folder."""
    texts = {LIBRARIES[0]: functions_of(sources / LIBRARIES[0], LIBRARIES[1]), **STUBS}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.lstrip("\n"))
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(sources / name, folder / name)
    for package in ("tests", "vllm"):
        for part in (folder / package, *(folder / package).rglob("*")):
            if part.is_dir() and part.name != "__pycache__":
                (part / "__init__.py").touch()


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
