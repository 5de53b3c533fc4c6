"""Tunes small spaces in one process again and again, and watches what it holds on to.

    python benchmarks/soak.py [--minutes 30] [--json FILE]

Every round tunes a Python function in forked workers and a C kernel in spawned ones, with configs
that raise, crash, return rubbish and do not compile among them; interrupts a tuning as Ctrl-C does;
asks the store for what is known; and searches a recorded table. Every minute a sample is taken
between two rounds. After a fifth of the time, descriptors, threads, child processes and temporary
files must stay what they were, and the straight line through the memory in use must not rise by
more than 4 %. The store grows by what is written into it, and is only reported.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import whet
from whet.core.event import Event, TrialFinished
from whet.engine import Settings
from whet.replay import read_table, simulate
from whet.replay.lab import cases_of
from whet.search import make_strategy

RSS_RISE = 0.04
WARM_UP = 0.2

SETTINGS = Settings(run_limit_s=5.0, memory_bytes=256 << 20, jobs=2)

SOURCE = """
#include <stdlib.h>
#if CASE == 3
#error "not written yet"
#endif
void fill(float *y, int n)
{
    if (CASE == 2) abort();
    for (volatile int i = 0; i < n * (CASE + 1); i++)
        y[i % n] = CASE == 4 ? 2 : 1;
}
"""


@dataclass(frozen=True)
class Sample:
    minutes: float
    rounds: int
    rss_mib: float
    descriptors: int
    threads: int
    children: int
    temporary: int
    store_mib: float


def count_to(turns: int) -> int:
    if turns == 5:
        raise ValueError("no such tile")
    if turns == 6:
        os._exit(3)
    total = 0
    for _ in range(1000 * turns):
        total += 1
    return total // turns + (turns == 7)


class Soak:
    """One store for all rounds. `scratch` is where everything temporary goes."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.store = folder / "store" / "store.db"
        self.store.parent.mkdir()
        self._scratch = scratch
        self.rounds = 0
        (self._case,) = cases_of("gemm", read_table("h200-gemm-576"), workloads=1)
        self._began = time.monotonic()

    def round(self) -> None:
        key = {"round": self.rounds}
        self._tune(whet.function(count_to, {"turns": [*range(1, 9)]}, reference=1000, key=key))
        y = np.zeros(2000, np.float32)
        self._tune(
            whet.native(
                SOURCE,
                {"CASE": [0, 1, 2, 3, 4]},
                function="fill",
                args={"y": y, "n": y.size},
                outputs=["y"],
                reference=np.ones_like(y),
                key=key,
            )
        )
        self._interrupt(whet.function(count_to, {"turns": [1, 2, 3, 4]}, key={"cut": self.rounds}))
        search = ("random", "gp", "evolution")[self.rounds % 3]
        strategy = make_strategy(search, self._case.space, self.rounds)
        simulate(self._case.table, self._case.workload, strategy, 15, seed=self.rounds)
        self.rounds += 1

    def sample(self) -> Sample:
        gc.collect()
        status = Path("/proc/self/status").read_text()
        rss_kib = next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)
        listed = Path("/proc/self/task").glob("*/children")
        return Sample(
            minutes=round((time.monotonic() - self._began) / 60, 2),
            rounds=self.rounds,
            rss_mib=round(rss_kib / 1024, 2),
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=threading.active_count(),
            children=sum(len(thread.read_text().split()) for thread in listed),
            temporary=sum(1 for _ in self._scratch.rglob("*")),
            store_mib=round(sum(p.stat().st_size for p in self.store.parent.glob("*")) / 2**20, 2),
        )

    def _tune(self, target: Any) -> None:
        """The second time the store has the answer."""
        for _ in range(2):
            whet.tune(target, store=self.store, settings=SETTINGS)

    def _interrupt(self, target: Any) -> None:
        def interrupt(event: Event) -> None:
            if isinstance(event, TrialFinished):
                signal.raise_signal(signal.SIGINT)

        try:
            whet.tune(target, store=self.store, settings=SETTINGS, on_event=interrupt)
        except whet.Interrupted:
            return
        raise AssertionError("Ctrl-C was lost")


def complaints(samples: list[Sample]) -> list[str]:
    """What has grown, judged by the samples after the warm-up."""
    judged = samples[int(WARM_UP * len(samples)) :]
    found = []
    for name in ("descriptors", "threads", "children", "temporary"):
        values = [getattr(sample, name) for sample in judged]
        if max(values) > values[0]:
            found.append(f"{name} went from {values[0]} to {max(values)}")
    rise = rss_rise(judged)
    if rise > RSS_RISE:
        found.append(f"memory in use rose by {rise:.1%}, more than {RSS_RISE:.0%}")
    return found


def rss_rise(samples: list[Sample]) -> float:
    """By how much the straight line through the memory in use rises from end to end."""
    at = np.array([sample.minutes for sample in samples])
    rss = np.array([sample.rss_mib for sample in samples])
    if len(samples) < 3 or at[-1] == at[0]:
        return 0.0
    slope, start = np.polyfit(at, rss, 1)
    return float(slope * (at[-1] - at[0]) / (start + slope * at[0]))


def soak(minutes: float, folder: Path) -> list[Sample]:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has none
    scratch = folder / "scratch"
    scratch.mkdir()
    os.environ["TMPDIR"] = str(scratch)
    tempfile.tempdir = None
    subject = Soak(folder, scratch)
    every_s = min(60.0, minutes * 60 / 10)
    end = time.monotonic() + minutes * 60
    samples: list[Sample] = []
    while time.monotonic() < end:
        due = time.monotonic() + every_s
        while time.monotonic() < due:
            subject.round()
        samples.append(subject.sample())
        print(_row(samples[-1]), flush=True)
    return samples


HEADINGS = ("minute", "rounds", "MiB", "descr.", "threads", "children", "temp.", "store MiB")


def _row(sample: Sample) -> str:
    return "".join(f"{value:>10}" for value in asdict(sample).values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    print("".join(f"{heading:>10}" for heading in HEADINGS))
    with tempfile.TemporaryDirectory() as folder:
        samples = soak(asked.minutes, Path(folder))
    grown = complaints(samples)
    judged = samples[int(WARM_UP * len(samples)) :]
    if asked.json:
        answer = {"samples": [asdict(s) for s in samples], "rss_rise": rss_rise(judged)}
        asked.json.write_text(json.dumps({**answer, "grown": grown}, indent=1) + "\n")
    print(
        f"memory in use after the warm-up: {rss_rise(judged):+.1%}; " + ("; ".join(grown) or "ok")
    )
    sys.exit(1 if grown else 0)


if __name__ == "__main__":
    main()
