"""Broken payloads: a share of what `benchmarks/fuzz_payloads.py` does."""

import re

import pytest

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install '.[mlir]'")

from fuzzing.payloads import HOSTILE, LONGEST_S, attempt, made

PLACED = re.compile(r"p\.mlir:\d+:\d+: \S")
# Not a text, and arrays that no machine has room for.
NO_PLACE = ("p.mlir cannot be read: ", "the arrays of 'twice' take ")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(len(HOSTILE) + 20))
def test_a_broken_payload_is_refused_with_the_place_or_computed_right(seed: int) -> None:
    found = attempt(made(seed))
    assert found.kind in ("refused", "right", "unbuilt", "stopped"), found
    assert found.seconds < LONGEST_S
    if found.kind == "refused":
        assert PLACED.match(found.said) or found.said.startswith(NO_PLACE)
        assert "\n" not in found.said


def test_a_seed_says_which_payload_is_made() -> None:
    assert made(77) == made(77)
    assert len({made(seed) for seed in range(120)}) > 100
