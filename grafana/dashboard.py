#!/usr/bin/env python3
"""Writes dashboards/vrampool.json from panels.json. With `--check` it has to be up to date.

A panel has what its type in `types` has, and its own keys over that, level by level. `at` is its column, row, width and height. A target is an expression, its
legend, and its letter if that is not the next. In expressions `@pool`, `@broker` and `@sleeper` are the variables that select one. `sizes` names series by
the bytes of their bucket.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DASHBOARD = HERE / "dashboards/vrampool.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
BEFORE, BEHIND = ["job", "namespace", "pod", "rank", "instance"], ["backend", "device"]
SIZES = [(1 << power, f"{1 << power % 10} {unit}") for unit, first in [("KiB", 10), ("MiB", 20), ("GiB", 30)] for power in range(first, first + 10)][:25]


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {key: merged(base[key], over[key]) for key in over if isinstance(base.get(key), dict)}
    return base | over | both


def selected(expression: str) -> str:
    """The expression with the variables of the dashboard as matchers."""

    def matchers(name: re.Match[str]) -> str:
        return ",".join(f'{label}=~"${label}"' for label in [*BEFORE, name[1], *BEHIND])

    return re.sub("@(pool|broker|sleeper)", matchers, expression)


def target(place: int, kind: str, expression: str, legend: str, letter: str | None = None) -> dict[str, Any]:
    instant = kind in ("stat", "table")
    return {
        "refId": letter or chr(ord("A") + place),
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": selected(expression),
        "legendFormat": legend,
        "instant": instant,
        "range": not instant,
    } | ({"format": "table"} if kind == "table" else {})


def panel(types: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    kind = own.pop("type", "timeseries")
    x, y, w, h = own.pop("at")
    targets, sizes = own.pop("targets", None), own.pop("sizes", False)
    made = {"id": own["id"], "type": kind} | merged(types.get(kind, {}), own) | {"gridPos": {"h": h, "w": w, "x": x, "y": y}}
    if targets is not None:
        made |= {"datasource": SOURCE, "targets": [target(place, kind, *parts) for place, parts in enumerate(targets)]}
    if sizes:
        named = [{"matcher": {"id": "byName", "options": str(size)}, "properties": [{"id": "displayName", "value": name}]} for size, name in SIZES]
        made["fieldConfig"]["overrides"] = named + made["fieldConfig"]["overrides"]
    return made


def variable(own: dict[str, Any]) -> dict[str, Any]:
    if own.get("type") == "datasource":
        return own
    every = {"type": "query", "datasource": SOURCE, "refresh": 2, "sort": 7, "multi": True, "includeAll": True, "allValue": ".*"}
    query = {"query": own["query"], "qryType": 1, "refId": "VariableQuery"}
    return own | every | {"query": query, "current": {"text": ["All"], "value": ["$__all"]}, "options": [], "hide": 0}


source = json.loads((HERE / "panels.json").read_text())
dashboard = source["dashboard"] | {
    "templating": {"list": [variable(own) for own in source["variables"]]},
    "panels": [panel(source["types"], own) for own in source["panels"]],
}
text = json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"
if sys.argv[1:] == ["--check"]:
    sys.exit(None if DASHBOARD.read_text() == text else f"{DASHBOARD.name} is stale: run grafana/dashboard.py")
DASHBOARD.write_text(text)
