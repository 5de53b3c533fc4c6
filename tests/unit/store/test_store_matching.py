"""How far two keys are apart, which devices look alike, what was built with which tools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.core.trial import Trial
from whet.core.workload import Limits
from whet.store import MemoryStore
from whet.store.matching import (
    UNLIKE,
    arriving,
    built_with,
    current,
    identity,
    key_distance,
    lookalikes,
    matches,
    versions,
)
from whet.store.merging import contents
from whet.testing.samples import a_trial, a_workload

keys = st.dictionaries(
    st.sampled_from("MNKd"),
    st.one_of(
        st.integers(-(10**9), 10**9),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(["f16", "f32", None, True]),
        st.tuples(st.integers(0, 4096), st.integers(0, 4096)),
    ),
)


@pytest.mark.medium
@given(keys, keys)
def test_it_is_the_same_from_both_sides(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert key_distance(one, two) == pytest.approx(key_distance(two, one))


@pytest.mark.medium
@given(keys)
def test_a_key_is_no_distance_from_itself(key: dict[str, Any]) -> None:
    assert key_distance(key, key) == 0


@pytest.mark.parametrize(
    ("one", "two", "distance"),
    [
        ({"M": 1023}, {"M": 2047}, 1),
        ({"M": 1023, "N": 2047}, {"M": 2047, "N": 1023}, 2),
        ({"M": 0}, {"M": 1}, 1),
        ({"M": -1}, {"M": 1}, 2),
        ({"shape": (1, 3)}, {"shape": [3, 7]}, 2),
        ({"shape": (1, 3)}, {"shape": (1, 3, 5)}, UNLIKE),
        ({"dtype": "f16"}, {"dtype": "f32"}, UNLIKE),
        ({"dtype": "f16"}, {}, UNLIKE),
        ({"flag": True}, {"flag": 1}, 0),
        ({"flag": True}, {"flag": False}, UNLIKE),
    ],
)
def test_numbers_count_in_doublings_and_all_else_is_equal_or_not(
    one: dict[str, Any], two: dict[str, Any], distance: float
) -> None:
    assert key_distance(one, two) == pytest.approx(distance)


GCC = "gcc (Debian 12.2.0-14) 12.2.0"


@pytest.mark.parametrize(
    ("version", "asked", "is_it"),
    [
        ("3.5", "3.5", True),
        ("3.5.1", "3.5", True),
        ("3.5.0+git1a2b", "3.5.0", True),
        ("3.50", "3.5", False),
        ("13.5", "3.5", False),
        ("2.3.5", "3.5", False),
        ("3.5", "3.5.1", False),
        ("3.5.1", "3x5", False),
        (GCC, "gcc", True),
        (GCC, "12.2", True),
        (GCC, "12", True),
        (GCC, "clang", False),
    ],
)
def test_a_version_is_named_by_how_it_starts(version: str, asked: str, is_it: bool) -> None:
    assert matches(version, asked) is is_it


def test_versions_are_listed_by_tool_in_the_order_of_their_numbers() -> None:
    chains = [{"triton": "3.10.0"}, {"triton": "3.9.1", "cc": GCC}, {"triton": "3.10.0"}]

    found = versions(a_workload(toolchain=chain) for chain in chains)

    assert found == {"cc": (GCC,), "triton": ("3.9.1", "3.10.0")}


def test_the_newest_is_current_and_so_is_what_this_machine_has() -> None:
    known = {"triton": ["3.10.0", "3.6.0", "3.9.1"]}

    assert current(known, {}) == {"triton": {"3.10.0"}}
    assert current(known, {"triton": "3.6.0"}) == {"triton": {"3.10.0", "3.6.0"}}


def test_compilers_of_two_makes_do_not_outdate_each_other() -> None:
    known = {"cc": ["gcc 11.4", "gcc 12.2", "clang 14.0", "clang 9.0"]}

    assert current(known, {}) == {"cc": {"gcc 12.2", "clang 14.0"}}


def test_one_chosen_tool_is_enough() -> None:
    workload = a_workload(toolchain={"triton": "3.5.1", "python": "3.12.1"})

    assert built_with(workload, {"triton": ["3.5.1"], "python": []})
    assert not built_with(workload, {"triton": ["3.5.0"]})


WORKLOAD = a_workload()
DEVICE = WORKLOAD.device


def test_what_is_not_known_yet_arrives() -> None:
    mine, theirs = MemoryStore(), MemoryStore()
    both, new = a_workload(), a_workload(device=replace(DEVICE, name="Other CPU"))
    for store, workload in ((mine, both), (theirs, both), (theirs, new)):
        store.put_workload(workload)
        store.append([a_trial(workload)])

    assert arriving(mine, theirs) == [new]
    mine.merge(theirs)
    assert arriving(mine, theirs) == []


def test_devices_of_one_name_with_two_drivers_look_alike() -> None:
    newer = replace(DEVICE, driver="7.0")
    elsewhere = replace(DEVICE, name="Other CPU")

    assert lookalikes([DEVICE, elsewhere, newer, DEVICE]) == [(identity(DEVICE), identity(newer))]


def test_another_architecture_makes_another_device() -> None:
    assert lookalikes([DEVICE, replace(DEVICE, architecture="aarch64")])


def test_devices_that_differ_in_limits_alone_are_the_same() -> None:
    assert lookalikes([DEVICE, replace(DEVICE, limits=Limits(memory_bytes=1))]) == []


class Growing(MemoryStore):
    """Somebody appends each time that it is read."""

    reads = 0

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        self.reads += 1
        assert self.reads < 10
        self.append([a_trial(WORKLOAD, {"BM": self.reads}), a_trial(WORKLOAD, {"BM": 0})])
        return super().trials(workload_id, all=all)


def test_a_store_that_grows_meanwhile_is_read_to_its_end() -> None:
    with Growing() as store:
        store.put_workload(WORKLOAD)
        [found] = contents(store)
    standing = [trial.config for trial in found.trials if trial.id in found.standing]
    assert set(found.standing) <= {trial.id for trial in found.trials}
    assert len(standing) == len(found.standing) == len({one.config.id for one in found.trials})
