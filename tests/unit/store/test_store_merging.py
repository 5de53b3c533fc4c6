"""Whose results a merge brings, and which devices only look alike."""

from __future__ import annotations

from dataclasses import replace

from whet.core.trial import Trial
from whet.core.workload import Limits
from whet.store import MemoryStore
from whet.store.matching import arriving, identity, lookalikes
from whet.store.merging import contents
from whet.testing.samples import a_trial, a_workload

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
