"""Which devices agree, from rounds in which all ran the same kernels."""

from __future__ import annotations

import random
import time

import pytest

from whet.engine.executors.calibration import (
    AgreementPolicy,
    KeptAgreement,
    Round,
    agreement,
    keep,
    kept,
)

POLICY = AgreementPolicy()


def rounds(
    factors: dict[str, float], drift: dict[str, float] | None = None, many: int = 9, seed: int = 0
) -> list[Round]:
    """`factors` are how slow each is; `drift` is what it gains per round."""
    chance = random.Random(seed)
    kernels = {"short": 5_000.0, "long": 80_000.0, "longer": 300_000.0}
    found: list[Round] = []
    for number in range(many):
        heat = 1 + 0.02 * number  # all of them slow down together
        found.append(
            {
                name: {
                    kernel: ns
                    * factor
                    * heat
                    * (1 + (drift or {}).get(name, 0.0) * number)
                    * chance.gauss(1.0, 0.005)
                    for kernel, ns in kernels.items()
                }
                for name, factor in factors.items()
            }
        )
    return found


def test_devices_that_slow_down_together_agree() -> None:
    found = agreement(rounds({str(n): 1.0 for n in range(8)}), POLICY)
    assert found.left_out == {}
    assert len(found.agreeing) == 8


def test_one_that_is_slower_than_the_others_is_named_with_by_how_much() -> None:
    found = agreement(rounds({"0": 1.0, "1": 1.07, "2": 1.0, "3": 1.0}), POLICY)
    assert list(found.left_out) == ["1"]
    assert found.left_out["1"].endswith("% slower than the others")
    assert 0.06 < found.standings["1"].level < 0.08


def test_one_that_drifts_is_named_although_its_level_is_that_of_the_others() -> None:
    drift = {"2": 0.004}
    found = agreement(rounds({"0": 1.0, "1": 1.0, "2": 0.985, "3": 1.0}, drift), POLICY)
    assert list(found.left_out) == ["2"]
    assert "it drifts" in found.left_out["2"]


def test_where_the_first_one_is_the_odd_one_out_the_majority_counts() -> None:
    found = agreement(rounds({"0": 1.07, "1": 1.0, "2": 1.0}), POLICY, ["0", "1", "2"])
    assert found.agreeing == ("1", "2")


def test_of_two_that_disagree_the_preferred_one_stays() -> None:
    for prefer in ("0", "1"):
        found = agreement(rounds({"0": 1.0, "1": 1.07}), POLICY, [prefer])
        assert found.agreeing == (prefer,)


def test_one_bad_round_leaves_nobody_out() -> None:
    taken = rounds({str(n): 1.0 for n in range(4)})
    taken[4] = {**taken[4], "2": {kernel: 3 * ns for kernel, ns in taken[4]["2"].items()}}
    assert agreement(taken, POLICY).left_out == {}


@pytest.mark.medium
def test_healthy_devices_are_seldom_left_out() -> None:
    wrong = sum(
        bool(agreement(rounds({str(n): 1.0 for n in range(8)}, seed=seed), POLICY).left_out)
        for seed in range(200)
    )
    assert wrong <= 2


def test_what_was_found_is_kept_with_its_date_and_read_again() -> None:
    models: dict[str, str] = {}
    taken = rounds({"0": 1.0, "1": 1.07, "2": 1.0})
    found = KeptAgreement.of(agreement(taken, POLICY), taken)
    keep(models, "here", found)
    again = kept(models, "here")
    assert again == found
    assert abs(again.date - time.time()) < 60
    assert list(again.left_out) == ["1"]
    assert kept(models, "elsewhere") is None


def test_a_damaged_record_is_no_record() -> None:
    models: dict[str, str] = {}
    taken = rounds({"0": 1.0, "1": 1.0})
    keep(models, "here", KeptAgreement.of(agreement(taken, POLICY), taken))
    (name,) = models
    for text in ("", "[]", "{}", models[name].replace("whet-devices", "other"), '{"v": 1'):
        models[name] = text
        assert kept(models, "here") is None
