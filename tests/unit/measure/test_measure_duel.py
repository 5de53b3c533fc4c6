"""The duel as a state machine: order, verdicts, ties, and what it says."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from whet.measure.racing.duel import Duel, DuelPolicy
from whet.testing.fakes import FakeDevice, NoiseModel


def fight(duel: Duel, truth: dict[str, float], noise: float = 0.01, seed: int = 0) -> Duel:
    device = FakeDevice(NoiseModel(gaussian=noise), seed)
    while ids := duel.next_round():
        duel.record_round({id: device.sample(truth[id])[0] for id in ids})
    return duel


def repeat(duel: Duel, rounds: int, times: dict[str, float]) -> None:
    for _ in range(rounds):
        duel.record_round(times)


class TestOrder:
    def test_a_round_has_everyone_once(self) -> None:
        duel = Duel(["a", "b", "c"])
        for _ in range(6):
            ids = duel.next_round()
            assert ids is not None
            assert sorted(ids) == ["a", "b", "c"]
            duel.record_round(dict.fromkeys(ids, 100.0 + len(ids)))

    @pytest.mark.parametrize("count", [2, 3, 4])
    def test_everyone_is_at_every_place_equally_often(self, count: int) -> None:
        duel = Duel([str(k) for k in range(count)], DuelPolicy(first_check=100, max_rounds=100))
        places: Counter[tuple[str, int]] = Counter()
        for _ in range(2 * count):
            ids = duel.next_round()
            assert ids is not None
            places.update((id, place) for place, id in enumerate(ids))
            duel.record_round(dict.fromkeys(ids, 1.0))
        assert set(places.values()) == {2}

    def test_two_are_taken_in_the_order_that_cancels_a_linear_drift(self) -> None:
        duel = Duel(["a", "b"], DuelPolicy(first_check=100, max_rounds=100))
        orders = []
        for _ in range(4):
            ids = duel.next_round()
            assert ids is not None
            orders.append("".join(ids))
            duel.record_round(dict.fromkeys(ids, 1.0))
        assert orders == ["ab", "ba", "ba", "ab"]

    def test_several_rounds_can_be_asked_for_up_to_the_next_check(self) -> None:
        one, many = (Duel(["a", "b", "c"], DuelPolicy(first_check=5)) for _ in range(2))
        singly = []
        for _ in range(5):
            singly.append(one.next_round())
            one.record_round({"a": 1.0, "b": 1.0, "c": 1.0})
        assert many.next_rounds(2) == singly[:2]
        assert many.next_rounds(100) == singly

    def test_none_are_asked_for_beyond_the_last(self) -> None:
        duel = Duel(["a", "b"], DuelPolicy(first_check=6, max_rounds=3))
        assert len(duel.next_rounds(100)) == 3


class TestVerdict:
    def test_the_faster_one_wins_soon(self) -> None:
        outcome = fight(Duel(["a", "b"]), {"a": 110_000, "b": 100_000}).outcome
        assert (outcome.winner, outcome.equals, outcome.beaten) == ("b", (), ("a",))
        assert outcome.decided
        assert outcome.rounds < 12

    def test_one_who_is_beaten_takes_no_further_part(self) -> None:
        duel = Duel(["a", "b", "c"])
        fight(duel, {"a": 100_000, "b": 100_000, "c": 130_000})
        outcome = duel.outcome
        assert outcome.beaten == ("c",)
        assert outcome.rounds == duel.policy.max_rounds
        assert {outcome.winner, *outcome.equals} == {"a", "b"}

    def test_quiet_equals_are_shown_to_be_equal(self) -> None:
        outcome = fight(Duel(["a", "b"]), {"a": 100_000, "b": 100_000}, noise=0.002).outcome
        assert (outcome.winner, outcome.equals, outcome.beaten) == ("a", ("b",), ())
        assert outcome.decided

    def test_a_difference_that_does_not_matter_is_equality(self) -> None:
        outcome = fight(Duel(["a", "b"]), {"a": 100_200, "b": 100_000}, noise=0.0005).outcome
        assert outcome.equals
        assert outcome.decided
        assert outcome.winner == "a"

    def test_noisy_equals_end_undecided(self) -> None:
        outcome = fight(Duel(["a", "b"]), {"a": 100_000, "b": 100_000}, noise=0.05).outcome
        assert outcome.equals == ("b",)
        assert not outcome.decided
        assert outcome.rounds == 30

    def test_it_ends_when_the_time_is_up(self) -> None:
        duel = Duel(["a", "b"], DuelPolicy(max_seconds=3.0))
        for _ in range(3):
            assert duel.next_round() is not None
            duel.record_round({"a": 1.0, "b": 1.1}, seconds=1.0)
        assert duel.next_round() is None
        assert not duel.outcome.decided
        assert duel.outcome.equals == ("b",)

    @pytest.mark.parametrize("rounds", [6, 7, 8])
    def test_one_that_is_cut_says_who_won_where_its_rounds_show_it(self, rounds: int) -> None:
        """The next check would have come after the tenth."""
        duel = Duel(["first", "best"], DuelPolicy().head_to_head(7))
        repeat(duel, rounds, {"first": 80e6, "best": 4e6})
        assert not duel.over
        outcome = duel.outcome_for("first")
        assert (outcome.winner, outcome.beaten) == ("best", ("first",))
        assert "takes 1900 % longer" in str(outcome)

    def test_one_that_is_cut_too_early_to_show_anything_says_so(self) -> None:
        duel = Duel(["first", "best"], DuelPolicy().head_to_head(7))
        repeat(duel, 4, {"first": 80e6, "best": 4e6})
        assert duel.outcome_for("first").winner == "first"
        assert math.isinf(duel.outcome_for("first").ratios["best"].high)
        assert duel.pairs("first", "best") == [(80e6, 4e6)] * 4

    def test_it_may_be_read_before_it_is_over(self) -> None:
        duel = Duel(["a", "b"])
        assert duel.outcome.winner == "a"
        duel.record_round({"a": 110_000, "b": 100_000})
        assert duel.outcome.winner == "b"
        assert not duel.outcome.decided

    def test_ratios_are_relative_to_the_winner(self) -> None:
        outcome = fight(Duel(["a", "b"]), {"a": 110_000, "b": 100_000}).outcome
        low, mid, high = outcome.ratios["a"]
        assert low < 1.1 < high
        assert mid == pytest.approx(1.1, abs=0.01)

    def test_drift_that_would_fool_one_after_another_does_not_matter(self) -> None:
        device = FakeDevice(NoiseModel(gaussian=0.003, drift_per_s=40))
        truth = {"a": 100_000.0, "b": 97_000.0}
        duel = Duel(["a", "b"])
        while ids := duel.next_round():
            duel.record_round({id: device.sample(truth[id])[0] for id in ids})
        assert duel.outcome.winner == "b"
        assert duel.outcome.beaten == ("a",)


class TestNumbers:
    """Where exactly a duel ends, by the signed-rank distribution and the policy's numbers."""

    def rounds_to_win(self, policy: DuelPolicy, count: int = 2) -> int:
        duel = Duel([str(k) for k in range(count)], policy)
        while not duel.over:
            duel.record_round({str(k): 100.0 * (1 + k) for k in range(count)})
        assert len(duel.outcome.beaten) == count - 1
        return duel.outcome.rounds

    def test_a_clear_winner_of_two_has_won_after_eight_rounds(self) -> None:
        """Checks come after 6, 8, 11, 15, 20, 27 and 30 rounds, and spend the error in proportion
        to the rounds: of 5 % the first has 1 %, and 2⁻⁶ is more than half of that. So has the
        next, with 5 % × 8 / 30; 2⁻⁸ is less."""
        assert self.rounds_to_win(DuelPolicy()) == 8

    def test_more_contestants_share_the_error(self) -> None:
        """Of four there are six pairs: 2⁻¹¹ is less than half of 5 % × 11 / 30 / 6."""
        assert self.rounds_to_win(DuelPolicy(), 4) == 11

    def test_checks_grow_ever_rarer(self) -> None:
        """Nobody can win while a round is missing: asked for are those up to the next check."""
        duel = Duel(["a", "b"], DuelPolicy(max_rounds=40))
        asked = []
        while rounds := duel.next_rounds(100):
            asked.append(len(rounds))
            for at in range(len(rounds)):
                duel.record_round({"a": 100.0 + at % 2, "b": 101.0 - at % 2})
        assert asked == [6, 2, 3, 4, 5, 7, 9, 4]

    def test_who_must_be_shown_to_be_faster_is_given_four_times_the_rounds(self) -> None:
        policy = DuelPolicy().head_to_head(7)
        assert (policy.max_rounds, policy.first_check, policy.growth) == (120, 10, 3.0)
        assert (policy.min_rounds, policy.confidence, policy.max_seconds) == (7, 0.95, 10.0)
        assert self.rounds_to_win(policy) == 10

    @pytest.mark.parametrize(("ratio", "equal"), [(1.0049, True), (1.0051, False)])
    def test_half_a_per_cent_apart_is_equal(self, ratio: float, equal: bool) -> None:
        duel = Duel(["a", "b"])
        for _ in range(30):
            if not duel.over:
                duel.record_round({"a": 100.0, "b": 100.0 * ratio})
        assert duel.outcome.decided
        assert (duel.outcome.equals == ("b",)) is equal

    @pytest.mark.parametrize(("centre", "winner"), [(100.49, "b"), (100.51, "a")])
    def test_preference_counts_within_half_a_per_cent(self, centre: float, winner: str) -> None:
        duel = Duel(["a", "b"], DuelPolicy(max_rounds=4), prefer={"b": (0,), "a": (1,)})
        repeat(duel, 4, {"a": 100.0, "b": centre})
        assert duel.outcome.winner == winner

    def test_time_that_is_up_waits_for_the_least_number_of_rounds(self) -> None:
        duel = Duel(["a", "b"], DuelPolicy(max_seconds=3.0, min_rounds=5))
        rounds = 0
        while not duel.over:
            duel.record_round({"a": 1.0, "b": 1.0}, seconds=1.0)
            rounds += 1
        assert rounds == 5
        assert not Duel(["a", "b"]).over

    def test_ten_seconds_are_enough_for_anybody(self) -> None:
        duel = Duel(["a", "b"])
        duel.record_round({"a": 1.0, "b": 1.0}, seconds=9.9)
        assert not duel.over
        duel.record_round({"a": 1.0, "b": 1.0}, seconds=0.1)
        assert duel.over

    def test_ratios_are_those_at_which_the_loser_lost(self) -> None:
        duel = Duel(["a", "b"])
        gaps = [0.10, 0.12, 0.11, 0.14, 0.09, 0.13, 0.15, 0.16]
        for gap in gaps:
            duel.record_round({"a": math.exp(gap), "b": 1.0})
        assert duel.outcome.beaten == ("a",)
        walsh = sorted((x + y) / 2 for at, x in enumerate(gaps) for y in gaps[at:])
        # At 1 - 5 % × 8 / 30: of 2⁸ signs one is less than half of that, and two are not.
        expected = (walsh[0], (walsh[17] + walsh[18]) / 2, walsh[-1])
        assert [math.log(end) for end in duel.outcome.ratios["a"]] == pytest.approx(expected)

    def test_too_few_rounds_bound_nothing(self) -> None:
        duel = Duel(["a", "b"])
        for gap in (0.1, 0.3, 0.2):
            duel.record_round({"a": math.exp(gap), "b": 1.0})
        assert duel.outcome.ratios["a"] == (0.0, pytest.approx(math.exp(0.2)), math.inf)


