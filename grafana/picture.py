#!/usr/bin/env python3
"""Draws parts of the dashboard without Grafana: picture.py [--check | --record LOAD PROMETHEUS SERVER SECONDS].

dashboard-healthy.svg is of a server whose limit suffices, dashboard-fault.svg of the same server under more than that.

The panels, their places, titles, units, expressions and legends are those of dashboards/vrampool.json. The values are those that a Prometheus had
for the expressions, kept in recorded-LOAD.json; lines of a right axis are left out. With `--record` requests of random sizes go to the example
`inference_server` at the address SERVER for SECONDS, and then the values of that time are asked of the Prometheus at the address PROMETHEUS. With
`--check` nothing is written; the pictures have to be those in the tree, and every expression has to be recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import json
import math
import random
import re
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DASHBOARD = HERE / "dashboards/vrampool.json"
#: The loads, and the bodies of their requests as powers of ten: the server takes 1,024 times as much memory, of 64 MiB.
LOADS = {"healthy": (1.0, 3.5), "fault": (3.5, 4.95)}

#: Rows of Grafana's grid that are drawn: the overview and the panels of memory, and those of waits and times.
BANDS = [(0, 33), (109, 133)]
COLUMN, ROW, GAP = 50, 32, 8
POINTS = 60
#: Most lines of a panel with a name below it.
NAMED = 5
#: What Grafana chooses for `$__rate_interval` is at least four scrapes.
RATE_INTERVAL = 20
ALERTS = 'ALERTS{alertname=~"Vrampool.+"}'
#: Grafana's colours of thresholds.
THRESHOLDS = {"green": "#73bf69", "yellow": "#f2cc0c", "red": "#f2495c", "blue": "#5794f2"}
COLOURS = ["#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#b877d9", "#8ab8ff", "#f2495c", "#96d98d"]
BACK, PANEL, TEXT, FAINT = "#111217", "#181b1f", "#d8d9da", "#8e8e96"

Json = dict[str, Any]


def panels() -> list[tuple[Json, int]]:
    """Those that are drawn, each with its row in the picture."""
    everything = json.loads(DASHBOARD.read_text())["panels"]
    drawn, above = [], 0
    for first, end in BANDS:
        drawn += [(panel, panel["gridPos"]["y"] - first + above) for panel in everything if first <= panel["gridPos"]["y"] < end]
        above += end - first
    return drawn


def expressions() -> list[str]:
    """Those of the panels, in order."""
    found = [target["expr"] for panel, _ in panels() for target in panel.get("targets", [])]
    return [*dict.fromkeys(found), ALERTS]


def send(server: str, seconds: int, sizes: tuple[float, float]) -> None:
    """Sends requests from eight threads, in waves. If they are large, some wait for memory, and some are refused."""
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        choose = random.Random(number)
        while (left := end - time.monotonic()) > 0:
            body = bytes(int(10 ** choose.uniform(*sizes)))
            # A refusal is an answer, too.
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(f"{server}/infer", data=body, timeout=30).close()
            time.sleep(choose.uniform(0, 0.1) * (1.2 + math.sin(left / 10)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def record(url: str, seconds: int, to: Path) -> None:
    """Asks a Prometheus for all expressions, with everything that the variables select."""
    end = time.time()
    step = seconds / POINTS
    recorded: Json = {"seconds": seconds, "expressions": {}}
    for expression in expressions():
        query = expression.replace("$__rate_interval", f"{RATE_INTERVAL}s").replace("$__range", f"{seconds}s")
        query = re.sub(r"\$(job|namespace|pod|rank|instance|pool|backend|device)\b", ".*", query)
        form = urllib.parse.urlencode({"query": query, "start": end - seconds, "end": end, "step": step})
        with urllib.request.urlopen(f"{url}/api/v1/query_range?{form}", timeout=30) as answer:
            result = json.load(answer)["data"]["result"]
        recorded["expressions"][expression] = [
            {
                "labels": {name: value for name, value in series["metric"].items() if name != "job"},
                "values": [[round(at - end + seconds, 1), float(f"{float(value):.4g}")] for at, value in series["values"]],
            }
            for series in result
        ]
    to.write_text(json.dumps(recorded, sort_keys=True, separators=(",", ":")).replace('],"', '],\n"') + "\n")


def shown(value: float, unit: str | None) -> str:
    """A value in a panel's unit."""
    if not math.isfinite(value):
        return "N/A"
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    if unit == "bytes":
        names, base = ["B", "KiB", "MiB", "GiB", "TiB"], 1024
    else:
        names, base = ["", "K", "M", "G"], 1000
    if unit == "s" and abs(value) < 1:
        names, base, value = ["ns", "µs", "ms"], 1000, 1e9 * value
    suffix = {"ops": " ops/s", "s": "" if names[0] else " s"}.get(unit or "", "")
    power = min(len(names) - 1, int(math.log(abs(value), base))) if abs(value) >= 1 else 0
    scaled = value / base**power
    # Three digits, and never as 1.02e+03.
    return f"{f'{scaled:,.0f}' if abs(scaled) >= 100 else f'{scaled:.3g}'} {names[power]}".rstrip() + suffix


def step(least: float, unit: str | None) -> float:
    """The least step of an axis that people write: 1, 2 or 5 of a power of ten, or a power of two of bytes."""
    if unit == "bytes":
        return float(2 ** math.ceil(math.log2(least)))
    power = 10 ** math.floor(math.log10(least))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= 0.999999 * least)


