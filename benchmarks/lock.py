"""A lock file among ranks (gloo, CPU, a fake driver), and two large ones merged.

    python benchmarks/lock.py [--ranks 8] [--starts 5] [--keys 100] [--entries 10000] [--json]

Every rank of every start is a process that has made no choice yet, with an empty store of its own.
It launches one Triton kernel at every key, in an order of its own, in mode `cached` with a lock
file that has half of the keys; the others are inherited. `differ` counts keys on which two
processes launched different configs, `measured` timers that were made, and `clock_reads` calls of
Python's clocks while a config was chosen. In the last start one rank has a lock file with one
config altered: `named_by` counts the ranks whose error names the kernel and that rank.

Then two lock files of `--entries` entries, of which a tenth disagree, are merged by `whet lock
merge`'s own steps: read, merge, write.
"""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch.distributed
import triton
import triton.language as tl

import whet
from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.engine.lockfile.entries import LockEntry, LockFile, read_lock, write_lock
from whet.engine.lockfile.updating import merged
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.call import Call
from whet.targets.triton.keys import workload_key
from whet.targets.triton.target import TritonTarget
from whet.testing.fake_triton import FakeTensor, fake_driver

distributed: Any = torch.distributed

FORK = multiprocessing.get_context("fork")
BLOCKS = (64, 128, 256, 512)
CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")


@triton.jit  # type: ignore[untyped-decorator]
def scale(out, x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, value * 2, mask=offsets < n)


@dataclass
class Tally:
    ranks: int
    starts: int
    keys: int
    processes: int = 0
    differ: int = 0
    measured: int = 0
    clock_reads: int = 0
    digests: int = 0
    inherited: int = 0
    named_by: int = 0
    merge_entries: int = 0
    merge_conflicts: int = 0
    merge_s: list[float] = field(default_factory=list)
    merge_cpu_s: list[float] = field(default_factory=list)


def kernel() -> Any:
    configs = [triton.Config({"BLOCK": block}) for block in BLOCKS]
    return whet.autotune(configs=configs, key=["n"])(scale)


def sizes(keys: int) -> list[int]:
    return [3 + 7 * number * number for number in range(keys)]


def tensors() -> tuple[FakeTensor, FakeTensor]:
    return FakeTensor([0.0]), FakeTensor([1.0], address=8192)


def write_locks(folder: Path, keys: int) -> tuple[Path, Path]:
    """A lock with every other key, and one in which a single config is another."""
    tuner, noise = kernel(), random.Random(0)
    entries = []
    for n in sizes(keys)[::2]:
        out, x = tensors()
        named = workload_key(tuner.keys, {"out": out, "x": x, "n": n}, tuner.whet_buckets)
        workload = TritonTarget(Call(tuner, (out, x, n), {}), tuner.configs, named).workload()
        block = noise.choice(BLOCKS)
        config = TritonTarget(Call(tuner, (out, x, n), {}), tuner.configs, named).menu.plain(
            tuner.configs[BLOCKS.index(block)]
        )
        entries.append(LockEntry.of(workload, config))
    whole, altered = folder / "whet.lock", folder / "altered" / "whet.lock"
    altered.parent.mkdir()
    write_lock(whole, entries)
    other = next(c for c in map(config_of, BLOCKS) if c["BLOCK"] != entries[0].config["BLOCK"])
    changed = replace(entries[0], config=Config({**entries[0].config, "BLOCK": other["BLOCK"]}))
    write_lock(altered, [changed, *entries[1:]])
    return whole, altered


def config_of(block: int) -> Config:
    return Config(BLOCK=block)


@contextmanager
def counted_clocks(count: list[int]) -> Iterator[None]:
    """Counts what Python code asks the clocks while a config is chosen."""
    inside = [False]
    before = {name: getattr(time, name) for one in CLOCKS for name in (one, f"{one}_ns")}
    chosen = Autotuner._chosen

    def counting(read: Any) -> Any:
        def clock() -> Any:
            # A log line has the time of its own, which nothing depends on.
            logged = sys._getframe(1).f_globals.get("__name__") == "logging"
            count[0] += inside[0] and not logged
            return read()

        return clock

    def watched(self: Any, *args: Any) -> Any:
        inside[0] = True
        try:
            return chosen(self, *args)
        finally:
            inside[0] = False

    for name, read in before.items():
        setattr(time, name, counting(read))
    Autotuner._chosen = watched  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Autotuner._chosen = chosen  # type: ignore[method-assign]
        for name, read in before.items():
            setattr(time, name, read)