class TestDefault:
    """One is in use already, and stays unless another is shown to be faster."""

    def undecided(self) -> Duel:
        duel = Duel(["a", "b", "c"], DuelPolicy(max_rounds=4))
        repeat(duel, 4, {"a": 100.0, "b": 90.0, "c": 95.0})
        return duel

    def test_it_stays_where_nothing_is_shown(self) -> None:
        outcome = self.undecided().outcome_for("a")
        assert (outcome.winner, outcome.equals, outcome.default) == ("a", ("b", "c"), "a")
        assert str(outcome).endswith("; a stays")

    def test_without_one_the_best_is_chosen(self) -> None:
        outcome = self.undecided().outcome_for(None)
        assert (outcome.winner, outcome.equals) == ("b", ("a", "c"))
        assert str(outcome).endswith("; b chosen")
        assert str(outcome).startswith("no significant difference between b, a and c ")

    def beaten(self, *ids: str) -> Duel:
        """By "b", which is always faster; "c" is as fast as that but was disturbed every fourth
        time, and is preferred."""
        duel = Duel(list(ids), DuelPolicy(equal_within=0.01, max_rounds=12), prefer={"c": (0,)})
        for at in range(12):
            times = {"a": 100.0, "b": 90.0, "c": (89.8, 90.4, 130.0, 90.2)[at % 4]}
            duel.record_round({id: times[id] for id in duel.next_round() or ()})
        return duel

    def test_only_one_that_is_shown_to_be_faster_than_it_takes_its_place(self) -> None:
        duel = self.beaten("a", "b", "c")
        assert duel.outcome.beaten == ("a",)
        assert duel.outcome.winner == "c"
        assert duel.outcome_for("a").winner == "b"

    def test_where_nobody_was_shown_to_be_alone_anybody_may(self) -> None:
        """The one that had beaten it failed."""
        duel = self.beaten("a", "b", "c")
        duel.drop("b")
        assert duel.outcome_for("a").winner == "c"


