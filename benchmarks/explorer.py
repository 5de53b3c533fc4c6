"""How long the explorer takes, measured in a headless Chromium, and what its server needs.

    python benchmarks/explorer.py                           # 100,000 and 1,000,000 trials
    python benchmarks/explorer.py --trials 100000 --json
    python benchmarks/explorer.py --folder stores           # keeps the stores for the next time

Milliseconds are since the page was asked for, or of one change with its pixels read back. "Without
the file" is a store that nobody has looked at before; "with it" is the next explorer on that store.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import explorer_store
from whet.core.run import Run
from whet.explorer import STATIC
from whet.explorer.library import Library
from whet.explorer.report import write_report
from whet.store import SqliteStore

ROUNDS = 7
LIVE_TRIALS = 20
WRITING_S = 8.0
STARTED = "Boolean(window.whetTimings && window.whetTimings.last.complete)"

Numbers = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, help="where stores are kept (default: nowhere)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--writer", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.writer is not None:
        print(written(asked.writer))
        return
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        found = measured(browser, asked.folder or Path(scratch), asked.trials)
    if asked.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:56} {value:>12,.1f}")


def measured(browser: Any, folder: Path, sizes: Sequence[int]) -> Numbers:
    found: Numbers = {"assets, KB": _assets_bytes() / 1e3}
    found |= sample(browser)
    found |= report(folder)
    for trials in sizes:
        path = folder / f"explorer-{trials}.db"
        if not path.exists():
            explorer_store.fill(path, trials)
        shutil.rmtree(f"{path}.columns", ignore_errors=True)
        named = f"{trials:,} trials"
        found |= {f"{named}, without the file: {k}": v for k, v in opened(browser, path).items()}
        found |= {f"{named}, with it: {k}": v for k, v in opened(browser, path, True).items()}
    return found | live(browser, folder)


def sample(browser: Any) -> Numbers:
    """From the server's first answer to the first drawing of the shipped tables."""
    with serving("--sample") as (url, _), tab(browser) as page:
        page.goto(f"{url}/#space")
        until(page, STARTED)
        return {"sample: first drawing, ms": _mark(page, "first-draw")}


def report(folder: Path) -> Numbers:
    path = folder / "explorer-10000.db"
    if not path.exists():
        explorer_store.fill(path, 10_000)
    with SqliteStore(path, read_only=True) as store:
        size = write_report(Library(store), folder / "report.html")
    return {"report of 10,000 trials, KB": size / 1e3}


def opened(browser: Any, path: Path, changes: bool = False) -> Numbers:
    with serving("--store", str(path)) as (url, server), tab(browser) as page:
        page.goto(f"{url}/#space")
        until(page, STARTED, 120.0)
        found = {
            "first drawing, ms": _mark(page, "first-draw"),
            "complete, ms": _mark(page, "complete"),
        }
        if changes:
            found |= changed(page)
        elif path.stat().st_size > 10e6:
            _wait_for_columns(path)
        return found | {"server memory, MB": _peak_bytes(server.pid) / 1e6}


def changed(page: Any) -> Numbers:
    """Brushes, axes and filters with all eight parameters as axes."""
    names = list(explorer_store.VALUES)
    _change(page, {"axes": names})
    patches: dict[str, list[dict[str, Any]]] = {
        "brush": [{"brush": {"BLOCK_M": [v]}} for v in ("64", "128", "16")] + [{"brush": {}}],
        "axes": [{"axes": names[::-1]}, {"axes": names}],
        "filter": [{"fix": {"num_stages": v}} for v in ("2", "3")] + [{"fix": {}}],
    }
    found: Numbers = {}
    for kind, several in patches.items():
        taken = [_change(page, several[n % len(several)]) for n in range(ROUNDS)]
        found[f"{kind}, median ms"] = statistics.median(taken)
        found[f"{kind}, longest ms"] = max(taken)
    return found