def rank_body(
    rank: int, size: int, line: Connection, port: int, lock: str, keys: int, seed: int
) -> None:
    os.environ.update(WHET_LOCK=lock, WHET_MODE="cached", WHET_STORE=f"{lock}.{seed}.{rank}.db")
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - what is inherited is said there
    store = distributed.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=60))
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
    tuner, reads, timers = kernel(), [0], [0]

    def timer() -> Any:
        timers[0] += 1
        raise RuntimeError("nothing is to be measured")

    tuner.whet_timer = timer
    order = sizes(keys)
    random.Random(1000 * seed + rank).shuffle(order)
    chosen: dict[int, int] = {}
    error, digest = "", ""
    try:
        with fake_driver(), counted_clocks(reads):
            for n in order:
                tuner[(1,)](*tensors(), n)
                chosen[n] = tuner.best_config.kwargs["BLOCK"]
        digest = whet.digest()
    except whet.RanksDifferError as differ:
        error = str(differ)
        with suppress(whet.RanksDifferError):
            whet.digest()  # for the others, who wait for this rank
    inherited = len(whet.unlocked())
    line.send((chosen, error, digest, reads[0], timers[0], inherited))
    line.recv()


def start(ranks: int, locks: list[Path], keys: int, seed: int) -> list[tuple[Any, ...]]:
    server = distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    lines, processes = [], []
    for rank in range(ranks):
        ours, theirs = FORK.Pipe()
        args = (rank, ranks, theirs, server.port, str(locks[rank]), keys, seed)
        processes.append(FORK.Process(target=rank_body, args=args))
        processes[-1].start()
        lines.append(ours)
    answers = [line.recv() for line in lines]
    for line in lines:
        line.send("end")
    for process in processes:
        process.join()
    return answers


def among_ranks(tally: Tally) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
        with fake_driver():
            whole, altered = write_locks(folder, tally.keys)
            plain = kernel()
            for config in plain.configs:  # compiled once, for all processes
                plain.fn[(1,)](*tensors(), 48, **config.kwargs)
        seen: dict[int, set[int]] = {}
        digests: set[str] = set()
        for seed in range(tally.starts):
            for answer in start(tally.ranks, [whole] * tally.ranks, tally.keys, seed):
                chosen, error, digest, reads, timers, inherited = answer
                assert not error, error
                tally.processes += 1
                tally.clock_reads += reads
                tally.measured += timers
                tally.inherited = inherited
                digests.add(digest)
                for n, block in chosen.items():
                    seen.setdefault(n, set()).add(block)
        tally.digests = len(digests)
        tally.differ = sum(len(blocks) > 1 for blocks in seen.values())
        odd = tally.ranks - 1
        locks = [whole] * odd + [altered]
        for answer in start(tally.ranks, locks, tally.keys, 99):
            tally.named_by += "scale(n=" in answer[1] and f"rank {odd}:" in answer[1]


def entries_of(count: int, seed: int) -> list[LockEntry]:
    """Of a hundred kernels; a tenth are another choice for every seed."""
    shape = LockEntry.of(_workload(), Config())
    noise = random.Random(seed)
    return [
        replace(
            shape,
            kernel=f"kernel_{number % 100}",
            key=FrozenMap({"M": number, "N": 4096, "K": 512, "a.dtype": "torch.float16"}),
            config=Config(
                BLOCK_M=64 if number % 10 else noise.choice((64, 128)) + seed,
                BLOCK_N=128,
                num_warps=4,
                num_stages=3,
            ),
        )
        for number in range(count)
    ]


def _workload() -> Any:
    from whet.testing.samples import a_workload

    return a_workload()


def merging(tally: Tally, count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        ours, theirs, both = (Path(name, one) for one in ("ours.lock", "theirs.lock", "both.lock"))
        write_lock(ours, entries_of(count, 1))
        write_lock(theirs, entries_of(count, 2))
        for _ in range(3):
            began, cpu = time.perf_counter(), time.process_time()
            one = read_lock(ours)
            two = read_lock(theirs, like=one)
            found = merged(one.by_id, two.by_id)
            write_lock(both, found.entries, found.conflicts, str(ours), str(theirs))
            tally.merge_s.append(round(time.perf_counter() - began, 3))
            tally.merge_cpu_s.append(round(time.process_time() - cpu, 3))
        tally.merge_entries = len(LockFile.of(both, found.entries).by_id) + len(found.conflicts)
        tally.merge_conflicts = len(found.conflicts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    tally = Tally(asked.ranks, asked.starts, asked.keys)
    among_ranks(tally)
    if asked.entries:
        merging(tally, asked.entries)
    if asked.json:
        print(json.dumps(asdict(tally)))
        return
    print(f"{tally.processes} processes, {tally.keys} keys each, {tally.inherited} inherited")
    print(f"keys that differ    {tally.differ}")
    print(f"digests             {tally.digests}")
    print(f"timers made         {tally.measured}")
    print(f"clock reads         {tally.clock_reads}")
    print(f"altered lock named  by {tally.named_by} of {tally.ranks} ranks")
    if tally.merge_s:
        median, cpu = map(statistics.median, (tally.merge_s, tally.merge_cpu_s))
        print(f"merge               {tally.merge_entries} keys, {tally.merge_conflicts} conflicts,")
        print(f"                    {median:.2f} s, {cpu:.2f} s of them on the processor")


if __name__ == "__main__":
    main()
