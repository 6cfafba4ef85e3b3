"""Daemon threads at the interpreter's end: Python before 3.14 unwinds them, where they are below frames of Rust too."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

#: By what a thread is in at the end: how it gets there. `ready` is set once it is.
LOOPS = {
    "a run": """
        broker = vrampool.Broker(pool)
        client = broker.client("a")
        array = client.scratch("numbers", (1000,), "f4")
        broker.commit(streams=STREAMS, chunk_runs=100)
        while True:
            broker.run(lambda chunk: busy())
    """,
    "progress of a sleep": """
        block = pool.allocate(4 << 20)
        while True:
            pool.sleep(progress=busy)
            pool.wake(progress=busy)
    """,
    "a callback of segments": """
        import ctypes
        from vrampool import vllm_extension as vllm
        functions = ctypes.CDLL(vllm.PATH)
        functions.my_malloc.restype = ctypes.c_void_p
        functions.my_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        live = {}
        def on_malloc(handle):
            live[handle[2]] = handle
            busy()
        vllm.init_module(on_malloc, live.pop)
        vrampool.torch.configure(device="host", host_capacity=64 << 20)
        while True:
            functions.my_free(functions.my_malloc(ctypes.c_ssize_t(1 << 20), 0, None), 1 << 20, 0, None)
    """,
    "an argument": """
        class Bytes:
            def __index__(self):
                busy()
                return 1000
        while True:
            pool.allocate(Bytes()).free()
    """,
    "a wait": """
        ready.set()
        while True:
            pool.allocate("32MiB").free(); pool.trim()
    """,
}

PROGRAM = """
import sys, threading, time
import vrampool, vrampool.torch
STREAMS = {streams}
ready = threading.Event()
pool = vrampool.Pool("host", host_capacity=64 << 20)
def busy(*_):
    ready.set()
    for _ in range(200):
        time.sleep(0)
def loop():
{loop}
threading.Thread(target=loop, daemon=True).start()
assert ready.wait(60)
"""


@pytest.mark.parametrize(("of", "streams"), [*((of, 1) for of in LOOPS), ("a run", 2)])
def test_a_daemon_thread_does_not_end_the_process(of: str, streams: int) -> None:
    program = PROGRAM.format(streams=streams, loop=textwrap.indent(textwrap.dedent(LOOPS[of]), "    "))
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