def text(x: float, y: float, words: str, size: int = 12, colour: str = TEXT, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">{html.escape(words)}</text>'


def legend(format: str, labels: Json) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), format)


def lines_of(panel: Json, recorded: Json) -> list[tuple[str, list[list[float]]]]:
    """The names and points of a panel's lines, without those of a right axis."""
    overrides = panel.get("fieldConfig", {}).get("overrides", [])
    right = {of["matcher"]["options"] for of in overrides if {"id": "custom.axisPlacement", "value": "right"} in of["properties"]}
    return [
        (legend(target.get("legendFormat", ""), series["labels"]), series["values"])
        for target in panel.get("targets", [])
        if target["refId"] not in right
        for series in recorded["expressions"][target["expr"]]
    ]


def graph(panel: Json, recorded: Json, box: tuple[float, float, float, float], unit: str | None) -> list[str]:
    x, y, width, height = box
    lines = lines_of(panel, recorded)
    left, top, bottom = x + 62, y + 34, y + height - 22 - 15 * min(NAMED, max(1, len(lines)))
    values = [value for _, points in lines for _, value in points if math.isfinite(value)]
    most = 1.0 if unit == "percentunit" else 4 * step(max(values, default=1.0) / 4 or 0.25, unit)
    out = []
    for part in range(5):
        at = bottom - (bottom - top) * part / 4
        out.append(f'<line x1="{left:.1f}" x2="{x + width - 12:.1f}" y1="{at:.1f}" y2="{at:.1f}" stroke="#2a2d33"/>')
        out.append(text(left - 6, at + 4, shown(most * part / 4, unit), 10, FAINT, "end"))
    for index, (name, points) in enumerate(lines):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(
            f"{left + (x + width - 12 - left) * at / recorded['seconds']:.1f},{bottom - (bottom - top) * min(value / most, 1):.1f}"
            for at, value in points
            if math.isfinite(value)
        )
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if index < NAMED:
            below = bottom + 20 + 15 * index
            last = shown(points[-1][1], unit) if points else ""
            out.append(f'<rect x="{left:.1f}" y="{below - 7:.1f}" width="12" height="3" fill="{colour}"/>')
            room = int((width - 100) / 6.2) - len(last) - 2
            out.append(text(left + 18, below, f"{name if len(name) <= room else name[: room - 1] + '…'}  {last}", 11))
    return out


def colour_of(panel: Json, value: float | None) -> str:
    """The colour of a value by the panel's thresholds."""
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    passed = [step["color"] for step in steps if step["value"] is None or (value is not None and value >= step["value"])]
    return THRESHOLDS.get(passed[-1], TEXT)


def picture(recorded: Json) -> str:
    width, height = 24 * COLUMN + GAP, sum(end - first for first, end in BANDS) * ROW + GAP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="Inter, Helvetica, Arial, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="{BACK}"/>',
    ]
    for panel, row in panels():
        place = panel["gridPos"]
        x, y = place["x"] * COLUMN + GAP, row * ROW + GAP
        w, h = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
        if panel["type"] == "row":
            out.append(text(x + 4, y + 16, panel["title"], 14))
            continue
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit")
        out.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="3" fill="{PANEL}" stroke="#25282d"/>')
        room = int(w / 7)
        title = panel["title"]
        out.append(text(x + 10, y + 20, title if len(title) <= room else title[: room - 1] + "…", 13))
        if panel["type"] == "stat":
            lines = [line for line in lines_of(panel, recorded) if line[1]]
            name, last = (lines[0][0], lines[0][1][-1][1]) if lines else ("", None)
            value = "No data" if last is None else shown(last, unit)
            size = min(30, int(1.6 * w / len(value)))
            out.append(text(x + w / 2, y + h / 2 + 18, value, size, colour_of(panel, last), "middle"))
            out.append(text(x + w / 2, y + h - 14, name[: int(w / 6)], 10, FAINT, "middle"))
        elif panel["type"] == "alertlist":
            names = sorted({f"{a['labels']['alertname']} ({a['labels']['alertstate']})" for a in recorded["expressions"][ALERTS]})
            for index, name in enumerate(names or ["No alerts"]):
                out.append(text(x + 14, y + 46 + 18 * index, name, 12))
        else:
            out += graph(panel, recorded, (x, y, w, h), unit)
    return "\n".join([*out, "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a picture differs")
    metavar = ("LOAD", "PROMETHEUS", "SERVER", "SECONDS")
    parser.add_argument("--record", nargs=4, metavar=metavar, help=f"record the values first; LOAD: {', '.join(LOADS)}")
    given = parser.parse_args()
    if given.record:
        load, prometheus, server, seconds = given.record
        send(server, int(seconds), LOADS[load])
        record(prometheus, int(seconds), HERE / f"recorded-{load}.json")
    faults = []
    for load in given.record[:1] if given.record else LOADS:
        source, target = HERE / f"recorded-{load}.json", HERE / f"dashboard-{load}.svg"
        recorded = json.loads(source.read_text())
        missing = [expression for expression in expressions() if expression not in recorded["expressions"]]
        faults += [f"{source.name} lacks {expression}; record again (grafana/README.md)" for expression in missing]
        if missing:
            continue
        drawn = picture(recorded)
        if not given.check:
            target.write_text(drawn)
        elif drawn != target.read_text():
            faults.append(f"{target} differs from the dashboard and its recording; run grafana/picture.py")
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    return min(1, len(faults))


if __name__ == "__main__":
    sys.exit(main())
