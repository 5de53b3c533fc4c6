"""Ranks of a process group (gloo, CPU) that tune the same kernels at about the same time.

    python benchmarks/ranks.py [--ranks 8] [--repeats 100] [--kills 10] [--seed 0] [--json]

Every rank is a process with a store of its own, and reaches each kernel up to 20 ms earlier or
later than the others. A kernel has six configs within 5 %, in another order on every rank, and a
noise of 2 %: processors of one kind are not quite the same.

`alone_differ` counts the kernels on which the ranks differ without agreement, `differ` those with
it. Then, again and again, the rank that tunes is killed with SIGKILL in the midst of it: the others
must all choose, and the same, within the deadline (`WHET_AGREE_WAIT`, here 60 s, which makes a
silence of 2 s a death). The process that serves the key-value store is not a rank, as under
`torchrun`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, cast

import torch.distributed

import whet
from whet.engine.settings import Settings

distributed: Any = torch.distributed

CONFIGS = 6
WAIT_S = 60.0
FORK = multiprocessing.get_context("fork")

Body = Callable[[int, Connection, Mapping[str, Any]], None]


@dataclass
class Tally:
    ranks: int
    kernels: int = 0
    alone_differ: int = 0
    differ: int = 0
    kills: int = 0
    survived: int = 0
    survivors_differ: int = 0
    slowest_after_kill_s: float = 0.0


class Kernel:
    """The same code on every rank, on a processor of its own: each config takes `call_s`, give or
    take what the rank and chance add. `news` gets a word at the first call."""

    def __init__(
        self,
        rank: int,
        seed: int,
        repeat: int,
        call_s: float = 2e-5,
        news: Connection | None = None,
    ) -> None:
        bias = random.Random(f"{seed} {rank} {repeat}")
        self._seconds = [call_s * bias.uniform(1.0, 1.05) for _ in range(CONFIGS)]
        self._noise = random.Random(rank)
        self._news = news

    def __call__(self, block: int) -> None:
        if self._news is not None:
            self._news.send("tuning")
            self._news = None
        until = time.perf_counter() + self._seconds[block] * self._noise.uniform(1.0, 1.02)
        while time.perf_counter() < until:
            pass


def choose(kernel: Kernel, repeat: int) -> int:
    target = whet.function(
        kernel,
        {"block": list(range(CONFIGS))},
        key={"repeat": repeat},
        isolate=False,
    )
    result = whet.tune(target, store=":memory:", settings=Settings(agree_wait_s=WAIT_S))
    return cast(int, result.config["block"])


def join_group(rank: int, line: Connection, size: int) -> None:
    port = line.recv()
    store = distributed.TCPStore("127.0.0.1", port, size, False, timedelta(seconds=120))
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)


def many_kernels(rank: int, line: Connection, asked: Mapping[str, Any]) -> None:
    if asked["agree"]:
        join_group(rank, line, asked["ranks"])
    skew = random.Random(1000 + rank)
    chosen = []
    for repeat in range(asked["repeats"]):
        time.sleep(skew.uniform(0.0, 0.02))
        chosen.append(choose(Kernel(rank, asked["seed"], repeat), repeat))
    line.send(chosen)


def one_kernel(rank: int, line: Connection, asked: Mapping[str, Any]) -> None:
    """The rank that is to die asks first, the others when it is at it."""
    join_group(rank, line, asked["ranks"])
    if rank == asked["doomed"]:
        choose(Kernel(rank, asked["seed"], 0, call_s=60.0, news=line), 0)
    else:
        line.recv()
        line.send((choose(Kernel(rank, asked["seed"], 0), 0), time.time()))


def start(body: Body, asked: Mapping[str, Any]) -> list[tuple[BaseProcess, Connection]]:
    """Ranks are forked before anything else is started, so that they inherit no threads."""
    ranks: list[tuple[BaseProcess, Connection]] = []
    for rank in range(asked["ranks"]):
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=body, args=(rank, theirs, asked), daemon=True)
        process.start()
        theirs.close()
        ranks.append((process, ours))
    return ranks


def serve(ranks: list[tuple[BaseProcess, Connection]]) -> Any:
    server = distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    for _, line in ranks:
        line.send(server.port)
    return server


def chosen_by_all(asked: Mapping[str, Any]) -> list[tuple[int, ...]]:
    ranks = start(many_kernels, asked)
    server = serve(ranks) if asked["agree"] else None
    answers = [line.recv() for _, line in ranks]
    for process, _ in ranks:
        process.join()
    del server
    return list(zip(*answers, strict=True))


def one_kill(asked: Mapping[str, Any], tally: Tally) -> None:
    ranks = start(one_kernel, asked)
    server = serve(ranks)
    doomed, news = ranks.pop(asked["doomed"])
    news.recv()
    for _, line in ranks:
        line.send("go")
    time.sleep(asked["moment"])
    assert doomed.pid is not None
    os.kill(doomed.pid, signal.SIGKILL)
    killed = time.time()
    tally.kills += 1
    answers = []
    for _, line in ranks:
        if line.poll(max(0.0, killed + WAIT_S - time.time())):
            answers.append(line.recv())
    tally.survived += len(answers) == len(ranks)
    tally.survivors_differ += len({chosen for chosen, _ in answers}) > 1
    last = max((moment for _, moment in answers), default=killed + WAIT_S)
    tally.slowest_after_kill_s = max(tally.slowest_after_kill_s, round(last - killed, 2))
    for process, _ in ranks:
        process.kill()
        process.join()
    del server


def differing(choices: list[tuple[int, ...]]) -> int:
    return sum(len(set(of_one_kernel)) > 1 for of_one_kernel in choices)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    asked = {"ranks": given.ranks, "repeats": given.repeats, "seed": given.seed}
    tally = Tally(given.ranks, given.repeats)
    tally.alone_differ = differing(chosen_by_all({**asked, "agree": False}))
    tally.differ = differing(chosen_by_all({**asked, "agree": True}))
    rng = random.Random(given.seed)
    for _ in range(given.kills):
        doomed, moment = rng.randrange(given.ranks), rng.uniform(0.0, 3.0)
        one_kill({**asked, "doomed": doomed, "moment": moment}, tally)
    if given.json:
        print(json.dumps(asdict(tally)))
    else:
        for name, value in asdict(tally).items():
            print(f"{name:22}{value:>8}")
    sys.exit(1 if tally.differ or tally.survivors_differ or tally.survived < tally.kills else 0)


if __name__ == "__main__":
    main()
