"""Races on recorded samples: whet's own race and duel, without a device."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from whet.measure import Duel, Race
from whet.replay.charges import NS_PER_S, Overhead, build_s
from whet.replay.forking import forked
from whet.replay.pareto import Cloud, Paper
from whet.replay.table import Table, TableWorkload

Take = Callable[[int, int], list[float]]


class Track:
    """One workload to race on: samples are drawn from those of one visit at a time."""

    def __init__(self, table: Table, workload: TableWorkload) -> None:
        self.works = [int(at) for at in np.flatnonzero(~np.isnan(workload.medians))]
        self.visits = {at: workload.samples(at) for at in self.works}
        self.overhead = {at: Overhead.of(workload, at) for at in self.works}
        self.build_s = {at: build_s(table, at) for at in self.works}
        self.median_ns = workload.medians
        self.best_ns = float(np.nanmin(workload.medians))

    def race(self, chosen: Sequence[int], rng: random.Random) -> tuple[int, float]:
        """The winner among `chosen`, and the seconds it took to load and measure them."""
        spent = 0.0

        def take(at: int, samples: int) -> list[float]:
            nonlocal spent
            visit = rng.choice(self.visits[at])
            drawn = [rng.choice(visit) for _ in range(samples)]
            spent += sum(drawn) / NS_PER_S + samples * self.overhead[at].each
            return drawn

        race = Race()
        for order, at in enumerate(chosen):
            spent += self.overhead[at].once
            race.enter(str(at), order)
            race.record(str(at), take(at, race.policy.first_samples))
            for request in race.plan(more=True):
                race.record(request.id, take(int(request.id), request.samples))
        while requests := race.plan():
            for request in requests:
                if race.verdict(request.id) == "in":
                    race.record(request.id, take(int(request.id), request.samples))
        winner = _duel(race, take)
        return winner, spent


def racing_clouds(
    table: Table,
    workloads: Sequence[TableWorkload],
    paper: Paper,
    draws: int,
    jobs: int = 1,
    done: Callable[[int, int], None] | None = None,
) -> list[Cloud]:
    """The first draws of the paper's simulation, raced instead: with sequential and with parallel
    compilation. `EXEC_TIME` has no meaning here, the race decides how long to look at a config.
    """
    used = sorted({int(number) for number in paper.workload[:draws]})
    tracks = {number: Track(table, workloads[number]) for number in used}
    every: list[list[tuple[float, ...]]] = []
    for one in forked(_race_draw, (paper, tracks), range(draws), jobs):
        every.append(one)
        if done is not None:
            done(len(every), draws)
    found = np.array(every)
    raced, compiled, fraction = (found[:, :, at] for at in range(3))
    configs = paper.configs[:draws]
    share = paper.plan.compile_share(configs)[:, None]
    return [
        Cloud("racing", raced + compiled, fraction, configs),
        Cloud(f"racing + {paper.plan.parallel}", raced + compiled * share, fraction, configs),
    ]


def _race_draw(shared: tuple[Paper, dict[int, Track]], draw: int) -> list[tuple[float, ...]]:
    """By run: seconds of racing and of compiling, and the fraction found."""
    paper, tracks = shared
    track = tracks[int(paper.workload[draw])]
    found: list[tuple[float, ...]] = []
    for run in range(paper.plan.runs):
        rows = paper.chosen[draw * paper.plan.runs + run, : paper.configs[draw]]
        chosen = [track.works[row] for row in rows]
        winner, raced = track.race(chosen, random.Random(f"{paper.plan.seed} {draw} {run}"))
        compiled = sum(track.build_s[at] for at in chosen)
        found.append((raced, compiled, track.best_ns / float(track.median_ns[winner])))
    return found


def _duel(race: Race, take: Take) -> int:
    live = race.live
    duel = Duel(live, order={id: int(id) for id in live}, earlier=race.passes(live))
    while turn := duel.next_round():
        duel.record_round({id: take(int(id), 1)[0] for id in turn})
    return int(duel.outcome.winner or live[0])
