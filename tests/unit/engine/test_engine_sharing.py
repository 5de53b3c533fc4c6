"""Workloads shared out among ranks, and what ranks tell each other meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.engine.ranks import BoardLostError, Sharing, owners


class Board:
    """One rank's view of notes that all have."""

    def __init__(self, notes: dict[str, str], rank: int, size: int) -> None:
        self._notes, self.rank, self.size = notes, rank, size

    def get(self, key: str) -> str | None:
        return self._notes.get(key)

    def set(self, key: str, text: str) -> None:
        self._notes[key] = text

    def swap(self, key: str, expected: str | None, text: str) -> bool:
        raise NotImplementedError


WORK = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 50), max_size=8)


@pytest.mark.medium
@given(st.lists(WORK, min_size=1, max_size=5))
def test_each_workload_falls_to_one_rank_that_has_it(met: list[Mapping[str, int]]) -> None:
    found = owners(met)
    assert set(found) == {name for one in met for name in one}
    assert all(name in met[rank] for name, rank in found.items())


@pytest.mark.medium
@given(st.dictionaries(st.text(max_size=3), st.integers(1, 50), max_size=30), st.integers(1, 6))
def test_ranks_that_have_the_same_share_it_evenly(work: dict[str, int], size: int) -> None:
    found = owners([work] * size)
    loads = [sum(work[name] for name, rank in found.items() if rank == one) for one in range(size)]
    assert max(loads) - min(loads) <= max(work.values(), default=0)


def test_an_exchange_waits_for_all_and_gives_what_each_said() -> None:
    notes: dict[str, str] = {}
    said: dict[int, list[Any]] = {}

    def rank(number: int) -> None:
        sharing = Sharing(Board(notes, number, 3), "job", 30.0)
        said[number] = sharing.exchange("left", {"rank": number})

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    assert said == {0: expected, 1: expected, 2: expected}


def test_a_rank_that_never_says_anything_is_named() -> None:
    sharing = Sharing(Board({}, 0, 2), "job", 0.05)
    with pytest.raises(BoardLostError, match="rank 1 has said nothing"):
        sharing.exchange("left", 1)


def test_a_signal_of_any_rank_lets_all_go_on() -> None:
    notes: dict[str, str] = {}
    one, other = (Sharing(Board(notes, rank, 2), "job", 30.0) for rank in range(2))
    one.wait_for_signal("go", lambda seconds: True)
    other.wait_for_signal("go", lambda seconds: pytest.fail("it was given already"))
    assert other.signalled("go")
    assert not other.signalled("go on")
