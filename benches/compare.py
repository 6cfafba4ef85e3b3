"""Compares two outputs of `instructions.sh`: compare.py BEFORE AFTER.

Prints a table in Markdown. Fails if a count grew by more than 3 %, or if a case or a column is missing.
"""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT = 0.03


def counts(text: str) -> dict[str, list[float]]:
    """The counts of each case, one for each number of free blocks."""
    cases: dict[str, list[float]] = {}
    for line in text.splitlines()[1:]:
        name, *words = line.split()
        numbers = []
        for word in words:
            try:
                numbers.append(float(word))
            except ValueError:
                break
        if numbers:
            cases[name] = numbers
    return cases


def compare(before: dict[str, list[float]], after: dict[str, list[float]]) -> tuple[list[str], list[str]]:
    """Rows of the table, and what is wrong."""
    rows, wrong = [], []
    if not before:
        wrong.append("no counts before: valgrind is missing, or the benchmark failed")
    for name, old in before.items():
        new = after.get(name, [])
        if len(new) != len(old):
            wrong.append(f"{name}: {len(new)} counts after, {len(old)} before")
            continue
        for index, (one, two) in enumerate(zip(old, new)):
            change = two / one - 1
            rows.append(f"| {name} | {index + 1} | {one:.1f} | {two:.1f} | {change:+.1%} |")
            if change > LIMIT:
                wrong.append(f"{name}, column {index + 1}: {change:+.1%}, at most {LIMIT:+.0%} is accepted")
    return rows, wrong


def main() -> int:
    before, after = (counts(Path(name).read_text()) for name in sys.argv[1:3])
    rows, wrong = compare(before, after)
    print("| case | column | before | after | change |\n|---|--:|--:|--:|--:|")
    print("\n".join([*rows, "", *wrong]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
