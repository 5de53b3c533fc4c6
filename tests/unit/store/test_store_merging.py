"""Whose results a merge brings, and which devices only look alike."""

from __future__ import annotations

from dataclasses import replace

from whet.core.workload import Limits
from whet.store import MemoryStore
from whet.store.merging import arriving, identity, lookalikes
from whet.testing.samples import a_trial, a_workload

DEVICE = a_workload().device


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
