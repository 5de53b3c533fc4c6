"""What is recorded of a call's tensors, and tensors that are made again from it."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import numpy as np
import torch
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap
from whet.core.miss import Argument, LaunchGrid, Miss, Placement, ValueRange
from whet.engine.fallback.untuned import _placement, summarised
from whet.store.bundles.records import miss_lines, misses_of
from whet.targets.triton.recorded import as_compiled, recorded_inputs, unmakeable, with_integers
from whet.testing.samples import a_workload

GRID = (LaunchGrid(FrozenMap(), (1,)),)


def recorded(most: int = 4, **named: Any) -> Miss:
    """As a bundle brings it to another machine."""
    storages: list[Any] = []
    arguments = [
        replace(summarised(name, value), placement=_placement(value, storages))
        for name, value in named.items()
    ]
    arguments = list(as_compiled(SimpleNamespace(fn=None), named, arguments))
    miss = Miss(a_workload(), "k.py:k", with_integers(named, arguments, most), 1.0, GRID)
    [back] = misses_of("\n".join(miss_lines([miss])).encode())
    assert back.arguments == miss.arguments
    return back


def made(miss: Miss) -> dict[str, Any]:
    _, args, keywords = recorded_inputs("k", miss)()
    assert args == ()
    return keywords


def again(most: int = 4, **named: Any) -> dict[str, Any]:
    return made(recorded(most, **named))


@pytest.mark.medium
@given(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=5, max_size=40),
    st.sampled_from(["", "rising", "strict"]),
)
def test_a_large_integer_tensor_is_drawn_from_its_range_and_in_its_order(
    values: list[int], order: str
) -> None:
    if order:
        values = sorted(values if order == "rising" else set(values))
    x = torch.tensor(values, dtype=torch.int64)
    made_again = again(most=1, x=x)["x"]
    assert (made_again.shape, made_again.dtype) == (x.shape, x.dtype)
    found = made_again.tolist()
    assert (min(found), max(found)) == (min(values), max(values))
    if order:
        assert found == sorted(found)
    if order == "strict":
        assert len(set(found)) == len(found)


def test_neither_contents_nor_order_of_a_large_tensor_are_kept() -> None:
    [argument] = recorded(x=torch.tensor([3, 1, 4, 1, 5, 9])).arguments
    assert argument.value is None
    assert argument.ranges == (ValueRange(1, 9),)


def test_columns_of_a_short_last_dimension_have_ranges_of_their_own() -> None:
    """Pairs of a sequence and a chunk: what one may be is out of range for the other."""
    pairs = torch.tensor([[0, 0], [0, 500], [1, 0], [1, 99]], dtype=torch.int32)
    miss = recorded(x=pairs)
    assert miss.arguments[0].ranges == (ValueRange(0, 1, rising=True), ValueRange(0, 500))
    found = made(miss)["x"]
    assert found.dtype == torch.int32
    assert (found[:, 0].min(), found[:, 0].max()) == (0, 1)
    assert (found[:, 1].min(), found[:, 1].max()) == (0, 500)
    assert found[:, 0].tolist() == sorted(found[:, 0].tolist())


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64"])
def test_integers_of_every_width_are_made_again(dtype: str) -> None:
    large = torch.tensor([0, 1, 1, 0, 1, 1]).to(getattr(torch, dtype))
    found = again(x=large, y=large[:3])
    assert (found["x"].dtype, found["y"].dtype) == (large.dtype, large.dtype)
    assert (int(found["x"].byte().min()), int(found["x"].byte().max())) == (0, 1)
    assert found["y"].tolist() == large[:3].tolist()


def test_a_tensor_with_one_element_in_several_places_is_made_again() -> None:
    x = torch.tensor([7, 8]).unsqueeze(1).expand(2, 3)
    found = again(most=6, x=x)["x"]
    assert (found.tolist(), found.stride()) == (x.tolist(), x.stride())
    found = again(most=1, x=x)["x"]
    assert (found.stride(), int(found.min()), int(found.max())) == ((1, 0), 7, 8)


@pytest.mark.parametrize("shape", [(0,), (4, 0)])
def test_a_tensor_without_elements_is_made_again(shape: tuple[int, ...]) -> None:
    found = again(x=torch.zeros(shape, dtype=torch.int32), y=torch.zeros(shape))
    assert (found["x"].shape, found["y"].shape) == (shape, shape)


def test_memory_seen_as_floating_point_numbers_by_one_argument_is_not_kept_for_another() -> None:
    whole = torch.randn(16)
    miss = recorded(most=1000, x=whole.view(torch.int32), y=whole)
    assert (miss.arguments[0].value, miss.arguments[0].ranges) == (None, ())
    found = made(miss)
    assert found["x"].data_ptr() == found["y"].data_ptr()
    assert found["y"].std() > 0.3
    assert not found["y"].equal(whole)


def test_nothing_of_floating_point_contents_is_kept_whatever_the_limit() -> None:
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.complex64):
        [argument] = recorded(most=10**6, x=torch.ones(8, dtype=dtype)).arguments
        assert (argument.value, argument.ranges) == (None, ())
        assert again(x=torch.ones(8, dtype=dtype))["x"].dtype == dtype


def test_tensors_that_share_memory_share_it_again_at_the_same_distance() -> None:
    whole = torch.arange(64)
    found = again(most=100, x=whole[8:], y=whole[:4], z=torch.arange(64))
    assert found["x"].data_ptr() - found["y"].data_ptr() == 64
    assert found["z"].untyped_storage().data_ptr() != found["x"].untyped_storage().data_ptr()
    assert found["y"].tolist() == [0, 1, 2, 3]


def test_two_storages_in_the_same_memory_are_known_for_one() -> None:
    memory = bytearray(256)
    x = torch.frombuffer(memory, dtype=torch.float32)
    y = torch.frombuffer(memory, dtype=torch.float32, offset=64)
    assert x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr()
    found = again(x=x, y=y[:4])
    assert found["y"].data_ptr() - found["x"].data_ptr() == 64
    assert found["x"][16:20].equal(found["y"])


@pytest.mark.medium
@given(st.integers(0, 40), st.sampled_from(["float32", "float16", "int8"]))
def test_addresses_are_aligned_as_they_were(offset: int, dtype: str) -> None:
    kind = getattr(torch, dtype)
    x = torch.zeros(64, dtype=kind)[offset:]
    found = again(x=x)["x"]
    assert found.data_ptr() % 16 == x.data_ptr() % 16
    assert (found.shape, found.stride()) == (x.shape, x.stride())


def test_an_address_that_torch_cannot_repeat_is_named() -> None:
    odd = Argument("x", "Tensor", "torch.float32", (4,), placement=Placement((1,), 0, 0, 2))
    [(argument, why)] = unmakeable([odd])
    assert argument.name == "x"
    assert "2 bytes" in why
    with pytest.raises(UsageError, match=r"'x' was aligned to 2 bytes.*inputs="):
        recorded_inputs("k", Miss(a_workload(), arguments=(odd,), grids=GRID))


@pytest.mark.parametrize(
    ("argument", "why"),
    [
        (Argument("x", "Descriptor"), "is of type Descriptor, of which nothing was recorded"),
        (Argument("x", "dtype", value="fp3"), "is fp3: this Triton has no dtype fp3"),
        (Argument("x", "dtype", value="torch.load"), "is torch.load: this torch has no dtype"),
        (Argument("x", "SparseTensor", "torch.float32", (4,)), "is a SparseTensor that is not a"),
        (
            Argument("x", "Tensor", "torch.int32", (4,), placement=Placement((1,), 0, 0, 16)),
            "is int32 with 4 elements, and neither its contents nor their range were recorded",
        ),
        (
            Argument("x", "Tensor", "torch.int32", (4,), placement=Placement((-1,), 0, 0, 16)),
            "has a shape that no tensor has",
        ),
        (
            Argument(
                "x",
                "Tensor",
                "torch.int32",
                (4,),
                placement=Placement((1,), 0, 0, 16),
                ranges=(ValueRange(0, 1),) * 3,
            ),
            "has ranges that do not fit its shape",
        ),
    ],
)
def test_what_cannot_be_made_again_is_named_with_its_reason(argument: Argument, why: str) -> None:
    [(named, said)] = unmakeable([Argument("n", "int", value=3), argument])
    assert named.name == "x"
    assert said.startswith(why)


def test_the_same_record_gives_the_same_numbers_and_leaves_torchs_generator_alone() -> None:
    miss = recorded(x=torch.zeros(32), y=torch.arange(32))
    before = torch.get_rng_state()
    one, two = made(miss), made(miss)
    assert one["x"].equal(two["x"])
    assert one["y"].equal(two["y"])
    assert torch.get_rng_state().equal(before)


def test_without_memory_only_what_a_kernel_is_compiled_for_is_made() -> None:
    whole = torch.zeros(64, dtype=torch.float16)
    miss = recorded(x=whole[3:], y=whole, i=torch.arange(10**5))
    _, _, found = recorded_inputs("k", miss, without_memory=True)()
    assert {one.device.type for one in found.values()} == {"meta"}
    assert [found[name].data_ptr() % 16 == 0 for name in "xyi"] == [False, True, True]
    assert [found[name].dtype for name in "xi"] == [torch.float16, torch.int64]


def test_a_range_that_is_none_is_refused() -> None:
    miss = recorded(x=torch.tensor([3, 1, 4, 1, 5, 9]))
    data = miss.to_json()
    data["arguments"][0]["ranges"] = [{"low": 4, "high": 3, "order": ""}]
    with pytest.raises(ValueError, match="4 to 3 is not a range"):
        Miss.from_json(data)


def test_values_that_json_has_no_word_for_are_made_again() -> None:
    values = {
        "a": float("inf"),
        "b": float("-inf"),
        "c": tl.float16,
        "d": torch.bfloat16,
        "e": tl.constexpr(tl.int32),
        "f": np.int64(7),
        "g": 2.5,
        "h": "inf",
        "i": None,
        "j": True,
    }
    found = again(**values)
    assert found == {**values, "e": tl.int32, "f": 7}
    assert {name: type(value) for name, value in found.items()} == {
        **{name: type(value) for name, value in values.items()},
        "e": tl.dtype,
        "f": int,
    }
    assert math.isnan(again(x=float("nan"))["x"])
