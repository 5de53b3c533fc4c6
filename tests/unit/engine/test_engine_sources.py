"""What keeps results of one kernel apart is said when it is tuned."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import whet
from whet.store import MemoryStore, Store, open_store


def made(M: int, **options: Any) -> Any:  # noqa: N803 - sizes are capitals by custom
    def run(block: int) -> int:
        return M // block

    return whet.function(run, {"block": [1, 2]}, **options)


def notes(store: Store, target: Any) -> list[str]:
    result = whet.tune(target, store=store)
    return [note for note in result.notes if "captured" in note or "key=" in note]


@pytest.mark.medium
def test_what_was_captured_is_named_where_it_keeps_results_apart() -> None:
    store = MemoryStore()
    assert notes(store, made(256, key={"N": 8})) == []
    [note] = notes(store, made(512, key={"N": 8}))
    assert "M=512 (was 256)" in note
    assert "put M in key=" in note


@pytest.mark.medium
def test_nothing_is_said_where_the_key_claims_it() -> None:
    store = MemoryStore()
    for size in (256, 512):
        assert notes(store, made(size, key={"M": size})) == []


@pytest.mark.medium
def test_a_key_that_says_otherwise_than_the_code_is_named_with_both_values() -> None:
    store = MemoryStore()
    notes(store, made(256, key={"M": 128}))
    [note] = notes(store, made(512, key={"M": 256}))
    assert note.startswith("key= has M=256, but the code uses M=512; make them match")


@pytest.mark.medium
def test_it_is_in_the_log_too(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    with caplog.at_level(logging.INFO, "whet"):
        for size in (256, 512):
            whet.tune(made(size, key={"N": 8}), store=store)
    [said] = [record.message for record in caplog.records if "event=note" in record.message]
    assert "kernel=run" in said
    assert "captures M=512 (was 256)" in said


@pytest.mark.medium
def test_a_stored_answer_is_found_under_the_name_of_now_too(tmp_path: Any) -> None:
    target = made(256, key={"M": 256}).placed("/first/a.py:one")
    with open_store(tmp_path / "s.db") as store:
        whet.tune(target, store=store)
        assert whet.tune(target.placed("/second/b.py:two"), store=store).source == "stored"
        [known] = store.workloads()
    assert set(known.workload.origin.places) == {"/first/a.py:one", "/second/b.py:two"}


@pytest.mark.medium
def test_a_target_made_in_a_function_is_placed_by_its_file() -> None:
    store = MemoryStore()
    whet.tune(made(256), store=store)
    assert store.workloads()[0].workload.origin.places == (f"{__file__}:run",)


@pytest.mark.medium
def test_configs_that_are_tried_again_are_not_known_before() -> None:
    """What was tried and what was known before add up to what the store has tried."""
    store = MemoryStore()
    sizes = {"block": [1, 2, 3, 4, 5, 6]}

    def run(block: int) -> int:
        return sum(range(4000))  # as fast with one as with another, so that a duel is needed

    whet.tune(whet.function(run, sizes), store=store, budget="2trials")
    result = whet.tune(whet.function(run, sizes), store=store)
    assert result.known + len(result.trials) == store.workloads()[0].configs


@pytest.mark.medium
def test_a_key_that_was_read_off_the_arguments_cannot_disagree_with_the_code() -> None:
    store, inner = MemoryStore(), made(512).fn

    def run(block: int, M: int) -> int:  # noqa: N803
        return int(inner(block)) + M

    assert notes(store, whet.function(run, {"block": [1, 2]}, kwargs={"M": 4})) == []
