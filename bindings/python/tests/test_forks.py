"""Children of a process that uses a device."""

from __future__ import annotations

from conftest import run


def test_a_child_of_a_process_with_a_device_touches_nothing() -> None:
    run(
        """
        import os, vrampool
        address = vrampool.start_metrics("127.0.0.1:0")

        def child(act):
            pid = os.fork()
            if pid == 0:
                try:
                    act()
                    os._exit(0)
                except BaseException as error:
                    os.write(2, repr(error).encode())
                    os._exit(1)
            assert os.waitpid(pid, 0)[1] == 0

        def afresh():
            # Nothing was opened: all is as in a new process.
            vrampool.stop_metrics()
            vrampool.start_metrics("127.0.0.1:0")
            with vrampool.Pool("host", host_capacity=64 * MIB) as pool:
                pool.allocate(100).free()
            vrampool.stop_metrics()

        child(afresh)
        # A variable that nothing reads is logged: the children are forked while the first line comes to Python.
        os.environ["VRAMPOOL_NOTHING"] = "1"
        pool = vrampool.Pool("host", host_capacity=64 * MIB)
        block = pool.allocate(1000)

        def refused():
            vrampool.stop_metrics()
            for call in (
                lambda: pool.allocate(1),
                lambda: block.free(),
                lambda: pool.stats(),
                lambda: pool.trim(),
                lambda: vrampool.Pool("host"),
                lambda: vrampool.start_metrics("127.0.0.1:0"),
                lambda: pool.close(),
            ):
                try:
                    call()
                except vrampool.ForkedError as error:
                    assert "spawn" in str(error)
                else:
                    raise AssertionError("it was done")

        child(refused)
        block.free()
        assert pool.stats().live_buffers == 0
        vrampool.stop_metrics()
        """
    )