def test_nobody_is_out_while_one_has_taken_part_too_seldom() -> None:
    duel = Duel(["a", "b", "c"])
    for at in range(11):
        duel.record_round({"a": 100.0, "b": 200.0, **({"c": 100.0} if at < 3 else {})})
    assert duel.outcome.beaten == ()
    assert duel.outcome.ratios["c"].high == math.inf


def test_the_error_that_earlier_checks_spent_is_not_spent_again() -> None:
    """Eight rounds are enough for the second check, which has spent 5 % × 8 / 30. The third has
    5 % × 3 / 30 left: of 2¹¹ signs five are within half of that, so two averages lie outside."""
    gaps = [0.1, -0.02, 0.12, 0.11, 0.14, 0.09, 0.13, 0.15, 0.16, 0.17, 0.08]
    duel = Duel(["a", "b"])
    for gap in gaps[:8]:
        duel.record_round({"a": math.exp(gap), "b": 1.0})
    assert not duel.over
    for gap in gaps[8:]:
        duel.record_round({"a": math.exp(gap), "b": 1.0})
    walsh = sorted((x + y) / 2 for at, x in enumerate(gaps) for y in gaps[at:])
    allowed = 0.05 * 3 / 30 / 2 * 2**11
    ways = [1, 1, 1, 2, 2, 3, 4, 5]  # sums of different ranks, by how many there are
    cut = sum(sum(ways[: at + 1]) <= allowed for at in range(len(ways))) - 1
    assert duel.outcome.beaten == ("a",)
    low, _, high = (math.log(end) for end in duel.outcome.ratios["a"])
    assert (low, high) == (pytest.approx(walsh[cut]), pytest.approx(walsh[-1 - cut]))


