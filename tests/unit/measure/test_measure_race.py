"""The race as a state machine: who is asked for, who is out, and why."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from scipy.stats import norm, t

from whet.measure.racing.race import Exit, Race, RacePolicy, SampleRequest
from whet.measure.racing.stats import percent_text
from whet.testing.fakes import FakeDevice, NoiseModel


def settled_race(noise: float = 0.01, configs: int = 30, **policy: float) -> Race:
    """A race in which the noise is known, with "best" at 100 µs well ahead of the others."""
    race = Race(RacePolicy(**policy))  # type: ignore[arg-type]
    met(race, "best", 100_000, 100_000 * (1 + noise), order=0)
    for k in range(configs):
        race.enter(f"slow{k}", k + 1)
        race.record(f"slow{k}", [900_000, 900_000 * (1 + noise)])
    return race


def met(race: Race, id: str, *samples: float, order: int = 99) -> tuple[Exit, ...]:
    race.enter(id, order)
    return race.record(id, samples)


def finish(race: Race, device: FakeDevice, truth: dict[str, float]) -> int:
    """Does all that the race asks for; returns how many samples that took."""
    taken = 0
    while requests := race.plan():
        for request in requests:
            if race.verdict(request.id) == "in":
                race.record(request.id, device.sample(truth[request.id], request.samples))
                taken += request.samples
    return taken


class TestFirstLooks:
    def test_one_who_is_far_behind_is_out_at_once(self) -> None:
        race = settled_race()
        (gone,) = met(race, "new", 400_000, 404_000)
        assert gone.id == "new"
        assert race.verdict("new") == "out"

    def test_the_reason_compares_the_two_times(self) -> None:
        race = settled_race()
        (gone,) = met(race, "new", 400_000, 404_000)
        time, _, best = gone.reason.partition(" cannot beat ")
        assert time.startswith("400 µs ± ")
        assert best.startswith("100 µs ± ")
        assert best.endswith(" %")
        assert race.reason("new") == gone.reason

    def test_one_who_comes_close_stays_in(self) -> None:
        race = settled_race()
        assert met(race, "new", 101_000, 102_000) == ()
        assert race.verdict("new") == "in"

    def test_one_who_is_better_puts_the_old_best_out(self) -> None:
        race = settled_race()
        (gone,) = met(race, "new", 40_000, 40_400)
        assert gone.id == "best"
        assert race.incumbent == "new"

    def test_one_bad_sample_of_two_changes_nothing(self) -> None:
        race = settled_race()
        assert met(race, "new", 99_000, 900_000) == ()

    def test_a_single_bad_sample_is_looked_at_twice(self) -> None:
        race = settled_race(first_samples=1)
        assert met(race, "new", 290_000) == ()
        assert race.plan() == [SampleRequest("new", 1)]
        race.record("new", [99_000])
        assert race.verdict("new") == "in"

    def test_a_single_sample_is_enough_for_the_hopeless(self) -> None:
        race = settled_race(first_samples=1)
        assert [gone.id for gone in met(race, "new", 9_000_000)] == ["new"]

    def test_few_known_gaps_make_nobody_sure(self) -> None:
        race = Race()
        for k, ns in enumerate([100_000, 110_000, 120_000]):
            race.enter(str(k), k)
            assert race.record(str(k), [ns, ns * 1.01]) == ()
        assert race.live == ("0", "1", "2")

    def test_entering_twice_is_refused(self) -> None:
        race = Race()
        race.enter("a", 0)
        with pytest.raises(ValueError, match="already in the race"):
            race.enter("a", 1)


def limit_ns(verdict: Callable[[float], str], low: float, high: float) -> float:
    """The time from which on the verdict is "out"."""
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if verdict(middle) == "out" else (middle, high)
    return low


def half_width(
    readings: int, gaps: int, *, shared: float = 0.01, noise: float | None = None
) -> float:
    """By Student's quantile: a degree of freedom for three gaps, which are as wide as two normal
    readings make them, and what a visit's readings have in common."""
    own = math.log(1.01) / (math.sqrt(2) * norm.ppf(0.75)) if noise is None else noise
    width = min(1.0, math.sqrt(math.pi / 2 / readings))
    return float(t.ppf(0.975, max(1, gaps // 3)) * math.hypot(own * width, shared))


class TestLimits:
    """Where exactly a verdict changes: where the ends of two intervals meet."""

    def looked_at(self, ns: float, samples: int = 2, **policy: float) -> Race:
        race = settled_race(**policy)
        race.enter("new", 99)
        race.record("new", [ns, ns * 1.01][:samples])
        return race

    def test_one_and_a_half_times_slower_is_out_at_once(self) -> None:
        found = limit_ns(lambda ns: self.looked_at(ns).verdict("new"), 1e5, 1e6)
        assert found == pytest.approx(1e5 * 1.5 * math.exp(2 * half_width(2, 32)), rel=1e-4)

    def test_four_times_slower_is_out_by_a_single_sample(self) -> None:
        found = limit_ns(lambda ns: self.looked_at(ns, 1).verdict("new"), 1e5, 1e7)
        halves = half_width(1, 31) + half_width(2, 31)
        assert found == pytest.approx(1e5 * 4 * math.exp(halves), rel=1e-4)

    def test_one_whose_interval_does_not_meet_the_best_ones_waits(self) -> None:
        found = limit_ns(lambda ns: "out" if self.looked_at(ns).plan() else "in", 1e5, 1.5e5)
        assert found == pytest.approx(1e5 * math.exp(2 * half_width(2, 32)), rel=1e-4)

    def test_what_anybody_may_claim_is_limited_from_below(self) -> None:
        def verdict(ns: float) -> str:
            race = settled_race(noise=1e-9, visit_noise=0.03)
            met(race, "new", ns, ns)
            return race.verdict("new")

        half = half_width(2, 32, shared=0.03, noise=0.005)
        assert limit_ns(verdict, 1e5, 1e6) == pytest.approx(1.5e5 * math.exp(2 * half), rel=1e-4)

    def test_samples_of_an_earlier_run_have_more_in_common(self) -> None:
        def verdict(ns: float) -> str:
            race = Race()
            race.enter("stored", 0, prior=[100_000, 101_000] * 15)
            met(race, "new", ns, ns * 1.01, order=1)
            return race.verdict("new")

        halves = half_width(30, 30, shared=0.02) + half_width(2, 30)
        assert limit_ns(verdict, 1e5, 1e6) == pytest.approx(1e5 * math.exp(halves), rel=1e-4)

    def test_a_second_visit_makes_both_surer(self) -> None:
        """The best was visited twice, at the same level: four readings, of two visits."""

        def verdict(ns: float) -> str:
            race = self.looked_at(ns)
            race.record("best", [100_000, 101_000])
            return race.verdict("new")

        best = half_width(4, 33, shared=0.01 / math.sqrt(2))
        expected = 1e5 * math.exp(best + half_width(2, 33))
        assert limit_ns(verdict, 1e5, 1.4e5) == pytest.approx(expected, rel=1e-4)

    @pytest.mark.medium
    def test_a_small_move_of_the_best_is_noise_and_a_greater_one_the_devices(self) -> None:
        """√2 times what one visit may be off. After it, "new" was looked at somewhere between both
        levels, and the best twice at a known one."""

        def verdict(ns: float, move: float) -> str:
            race = self.looked_at(ns)
            race.record("best", [100_000 * move, 101_000 * move])
            return race.verdict("new")

        limit = math.sqrt(2) * half_width(2, 33)
        for move, moved in ((limit * 0.99, 0.0), (limit * 1.01, limit * 1.01)):
            best = half_width(4, 33, shared=0.01 / math.sqrt(2))
            # Of four readings the lower of the middle two, of those brought to one level.
            logs = sorted([0.0, math.log(1.01), move - moved, math.log(1.01) + move - moved])
            margin = logs[1] + best + half_width(2, 33) + moved / 2 + moved / 2
            found = limit_ns(lambda ns, move=move: verdict(ns, math.exp(move)), 1e5, 1.4e5)
            assert found == pytest.approx(1e5 * math.exp(margin), rel=1e-4)

    def test_slower_means_that_intervals_do_not_meet(self) -> None:
        found = limit_ns(
            lambda ns: "out" if self.looked_at(ns).slower("new", "best") else "in", 1e5, 1.4e5
        )
        assert found == pytest.approx(1e5 * math.exp(2 * half_width(2, 32)), rel=1e-4)
        race = self.looked_at(120_000)
        assert not race.slower("best", "new")
        assert not race.slower("nobody", "best")
        race.enter("unseen", 100)
        assert not race.slower("unseen", "best")

    def test_slower_than_what_was_stored_too(self) -> None:
        def verdict(ns: float) -> str:
            race = Race()
            race.enter("stored", 0, prior=[100_000, 101_000] * 15)
            met(race, "new", ns, ns * 1.01, order=1)
            return "out" if race.slower("new", "stored") else "in"

        halves = half_width(30, 30, shared=0.02) + half_width(2, 30)
        assert limit_ns(verdict, 1e5, 1e6) == pytest.approx(1e5 * math.exp(halves), rel=1e-4)

    def test_how_much_levels_move_is_believed_from_the_third_visit_on(self) -> None:
        race = settled_race()
        assert race.noise == pytest.approx(math.log(1.01) / (math.sqrt(2) * norm.ppf(0.75)))
        for visits in range(1, 4):
            race.record("best", [104_000, 105_040] if visits % 2 else [100_000, 101_000])
            if visits < 3:
                assert race.noise < 0.011
        moves = [math.log(1.04), math.log(1.04), math.log(1.04) - math.log(1.01)]
        assert race.noise == pytest.approx(
            sorted(moves)[1] / (math.sqrt(2) * norm.ppf(0.75)), rel=0.3
        )

    def test_before_anything_is_known_the_noise_is_that_between_visits(self) -> None:
        assert Race().noise == 0.01
        assert Race(RacePolicy(visit_noise=0.001)).noise == 0.005

    def test_a_reason_says_both_times_with_their_ends(self) -> None:
        gone = self.looked_at(400_000).reason("new")
        share = percent_text(math.expm1(half_width(2, 32)))
        assert gone == f"400 µs ± {share} cannot beat 100 µs ± {share}"


class TestAnchor:
    """A close call waits until the best has been sampled again."""

    def test_a_close_call_waits_for_it(self) -> None:
        race = settled_race()
        assert met(race, "new", 120_000, 121_000) == ()
        assert race.plan() == [SampleRequest("best", 2)]
        (gone,) = race.record("best", [100_000, 101_000])
        assert gone.id == "new"

    def test_while_more_are_to_come_it_is_taken_for_several_calls_at_once(self) -> None:
        race = settled_race(anchor_every=3)
        for k in range(3):
            assert race.plan(more=True) == []
            met(race, f"new{k}", 120_000, 121_000, order=99 + k)
        assert race.plan(more=True) == [SampleRequest("best", 2)]
        gone = race.record("best", [100_000, 101_000])
        assert {one.id for one in gone} == {"new0", "new1", "new2"}

    def test_who_misses_narrowly_is_looked_at_once_more_where_the_policy_says_so(self) -> None:
        race = settled_race(second_visit=1.3)
        met(race, "unlucky", 120_000, 121_000)
        assert race.plan() == [SampleRequest("best", 2)]
        assert race.record("best", [100_000, 101_000]) == ()
        assert race.plan() == [SampleRequest("unlucky", 2)]
        race.record("unlucky", [99_000, 99_500])
        race.plan()
        race.record("best", [100_000, 101_000])
        assert race.verdict("unlucky") == "in"

    def test_who_misses_narrowly_twice_is_out(self) -> None:
        race = settled_race(second_visit=1.3)
        met(race, "slow", 120_000, 121_000)
        race.plan()
        race.record("best", [100_000, 101_000])
        race.plan()
        race.record("slow", [120_000, 121_000])
        race.plan()
        race.record("best", [100_000, 101_000])
        assert race.verdict("slow") == "out"

    def test_if_the_device_has_slowed_down_the_call_is_off(self) -> None:
        race = settled_race()
        met(race, "new", 120_000, 121_000)
        race.plan()
        assert race.record("best", [125_000, 126_000]) == ()
        assert race.verdict("new") == "in"

    def test_later_looks_are_compared_at_the_new_pace(self) -> None:
        race = settled_race()
        met(race, "as good", 120_000, 121_000)
        race.plan()
        race.record("best", [125_000, 126_000])
        met(race, "worse", 150_000, 151_000, order=100)
        met(race, "better", 112_000, 113_000, order=101)
        (request,) = race.plan()
        race.record(request.id, [125_000, 126_000])
        assert race.verdict("worse") == "out"
        assert race.verdict("better") == "in"

    def test_how_much_the_best_moves_between_visits_is_learned(self) -> None:
        steady, restless = settled_race(), settled_race()
        for k in range(8):
            steady.record("best", [100_000, 101_000])
            restless.record("best", [97_500, 98_500] if k % 2 else [102_500, 103_500])
        for race in (steady, restless):
            met(race, "new", 107_000, 108_000)
            for request in race.plan():
                race.record(request.id, [100_000, 101_000])
        assert steady.verdict("new") == "out"
        assert restless.verdict("new") == "in"


class TestPrior:
    """Samples of an earlier run stand for a first look."""

    def with_stored_best(self) -> Race:
        race = Race()
        race.enter("stored", 0, prior=[100_000 * (1 + 0.001 * k) for k in range(30)])
        return race

    def test_a_newcomer_who_is_clearly_slower_leaves_it_unsampled(self) -> None:
        race = self.with_stored_best()
        (gone,) = met(race, "new", 130_000, 131_000, order=1)
        assert gone.id == "new"
        assert race.plan() == []
        assert race.live == ("stored",)

    def test_a_newcomer_within_its_noise_leaves_both_in(self) -> None:
        race = self.with_stored_best()
        assert met(race, "new", 103_000, 104_000, order=1) == ()
        assert set(race.live) == {"stored", "new"}

    @pytest.mark.parametrize(("rerun_noise", "verdict"), [(0.02, "in"), (0.001, "out")])
    def test_samples_of_another_day_say_less(self, rerun_noise: float, verdict: str) -> None:
        race = Race(RacePolicy(rerun_noise=rerun_noise))
        race.enter("stored", 0, prior=[100_000, 100_100] * 15)
        met(race, "new", 106_000, 106_100, order=1)
        assert race.verdict("new") == verdict

    def test_a_newcomer_who_is_clearly_faster_puts_it_out(self) -> None:
        race = self.with_stored_best()
        (gone,) = met(race, "new", 60_000, 60_500, order=1)
        assert gone.id == "stored"

    def test_fresh_samples_replace_the_stored_ones(self) -> None:
        race = self.with_stored_best()
        for k in range(20):
            met(race, f"new{k}", 103_000, 103_500, order=k + 1)
        race.record("stored", [140_000, 141_000])
        finish(race, FakeDevice(), {"stored": 140_000, **{f"new{k}": 103_000 for k in range(20)}})
        assert race.verdict("stored") == "out"


class TestRounds:
    def crowd(self, count: int = 10, **policy: float) -> Race:
        race = Race(RacePolicy(**policy))  # type: ignore[arg-type]
        for k in range(count):
            race.enter(str(k), k)
            race.record(str(k), [100_000.0 + k, 101_000.0 + k])
        return race

    def test_few_enough_need_none(self) -> None:
        assert self.crowd(4).plan() == []

    def test_a_pass_asks_once_for_each_and_the_next_turns_the_order(self) -> None:
        race = self.crowd(6)
        first = race.plan()
        assert sorted(request.id for request in first) == [str(k) for k in range(6)]
        assert {request.samples for request in first} == {1}
        for request in first:
            race.record(request.id, [100_000])
        assert race.plan() == first[::-1]

    def test_a_plan_half_done_goes_on_where_it_stopped(self) -> None:
        race = self.crowd(6)
        first = race.plan()
        race.record(first[0].id, [100_000])
        assert race.plan() == first[1:]

    def test_they_end_with_the_finalists_best_first(self) -> None:
        truth = {str(k): 100_000 * (1 + 0.05 * k) for k in range(10)}
        race = self.crowd(finalists=3)
        finish(race, FakeDevice(NoiseModel(gaussian=0.01), seed=1), truth)
        assert race.live == ("0", "1", "2")[: len(race.live)]
        assert race.live[0] == "0"
        assert race.plan() == []

    def test_its_passes_can_be_read_for_those_who_took_part_in_them(self) -> None:
        race = self.crowd(6)
        for request in race.plan():
            race.record(request.id, [1000.0 * (1 + int(request.id))])
        race.record(race.plan()[0].id, [1.0])
        (whole,) = race.passes(["2", "1"])
        assert whole == pytest.approx({"2": 3000.0, "1": 2000.0})
        assert race.passes(["1", "nobody"]) == []

    def test_before_the_first_there_are_none(self) -> None:
        assert self.crowd(6).passes(["0"]) == []

    def test_equals_are_cut_to_the_finalists_and_the_reason_says_so(self) -> None:
        truth = {str(k): 100_000.0 for k in range(10)}
        race = self.crowd(finalists=3)
        finish(race, FakeDevice(NoiseModel(gaussian=0.01), seed=1), truth)
        assert len(race.live) == 3
        cut = [race.reason(id) for id in truth if race.verdict(id) == "out"]
        assert any("3 enter" in reason for reason in cut)

    def test_nobody_is_sampled_beyond_the_limit(self) -> None:
        race = self.crowd(10, max_samples=8, precision=0.0)
        taken = finish(
            race,
            FakeDevice(NoiseModel(gaussian=0.05), seed=2),
            {str(k): 100_000.0 for k in range(10)},
        )
        assert taken <= 8 * 10

    def test_precise_samples_end_them_early(self) -> None:
        truth = {str(k): 100_000.0 for k in range(10)}
        assert finish(self.crowd(10), FakeDevice(), truth) <= 4 * 10

    def run_passes(self, race: Race, times: list[dict[str, float]]) -> None:
        for passed in times:
            for request in race.plan():
                race.record(request.id, [passed[request.id]])

    def test_a_change_of_pace_between_passes_is_taken_out(self) -> None:
        race = self.crowd(6, finalists=2)
        truth = {str(k): 100_000 * (1.0 if k < 2 else 1.1) for k in range(6)}
        paces = (1.0, 1.3, 1.0, 1.3)
        self.run_passes(race, [{id: ns * pace for id, ns in truth.items()} for pace in paces])
        assert race.live == ("0", "1")

    @pytest.mark.parametrize(
        ("last", "verdict"), [([1.08, 1.08, 1.08, 1.08], "out"), ([1.08, 1.3, 1.08, 1.3], "in")]
    )
    def test_one_who_is_noisier_than_the_others_gets_more_room(
        self, last: list[float], verdict: str
    ) -> None:
        race = self.crowd(6, finalists=2, precision=0.0)
        others = dict.fromkeys((str(k) for k in range(5)), 100_000.0)
        odd = [1.0, 1.0, 1.0, 1.08, *last]
        self.run_passes(race, [{**others, "5": 100_000 * factor} for factor in odd])
        assert race.verdict("5") == verdict

    def test_who_cannot_win_is_out_where_its_interval_does_not_meet_the_best_ones(self) -> None:
        """Two passes of six configs have six gaps: two degrees of freedom, at the noise floor."""

        def verdict(ns: float) -> str:
            race = self.crowd(6, finalists=2, precision=0.0)
            times = {str(k): 100_000.0 + k for k in range(6)}
            self.run_passes(race, [{**times, "5": ns}] * 2)
            assert race.rounds == 1
            return race.verdict("5")

        half = t.ppf(0.975, 2) * math.sqrt(math.pi / 4) * 0.005
        expected = 100_000 * math.exp(2 * half)
        assert limit_ns(verdict, 1e5, 2e5) == pytest.approx(expected, rel=1e-4)

    def test_the_noise_of_a_pass_is_that_of_all_configs_together(self) -> None:
        """The median of the gaps between two passes: four configs moved by two per cent."""

        def verdict(ns: float) -> str:
            race = self.crowd(7, finalists=2, precision=0.0)
            times = {str(k): 100_000.0 for k in range(7)}
            other = {**times, "0": 102_000.0, "1": 102_000.0, "2": 98_000.0, "3": 98_000.0}
            self.run_passes(race, [{**times, "5": ns}, {**other, "5": ns}])
            return race.verdict("5")

        noise = math.log(1.02) / (math.sqrt(2) * norm.ppf(0.75))
        half = t.ppf(0.975, 2) * math.sqrt(math.pi / 4) * noise
        expected = 98_000 * math.exp(2 * half)
        assert limit_ns(verdict, 1e5, 2e5) == pytest.approx(expected, rel=1e-4)

    def test_rounds_grow_twofold(self) -> None:
        race = self.crowd(10, finalists=2, precision=0.0, max_samples=8)
        after = []
        for passes in range(1, 9):
            self.run_passes(race, [{str(k): 100_000.0 + k for k in range(10)}])
            after.append((passes, race.rounds))
        assert after == [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2), (7, 2), (8, 3)]
        assert race.plan() == []

    def test_of_a_crowd_the_better_half_goes_on(self) -> None:
        for count, left in ((40, 20), (41, 21), (20, 16)):
            race = self.crowd(count, precision=0.0)
            self.run_passes(race, [{str(k): 100_000.0 + 10 * k for k in range(count)}] * 2)
            assert race.live == tuple(str(k) for k in range(left))
            reason = race.reason(str(count - 1))
            assert f"place {count} after 2 passes" in reason
            assert f"best {left} " in reason

    @pytest.mark.parametrize(("precision", "over"), [(0.0191, True), (0.0190, False)])
    def test_they_end_where_the_best_is_known_within_the_precision(
        self, precision: float, over: bool
    ) -> None:
        """t(2) × √(π/4) × 0.005 = 0.01907."""
        race = self.crowd(6, finalists=2, precision=precision)
        self.run_passes(race, [{str(k): 100_000.0 + k for k in range(6)}] * 2)
        assert (race.plan() == []) is over
        assert len(race.live) == (2 if over else 6)

    def test_a_reason_says_both_times_with_their_ends_there_too(self) -> None:
        race = self.crowd(6, finalists=2, precision=0.0)
        times = {str(k): 100_000.0 + k for k in range(6)}
        self.run_passes(race, [{**times, "5": 200_000.0}] * 2)
        assert race.reason("5") == "200 µs ± 1.9 % cannot beat 100 µs ± 1.9 %"

    def test_one_who_fails_is_out_and_holds_nobody_up(self) -> None:
        race = self.crowd(6, finalists=2)
        requests = race.plan()
        for request in requests[:-1]:
            race.record(request.id, [100_000])
        race.drop(requests[-1].id, "crashed")
        assert race.reason(requests[-1].id) == "crashed"
        assert requests[-1].id not in [request.id for request in race.plan()]

    def test_they_end_with_the_pass_after_which_only_finalists_are_left(self) -> None:
        race = self.crowd(6, finalists=4)
        for id in ("4", "5"):
            race.plan()
            race.drop(id, "crashed")
        for request in race.plan():
            race.record(request.id, [100_000])
        assert race.plan() == []
        assert race.rounds == 0

    def test_one_who_arrives_late_takes_part(self) -> None:
        race = self.crowd(6)
        for request in race.plan():
            race.record(request.id, [100_000])
        met(race, "late", 100_000, 100_500, order=9)
        assert "late" in [request.id for request in race.plan()]


class TestStanding:
    def test_it_lists_those_in_before_those_out_best_first(self) -> None:
        race = settled_race(configs=20)
        met(race, "second", 103_000, 104_000, order=50)
        standing = race.standing()
        assert [place.id for place in standing[:2]] == ["best", "second"]
        assert {place.verdict for place in standing[2:]} == {"out"}
        assert standing[0].ns == 100_000
        assert standing[0].samples == 2

    def test_before_the_first_sample_there_is_no_time(self) -> None:
        race = Race()
        race.enter("a", 0)
        assert race.standing()[0].ns is None
        assert race.incumbent is None

    def test_equal_times_stand_in_the_authors_order(self) -> None:
        race = Race()
        for id, order in (("b", 1), ("a", 0)):
            met(race, id, 100_000, 100_000, order=order)
        assert race.live == ("a", "b")

    def test_the_best_may_fail_and_the_next_takes_its_place(self) -> None:
        race = settled_race()
        met(race, "second", 103_000, 104_000, order=50)
        race.drop("best", "crashed")
        assert race.incumbent == "second"
        assert race.live == ("second",)

    def test_all_may_fail(self) -> None:
        race = Race()
        met(race, "a", 1.0, 1.0, order=0)
        race.drop("a", "crashed")
        assert race.live == ()
        assert race.plan() == []
        assert race.incumbent is None


def test_the_same_samples_give_the_same_race() -> None:
    def run() -> list[str]:
        device = FakeDevice(NoiseModel(gaussian=0.03, tail_chance=0.05), seed=4)
        truth = {str(k): 100_000 * (1 + 0.02 * k) for k in range(25)}
        race = Race()
        for k, id in enumerate(truth):
            race.enter(id, k)
            race.record(id, device.sample(truth[id], 2))
        finish(race, device, truth)
        return [f"{place}" for place in race.standing()]

    assert run() == run()
