#!/usr/bin/env python3
"""Draws benches/plots/first_passes.svg from the table of largest pieces in benches/design_notes.md: first_passes.py [--check].

Reserved ÷ requested bytes over driver calls of first passes, a point for each largest piece of physical memory. The one in use has another colour.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from hits import text, written

HERE = Path(__file__).resolve().parent
NOTES = HERE.parent / "design_notes.md"
PICTURE = HERE / "first_passes.svg"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 340, 70, 400, 40, 48
CALLS, BYTES = (40_000, 100_000), (1.015, 1.027)


def picture() -> str:
    section = NOTES.read_text().split("## The largest piece of physical memory")[1].split("\n## ")[0]
    # Of six programs alone, a row is no point of this curve.
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if re.match(r"\| \**an? ", line) and "alone" not in line]

    def x(calls: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (calls - CALLS[0]) / (CALLS[1] - CALLS[0])

    def y(ratio: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (BYTES[1] - ratio) / (BYTES[1] - BYTES[0])

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        text(LEFT, 20, "First passes of 42 programs: reserved ÷ requested bytes, by the largest piece", size=15),
    ]
    for ratio in (1.015, 1.018, 1.021, 1.024, 1.027):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" stroke="#eee"/>')
        out.append(text(LEFT - 6, y(ratio) + 4, f"{ratio:.3f}", anchor="end"))
    for calls in range(CALLS[0], CALLS[1] + 1, 20_000):
        out.append(text(x(calls), HEIGHT - BOTTOM + 18, f"{calls:,}", anchor="middle"))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "driver calls", anchor="middle"))
    for number, (name, mean, _worst, above, calls, _graphs) in enumerate(sorted(rows, key=lambda row: row[4]), 1):
        at, is_used = (x(float(calls.replace(",", ""))), y(float(mean))), name.startswith("**")
        colour = "#c8501e" if is_used else "#1f5fa8"
        out.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{5 if is_used else 3}" fill="{colour}"/>')
        out.append(text(at[0] + 5, at[1] - 6, f"{number}", colour=colour))
        words = f"{number}  {name.strip('*')}" + (f" ({above} of 42 above 1.03)" if above not in ("", "0") else "")
        out.append(text(WIDTH - RIGHT + 30, TOP + 12 + 22 * number, words, colour=colour))
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    sys.exit(written(picture(), PICTURE, NOTES))
