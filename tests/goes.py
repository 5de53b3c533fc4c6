"""Runs the tests in two goes, and counts them together.

    python tests/goes.py -n auto -m "not slow"     what is given is given to pytest, twice

A process that has imported torch and Triton is large, and each of the thousands that it forks
takes several times as long to start: so the files that import them come second.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

LARGE = re.compile(
    r'^\s*(\w+(: Any)? = |return )?(pytest\.importorskip\("(torch|triton|ray|mlir)'
    r"|(import|from) (torch|triton|ray|mlir|whet\.targets\.triton|whet\.kernels)\b)",
    re.MULTILINE,
)
COUNTED = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "error")
NO_TESTS = 5

# Each core has tests of its own already; more threads would wait for each other.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    go = os.environ.get("TESTS_GO")
    if not go or not collection_path.name.startswith("test_"):
        return None
    large = LARGE.search(collection_path.read_text()) is not None
    return True if large != (go == "large") else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if name := os.environ.get("TESTS_COUNTS"):
        stats = terminalreporter.stats
        bad = [report.nodeid for key in ("failed", "error") for report in stats.get(key, ())]
        counts = {key: len(stats.get(key, ())) for key in COUNTED}
        Path(name).write_text(json.dumps({"counts": counts, "bad": bad}))


def main(arguments: list[str]) -> int:
    start = time.monotonic()
    statuses: list[int] = []
    counts: Counter[str] = Counter()
    bad: list[str] = []
    for go in ("small", "large"):
        with tempfile.TemporaryDirectory() as folder:
            told = Path(folder, "counts.json")
            env = {**ONE_THREAD, **os.environ, "TESTS_GO": go, "TESTS_COUNTS": str(told)}
            done = subprocess.run([sys.executable, "-m", "pytest", *arguments], env=env)
            statuses.append(done.returncode)
            if told.exists():
                found = json.loads(told.read_text())
                counts += Counter(found["counts"])
                bad += found["bad"]
        if statuses[-1] not in (0, 1, NO_TESTS):  # interrupted, or pytest did not understand
            break
    for name in bad:
        print(f"FAILED {name}")
    said = ", ".join(f"{counts[key]} {key}" for key in COUNTED if counts[key])
    print(f"{said or 'no tests ran'} in {time.monotonic() - start:.2f}s")
    failed = [status for status in statuses if status not in (0, NO_TESTS)]
    return max(failed, default=0 if 0 in statuses else NO_TESTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
