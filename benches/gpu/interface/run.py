#!/usr/bin/env python3
"""Cases of the interface of PyTorch's allocator, each in a process of its own, with vrampool and with PyTorch's own allocator.

    run.py RESULTS [CASE...]

Writes RESULTS/interface.json and RESULTS/interface.txt, the table that it prints. A case that outlasts its limit failed. Exits with 1 where
vrampool fails and PyTorch's allocator does not. `INTERFACE_CASES_AT_ONCE` is the number of processes at a time (the processors less two). What has not ended after
`INTERFACE_SECONDS` (600) failed.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Seconds of a case, and of those that compile more.
LIMIT = 120
ENDS = time.monotonic() + float(os.environ.get("INTERFACE_SECONDS") or 600)
LIMITS = {"export_and_aot_inductor": 240, "graph_trees_of_resnet50": 180}
ALLOCATORS = ("pytorch", "vrampool")


def names() -> list[str]:
    found = []
    for module in ("memory", "programs"):
        lines = (HERE / f"{module}.py").read_text().splitlines()
        found += [line[4 : line.index("(")] for line in lines if line.startswith("def ") and not line.startswith("def _")]
    return found


def run_here(case: str, allocator: str) -> None:
    """The case, in this process."""
    os.environ["INTERFACE_CASE_ALLOCATOR"] = allocator
    if allocator == "vrampool":
        # Processes that the case starts import PyTorch with it too.
        os.environ.setdefault("VRAMPOOL_TORCH", "1")
        import vrampool.torch

        vrampool.torch.install()
    sys.path.insert(0, str(HERE))
    for module in ("memory", "programs"):
        if function := getattr(importlib.import_module(module), case, None):
            function()
            import torch

            torch.cuda.synchronize()
            return
    sys.exit(f"there is no case {case}")


def run_separately(case: str, allocator: str, results: Path) -> dict[str, object]:
    """The case in a process of its own. Returns how it ended."""
    log = results / f"{case}.{allocator}.txt"
    began = time.monotonic()
    folder = str(results / "cache" / case / allocator)
    # Each would start a compiler for each processor.
    settings = {"TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_COMPILE_THREADS": "4", "OMP_NUM_THREADS": "2"}
    with log.open("wb") as output:
        command = [sys.executable, __file__, "--case", case, allocator]
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **settings}, start_new_session=True)
        try:
            outcome = "passed" if process.wait(max(0, min(LIMITS.get(case, LIMIT), ENDS - time.monotonic()))) == 0 else f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            outcome = "hangs"
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    why = "" if outcome == "passed" else (log.read_text(errors="replace").strip().splitlines() or [""])[-1][:300]
    return {"case": case, "allocator": allocator, "outcome": outcome, "seconds": round(time.monotonic() - began, 1), "why": why}


def main() -> int:
    if sys.argv[1] == "--case":
        run_here(sys.argv[2], sys.argv[3])
        return 0
    results, cases = Path(sys.argv[1]).resolve(), sys.argv[2:] or names()
    results.mkdir(parents=True, exist_ok=True)
    at_once = int(os.environ.get("INTERFACE_CASES_AT_ONCE") or max(1, len(os.sched_getaffinity(0)) - 2))
    with ThreadPoolExecutor(at_once) as threads:
        # The longest first; cases of programs take longer than those of memory, which are before them.
        begun = sorted(reversed(cases), key=lambda case: -LIMITS.get(case, LIMIT))
        runs = [threads.submit(run_separately, case, allocator, results) for case in begun for allocator in ALLOCATORS]
        ended = []
        for run in runs:
            ended.append(run.result())
            (results / "interface.json").write_text("\n".join(json.dumps(one) for one in ended) + "\n")
    by_case = {(one["case"], one["allocator"]): one for one in ended}
    faults, lines = 0, []
    for case in cases:
        own, ours = (by_case[case, allocator] for allocator in ALLOCATORS)
        faults += ours["outcome"] != "passed" and own["outcome"] == "passed"
        times = f"{own['seconds']:6.1f} s {ours['seconds']:6.1f} s"
        lines.append(f"{case:36} PyTorch {own['outcome']:8} vrampool {ours['outcome']:8} {times}  {ours['why'] or own['why']}")
    passed = {allocator: sum(one["outcome"] == "passed" for one in ended if one["allocator"] == allocator) for allocator in ALLOCATORS}
    lines.append(f"{len(cases)} cases: PyTorch's allocator passes {passed['pytorch']}, vrampool {passed['vrampool']}")
    print("\n".join(lines))
    (results / "interface.txt").write_text("\n".join(lines) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
