#!/usr/bin/env python3
"""Draws benches/plots/hits.svg from benches/results/host/hit_pair.jsonl: hits.py [--check].

Million pairs of an allocation and a free a second, of all threads together, over the number of threads; both axes are logarithmic.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROWS = HERE.parent / "results/host/hit_pair.jsonl"
PICTURE = HERE / "hits.svg"
COLOURS = ["#1f5fa8", "#3a9188", "#c8501e", "#7d4fa8"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 340, 62, 330, 40, 44
TICKS = [0.1, 1, 10, 100, 1000, 10000]


def text(x: float, y: float, words: str, *, size: int = 12, anchor: str = "start", colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def picture() -> str:
    rows = [json.loads(line) for line in ROWS.read_text().splitlines() if line.startswith("{")]
    lines = {row["case"]: {int(count): int(count) * 1000 / ns for count, ns in row["threads"].items()} for row in rows}
    values = [value for points in lines.values() for value in points.values()]
    counts = sorted({count for points in lines.values() for count in points})
    ticks = [tick for tick in TICKS if min(values) / 10 < tick < max(values) * 10]
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(count: float) -> float:
        return LEFT + width * math.log(count / counts[0]) / math.log(counts[-1] / counts[0])

    def y(value: float) -> float:
        return TOP + height * (1 - math.log(value / ticks[0]) / math.log(ticks[-1] / ticks[0]))

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        text(LEFT, 20, "Hits of a pool: million pairs a second, all threads together", size=15),
    ]
    for tick in ticks:
        out.append(f'<line x1="{LEFT}" x2="{LEFT + width}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#eee"/>')
        out.append(text(LEFT - 6, y(tick) + 4, f"{tick:,g}", anchor="end"))
    for count in counts:
        out.append(text(x(count), HEIGHT - BOTTOM + 18, f"{count}", anchor="middle"))
    out.append(text(LEFT + width / 2, HEIGHT - 8, "threads", anchor="middle"))
    for (case, points), colour in zip(lines.items(), COLOURS, strict=True):
        path = " ".join(f"{x(count):.1f},{y(value):.1f}" for count, value in sorted(points.items()))
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x(count):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>' for count, value in points.items()]
        last = max(points)
        out.append(text(x(last) + 10, y(points[last]) + 4, f"{case}: {float(f'{points[last]:.3g}'):,g}", colour=colour))
    return "\n".join([*out, "</svg>", ""])


def written(drawn: str, picture: Path, source: Path) -> int:
    """Writes a picture, or with `--check` compares it. Returns the exit code."""
    if "--check" not in sys.argv[1:]:
        picture.write_text(drawn)
    elif drawn != picture.read_text():
        print(f"{picture} differs from {source}; run {sys.argv[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(written(picture(), PICTURE, ROWS))
