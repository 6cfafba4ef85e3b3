#!/usr/bin/env python3
"""Writes the tables and figures of the documentation from benches/results: tables.py [--check] [FILE...].

Where a file has `<!-- table: NAME -->` and `<!-- end -->`, the text between them is replaced by the table of that name, and where a line
has `<!-- figure: NAME -->` and `<!-- end -->`, by the figure of that name. With `--check` nothing is written, and a difference is an error.
Without FILE: all Markdown of the tree. `--gpu FOLDER` takes the results of `benches/gpu/run.sh` from another folder.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches/results"

#: In the order of their columns.
PEERS = ["vrampool", "vrampool, direct", "pytorch", "rmm pool", "rmm arena", "rmm binning", "cuArena", "cudaMallocAsync", "cudaMalloc"]
OURS = PEERS[0]
#: Of each case in which a peer is ahead, why.
REASONS = ROOT / "benches/gpu/behind.json"
#: A single range without streams. Reasons for the other peers do not apply to it; its own are under `CASE, cuArena`.
SINGLE_RANGE = "cuArena"
#: What these hold is not known: the benchmark reports the size that it chose for them.
UNKNOWN = {"rmm arena", "rmm binning", "cuArena"}

#: In the order of columns and rows, each with its words.
TRACES = {
    "resnet50": "ResNet-50 training",
    "gpt2": "GPT-2 training, lengths vary",
    "serve_mixed": "serving, lengths vary",
    "multistream": "two streams, sizes vary",
}

#: What was recorded, in full.
PROGRAMS = {
    "resnet50": "ResNet-50 training, batch 64, bf16, 8 steps",
    "gpt2": "GPT-2 training, batch 8, lengths 96 to 1,024, 10 steps",
    "serve_mixed": "requests of random lengths come and go, growing key/value tensors",
    "multistream": "two streams that hand tensors over (`record_stream`)",
}

Row = dict[str, Any]


def lines(path: Path) -> list[Row]:
    """The objects of a file, one a line."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def markdown(head: list[str], body: Iterable[list[str]], words: int = 1) -> str:
    """A table, whose first `words` columns are text."""
    rows = [head, ["---"] * words + ["---:"] * (len(head) - words), *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def number(value: float | None) -> str:
    """Three significant digits at most, and nothing for what is not known."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def span(values: Iterable[float]) -> str:
    """The least and the most of them."""
    found = sorted(values)
    return f"{found[0]:,.0f} to {found[-1]:,.0f}"


def compared(rows: list[Row], value: Callable[[Row], float | None], digits: int) -> str:
    """A row for each case and a column for each peer that has a figure: the least, its ratio to ours, and the most if that is 1.1 times as much."""
    cases: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        figure = value(row)
        if figure is not None:
            cases.setdefault(row["case"], {}).setdefault(row["peer"], []).append(figure)
    peers = [peer for peer in PEERS if any(peer in found for found in cases.values())]
    body = []
    for case, found in cases.items():
        best = {peer: min(numbers) for peer, numbers in found.items()}
        cells = []
        for peer in peers:
            cell = "" if peer not in best else f"{best[peer]:,.{digits}f}"
            if peer != OURS and cell and best.get(OURS):
                cell += f" ({best[peer] / best[OURS]:.2f} ×)"
            if cell and max(found[peer]) >= 1.1 * best[peer]:
                cell += f" to {max(found[peer]):,.{digits}f}"
            cells.append(cell)
        body.append([case, *cells])
    return markdown(["", *peers], body)


def behind(rows: list[Row]) -> dict[str, list[str]]:
    """Where a peer takes less time than vrampool over virtual memory: those peers, by what names their reason."""
    best: dict[str, dict[str, float]] = {}
    for row in rows:
        case = f"{row['case']}, {row['pass']} pass" if "pass" in row else row["case"]
        figure = row.get("ns", row.get("ns_per_op"))
        if figure is not None:
            of_case = best.setdefault(case, {})
            of_case[row["peer"]] = min(figure, of_case.get(row["peer"], figure))
    found: dict[str, list[str]] = {}
    for case, figures in best.items():
        for peer in PEERS[2:]:
            if peer in figures and figures[peer] < figures.get(OURS, 0):
                found.setdefault(f"{case}, {peer}" if peer == SINGLE_RANGE else case, []).append(peer)
    return found


def explained(rows: list[Row], reasons: dict[str, str]) -> str:
    """A row for each case in which a peer is ahead, with the reason."""
    body = [[case.removesuffix(f", {SINGLE_RANGE}"), ", ".join(peers), reasons.get(case, "")] for case, peers in behind(rows).items()]
    return markdown(["case", "ahead of vrampool", "reason"], body, words=3)


def gpu(results: Path) -> dict[str, str]:
    """The tables of a run of benches/gpu/run.sh."""
    made: dict[str, str] = {}
    peers = results / "peers.jsonl"
    if peers.exists():
        rows = lines(peers)
        patterns = [row for row in rows if "ns" in row]
        warm = [row for row in rows if row.get("pass") == "warm"]
        made["gpu-pairs"] = compared(patterns, lambda row: row["ns"], 1)
        made["gpu-behind"] = explained(rows, json.loads(REASONS.read_text()))
        for name in ("first", "cold"):
            made[f"gpu-{name}"] = compared([row for row in rows if row.get("pass") == name], lambda row: row["ns_per_op"], 0)
        made["gpu-traces"] = compared(warm, lambda row: row["ns_per_op"], 0)
        held = [row for row in warm if row["peak_reserved"] and row["peer"] not in UNKNOWN]
        made["gpu-held"] = compared(held, lambda row: row["peak_reserved"] / row["peak_requested"], 3)
    of_parts: dict[str, list[Row]] = {}
    for row in lines(results / "results.jsonl"):
        of_parts.setdefault(row["part"], []).append(row)
    body = []
    for part, rows in of_parts.items():
        counts = [str(sum(row["outcome"] == outcome for row in rows)) for outcome in ("passed", "failed", "not run")]
        seconds = statistics.fsum(row["seconds"] for row in rows)
        wrong = ", ".join(row["name"] for row in rows if row["outcome"] != "passed")
        body.append([part, *counts, f"{seconds:.0f}", wrong])
    made["gpu-runs"] = markdown(["part", "passed", "failed", "not run", "s", "which"], body)
    of_runs: dict[str, list[str]] = {}
    for part, rows in of_parts.items():
        runs = (f"{row['gpu']}, driver {row['driver']}, {row['date']}, commit {row['commit']}" for row in rows)
        for run in dict.fromkeys(runs):
            of_runs.setdefault(run, []).append(part)
    made["gpu-machine"] = "\n".join(f"* {run}: {', '.join(parts)}" for run, parts in of_runs.items())
    return made


class Replayed:
    """Bytes reserved over bytes requested, and times, of one run of replays; by peer and trace."""

    def __init__(self, rows: list[Row], trace: Callable[[Row], str]) -> None:
        self.held: dict[str, dict[str, float]] = {}
        self.times: dict[str, dict[str, float]] = {}
        #: The higher time, of what ran twice.
        self.higher: dict[str, dict[str, float]] = {}
        for row in rows:
            of, peer = trace(row), row["peer"]
            if row["peak_reserved"] and peer not in UNKNOWN:
                most = self.held.setdefault(peer, {})
                most[of] = max(most.get(of, 0.0), row["peak_reserved"] / row["peak_requested"])
            if row["pass"] == "warm":
                least = self.times.setdefault(peer, {})
                least[of] = min(least.get(of, math.inf), row["ns_per_op"])
                higher = self.higher.setdefault(peer, {})
                higher[of] = max(higher.get(of, 0.0), row["ns_per_op"])


def rust_peers() -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """What Rust's allocators hold at most, and the median of their fastest round, by peer and trace."""
    held: dict[str, dict[str, float]] = {}
    times: dict[str, dict[str, list[float]]] = {}
    for row in lines(RESULTS / "peers/rust_peers.jsonl"):
        most = held.setdefault(row["peer"], {})
        most[row["trace"]] = max(most.get(row["trace"], 0.0), row["cold_ratio"], row["warm_ratio"])
        times.setdefault(row["peer"], {}).setdefault(row["trace"], []).append(row["warm_ns_per_op"])
    fastest = {peer: {of: min(found) for of, found in of_traces.items()} for peer, of_traces in times.items()}
    return held, fastest


def recorded() -> dict[str, dict[str, float]]:
    """Bytes that PyTorch's own allocator reserved for the recorded programs, over the bytes requested."""
    default = {}
    for trace in TRACES:
        run = json.loads((ROOT / f"benches/traces/{trace}.json").read_text())
        default[trace] = run["torch_peak_reserved"] / run["peak_requested"]
    expandable = {row["trace"]: row["ratio"] for row in lines(RESULTS / "peers/expandable_segments.jsonl")}
    return {"default": default, "expandable": expandable}


def percent(ratio: float) -> str:
    """How much the ratio is above one, rounded up."""
    return f"{math.ceil(1000 * (ratio - 1)) / 10:.1f} %"


def ratios(of_traces: dict[str, float] | None, digits: int = 3) -> list[str]:
    """A cell for each trace."""
    return [f"{of_traces[trace]:.{digits}f}" if of_traces and trace in of_traces else "" for trace in TRACES]


def held_by_vrampool() -> dict[str, float]:
    """Bytes reserved over bytes requested with virtual memory, which are the same on every machine."""
    rows = [row for row in lines(RESULTS / "host/size_classes.jsonl") if row["choice"] == "virtual" and row["pass"] == "cold"]
    return {row["trace"]: row["peak_reserved"] / row["peak_requested"] for row in rows}


def peers(folder: Path) -> dict[str, str]:
    """Bytes and time beside peers, and the figures that the front page names."""
    h200 = Replayed([row for row in lines(folder / "peers.jsonl") if "pass" in row], lambda row: row["case"].removesuffix(".csv"))
    rust_held, rust_times = rust_peers()
    runs = recorded()

    def row(name: str, held: dict[str, float] | None, times: dict[str, float] | None) -> list[str]:
        return [name, *ratios(held), span(times.values()) if times else ""]

    cubecl = "cubecl-0.11-adaptive"
    made = {
        "peers": markdown(
            ["bytes reserved ÷ requested", "ResNet-50", "GPT-2", "serving", "two streams", "ns an operation"],
            [
                row("**vrampool**, virtual memory", held_by_vrampool(), h200.times["vrampool"]),
                row("PyTorch 2.11", h200.held["pytorch"], h200.times["pytorch"]),
                row("PyTorch, expandable segments", runs["expandable"], None),
                row("RMM pool", h200.held["rmm pool"], h200.times["rmm pool"]),
                row("cudaMallocAsync", h200.held["cudaMallocAsync"], h200.times["cudaMallocAsync"]),
                row("cuArena", None, h200.times["cuArena"]),
                row("CubeCL 0.11", rust_held[cubecl], rust_times[cubecl]),
            ],
        ),
        "bases": markdown(
            ["bytes reserved ÷ requested", *TRACES],
            [
                ["PyTorch 2.11, the program's run", *ratios(runs["default"])],
                ["PyTorch 2.11, replay of its trace", *ratios(h200.held["pytorch"])],
                ["expandable segments, the program's run", *ratios(runs["expandable"])],
            ],
        ),
    }
    body = [
        [peer, *ratios(rust_held[peer]), *(number(rust_times[peer][trace]) for trace in TRACES)]
        for peer in rust_times
    ]
    made["rust-peers"] = markdown(["", *TRACES, *(f"{trace}, ns" for trace in TRACES)], body)
    made["worst"] = percent(max(held_by_vrampool().values()))
    made["pytorch-run"] = f"{max(runs['default'].values()):.2f}"
    first = [row["ns_per_op"] for row in lines(folder / "peers.jsonl") if row.get("pass") == "first" and row["peer"] == "vrampool"]
    made["vrampool-first-ns"] = span(first)
    runs_of = Counter(row["peer"] for row in lines(folder / "peers.jsonl") if row.get("pass") == "warm" and row["case"] == "gpt2.csv")
    times = {1: "once", 2: "twice", 6: "six times"}
    made["runs-of-vrampool"] = times[runs_of["vrampool"]]
    made["runs-of-peers"] = times[runs_of["pytorch"]]
    made["vrampool-higher-ns"] = span(h200.higher["vrampool"].values())
    made["vrampool-cpu-ns"] = span(rust_times["vrampool-virtual"].values())
    body = []
    for trace, words in PROGRAMS.items():
        run = json.loads((ROOT / f"benches/traces/{trace}.json").read_text())
        events = f"{run['allocs'] + run['frees']:,}"
        requested = f"{run['peak_requested'] / 2**30:.2f} GiB"
        body.append([trace, words, events, requested, f"{runs['default'][trace]:.3f}", f"{runs['expandable'][trace]:.3f}"])
    head = ["trace", "program", "events", "peak requested", "PyTorch reserved ÷ requested", "with expandable segments"]
    made["traces"] = markdown(head, body, words=2)
    return made


def host() -> dict[str, str]:
    """The tables of vrampool alone."""
    folder = RESULTS / "host"
    cuarena = [
        [f"`{row['benchmark']}`: {row['description']}", row["case"], *(number(row[of]) for of in ("driver", "arena", "pool"))]
        for row in lines(folder / "cuarena_six.jsonl")
    ]
    made = {"cuarena": markdown(["benchmark", "case", "`driver`", "`arena`", "`pool`"], cuarena, words=2)}
    counts = ["1", "2", "4", "8", "16"]
    hits = [[row["case"], *(number(row["threads"].get(count)) for count in counts)] for row in lines(folder / "hit_pair.jsonl")]
    made["hits"] = markdown(["ns", "1 thread", *counts[1:]], hits)
    keys = ["driver", "managed", "async", "arena", "miss", "hit"]
    pairs = [[row["case"], *(number(row[key]) for key in keys)] for row in lines(folder / "cuda_pair.jsonl")]
    made["cuda-pair"] = markdown(["ns", "cudaMalloc", "managed", "cudaMallocAsync", "arena", "a pool's miss", "a pool's hit"], pairs)

    cold = {(row["choice"], row["trace"]): row for row in lines(folder / "size_classes.jsonl") if row["pass"] == "cold"}

    def held(choice: str, trace: str, key: str) -> float:
        row = cold[choice, trace]
        return row[key] / row["peak_requested"]

    made["worst-of-variants"] = percent(max(row["peak_reserved"] / row["peak_requested"] for row in lines(folder / "variants.jsonl")))

    choices = ["fixed", "power-of-two", "geometric", "exact", "fitted"]
    body = []
    for trace, words in TRACES.items():
        cells = [f"{held(of, trace, 'peak_held'):.2f} ({held(of, trace, 'peak_live'):.2f})" for of in choices]
        body.append([words, *cells, f"{held('virtual', trace, 'peak_reserved'):.3f}"])
    head = ["reserved (live) ÷ requested", "`fixed`", "`power-of-two`", "`geometric`", "`exact`", "`fitted` to the trace", "virtual source"]
    made["size-classes"] = markdown(head, body)

    body = []
    for row in lines(folder / "virtual.jsonl"):
        range_text = f" ({row['least']} to {row['most']})" if "least" in row else ""
        physical = held("virtual", row["trace"], "peak_reserved")
        body.append([row["trace"], f"{physical:.3f}", f"{row['calls']:,}", f"{row['driver_us']:.1f}", f"{row['warm_ns']}{range_text}"])
    made["virtual"] = markdown(["", "physical ÷ requested", "calls, first pass", "µs an operation in them", "ns an operation, warm"], body)

    body = []
    for row in lines(folder / "pytorch_steps.jsonl"):
        cells = [
            f"{row['pytorch_ms']:,.2f} / {row['pytorch_mib']:,}",
            *(f"{row[f'{of}_ms']:,.2f} ({row[f'{of}_ms'] / row['pytorch_ms']:.3f}) / {row[f'{of}_mib']:,}" for of in ("expandable", "vrampool")),
            f"{row['again_ms']:,.2f} ({row['again_ms'] / row['pytorch_ms']:.3f})",
        ]
        body.append([row["workload"], *cells])
    made["pytorch-steps"] = markdown(["ms a step (ratio) / MiB reserved", "PyTorch", "its expandable segments", "vrampool", "PyTorch again"], body)
    return made


def markdown_files() -> list[Path]:
    """All Markdown of the tree that git knows or would add."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    return sorted(path for name in set(found) if name and (path := ROOT / name).exists())


def main() -> int:
    """1 when a file names a table that does not exist, or with `--check` differs from the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a table differs")
    parser.add_argument("--gpu", type=Path, default=RESULTS / "gpu", help="results of benches/gpu/run.sh")
    parser.add_argument("--behind", action="store_true", help="fail where a peer is ahead in a case that behind.json does not explain")
    parser.add_argument("--print", action="store_true", help="print all tables and figures")
    given = parser.parse_args()
    if given.behind:
        found = behind(lines(given.gpu / "peers.jsonl"))
        reasons = json.loads(REASONS.read_text())
        for case, ahead in found.items():
            print(f"{case}: {', '.join(ahead)} ahead: {reasons.get(case, 'not explained')}")
        return 0 if found.keys() <= reasons.keys() else 1
    made = {**gpu(given.gpu), **peers(given.gpu), **host()}
    if given.print:
        print("\n\n".join(f"{name}\n\n{text}" for name, text in made.items()))
        return 0
    wrong: list[str] = []
    used: set[str] = set()
    for path in given.files or markdown_files():
        text = path.read_text()

        def replaced(found: re.Match[str], path: Path = path) -> str:
            kind, name = found[1], found[2]
            if name not in made:
                wrong.append(f"{path}: no {kind} is named {name}")
                return found[0]
            used.add(name)
            inner = f"\n\n{made[name]}\n\n" if kind == "table" else made[name]
            return f"<!-- {kind}: {name} -->{inner}<!-- end -->"

        new = re.sub(r"<!-- (table|figure): ([a-z0-9-]+) -->(.*?)<!-- end -->", replaced, text, flags=re.DOTALL)
        if new != text and given.check:
            wrong.append(f"{path} differs from benches/results; run benches/tables.py")
        elif new != text:
            path.write_text(new)
    if not given.files:
        wrong += [f"no page shows {name}" for name in sorted(set(made) - used)]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
