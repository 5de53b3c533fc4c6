"""What random search can promise, by the formula and by trying."""

from __future__ import annotations

import pytest
from table_samples import a_large_table, a_table

from whet.core.config import Config
from whet.core.status import Status
from whet.replay import Build, TableOutcome, TableWorkload
from whet.replay.lab import (
    Experiment,
    cases_of,
    chance,
    draws_for,
    fastest,
    replay,
    share_of_repeats,
)


def test_thirty_random_configs_are_not_enough_for_a_fastest_twentieth() -> None:
    assert chance(0.05, 30) == pytest.approx(0.7854, abs=1e-4)
    assert chance(0.05, 58) < 0.95 < chance(0.05, 59)
    assert draws_for(0.05) == 59


def test_the_fastest_share_counts_configs_that_fail_and_has_none_of_them() -> None:
    outcomes = [TableOutcome(Status.OK, ((ns,) * 3,)) for ns in (500, 100, 300)]
    outcomes += [TableOutcome(Status.RUN_ERROR)] * 7
    table = a_table(
        configs=tuple(Config(B=at) for at in range(10)),
        builds=(Build(Status.OK, 1.0),) * 10,
        workloads=(TableWorkload.of({}, outcomes),),
    )
    case = cases_of("t", table)[0]
    assert fastest(case, 0.2) == {1, 2}
    assert fastest(case, 0.01) == {1}
    assert fastest(case, 0.9) == {0, 1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("draws", [30, 59])
def test_random_search_does_as_the_formula_says(draws: int) -> None:
    """But for its first config, which is the author's, and for never drawing one twice."""
    case = cases_of("t", a_large_table(600, 1, 1, 5))[0]
    found = replay(Experiment((case,), ("random",), draws, repeats=300))[0]
    assert share_of_repeats(found, fastest(case, 0.05), draws) == pytest.approx(
        chance(0.05, draws), abs=0.08
    )
