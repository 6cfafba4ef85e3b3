"""What is there, and what is served to Prometheus."""

from __future__ import annotations

from . import _arguments
from ._library import LIBRARY, PATH
from .errors import UnavailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def devices() -> dict[str, Any]:
    """What devices there are, without opening any, and why the rest is not:
    `{"devices": [{"name", "backend", "device", "kind", "total_bytes"}], "absent": [{"backend", "reason"}]}`."""
    return dict(LIBRARY.json("devices"))


def get_include() -> str:
    """The folder of `vrampool.h`, for a compiler's `-I`.

    Raises: `UnavailableError` when the package was installed without the header.
    """
    from pathlib import Path

    package = Path(__file__).resolve().parent
    # The second one is that of the repository, for an editable install.
    for folder in (package / "include", *(parent / "bindings/c/include" for parent in package.parents[3:4])):
        if (folder / "vrampool.h").is_file():
            return str(folder)
    raise UnavailableError(f"{package / 'include'} has no vrampool.h; install vrampool from a wheel, or use the C library")


def get_library() -> str:
    """The file that has the functions of `vrampool.h`, for `ctypes.CDLL`, cffi's `dlopen`, and `dlopen` of C code in this process. Pools of
    such code and of this package are the same ones. The file takes Python's functions from the interpreter, so a program without Python
    links the C library instead."""
    return PATH


def start_metrics(address: str = "127.0.0.1:9184") -> str:
    """Serves all pools, those made later too, to Prometheus at `http://ADDRESS/metrics`; figures are computed when they are scraped.
    Port 0 lets the system choose a free port. Returns the address.

    Raises: `BusyError` when metrics are served already, `Error` when the address is not available.
    """
    return LIBRARY.text("start_metrics_at", _arguments.text(address, "address"))


def stop_metrics() -> None:
    """Stops serving. Fine when it does not."""
    LIBRARY.call("stop_metrics")
