"""The cutting rule, and what it would do to a pool, on a clock that moves only when told."""

from __future__ import annotations

import heapq

from whet.builds.builder import ENOUGH, FACTOR, FLOOR_S, cut_for
from whet.testing.fakes import FakeClock

CEILING_S = 60.0


def limit(
    standing_s: list[float], measured: int = ENOUGH, ceiling_s: float | None = CEILING_S
) -> float:
    cut = cut_for(standing_s, measured, ceiling_s)
    return float("inf") if cut is None else cut.limit_s


def test_a_build_may_take_a_few_times_what_the_slowest_that_may_win_took() -> None:
    assert limit([0.4, 1.5, 0.7]) == FACTOR * 1.5


def test_nothing_is_cut_before_enough_builds_have_led_to_a_measured_config() -> None:
    assert cut_for([1.0] * (ENOUGH - 1), ENOUGH - 1, CEILING_S) is None
    assert cut_for([1.0], ENOUGH, CEILING_S) is not None


def test_nothing_is_cut_while_nobody_that_was_built_is_in_the_race() -> None:
    assert cut_for([], 10, CEILING_S) is None


def test_quick_builds_do_not_make_the_limit_shorter_than_the_floor() -> None:
    assert limit([0.01, 0.02]) == FLOOR_S


def test_the_limit_that_was_set_is_never_exceeded() -> None:
    assert cut_for([25.0], 5, CEILING_S) is None
    assert limit([25.0], ceiling_s=None) == FACTOR * 25.0


def test_the_text_says_what_the_limit_came_from() -> None:
    slow, quick = cut_for([0.97], 3, CEILING_S), cut_for([0.3], 3, CEILING_S)
    assert slow is not None
    assert quick is not None
    assert "2.9 s: 3 times" in slow.text
    assert slow.text.endswith("(0.97 s)")
    assert f"after {FLOOR_S:.2g} s: " in quick.text
    assert "took 0.3 s" in quick.text


def built_on(workers: int, seconds: list[float], *, cutting: bool) -> tuple[float, list[float]]:
    """When a pool is done with builds that would take so long, and which of them it cut.

    Every finished build is measured at once and stays in the race.
    """
    clock, finished, cut = FakeClock(), list[float](), list[float]()
    waiting, running = list(reversed(seconds)), list[tuple[float, float]]()
    while waiting or running:
        while waiting and len(running) < workers:
            took = waiting.pop()
            heapq.heappush(running, (clock() / 1e9 + took, took))
        allowed = limit(finished, len(finished)) if cutting else CEILING_S
        ends = [(min(end, end - took + allowed), end, took) for end, took in running]
        moment, end, took = min(ends)
        running.remove((end, took))
        clock.advance(max(0.0, moment * 1e9 - clock()))
        (finished if took <= allowed else cut).append(took)
    return clock() / 1e9, cut


def test_a_few_endless_builds_no_longer_decide_when_a_pool_is_done() -> None:
    seconds = [1.0, 50.0, 0.8, 1.2, 55.0, 1.1, 0.9, 1.0]
    without, _ = built_on(2, seconds, cutting=False)
    with_cuts, cut = built_on(2, seconds, cutting=True)
    assert cut == [50.0, 55.0]
    assert without > 55.0
    assert with_cuts < 10.0


def test_a_good_config_that_builds_slowly_raises_the_limit_for_those_after_it() -> None:
    _, cut = built_on(1, [1.0, 1.0, 1.0, 2.8, 8.0, 30.0], cutting=True)
    assert cut == [30.0]
