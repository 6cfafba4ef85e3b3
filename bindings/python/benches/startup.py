"""The time that `import vrampool` takes: the median of `--runs` processes, and how many modules it imports.

Each process measures the import alone, not its own start. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

PROGRAM = """
import sys, time
before = set(sys.modules)
began, used = time.perf_counter_ns(), time.process_time_ns()
import vrampool
print(time.perf_counter_ns() - began, time.process_time_ns() - used, len(set(sys.modules) - before))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=21)
    given = parser.parse_args()
    runs = []
    for _ in range(given.runs + 1):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        runs.append([int(number) for number in done.stdout.split()])
    # The first one compiles modules and reads files.
    elapsed, processor, modules = zip(*runs[1:], strict=True)
    figures = {
        "python": sys.version.split()[0],
        "import_ms": round(statistics.median(elapsed) / 1e6, 2),
        "processor_ms": round(statistics.median(processor) / 1e6, 2),
        "modules": modules[0],
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
