#!/usr/bin/env python3
"""Drives the page in headless Chromium: examples/browser/drive.py [--epochs COUNT] [--update].

Checks what examples/browser/README.md promises, and compares screenshots with those in examples/browser/screenshots by the mean colours of
squares. --update replaces them. Chromium is Debian's, with a WebGPU device of the processor; selenium and Pillow are PyPI's.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import io
import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

FOLDER = Path(__file__).resolve().parent
SCREENSHOTS = FOLDER / "screenshots"
WINDOW = (1200, 1340)

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
    # A container has little of it.
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)
WEBGPU = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan")

# A square's mean colour may differ by so much of 255, and so many squares of 100 by more: figures of time differ.
SQUARE = 20
TOLERANCE = 16
DIFFERENT_PERCENT = 3

EPOCHS = 12
ACCURACY = 0.97
HIT_RATE = 0.99
# An epoch of two runs takes about 10 s of processor time on SwiftShader.
PATIENCE_PER_EPOCH = 120


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {".wasm": "application/wasm"}

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def serve() -> http.server.ThreadingHTTPServer:
    """Serves the page on a free port of this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=FOLDER))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def browser(profile: str, flags: tuple[str, ...]) -> webdriver.Chrome:
    """Chromium with a fresh profile, whose console is recorded."""
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, *flags, f"--window-size={WINDOW[0]},{WINDOW[1]}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def state(driver: webdriver.Chrome) -> dict[str, Any]:
    """What the page publishes for scripts."""
    text: str = driver.execute_script("return JSON.stringify(window.vrampool ?? {})")
    answer: dict[str, Any] = json.loads(text)
    return answer


