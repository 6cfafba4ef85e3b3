"""One example of torch_memory_saver's, over vrampool: example.py FILE MODE [EXPECTED_ERROR]."""

from __future__ import annotations

import importlib.util
import sys

import torch


def use_memory_info() -> None:
    """Used memory by the driver, where the module is missing by which PyTorch asks for it."""

    def used(device: int = 0) -> int:
        free, total = torch.cuda.mem_get_info(device)
        return total - free

    if importlib.util.find_spec("pynvml") is None:
        torch.cuda.device_memory_used = used


def main() -> int:
    """0 when it runs to its end, or fails with the error that is expected."""
    file, mode, *expected = sys.argv[1:]
    use_memory_info()
    spec = importlib.util.spec_from_file_location("example", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        module.run(hook_mode=mode)
    except Exception as error:
        if expected and type(error).__name__ == expected[0]:
            print(f"expected: {error}")
            return 0
        raise
    return 1 if expected else 0


if __name__ == "__main__":
    sys.exit(main())
