"""What is there, and what is served to Prometheus."""

from __future__ import annotations

from typing import Any

from . import _arguments
from ._library import LIBRARY


def devices() -> dict[str, Any]:
    """What devices there are, without opening any, and why the rest is not:
    `{"devices": [{"name", "backend", "device", "kind", "total_bytes"}], "absent": [{"backend", "reason"}]}`."""
    return dict(LIBRARY.json("devices"))


def library_version() -> str:
    """The version of the library that is loaded."""
    return str(LIBRARY.plain["version"]().decode())


def start_metrics(address: str = "127.0.0.1:9184") -> str:
    """Serves all pools, those made later too, to Prometheus at `http://ADDRESS/metrics`; figures are computed when they are scraped.
    Port 0 lets the system choose a free port. Returns the address.

    Raises: `BusyError` when metrics are served already, `Error` when the address is not available.
    """
    return LIBRARY.text("start_metrics_at", _arguments.text(address, "address"))


def stop_metrics() -> None:
    """Stops serving. Fine when it does not."""
    LIBRARY.call("stop_metrics")