class TestTies:
    def equals(self, **options: dict[str, tuple[int, ...]] | dict[str, int]) -> Duel:
        duel = Duel(["a", "b", "c"], **options)  # type: ignore[arg-type]
        repeat(duel, 30, {"a": 100.0, "b": 100.0, "c": 100.0})
        return duel

    def test_what_the_caller_prefers_is_chosen(self) -> None:
        duel = self.equals(prefer={"a": (64,), "b": (32,), "c": (48,)}, order={"a": 0, "b": 9})
        assert duel.outcome.winner == "b"
        assert duel.outcome.equals == ("a", "c")

    def test_then_the_authors_order(self) -> None:
        duel = self.equals(prefer={"a": (1,), "b": (1,), "c": (1,)}, order={"a": 2, "b": 1, "c": 0})
        assert duel.outcome.winner == "c"

    def test_then_who_stands_best(self) -> None:
        assert self.equals().outcome.winner == "a"

    def test_one_without_a_preference_comes_after_those_with_one(self) -> None:
        assert self.equals(prefer={"c": (9,)}).outcome.winner == "c"

    def test_preference_does_not_choose_one_who_only_looks_slower(self) -> None:
        """Not shown to be slower is no reason to take the slower looking one."""
        duel = Duel(["a", "b"], DuelPolicy(max_rounds=4), prefer={"b": (0,), "a": (1,)})
        repeat(duel, 4, {"a": 100.0, "b": 103.0})
        assert duel.outcome.equals == ("b",)
        assert duel.outcome.winner == "a"