def wait(driver: webdriver.Chrome, what: str, seconds: float, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Waits until the page's state is as it should be."""
    until = time.monotonic() + seconds
    while True:
        now = state(driver)
        if now.get("status") == "failed":
            raise SystemExit(f"the page failed: {now.get('reason')}; console: {driver.get_log('browser')}")
        if holds(now):
            return now
        if time.monotonic() > until:
            raise SystemExit(f"not within {seconds:.0f} s: {what}; the page is {now.get('status')}")
        time.sleep(0.2)


def check_console(driver: webdriver.Chrome) -> None:
    """No error of the page or of the program."""
    errors = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors, errors


def squares(picture: Image.Image) -> Image.Image:
    """The mean colour of each square, a pixel each."""
    size = (max(1, picture.width // SQUARE), max(1, picture.height // SQUARE))
    return picture.convert("RGB").resize(size, Image.Resampling.BOX)


def compare(driver: webdriver.Chrome, name: str, update: bool) -> None:
    """Compares what the window shows with a screenshot of the tree."""
    taken = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
    path = SCREENSHOTS / f"{name}.png"
    if update:
        taken.convert("RGB").quantize(64).save(path, optimize=True)
        print(f"{name}: updated")
        return
    known = Image.open(path)
    assert taken.size == known.size, (name, taken.size, known.size)
    pairs = list(zip(squares(taken).get_flattened_data(), squares(known).get_flattened_data(), strict=True))
    different = sum(max(abs(one - other) for one, other in zip(*pair, strict=True)) > TOLERANCE for pair in pairs)
    share = 100 * different / len(pairs)
    print(f"{name}: {share:.2f} % of {len(pairs)} squares differ")
    if share > DIFFERENT_PERCENT:
        failed = Path(tempfile.gettempdir()) / f"{name}.png"
        taken.save(failed)
        raise SystemExit(f"{name} is not as in the tree: see {failed}, or update the screenshots")


def train(driver: webdriver.Chrome, address: str, epochs: int, update: bool) -> None:
    """The page trains, and its figures are those that it promises."""
    driver.get(f"{address}/?epochs={epochs}&check")
    wait(driver, "the check of the backend", 120, lambda now: bool(now.get("checked")))
    end = wait(driver, "the end of the training", epochs * PATIENCE_PER_EPOCH, lambda now: now.get("status") == "done")
    pool, control = (end["runs"][name] for name in ("pool", "control"))
    rate = pool["figures"]["hit_rate_after_first_epoch"]
    created = [run["figures"]["pool"]["source_allocations"] for run in (pool, control)]
    steps = pool["figures"]["steps"]
    print(
        f"accuracy {pool['accuracy']:.4f} and {control['accuracy']:.4f} without a pool, hit rate {rate:.4f}, "
        f"buffers created {created[0]} and {created[1]}, ms a step {pool['milliseconds'] / steps:.1f} and {control['milliseconds'] / steps:.1f}"
    )
    assert rate >= HIT_RATE, rate
    # The same network whatever the memory comes from.
    assert pool["accuracy"] == control["accuracy"], (pool["accuracy"], control["accuracy"])
    if epochs >= EPOCHS:
        assert pool["accuracy"] >= ACCURACY, pool["accuracy"]
    assert control["figures"]["hit_rate"] == 0, control["figures"]["hit_rate"]
    if epochs == EPOCHS:
        compare(driver, f"trained-{epochs}", update)


def set_slider(driver: webdriver.Chrome, name: str, value: int) -> None:
    """Moves a slider as a user does."""
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', { bubbles: true }))"
    driver.execute_script(script, driver.find_element("id", name), value)


def steps(now: dict[str, Any]) -> int:
    """Steps of the run with a pool."""
    count: int = now["runs"]["pool"]["figures"]["steps"]
    return count


def is_past(step: int, now: dict[str, Any]) -> bool:
    """Whether the run with a pool has made so many steps."""
    return steps(now) >= step


def move_sliders(driver: webdriver.Chrome) -> None:
    """The caps hold from the step after a slider moves."""
    driver.find_element("id", "start").click()

    def training(now: dict[str, Any]) -> bool:
        return now["status"] == "training" and 5 < steps(now) < 23

    before = wait(driver, "the first steps", PATIENCE_PER_EPOCH, training)
    assert before["runs"]["pool"]["figures"]["pool"]["idle_bytes"] > 2**16, before
    for name, value, bytes_cap, buffers_cap in (("bytes", 5, 2**16, 16), ("buffers", 2, 2**16, 2), ("bytes", 0, 0, 2), ("bytes", 13, None, 2)):
        at = steps(state(driver))
        set_slider(driver, name, value)
        # The step that runs meanwhile gets the caps at its end.
        now = wait(driver, "two more steps", PATIENCE_PER_EPOCH, functools.partial(is_past, at + 2))
        pool = now["runs"]["pool"]["figures"]["pool"]
        assert pool["max_cached_bytes"] == bytes_cap and pool["max_buffers_per_bucket"] == buffers_cap, pool
        assert bytes_cap is None or pool["idle_bytes"] <= bytes_cap, pool
        assert all(bucket["idle_buffers"] <= buffers_cap for bucket in pool["buckets"]), pool["buckets"]
        print(f"caps {bytes_cap} bytes and {buffers_cap} buffers: {pool['idle_bytes']} bytes idle")


def main() -> None:
    """Runs all checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    server = serve()
    address = f"http://127.0.0.1:{server.server_port}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        driver = browser(profile, WEBGPU)
        try:
            train(driver, address, arguments.epochs, arguments.update)
            move_sliders(driver)
            check_console(driver)
        finally:
            driver.quit()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        driver = browser(profile, ("--disable-features=WebGPU,WebGPUService", "--disable-gpu"))
        try:
            driver.get(address)
            wait(driver, "the text for browsers without WebGPU", 60, lambda now: now.get("status") == "absent")
            check_console(driver)
            compare(driver, "without-webgpu", arguments.update)
        finally:
            driver.quit()
    server.shutdown()


if __name__ == "__main__":
    main()
