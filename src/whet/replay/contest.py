"""Strategies against each other on recorded tables: all that `whet compare-searches` simulates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from whet.core.frozen import FrozenMap
from whet.replay.lab import Case, Experiment, Replayed, replay
from whet.replay.scores import Axis, Baseline, score
from whet.replay.standing import Standing

AXES: tuple[Axis, ...] = ("evaluations", "time")

# A repeat of random search takes milliseconds, and scatters more than that of any other.
RANDOM_TIMES = 10


@dataclass(frozen=True, eq=False)
class StrategyComparison:
    baselines: tuple[Baseline, ...]
    found: tuple[Replayed, ...]
    standings: Mapping[Axis, Standing]

    def own_ms(self, search: str) -> float:
        """The strategy's own time per evaluation."""
        mine = [one.search_ms_per_eval for one in self.found if one.search == search]
        return sum(mine) / len(mine)


def contest(
    cases: Sequence[Case],
    searches: Sequence[str],
    evals: int,
    repeats: int,
    seed: int = 0,
    jobs: int = 1,
    done: Callable[[int, int], None] | None = None,
) -> StrategyComparison:
    """No tuning goes on beyond what is scored."""
    baselines = tuple(Baseline(case, evals) for case in cases)
    often = {"random": RANDOM_TIMES * repeats} if repeats > 1 else {}
    experiment = Experiment(
        tuple(cases),
        tuple(searches),
        evals,
        repeats,
        seed,
        repeats_of=FrozenMap(often),
        horizons=tuple(one.horizon for one in baselines),
    )
    found = tuple(replay(experiment, jobs, done))
    by_search = {name: [one for one in found if one.search == name] for name in searches}
    standings = {
        axis: Standing.of([score(mine, baselines, axis) for mine in by_search.values()])
        for axis in AXES
    }
    return StrategyComparison(baselines, found, standings)
