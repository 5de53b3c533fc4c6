"""Specializations as values: written down, compared, changed. Nothing is compiled here."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("triton")

import triton.language as tl

from whet.core.errors import UsageError
from whet.targets.triton.jit.records import Records
from whet.targets.triton.jit.specialization import (
    JitArgument,
    Met,
    NotReproducibleError,
    RecordError,
    Specialization,
    decoded,
    encoded,
    is_opaque,
)
from whet.targets.triton.jit.variants import asked_for, differences, nearest, reachable


def integer(name: str, value: int, **more: Any) -> JitArgument:
    if value == 1 and more.get("specialize", True):
        return JitArgument(name, "constexpr", 1, 1, **more)
    special = None if not more.get("specialize", True) else "D" if value % 16 == 0 else ""
    return JitArgument(name, "i32", special, value, **more)


def scale(**values: int) -> Specialization:
    numbers = {"n": 8, "m": 8, "stride": 1} | values
    return Specialization(
        "app.kernels:scale",
        (
            JitArgument("x", "*fp16", "D"),
            *(integer(name, value) for name, value in numbers.items()),
            integer("count", 3, specialize=False),
            JitArgument("BLOCK", "constexpr", 64, None, "constexpr"),
        ),
        (("num_warps", 4), ("debug", False)),
        ("cuda", 90, 32),
        "3.9.0",
    )


def test_a_specialization_survives_being_written_down() -> None:
    one = replace(scale(), binary="ab", met=Met(1.5, "serve.py:3 in step", True, 0.2))
    again = Specialization.from_json(json.loads(json.dumps(one.to_json())))
    assert again == one
    assert again.id == one.id


@pytest.mark.parametrize(
    "damage",
    [
        {"v": 2},
        {"kernel": 3},
        {"target": ["cuda"]},
        {"arguments": [{"name": "x", "wrong": 1}]},
        {"arguments": [{"name": "x", "type": "i32", "special": "D", "value": "many"}]},
        {"options": [["num_warps"]]},
        {"met": {"when": 3}},
    ],
)
def test_what_no_whet_has_written_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        Specialization.from_json({**scale().to_json(), **damage})


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2.5, float("inf"), "abc", (1, ("a", None)), tl.float16, tl.constexpr(3)],
)
def test_constants_are_made_again_as_they_were(value: Any) -> None:
    written = json.loads(json.dumps(encoded(value)))
    again = decoded(written, lambda name: pytest.fail(f"no kernel {name} was asked for"))
    assert type(again) is type(value)
    assert str(again) == str(value)


def test_what_cannot_be_written_down_says_so() -> None:
    written = encoded((1, object()))
    assert is_opaque(written)
    with pytest.raises(NotReproducibleError):
        decoded(written, lambda name: None)


def test_a_difference_names_the_argument_and_its_property() -> None:
    [found] = differences(scale(n=32), scale(n=1))
    assert (found.kind, found.what) == ("argument", "n")
    assert found.before == "i32, divisible by 16 (32)"
    assert found.after == "== 1"
    assert found.line == "n=1"


def test_values_that_triton_does_not_tell_apart_are_no_difference() -> None:
    assert differences(scale(n=8), scale(n=9)) == []
    assert scale(n=8).id == scale(n=9).id


def test_options_and_their_order_are_differences() -> None:
    one = scale()
    assert [d.what for d in differences(one, replace(one, options=(("num_warps", 8),)))] == [
        "num_warps",
        "debug",
    ]
    turned = replace(one, options=one.options[::-1])
    assert [d.what for d in differences(one, turned)] == ["order"]


def test_the_nearest_is_the_one_with_the_fewest_differences() -> None:
    found = nearest(scale(n=1), [scale(n=16, stride=16), scale(n=16), scale(n=8)])
    assert found is not None
    assert found[0].id == scale(n=16).id
    assert [d.what for d in found[1]] == ["n"]


def changes(one: Specialization, other: Specialization) -> dict[str, str]:
    return {d.what: d.after for d in differences(one, other)}


def test_reachable_variants_change_one_integer_at_a_time() -> None:
    base = scale(n=8, m=48, stride=1)
    found = [changes(base, other) for other in reachable([base], most=100).found]
    assert {"n": "== 1"} in found
    assert {"n": "i32, divisible by 16 (16)"} in found
    assert {"m": "i32, not divisible by 16 (17)"} in found
    assert {"stride": "i32, not divisible by 16 (17)"} in found
    assert {"n": f"i64, not divisible by 16 ({2**33 + 1})"} in found
    assert all(len(one) == 1 for one in found)


def test_arguments_that_were_always_equal_change_together() -> None:
    met = [scale(n=8, m=8, stride=3), scale(n=32, m=32, stride=3)]
    found = [changes(met[0], other) for other in reachable(met, most=100).found]
    assert {"n": "== 1", "m": "== 1"} in found


def test_what_has_varied_comes_first_and_strides_come_last() -> None:
    met = [scale(n=3, m=8, stride=5), scale(n=32, m=8, stride=5)]
    found = [changes(met[0], other) for other in reachable(met, most=100).found]
    assert found[0] == {"n": "== 1"}
    narrow = [one for one in found if not any("i64" in text for text in one.values())]
    assert "stride" not in narrow[0] | narrow[1] | narrow[2]
    assert "stride" in narrow[-1]


def test_what_is_not_specialized_is_changed_in_width_only() -> None:
    found = [changes(scale(), other) for other in reachable([scale()], most=100).found]
    assert [one["count"] for one in found if "count" in one] == [f"i64 ({2**33 + 1})"]
    assert not any("BLOCK" in one or "num_warps" in one for one in found)


def test_pointers_lose_their_alignment_on_request_only() -> None:
    def unaligned(**asked: Any) -> int:
        found = reachable([scale()], most=100, **asked).found
        return sum("x" in changes(scale(), one) for one in found)

    assert unaligned() == 0
    assert unaligned(pointers=True) == 1


def test_the_rest_is_counted() -> None:
    everything = reachable([scale()], most=1000)
    some = reachable([scale()])
    assert everything.left == 0
    assert len(some.found) == 8
    assert some.left == len(everything.found) - 8


def test_the_line_in_a_message_makes_what_was_missing() -> None:
    missed = scale(n=1, stride=48)
    line = [d.line for d in differences(scale(n=16), missed)]
    assert asked_for(scale(n=16), line).id == missed.id


def test_an_argument_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match="has no 'N'; valid: x, n"):
        asked_for(scale(), ["N=1"])
    with pytest.raises(UsageError, match="NAME=VALUE"):
        asked_for(scale(), ["n"])


def test_records_of_many_processes_are_one(tmp_path: Any) -> None:
    one, other = Records(tmp_path / "jit"), Records(tmp_path / "jit")
    one.add([scale(n=8), scale(n=16)])
    other.add([replace(scale(n=8), binary="ff")])
    with open(tmp_path / "jit" / "records.jsonl", "a") as file:
        file.write('{"v": 1, "kern')  # a process was killed here
    other.add([scale(n=1)])
    assert [(r.id, r.binary) for r in one.all()] == [
        (scale(n=8).id, "ff"),
        (scale(n=16).id, ""),
        (scale(n=1).id, ""),
    ]
