"""Merging stores of which one was tuned beside a load: does a slower pick ever win unnoticed?

    python benchmarks/merge.py [--pairs 20] [--seed 0] [--json]

For each pair a small C kernel is tuned twice at a size of its own: once with the machine left
alone, and once beside as many busy processes as there are cores; which comes first is left to
chance. The two stores are merged in both directions. Then the picks of both sides meet in a fresh
duel without a load. Wanted: no merged store has an unmarked pick that this duel shows to be slower
than the other side's, both directions agree on what is contested, and one more tuning settles it;
it exits with 1 otherwise. For comparison: how often the newest run's pick, which is what stood
after a merge before, would have been the slower one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import whet
from whet.core.config import Config
from whet.engine.review.verify import measure_beside
from whet.engine.settings import resolve_settings
from whet.engine.target import Target
from whet.measure.racing.duel import DuelPolicy
from whet.measure.racing.stats import Ratio, paired_ratio
from whet.store import MemoryStore, SqliteStore

# A load ends by itself after this long, whatever becomes of the process that started it.
LOAD_LIMIT_S = 120
LOAD = f"import time\nend = time.monotonic() + {LOAD_LIMIT_S}\nwhile time.monotonic() < end: pass"

# A second thread halves the time while there is a core for it, and costs more than it saves where
# there is none. Waiting threads sleep, so that each call ends when it returns.
SOURCE = """
#include <math.h>
#include <pthread.h>

struct part { const float *x; float *y; int from, to; };

static void *work(void *given)
{
    struct part *part = given;
    for (int block = part->from; block < part->to; block += BLOCK) {
        int end = block + BLOCK < part->to ? block + BLOCK : part->to;
        for (int i = block; i < end; i++)
            part->y[i] = sqrtf(part->x[i]) / (1.0f + part->x[i] * part->x[i]);
    }
    return 0;
}

void shape(const float *x, float *y, int n)
{
    pthread_t threads[THREADS];
    struct part parts[THREADS];
    for (int t = 0; t < THREADS; t++) {
        parts[t] = (struct part){x, y, (int)((long)n * t / THREADS),
                                 (int)((long)n * (t + 1) / THREADS)};
        if (t + 1 < THREADS)
            pthread_create(&threads[t], 0, work, &parts[t]);
        else
            work(&parts[t]);
    }
    for (int t = 0; t + 1 < THREADS; t++)
        pthread_join(threads[t], 0);
}
"""
SPACE = {"THREADS": [1, 2, 4], "BLOCK": [64, 4096]}
SIZES = (50_000, 1_000_000)


@dataclass(frozen=True)
class Pair:
    """`marked` and `final` are of the merge into the idle store, then of that into the busy one;
    `busy_by_idle` is the busy store's pick's time over the other's in the last duel."""

    n: int
    busy_last: bool
    idle: str
    busy: str
    marked: tuple[bool, bool]
    final: tuple[str, str]
    agree: bool
    settled: bool
    busy_by_idle: tuple[float, float, float] | None
    unnoticed: bool
    newest_slower: bool
    seconds: float


