"""`python -m vrampool run [--limit SIZE] [--metrics ADDRESS] PROGRAM ...`: a program of PyTorch on vrampool, without a change."""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from .torch_start import VARIABLE, start


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vrampool", description="Runs a program of PyTorch on vrampool.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a Python program, or a module with -m, with vrampool below PyTorch")
    run.add_argument("--limit", metavar="SIZE", help="the hard cap on bytes of each device, as in 60GiB")
    run.add_argument("--metrics", metavar="ADDRESS", help="serve metrics to Prometheus at this address, as in 127.0.0.1:9184")
    run.add_argument("--option", metavar="KEY=VALUE", action="append", default=[], help="a further option of vrampool.torch.install()")
    run.add_argument("-m", dest="is_module", action="store_true", help="PROGRAM is a module")
    run.add_argument("program", metavar="PROGRAM")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    options = [*given.option, *([f"limit={given.limit}"] if given.limit else [])]
    # Processes that the program starts have it too, and the port of metrics is this process's.
    os.environ[VARIABLE] = ";".join(options) or "1"
    start(";".join([*options, *([f"metrics={given.metrics}"] if given.metrics else [])]))
    sys.argv = [given.program, *given.arguments]
    if given.is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(given.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(given.program))
        runpy.run_path(given.program, run_name="__main__")


if __name__ == "__main__":
    main()
