"""What is there, and what is served to Prometheus."""

from __future__ import annotations

from typing import Any

from ._library import LIBRARY


def devices() -> dict[str, Any]:
    """What devices there are, without opening any, and why the rest is not:
    `{"devices": [{"name", "backend", "device", "kind", "total_bytes"}], "absent": [{"backend", "reason"}]}`."""
    return dict(LIBRARY.json("devices"))


def library_version() -> str:
    """The version of the library that is loaded."""
    return str(LIBRARY.plain["version"]().decode())


def start_metrics(address: str = "127.0.0.1:9184") -> None:
    """Serves all pools, those made later too, to Prometheus at `http://ADDRESS/metrics`.

    Raises: `BusyError` when it serves already, `Error` when the address cannot be had.
    """
    LIBRARY.call("start_metrics", address.encode())


def stop_metrics() -> None:
    """Stops serving. Fine when it does not."""
    LIBRARY.call("stop_metrics")
