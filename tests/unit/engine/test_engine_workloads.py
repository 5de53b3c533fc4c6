"""Whole workloads over devices, and which devices were typed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from whet.core.errors import HostFailure, UsageError
from whet.core.frozen import FrozenMap
from whet.engine.executors import processes
from whet.engine.executors.current import selected
from whet.engine.executors.processes import ProcessPerDevice
from whet.engine.executors.protocol import SeatFacts
from whet.engine.executors.workloads import (
    GOES_ON,
    WorkloadQueue,
    longest_first,
    size_of,
    spread_workloads,
)


class Tuner:
    """Says who tuned what; 'die' ends its process the first time, 'always' every time."""

    def tune(self, item: tuple[str, str]) -> tuple[str, str]:
        name, folder = item
        mark = Path(folder) / name
        if name == "always" or (name == "die" and not mark.exists()):
            mark.touch()
            os._exit(1)
        if name == "refuse":
            raise UsageError("no such key")
        time.sleep(0.05)
        return name, os.environ["WHET_DEVICE"]


def devices(many: int) -> ProcessPerDevice:
    return ProcessPerDevice([str(n) for n in range(many)], lambda name: {})


@pytest.mark.medium
def test_each_workload_is_tuned_once_on_some_device(tmp_path: Path) -> None:
    items = [(f"w{n}", str(tmp_path)) for n in range(12)]
    with devices(3) as executor:
        done = spread_workloads(executor.seats(), Tuner, items)
    assert [one.item for one in done] == items
    assert [one.answer[0] for one in done] == [name for name, _ in items]
    assert {one.seat for one in done} == {one.answer[1] for one in done} <= {"0", "1", "2"}


@pytest.mark.slow
def test_a_workload_whose_process_ends_is_begun_anew_and_then_given_up(tmp_path: Path) -> None:
    items = [(name, str(tmp_path)) for name in ("a", "die", "always", "refuse", "b")]
    with devices(2) as executor:
        done = {one.item[0]: one for one in spread_workloads(executor.seats(), Tuner, items)}
    assert done["die"].answer[0] == "die"
    assert done["always"].answer is None
    assert "process ended" in done["always"].why
    assert done["refuse"].why == "no such key"
    assert done["a"].answer
    assert done["b"].answer


class Slow:
    """Works on for as long as it is told to; the device that is to hang stops in the middle."""

    milestone = staticmethod(lambda name: None)

    def tune(self, item: str) -> str:
        for _ in range(8):
            self.milestone(GOES_ON)
            time.sleep(0.2)
            if os.environ["WHET_DEVICE"] == "0":
                os.kill(os.getpid(), signal.SIGSTOP)
        return os.environ["WHET_DEVICE"]


@pytest.mark.medium
def test_a_device_that_hangs_is_lost_and_one_that_goes_on_is_not() -> None:
    lost: list[str] = []
    with devices(2) as executor:
        done = spread_workloads(
            executor.seats(),
            Slow,
            ["a", "b"],
            on_lost=lambda seat, why: lost.append(seat),
            silent_s=1.0,
        )
        alone = ProcessPerDevice(["0"], lambda name: {})
        with alone, pytest.raises(HostFailure, match="no sign of life for 3 s"):
            spread_workloads(alone.seats(), Slow, ["a"], silent_s=3.0)
    assert [one.answer for one in done] == ["1", "1"]
    assert lost == ["0"]


@pytest.mark.medium
def test_without_a_device_left_nothing_is_pretended() -> None:
    class Lost:
        name, remote = "0", False

        def session(self, factory: object, mode: str = "spawn", *, preload: object = ()) -> None:
            from whet.engine.executors.protocol import SeatLostError

            raise SeatLostError("0", "gone")

    with pytest.raises(HostFailure, match=r"no device is left to tune on \(0: gone\)"):
        spread_workloads([Lost()], Tuner, [("a", "")])  # type: ignore[list-item]


def test_the_longest_workloads_begin_first() -> None:
    assert longest_first(["a", "bbb", "cc"], len) == ["bbb", "cc", "a"]


def test_larger_keys_are_expected_to_take_longer() -> None:
    keys = [{"M": 64, "N": 64}, {"M": 4096, "N": 4096, "dtype": "fp16"}, {"M": 1, "N": 0}, {}]
    assert longest_first(keys, size_of) == [keys[1], keys[0], keys[2], keys[3]]


def test_a_workload_that_comes_back_is_next() -> None:
    queue = WorkloadQueue(["a", "b", "c"])
    assert queue.take("0") == (0, "a")
    assert queue.take("1") == (1, "b")
    assert queue.give_back("0")
    assert queue.take("1") == (0, "a")
    assert not queue.over


def test_devices_are_selected_by_number() -> None:
    assert selected("all", ["0", "1"]) == ("0", "1")
    assert selected("1, 0", ["0", "1", "2"]) == ("1", "0")


@pytest.mark.parametrize(
    ("text", "known", "said"),
    [
        ("all", [], "no GPU found"),
        ("3", ["0", "1"], "no device 3; this machine has 0, 1"),
        ("0", [], "this machine has no GPU"),
        ("0,0", ["0"], "twice"),
        ("0,,1", ["0", "1"], "use all, or numbers such as 0,1"),
    ],
)
def test_what_cannot_be_meant_is_said(text: str, known: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        selected(text, known)


def test_a_machine_that_differs_says_in_what() -> None:
    wanted = SeatFacts("a", "H200", "570.1", FrozenMap({"triton": "3.9.0", "whet": "1"}))
    other = SeatFacts(
        "b", "H200", "560.2", FrozenMap({"triton": "3.6.0", "whet": "1", "more": "2"})
    )
    assert other.differences(wanted) == ("triton 3.6.0, not 3.9.0", "driver 560.2, not 570.1")
    assert other.differences(wanted, device=False) == ("triton 3.6.0, not 3.9.0",)
    bare = SeatFacts("c")
    assert "triton missing, not 3.9.0" in bare.differences(wanted)
    assert wanted.differences(wanted) == ()


def test_devices_of_another_kind_than_the_first_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = {"0": "H200", "1": "H200", "2": "A100"}
    monkeypatch.setattr(processes, "installed_gpu", lambda visible: (kinds[visible], "570"))
    executor = ProcessPerDevice(["0", "1", "2"], lambda name: {"CUDA_VISIBLE_DEVICES": name})
    assert [seat.name for seat in executor.seats()] == ["0", "1"]
    [refused] = executor.refused()
    assert "device 2 " in refused
    assert "A100, not H200" in refused
