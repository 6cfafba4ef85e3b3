"""Writes the tables of the documentation from the results of run.sh: tables.py RESULTS README...

Where a file has `<!-- gpu: NAME -->` and `<!-- end -->`, what is between them is replaced by the table of that name. With `--check`
nothing is written, and a difference is an error.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: In the order of their columns.
PEERS = ["vrampool", "vrampool, direct", "pytorch", "rmm pool", "rmm arena", "rmm binning", "cudaMallocAsync", "cudaMalloc"]
OURS = PEERS[0]
#: Of each case in which a peer is ahead, why.
REASONS = Path(__file__).parent / "behind.json"

Row = dict[str, Any]


def lines(path: Path) -> list[Row]:
    """The objects of a file, one a line."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def markdown(head: list[str], body: list[list[str]]) -> str:
    """A table."""
    rows = [head, ["---"] + ["---:"] * (len(head) - 1), *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def compared(rows: list[Row], value: Callable[[Row], float | None], digits: int) -> str:
    """A row for each case and a column for each peer; each with how many times ours it is."""
    cases: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        number = value(row)
        if number is not None:
            cases.setdefault(row["case"], {}).setdefault(row["peer"], []).append(number)
    body = []
    for case, found in cases.items():
        # Each ran twice.
        best = {peer: min(numbers) for peer, numbers in found.items()}
        cells = []
        for peer in PEERS:
            cell = "" if peer not in best else f"{best[peer]:,.{digits}f}"
            if peer != OURS and cell and best.get(OURS):
                cell += f" ({best[peer] / best[OURS]:.2f} ×)"
            cells.append(cell)
        body.append([case, *cells])
    return markdown(["", *PEERS], body)


def behind(rows: list[Row]) -> dict[str, list[str]]:
    """The cases in which a peer takes less time than vrampool over virtual memory, and those peers."""
    best: dict[str, dict[str, float]] = {}
    for row in rows:
        case = f"{row['case']}, {row['pass']} pass" if "pass" in row else row["case"]
        number = row.get("ns", row.get("ns_per_op"))
        if number is not None:
            of_case = best.setdefault(case, {})
            of_case[row["peer"]] = min(number, of_case.get(row["peer"], number))
    found: dict[str, list[str]] = {}
    for case, numbers in best.items():
        ahead = [peer for peer in PEERS[2:] if peer in numbers and numbers[peer] < numbers.get(OURS, 0)]
        if ahead:
            found[case] = ahead
    return found


def explained(rows: list[Row], reasons: dict[str, str]) -> str:
    """A row for each case in which a peer is ahead, with the reason."""
    body = [[case, ", ".join(peers), reasons.get(case, "")] for case, peers in behind(rows).items()]
    return markdown(["case", "ahead of vrampool", "reason"], body)


def tables(results: Path) -> dict[str, str]:
    """All of them, by name."""
    made: dict[str, str] = {}
    peers = results / "peers.jsonl"
    if peers.exists():
        rows = lines(peers)
        patterns = [row for row in rows if "ns" in row]
        warm = [row for row in rows if row.get("pass") == "warm"]
        made["pairs"] = compared(patterns, lambda row: row["ns"], 1)
        made["behind"] = explained(rows, json.loads(REASONS.read_text()))
        made["first"] = compared([row for row in rows if row.get("pass") == "first"], lambda row: row["ns_per_op"], 0)
        made["traces"] = compared(warm, lambda row: row["ns_per_op"], 0)
        held = [row for row in warm if row["peak_reserved"]]
        made["held"] = compared(held, lambda row: row["peak_reserved"] / row["peak_requested"], 3)
    of_parts: dict[str, list[Row]] = {}
    for row in lines(results / "results.jsonl"):
        of_parts.setdefault(row["part"], []).append(row)
    body = []
    for part, rows in of_parts.items():
        counts = [str(sum(row["outcome"] == outcome for row in rows)) for outcome in ("passed", "failed", "not run")]
        seconds = statistics.fsum(row["seconds"] for row in rows)
        wrong = ", ".join(row["name"] for row in rows if row["outcome"] != "passed")
        body.append([part, *counts, f"{seconds:.0f}", wrong])
    made["runs"] = markdown(["part", "passed", "failed", "not run", "s", "which"], body)
    first = next(iter(of_parts.values()))[0]
    of_commits: dict[str, list[str]] = {}
    for part, rows in of_parts.items():
        for commit in dict.fromkeys(row["commit"] for row in rows):
            of_commits.setdefault(commit, []).append(part)
    commits = "; ".join(f"commit {commit}: {', '.join(parts)}" for commit, parts in of_commits.items())
    made["machine"] = f"{first['gpu']}, driver {first['driver']}, {first['date']}. {commits[0].upper()}{commits[1:]}."
    return made


def main() -> int:
    """1 with `--check` when a file is not what the results say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--behind", action="store_true", help="fail where a peer is ahead in a case that behind.json does not explain")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a table differs")
    given = parser.parse_args()
    if given.behind:
        found = behind(lines(given.results / "peers.jsonl"))
        missing = {case: peers for case, peers in found.items() if not json.loads(REASONS.read_text()).get(case)}
        for case, peers in found.items():
            print(f"{case}: {', '.join(peers)} ahead{', unexplained' if case in missing else ''}")
        return 1 if missing else 0
    made = tables(given.results)
    if not given.files:
        print("\n\n".join(f"{name}\n\n{text}" for name, text in made.items()))
    status = 0
    for path in given.files:
        text = path.read_text()

        def replaced(found: re.Match[str]) -> str:
            name = found[1]
            return f"<!-- gpu: {name} -->\n\n{made[name]}\n\n<!-- end -->" if name in made else found[0]

        new = re.sub(r"<!-- gpu: ([a-z]+) -->\n.*?<!-- end -->", replaced, text, flags=re.DOTALL)
        if new != text and given.check:
            print(f"{path} differs from the results in {given.results}", file=sys.stderr)
            status = 1
        elif new != text:
            path.write_text(new)
    return status


if __name__ == "__main__":
    sys.exit(main())