class TestEarlierRounds:
    """Those of the race: they were what chose the contestants."""

    def undecided(self, *earlier: dict[str, float], a_ns: float = 100.0) -> Duel:
        duel = Duel(["a", "b"], DuelPolicy(max_rounds=4), earlier=earlier)
        repeat(duel, 4, {"a": a_ns, "b": 100.0})
        return duel

    def test_they_help_to_choose_among_equals(self) -> None:
        assert self.undecided().outcome.winner == "a"
        assert self.undecided(*[{"a": 104.0, "b": 100.0}] * 12).outcome.winner == "b"

    def test_they_prove_nothing(self) -> None:
        outcome = self.undecided(*[{"a": 104.0, "b": 100.0}] * 200).outcome
        assert (outcome.equals, outcome.beaten, outcome.decided) == (("a",), (), False)
        assert outcome.ratios["a"].mid == 1.0

    def test_those_that_somebody_missed_do_not_count(self) -> None:
        missed = [{"a": 120.0, "c": 100.0}, {"b": 100.0}] * 12
        assert self.undecided(*missed, a_ns=99.0).outcome.winner == "a"

    def test_what_the_duel_has_shown_stands(self) -> None:
        duel = Duel(["a", "b"], earlier=[{"a": 90.0, "b": 100.0}] * 200)
        outcome = fight(duel, {"a": 110_000, "b": 100_000}).outcome
        assert (outcome.winner, outcome.beaten) == ("b", ("a",))


class TestFailure:
    def test_one_who_fails_leaves_the_others(self) -> None:
        duel = Duel(["a", "b", "c"])
        duel.record_round({"a": 1.0, "b": 2.0, "c": 3.0})
        duel.drop("a")
        ids = duel.next_round()
        assert ids is not None
        assert sorted(ids) == ["b", "c"]
        outcome = fight(duel, {"b": 2e5, "c": 3e5}).outcome
        assert (outcome.winner, outcome.beaten) == ("b", ("c",))

    def test_the_last_one_left_has_won(self) -> None:
        duel = Duel(["a", "b"])
        duel.drop("a")
        assert duel.next_round() is None
        assert duel.outcome.winner == "b"
        assert duel.outcome.decided

    def test_nobody_left_is_no_winner(self) -> None:
        duel = Duel(["a", "b"])
        duel.drop("a")
        duel.drop("b")
        assert duel.outcome.winner is None
        assert "failed" in str(duel.outcome)

    def test_one_who_misses_rounds_is_compared_over_those_it_took(self) -> None:
        duel = Duel(["a", "b"])
        for k in range(30):
            times = {"a": 100.0 * (1 + k), "b": 110.0 * (1 + k)}
            if k % 3 == 0:
                del times["b"]
            duel.record_round(times)
            if duel.next_round() is None:
                break
        assert duel.outcome.winner == "a"
        assert duel.outcome.beaten == ("b",)

    def test_a_single_contestant_needs_no_round(self) -> None:
        duel = Duel(["a"])
        assert duel.next_round() is None
        assert (duel.outcome.winner, duel.outcome.decided) == ("a", True)
        assert "only one" in str(duel.outcome)


class TestDescribe:
    def test_a_win_says_by_how_much(self) -> None:
        duel = Duel(["a", "b"])
        for k in range(8):
            duel.record_round({"a": 100.0, "b": 103.0 + 0.1 * (k % 2)})
        text = duel.outcome.describe({"a": "B=64", "b": "B=32"})
        assert text.startswith("B=64 wins after 8 rounds: ")
        assert "B=32 takes 3 % longer (3 % to 3.1 %)" in text

    def test_equality_says_within_what(self) -> None:
        outcome = fight(Duel(["a", "b"]), {"a": 100_000, "b": 100_000}, noise=0.001).outcome
        text = outcome.describe()
        assert text.startswith("no significant difference between a and b after ")
        assert "equal within 0.5 %; a chosen" in text

    def test_undecided_says_what_is_still_possible(self) -> None:
        outcome = fight(Duel(["a", "b"]), {"a": 100_000, "b": 100_000}, noise=0.05).outcome
        text = str(outcome)
        assert text.startswith("no significant difference between ")
        assert " after 30 rounds (" in text
        assert "equal within" not in text

    def test_too_few_rounds_are_said_to_be_too_few(self) -> None:
        duel = Duel(["a", "b"])
        duel.record_round({"a": 1.0, "b": 1.0})
        assert "after 1 round, too few" in str(duel.outcome)
