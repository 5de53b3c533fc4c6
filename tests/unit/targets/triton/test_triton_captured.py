"""A Triton kernel's globals and closures: part of the source, unless `key=` names them."""
# ruff: noqa: N803, N806 - parameters of kernels are written in capitals by custom

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.interop.triton_cache import tuning_key
from whet.targets.triton.source import fingerprint, source_of
from whet.testing.fake_triton import FakeTensor, fake_driver, told

FACTOR = tl.constexpr(2)


@triton.jit
def by_factor(value):
    return value * FACTOR


def made(scale: Any, key: list[str]) -> Any:
    SCALE = tl.constexpr(scale)

    @triton.jit
    def times(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        value = by_factor(tl.load(x + offsets, mask=offsets < n))
        tl.store(out + offsets, value * SCALE, mask=offsets < n)

    configs = [triton.Config({"BLOCK": block}) for block in (16, 32)]
    tuner = whet.autotune(configs=configs, key=key)(times)
    tuner.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
    return tuner


def test_what_the_key_names_is_left_out_of_the_source() -> None:
    one, other = (source_of(made(scale, ["n", "SCALE"])) for scale in (2, 3))
    assert one.fingerprint == other.fingerprint
    assert (dict(one.claimed), dict(other.claimed)) == ({"SCALE": 2}, {"SCALE": 3})


def test_what_the_key_does_not_name_makes_another_source() -> None:
    one, other = (source_of(made(scale, ["n"])) for scale in (2, 3))
    assert one.fingerprint != other.fingerprint
    assert one.origin.code == other.origin.code
    assert one.origin.captured == {"FACTOR": "2", "SCALE": "2"}


def test_a_global_of_a_helper_may_be_claimed() -> None:
    source = source_of(made(2, ["n", "FACTOR"]))
    assert dict(source.claimed) == {"FACTOR": 2}
    assert "FACTOR" not in source.origin.captured


def test_without_claims_the_fingerprint_is_the_kernels_own() -> None:
    tuner = made(2, ["n"])
    assert source_of(tuner).fingerprint == fingerprint(tuner.fn)


def test_a_dtype_may_be_claimed() -> None:
    source = source_of(made(tl.float16, ["n", "SCALE"]))
    assert dict(source.claimed) == {"SCALE": "fp16"}


@pytest.fixture
def store(cold: Any) -> Any:
    """What was tuned of one kernel for two captured values, which the key claims."""
    with fake_driver():
        for scale in (2, 3):
            tuner = made(scale, ["n", "SCALE"])
            tuner[(1,)](FakeTensor([0.0]), FakeTensor([1.0], address=8192), 4)
        yield cold.store


@pytest.mark.medium
def test_claimed_values_are_in_the_key_of_what_was_tuned(store: Any) -> None:
    with whet.open_store(store) as opened:
        known = [one.workload for one in opened.workloads("times")]
    assert sorted(one.key["SCALE"] for one in known) == [2, 3]
    assert len({one.fingerprint for one in known}) == 1
    assert {one.origin.places[0].rpartition(":")[2] for one in known} == {"times"}


@pytest.mark.medium
def test_triton_s_own_key_is_without_claimed_values(store: Any) -> None:
    with whet.open_store(store) as opened:
        workload = opened.workloads("times")[0].workload
    assert tuning_key(made(3, ["n", "SCALE"]), workload)[0] == 4
    assert len(tuning_key(made(3, ["n", "SCALE"]), workload)) == 3


@pytest.mark.medium
def test_a_compiler_is_offered_only_what_was_tuned_for_the_captured_value(store: Any) -> None:
    pytest.importorskip("torch", reason="torch.compile compares torch's own dtypes")

    def offered(scale: int) -> list[int]:
        tuner = made(scale, ["n", "SCALE"])
        named = {"out": FakeTensor([0.0]), "x": FakeTensor([1.0]), "n": 4}
        with whet.mode("cached"):
            return [one.kwargs["BLOCK"] for one in tuner.early_config_prune(tuner.configs, named)]

    assert [offered(2), offered(5)] == [[32], [16]]