def live(browser: Any, folder: Path) -> Numbers:
    """How soon a page shows a trial of another process, and what it costs that process."""
    path = folder / "explorer-live.db"
    for old in folder.glob("explorer-live.db*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    explorer_store.fill(path, 1_000)
    delays, with_page, without = [], [], []
    with serving("--store", str(path)) as (url, _), tab(browser) as page:
        page.goto(f"{url}/#space")
        until(page, STARTED)
        with SqliteStore(path) as store:
            run = store.runs(explorer_store.workload().id)[0]
            for trial in _untried(store, run):
                store.append([trial])
                began = time.monotonic()
                count = store.workloads()[0].configs
                until(page, f"document.body.textContent.includes('{count:,} configs')")
                delays.append(time.monotonic() - began)
        for _ in range(3):
            page.goto(f"{url}/#space")
            until(page, STARTED)
            with_page.append(_writer(path))
            page.goto("about:blank")
            without.append(_writer(path))
    slower = 100 * (statistics.median(without) / statistics.median(with_page) - 1)
    return {
        "live: a trial is shown after, median ms": 1e3 * statistics.median(delays),
        "live: a trial is shown after, longest ms": 1e3 * max(delays),
        "live: a run is slower with a page open, %": slower,
    }


def written(path: Path) -> float:
    """Trials a second of a process that works for 20 ms on each, as one that tunes would."""
    with SqliteStore(path) as store:
        run = store.runs(explorer_store.workload().id)[0]
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < WRITING_S:
            until_cpu = time.process_time() + 0.02
            while time.process_time() < until_cpu:
                pass
            store.append([_new_trial(run, 10_000 + done)])
            done += 1
        return done / (time.perf_counter() - began)


def _writer(path: Path) -> float:
    command = [sys.executable, __file__, "--writer", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _new_trial(run: Run, number: int) -> Any:
    samples = np.full(6, 1e6 + number)
    codes = [number % len(values) for values in explorer_store.VALUES.values()]
    return explorer_store.trial_of(run, codes, samples, number, None)


def _untried(store: SqliteStore, run: Run) -> list[Any]:
    """Of configs that the store does not know, so that the page shows a number that is new."""
    every = (_new_trial(run, number) for number in range(10 * LIVE_TRIALS))
    new = (one for one in every if store.latest(run.workload.id, one.config.id) is None)
    return list({one.config.id: one for one in new}.values())[:LIVE_TRIALS]


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, Any]]:
    command = [sys.executable, "-m", "whet", "explore", "--no-open", "--port", "0", *arguments]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1].rstrip("/"), server
    finally:
        server.terminate()
        server.wait()


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def tab(browser: Any) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    yield page
    page.close()


def until(page: Any, expression: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not page.evaluate(expression):
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds} s: {expression}")
        time.sleep(0.005)


def _mark(page: Any, name: str) -> float:
    """When it happened, since the page was asked for."""
    return float(page.evaluate(f"whetTimings.first['{name}']"))


def _change(page: Any, patch: dict[str, Any]) -> float:
    """Milliseconds for what a user does, with the pixels read back."""
    return float(
        page.evaluate(
            """patch => {
                const began = performance.now()
                whetTimings.app.state.set(patch)
                for (const canvas of document.querySelectorAll("canvas")) {
                    if (canvas.offsetParent) canvas.getContext("2d").getImageData(0, 0, 1, 1)
                }
                return performance.now() - began
            }""",
            patch,
        )
    )


def _wait_for_columns(path: Path) -> None:
    """Until the file beside the store is there, whole."""
    folder = Path(f"{path}.columns")
    deadline = time.monotonic() + 30
    while not list(folder.glob("*.columns")) and time.monotonic() < deadline:
        time.sleep(0.05)


def _peak_bytes(pid: int) -> float:
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return 1024 * float(line.split()[1])


def _assets_bytes() -> int:
    return sum(path.stat().st_size for path in STATIC.iterdir() if path.is_file())


if __name__ == "__main__":
    main()
