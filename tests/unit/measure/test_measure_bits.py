"""The judge of bits: who may win, whichever bench a config ran on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.measure.bench.bits import (
    BITS,
    EVEN,
    FREE_NS,
    REAL,
    VARIES,
    WIDE,
    DifferentBits,
    Reference,
    ReferenceBench,
    array_hash,
    bit_facts,
    fill_array,
    value_hash,
)
from whet.measure.bench.protocol import Answer, Sampled, Visit
from whet.measure.timer import Hopeless, Reading

ONE, TWO, THREE = (Config(n=n) for n in (1, 2, 3))


class Told:
    """A bench that answers what it was told, by config."""

    in_process = True

    def __init__(self, answers: Mapping[Config, Mapping[str, Value] | ConfigFailure]) -> None:
        self._answers = answers
        self.visits: list[Visit] = []

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        self.visits.append(visit)
        return tuple(self._answer(config) for config, _ in visit.built)

    def _answer(self, config: Config) -> Answer:
        said = self._answers[config]
        if isinstance(said, ConfigFailure):
            return said
        return Sampled(Reading((10.0, 30.0, 20.0), 1, "told"), FrozenMap(), FrozenMap(said))

    def forget(self, config: Config) -> None: ...

    def end_call(self) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Any: ...

    def __exit__(self, *exc: object) -> None: ...


def bits(real: str, wide: str = "w", varies: str = "") -> dict[str, Value]:
    found: dict[str, Value] = {BITS: ((REAL, "c", real), (WIDE, "c", wide))}
    return found | ({VARIES: varies} if varies else {})


def looked(bench: ReferenceBench, *configs: Config) -> list[Answer]:
    built = tuple((config, None) for config in configs)
    return list(bench.measure(Visit(built, 3, True, hopeless=Hopeless(1.0, 1.5, 0.0))))


def test_the_first_that_runs_is_the_reference() -> None:
    failure = ConfigFailure(Status.RESOURCES, "too large")
    told = Told({ONE: failure, TWO: bits("a"), THREE: bits("a")})
    bench = ReferenceBench(told, "bitwise")
    answers = looked(bench, ONE, TWO, THREE)
    assert answers[0] is failure
    assert all(isinstance(one, Sampled) for one in answers[1:])


@pytest.mark.parametrize(
    ("other", "where"),
    [(bits("b"), "on the real inputs"), (bits("a", "x"), "on inputs of very different size")],
)
def test_other_bits_are_refused_and_keep_their_time(other: Any, where: str) -> None:
    bench = ReferenceBench(Told({ONE: bits("a"), TWO: other}), "bitwise")
    [_, refused] = looked(bench, ONE, TWO)
    assert isinstance(refused, DifferentBits)
    assert refused.status is Status.WRONG_RESULT
    assert f"output 'c' {where}" in refused.message
    assert refused.facts[FREE_NS] == 20.0


def test_nobody_is_hopeless_beside_a_config_that_may_not_win() -> None:
    told = Told({ONE: bits("a")})
    looked(ReferenceBench(told, "bitwise"), ONE)
    assert told.visits[0].hopeless is None


def test_later_visits_go_through_unseen() -> None:
    told = Told({ONE: bits("a"), TWO: bits("b")})
    bench = ReferenceBench(told, "bitwise")
    visit = Visit(((ONE, None), (TWO, None)), 1)
    assert all(isinstance(one, Sampled) for one in bench.measure(visit))


def test_a_reference_that_varies_stays_alone() -> None:
    bench = ReferenceBench(Told({ONE: bits("a", varies="launch 3"), TWO: bits("a")}), "bitwise")
    one, two = looked(bench, ONE, TWO)
    assert isinstance(one, Sampled)
    assert isinstance(two, DifferentBits)
    assert "from itself" in two.message
    assert "launch 3" in bench.notes[0]


def test_a_config_that_varies_is_refused_though_it_was_right_once() -> None:
    bench = ReferenceBench(Told({ONE: bits("a"), TWO: bits("a", varies="launch 3")}), "bitwise")
    assert isinstance(looked(bench, ONE, TWO)[1], DifferentBits)


def test_a_stored_reference_is_compared_on_made_inputs() -> None:
    stored = Reference.stored(bits("other inputs", "w"))
    told = Told({ONE: bits("a", "x"), TWO: bits("a"), THREE: bits("b")})
    bench = ReferenceBench(told, "bitwise", stored)
    one, two, three = looked(bench, ONE, TWO, THREE)
    assert isinstance(one, DifferentBits)
    assert isinstance(two, Sampled)  # from here on its real outputs count as well
    assert isinstance(three, DifferentBits)


def test_where_nothing_can_be_compared_the_first_stays() -> None:
    bench = ReferenceBench(Told({ONE: {BITS: ()}, TWO: {BITS: ()}}), "bitwise")
    one, two = looked(bench, ONE, TWO)
    assert isinstance(one, Sampled)
    assert isinstance(two, DifferentBits)


def test_deterministic_asks_for_no_reference() -> None:
    told = Told({ONE: bits("a"), TWO: bits("b"), THREE: bits("c", varies="launch 2")})
    one, two, three = looked(ReferenceBench(told, "deterministic"), ONE, TWO, THREE)
    assert isinstance(one, Sampled)
    assert isinstance(two, Sampled)
    assert isinstance(three, DifferentBits)
    assert "launch 2" in three.message


def test_facts_say_which_launch_differed_first() -> None:
    found = bit_facts({REAL: [{"c": "a"}] * 5, EVEN: [{"c": "a"}, {"c": "a"}, {"c": "b"}]})
    assert found[BITS] == ((REAL, "c", "a"), (EVEN, "c", "a"))
    assert "output 'c' on random inputs" in found[VARIES]
    assert "launch 3" in found[VARIES]


def test_padding_inside_of_records_is_left_out() -> None:
    padded = np.dtype({"names": ["a", "b"], "formats": ["u1", "f4"], "offsets": [0, 4]})
    one, two = np.zeros(3, padded), np.zeros(3, padded)
    two.view(np.uint8).reshape(3, -1)[:, 1:4] = 255
    assert array_hash(one) == array_hash(two)
    two["b"][1] = -0.0
    assert array_hash(one) != array_hash(two)


def test_whatever_a_function_returns_has_a_hash() -> None:
    some = [(1, 2.0, None), {"a": np.ones(2)}, "text", 3 + 4j, np.float32(1)]
    assert value_hash(some) == value_hash(list(some))
    assert value_hash(0.0) != value_hash(-0.0)
    assert value_hash({"a": 1}) != value_hash({"a": 2})


def test_made_inputs_are_the_same_every_time_and_of_floats_only() -> None:
    one, two, whole = np.zeros(64), np.zeros(64), np.arange(4)
    fill_array(one, WIDE, 3)
    fill_array(two, WIDE, 3)
    fill_array(whole, WIDE, 3)
    assert (one == two).all()
    assert np.abs(one).max() <= 64.0
    assert whole.tolist() == [0, 1, 2, 3]