@contextmanager
def load(processes: int) -> Iterator[None]:
    started = [subprocess.Popen([sys.executable, "-c", LOAD]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def target(n: int) -> Target:
    x = np.random.default_rng(n).random(n, dtype=np.float32)
    return whet.native(
        SOURCE,
        SPACE,
        function="shape",
        args={"x": x, "y": np.zeros(n, np.float32), "n": n},
        libraries=["m", "pthread"],
    )


def duel(n: int, configs: Sequence[Config]) -> Ratio | None:
    """The second one's time over the first one's, side by side and with nothing else running."""
    policy = DuelPolicy()
    settings = resolve_settings().settings
    beside = measure_beside(target(n), configs, MemoryStore(), settings, policy)
    one, two = (config.id for config in configs)
    rounds = [times for times in beside.rounds if len(times) == 2]
    if not rounds:
        return None
    return paired_ratio(
        [times[two] for times in rounds], [times[one] for times in rounds], policy.confidence
    )


def slower(ratio: Ratio | None) -> bool:
    """As a tuning's own duel decides: different, and not merely within what counts as equal."""
    return ratio is not None and ratio.low > 1 and ratio.high > 1 + DuelPolicy().equal_within


def merged(folder: Path, receiver: Path, other: Path, n: int) -> tuple[Config, bool, set[str]]:
    """Its pick, whether that is contested, and all configs that may be the best."""
    path = folder / f"{receiver.stem}-{other.stem}.db"
    shutil.copy(receiver, path)
    with SqliteStore(path) as mine, SqliteStore(other, read_only=True) as theirs:
        mine.merge(theirs)
        pick = mine.pick(target(n).workload().id)
    assert pick is not None
    both = {pick.trial.config.id, *(rival.config.id for rival in pick.rivals)}
    return pick.trial.config, bool(pick.rivals), both


def settled(folder: Path, n: int) -> bool:
    """Whether one more tuning leaves nothing contested."""
    with SqliteStore(folder / "idle-busy.db") as store:
        whet.tune(target(n), store=store)
        pick = store.pick(target(n).workload().id)
    return pick is not None and not pick.rivals


def one_pair(folder: Path, n: int, busy_last: bool) -> Pair:
    start = time.perf_counter()
    picks: dict[str, Config] = {}
    for name in ("idle", "busy") if busy_last else ("busy", "idle"):
        with load((os.cpu_count() or 1) if name == "busy" else 0):
            picks[name] = whet.tune(target(n), store=folder / f"{name}.db").config
    idle, busy = folder / "idle.db", folder / "busy.db"
    there, there_marked, there_known = merged(folder, idle, busy, n)
    back, back_marked, back_known = merged(folder, busy, idle, n)
    ratio = duel(n, [picks["idle"], picks["busy"]]) if picks["idle"] != picks["busy"] else None
    inverse = None if ratio is None else Ratio(1 / ratio.high, 1 / ratio.mid, 1 / ratio.low)
    lost = {picks["busy"].id: slower(ratio), picks["idle"].id: slower(inverse)}
    if picks["idle"] == picks["busy"]:
        lost = {}
    return Pair(
        n=n,
        busy_last=busy_last,
        idle=str(picks["idle"]),
        busy=str(picks["busy"]),
        marked=(there_marked, back_marked),
        final=(str(there), str(back)),
        agree=there_marked == back_marked and (not there_marked or there_known == back_known),
        settled=settled(folder, n),
        busy_by_idle=None if ratio is None else (ratio.low, ratio.mid, ratio.high),
        unnoticed=any(
            lost.get(pick.id, False) and not marked
            for pick, marked in ((there, there_marked), (back, back_marked))
        ),
        newest_slower=lost.get(picks["busy" if busy_last else "idle"].id, False),
        seconds=time.perf_counter() - start,
    )


def row(number: int, pair: Pair) -> str:
    ratio = "same pick" if pair.busy_by_idle is None else "{:.2f} {:.2f} {:.2f}"
    said = ratio.format(*(pair.busy_by_idle or ()))
    marks = "/".join("contested" if marked else "-" for marked in pair.marked)
    verdict = "UNNOTICED" if pair.unnoticed else "ok" if pair.agree and pair.settled else "FAILED"
    return (
        f"{number:>4} {pair.n:>7} {'busy' if pair.busy_last else 'idle':<5} {pair.idle:<22} "
        f"{pair.busy:<22} {said:<15} {marks:<20} {verdict:<9} {pair.seconds:5.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    pairs = []
    if not options.json:
        print(
            f"{'pair':>4} {'n':>7} {'last':<5} {'idle pick':<22} {'busy pick':<22} "
            f"{'busy/idle, 95 %':<15} {'merged idle/busy':<20} {'verdict':<9}"
        )
    for number, n in enumerate(rng.sample(range(*SIZES), options.pairs), start=1):
        with tempfile.TemporaryDirectory() as folder:
            pairs.append(one_pair(Path(folder), n, busy_last=rng.random() < 0.5))
        if not options.json:
            print(row(number, pairs[-1]), flush=True)
    report = {
        "pairs": len(pairs),
        "different": sum(pair.busy_by_idle is not None for pair in pairs),
        "contested": sum(any(pair.marked) for pair in pairs),
        "unmarked_and_slower": sum(pair.unnoticed for pair in pairs),
        "newest_would_be_slower": sum(pair.newest_slower for pair in pairs),
        "directions_disagree": sum(not pair.agree for pair in pairs),
        "not_settled": sum(not pair.settled for pair in pairs),
        "each": [asdict(pair) for pair in pairs],
    }
    if options.json:
        print(json.dumps(report))
    else:
        print(
            f"{report['different']} of {report['pairs']} pairs picked different configs, "
            f"{report['contested']} are contested; unmarked and shown slower: "
            f"{report['unmarked_and_slower']} (by the newest run: "
            f"{report['newest_would_be_slower']}); directions that disagree: "
            f"{report['directions_disagree']}, not settled by one more tuning: "
            f"{report['not_settled']}"
        )
    failed = ("unmarked_and_slower", "directions_disagree", "not_settled")
    sys.exit(1 if any(report[name] for name in failed) else 0)


if __name__ == "__main__":
    main()
