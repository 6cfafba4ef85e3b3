"""The settings of PyTorch's own allocator, which programs have in their environment."""

from __future__ import annotations

import logging
import os
import re
from typing import Any

_log = logging.getLogger("vrampool")
#: Of the allocator of host memory, which stays PyTorch's; and what this pool always does.
_KEPT = re.compile(r"pinned_|expandable_segments$")


def take_over(torch: Any, has_limit: bool) -> None:
    """Applies `PYTORCH_CUDA_ALLOC_CONF`: the memory fraction becomes the limit, where there is no other. Options without a meaning for
    this pool are named in a warning.
    """
    text = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    # A value may be a list with commas.
    options = dict(re.findall(r"(\w+)\s*:\s*(\[[^\]]*\]|[^,]*)", text))
    fraction = options.pop("per_process_memory_fraction", None)
    if fraction is not None and not has_limit:
        torch.cuda._lazy_call(lambda: [torch.cuda.set_per_process_memory_fraction(float(fraction), i) for i in range(torch.cuda.device_count())])
    if unused := [name for name in options if not _KEPT.match(name)]:
        _log.warning("PYTORCH_CUDA_ALLOC_CONF: %s have no meaning for vrampool, which places memory differently", ", ".join(unused))
