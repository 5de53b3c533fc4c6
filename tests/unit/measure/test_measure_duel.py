"""The duel as a state machine: order, verdicts, ties, and what it says."""

from __future__ import annotations

from collections import Counter

import pytest

from whet.measure import Duel, DuelPolicy
from whet.testing.fakes import FakeDevice, NoiseModel


def fight(duel: Duel, truth: dict[str, float], noise: float = 0.01, seed: int = 0) -> Duel:
    device = FakeDevice(NoiseModel(gaussian=noise), seed)
    while ids := duel.next_round():
        duel.record_round({id: device.sample(truth[id])[0] for id in ids})
    return duel


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
        for _ in range(rounds):
            duel.record_round({"first": 80e6, "best": 4e6})
        assert not duel.over
        outcome = duel.outcome_for("first")
        assert (outcome.winner, outcome.beaten) == ("best", ("first",))
        assert "takes 1900 % longer" in str(outcome)

    def test_one_that_is_cut_too_early_to_show_anything_says_so(self) -> None:
        duel = Duel(["first", "best"], DuelPolicy().head_to_head(7))
        for _ in range(4):
            duel.record_round({"first": 80e6, "best": 4e6})
        assert duel.outcome_for("first").winner == "first"
        assert duel.outcome_for("first").too_short
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


class TestTies:
    def equals(self, **options: dict[str, tuple[int, ...]] | dict[str, int]) -> Duel:
        duel = Duel(["a", "b", "c"], **options)  # type: ignore[arg-type]
        for _ in range(30):
            duel.record_round({"a": 100.0, "b": 100.0, "c": 100.0})
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
        for _ in range(4):
            duel.record_round({"a": 100.0, "b": 103.0})
        assert duel.outcome.equals == ("b",)
        assert duel.outcome.winner == "a"


class TestEarlierRounds:
    """Those of the race: they were what chose the contestants."""

    def undecided(self, *earlier: dict[str, float], a_ns: float = 100.0) -> Duel:
        duel = Duel(["a", "b"], DuelPolicy(max_rounds=4), earlier=earlier)
        for _ in range(4):
            duel.record_round({"a": a_ns, "b": 100.0})
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
        assert str(duel.outcome) == "every finalist failed"

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
        assert str(duel.outcome) == "a is the only one left"


class TestDescribe:
    def test_a_win_says_by_how_much(self) -> None:
        duel = Duel(["a", "b"])
        for k in range(8):
            duel.record_round({"a": 100.0, "b": 103.0 + 0.1 * (k % 2)})
        text = duel.outcome.describe({"a": "B=64", "b": "B=32"})
        assert text == "B=64 wins after 8 rounds: B=32 takes 3 % longer (3 % to 3.1 %)"

    def test_equality_says_within_what(self) -> None:
        outcome = fight(Duel(["a", "b"]), {"a": 100_000, "b": 100_000}, noise=0.001).outcome
        text = outcome.describe()
        assert text.startswith("no significant difference between a and b after ")
        assert ": equal within 0.5 %; a chosen" in text

    def test_undecided_says_what_is_still_possible(self) -> None:
        outcome = fight(Duel(["a", "b"]), {"a": 100_000, "b": 100_000}, noise=0.05).outcome
        text = str(outcome)
        assert text.startswith("no significant difference between ")
        assert " after 30 rounds (" in text
        assert "equal within" not in text

    def test_too_few_rounds_are_said_to_be_too_few(self) -> None:
        duel = Duel(["a", "b"])
        duel.record_round({"a": 1.0, "b": 1.0})
        assert str(duel.outcome) == (
            "no significant difference between a and b after 1 round, too few to tell; a chosen"
        )
