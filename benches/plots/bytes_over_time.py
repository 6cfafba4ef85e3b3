#!/usr/bin/env python3
"""Draws benches/plots/bytes_over_time.svg from benches/results: bytes_over_time.py [--check].

For two traces: the bytes that the program requests, the bytes that vrampool holds over virtual memory, both over time, and the most bytes that
each peer holds in a replay of the same trace, of which only the peak is known.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hits import text, written

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
PICTURE = HERE / "bytes_over_time.svg"
PANELS = {"gpt2": "GPT-2 training, lengths vary", "multistream": "two streams, sizes vary"}
PEERS = {"pytorch": "PyTorch", "rmm pool": "RMM pool", "cudaMallocAsync": "cudaMallocAsync"}
COLOURS = {"pytorch": "#c8501e", "rmm pool": "#7d4fa8", "cudaMallocAsync": "#4f7d3a"}
OURS, REQUESTED = "#1f5fa8", "#b9c4cf"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, GAP = 960, 380, 62, 16, 62, 44, 62


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def steps(points: list[tuple[float, float]]) -> str:
    """A line that keeps each height until the next point."""
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    return path + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:])


def panel(trace: str, title: str, left: float, width: float) -> list[str]:
    rows = [row for row in lines(RESULTS / "host/bytes_over_time.jsonl") if row["trace"] == trace]
    peaks: dict[str, int] = {}
    for row in lines(RESULTS / "gpu/peers.jsonl"):
        if row["case"] == f"{trace}.csv" and row["peer"] in PEERS:
            peaks[row["peer"]] = max(peaks.get(row["peer"], 0), row["peak_reserved"])
    unit, name = (2**30, "GiB") if max(peaks.values()) > 2**31 else (2**20, "MiB")
    most, end = 1.06 * max(peaks.values()), max(row["t_ms"] for row in rows)
    height = HEIGHT - TOP - BOTTOM

    def x(t_ms: float) -> float:
        return left + width * t_ms / end

    def y(count: float) -> float:
        return TOP + height * (1 - count / most)

    out = [text(left, TOP - 36, title, size=15)]
    tick = next(size for size in (1, 2, 4, 50, 100, 200, 250, 500) if most / unit / size <= 6)
    for number in range(0, int(most / unit) + 1, tick):
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{y(number * unit):.1f}" y2="{y(number * unit):.1f}" stroke="#eee"/>')
        out.append(text(left - 6, y(number * unit) + 4, f"{number}", anchor="end"))
    out.append(text(left - 6, TOP - 12, name, anchor="end"))
    requested = steps([(x(row["t_ms"]), y(row["requested"])) for row in rows])
    out.append(f'<path d="{requested}V{y(0):.1f}H{left:.1f}Z" fill="{REQUESTED}"/>')
    held = steps([(x(row["t_ms"]), y(row["reserved"])) for row in rows])
    out.append(f'<path d="{held}" fill="none" stroke="{OURS}" stroke-width="1.6"/>')
    for peer, peak in peaks.items():
        out.append(
            f'<line x1="{left}" x2="{left + width}" y1="{y(peak):.1f}" y2="{y(peak):.1f}" stroke="{COLOURS[peer]}" stroke-dasharray="6 4"/>'
        )
        out.append(text(left + width - 4, y(peak) - 4, f"{PEERS[peer]}, peak", anchor="end", colour=COLOURS[peer]))
    seconds = f"{end / 1000:.0f} s" if end >= 2000 else f"{end} ms"
    out += [text(left, HEIGHT - BOTTOM + 18, "0"), text(left + width, HEIGHT - BOTTOM + 18, seconds, anchor="end")]
    return out


def picture() -> str:
    width = (WIDTH - LEFT - RIGHT - GAP) / 2
    body = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    for number, (trace, title) in enumerate(PANELS.items()):
        body += panel(trace, title, LEFT + number * (width + GAP), width)
    base = HEIGHT - 10
    body += [
        f'<rect x="{LEFT}" y="{base - 10}" width="14" height="10" fill="{REQUESTED}"/>',
        text(LEFT + 20, base, "requested by the program"),
        f'<line x1="{LEFT + 190}" x2="{LEFT + 214}" y1="{base - 4}" y2="{base - 4}" stroke="{OURS}" stroke-width="2"/>',
        text(LEFT + 220, base, "held by vrampool over virtual memory"),
        f'<line x1="{LEFT + 460}" x2="{LEFT + 484}" y1="{base - 4}" y2="{base - 4}" stroke="#333" stroke-dasharray="6 4"/>',
        text(LEFT + 490, base, "held at most by a peer, in a replay of the same trace"),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    return "\n".join([head, *body, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.exit(written(picture(), PICTURE, RESULTS))
