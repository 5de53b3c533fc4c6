"""Contract tests for executors, as a pytest class.

    class TestMine(ExecutorContract):
        def make(self, devices):
            return MyExecutor(devices)

`devices` are how many seats it should have at least. One that has a single seat, in this process,
says so by `separate = False`: what needs another process is then not asked of it. Where it takes
long to make one, `make` may give the same each time, whose `close` does nothing, and `make_own` one
that really closes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.engine import tune
from whet.engine.executors.protocol import DeviceExecutor, Seat
from whet.store import MemoryStore
from whet.testing.fake_devices import FakeRack, RackTarget
from whet.workers.answers import WorkerDied, WorkerTimeout
from whet.workers.session import RemoteObject
from whet.workers.task import Rest, Task


class Probe:
    """What the kit has made on seats."""

    def __init__(self) -> None:
        self._calls = 0

    def pid(self) -> int:
        return os.getpid()

    def count(self) -> int:
        self._calls += 1
        return self._calls

    def device(self) -> str:
        return os.environ.get("WHET_DEVICE", "")

    def echo(self, value: object) -> object:
        return value

    def fail(self) -> None:
        raise ConfigFailure(Status.RESOURCES, "too large")

    def busy(self, folder: str, seconds: float) -> float:
        """Notes that it is at work, for others to see."""
        mark = Path(folder) / f"{os.getpid()}.{threading.get_ident()}"
        mark.touch()
        time.sleep(seconds)
        mark.unlink()
        return seconds

    def die(self) -> None:
        os._exit(3)


class ExecutorContract:
    """Subclass this, implement `make`, and let pytest collect it."""

    separate = True

    def make(self, devices: int) -> DeviceExecutor:
        raise NotImplementedError

    def make_own(self, devices: int) -> DeviceExecutor:
        return self.make(devices)

    def seats(self, executor: DeviceExecutor, devices: int) -> Sequence[Seat]:
        """Those it has once all have joined."""
        end = time.monotonic() + 30
        while len(executor.seats()) < devices and time.monotonic() < end:
            time.sleep(0.05)
        return executor.seats()

    def test_seats_have_names_of_their_own_and_keep_them(self) -> None:
        with self.make(2) as executor:
            names = [seat.name for seat in self.seats(executor, 2 if self.separate else 1)]
            assert len(set(names)) == len(names) >= (2 if self.separate else 1)
            assert [seat.name for seat in executor.seats()] == names
            assert not executor.refused()

    def test_an_object_lives_on_its_seat_between_calls(self) -> None:
        with self.make(1) as executor:
            session = self.seats(executor, 1)[0].session(Probe)
            assert [session.call("count").value for _ in range(3)] == [1, 2, 3]
            assert session.call("echo", {"a": (1, 2)}).value == {"a": (1, 2)}
            assert session.made == session.generation == 1
            session.close()

    def test_a_failed_config_comes_back_as_itself(self) -> None:
        with self.make(1) as executor:
            session = self.seats(executor, 1)[0].session(Probe)
            with pytest.raises(ConfigFailure) as caught:
                session.call("fail")
            assert caught.value.status is Status.RESOURCES
            assert caught.value.message == "too large"
            assert session.call("count").value == 1

    def test_facts_say_where_it_is_and_what_is_installed_there(self) -> None:
        with self.make(1) as executor:
            facts = self.seats(executor, 1)[0].facts()
            assert facts.host
            assert facts.toolchain["whet"]
            assert facts.differences(facts) == ()

    def test_every_seat_has_a_process_and_a_device_of_its_own(self) -> None:
        if not self.separate:
            pytest.skip("one seat, in this process")
        with self.make(2) as executor:
            sessions = [seat.session(Probe) for seat in self.seats(executor, 2)[:2]]
            pids = {one.call("pid").value for one in sessions}
            assert len(pids | {os.getpid()}) == 3
            devices = [one.call("device").value for one in sessions]
            for one in sessions:
                one.close()
            assert devices == [seat.name for seat in executor.seats()[:2]]

    def test_seats_work_at_the_same_time(self, tmp_path: Path) -> None:
        if not self.separate:
            pytest.skip("one seat, in this process")
        with self.make(2) as executor:
            sessions = [seat.session(Probe) for seat in self.seats(executor, 2)[:2]]
            for one in sessions:
                one.call("pid")

            def work(session: RemoteObject) -> None:
                with suppress(WorkerDied):
                    session.call("busy", str(tmp_path), 60.0)

            threads = [threading.Thread(target=work, args=(one,)) for one in sessions]
            for thread in threads:
                thread.start()
            end = time.monotonic() + 30
            while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < end:
                time.sleep(0.01)
            assert len(list(tmp_path.iterdir())) == 2
            for one in sessions:
                one.abort()
            for thread in threads:
                thread.join()

    def test_what_dies_on_a_seat_is_replaced_there(self) -> None:
        if not self.separate:
            pytest.skip("one seat, in this process")
        with self.make(1) as executor:
            session = self.seats(executor, 1)[0].session(Probe)
            assert session.call("count").value == 1
            with pytest.raises(WorkerDied):
                session.call("die")
            assert session.call("count").value == 1
            assert session.generation == 2

    def test_a_call_that_takes_too_long_is_ended(self, tmp_path: Path) -> None:
        if not self.separate:
            pytest.skip("one seat, in this process")
        with self.make(1) as executor:
            session = self.seats(executor, 1)[0].session(Probe)
            session.call("pid")
            with pytest.raises(WorkerTimeout):
                session.call("busy", str(tmp_path), 60.0, limit_s=0.3)

    def test_a_tuning_finds_the_best_and_stores_it(self) -> None:
        store = MemoryStore()
        target = RackTarget({"a": [1, 2, 3, 4], "b": [0, 1]}, _time, FakeRack(), build_s=0.0)
        with self.make(2) as executor:
            self.seats(executor, 2 if self.separate else 1)
            result = tune(target, store=store, executor=executor, jobs=1)
        assert result.config == target.best
        assert len(store.trials(target.workload().id)) == 8
        again = tune(target, store=store)
        assert again.source == "stored"

    def test_a_build_in_two_parts_is_finished_in_this_process(self) -> None:
        """Where it has builders for these: the second part runs in one of their processes."""
        with self.make(1) as executor:
            self.seats(executor, 1)
            source = executor.builders("divided", 1)
            assert (source is None) == (executor.build_slots("divided") is None)
            if source is None:
                return
            view = source.view()
            view.submit(Task(os.getpid, label="a build", first=_first_part))
            [outcome] = view.wait(60)
            view.close()
        here, first, second = outcome.value
        assert here == os.getpid()
        assert len({here, first, second}) == 3

    def test_closing_leaves_no_process_behind(self) -> None:
        if not self.separate:
            pytest.skip("one seat, in this process")
        with self.make_own(2) as executor:
            pids = [seat.session(Probe).call("pid").value for seat in self.seats(executor, 2)[:2]]
        end = time.monotonic() + 20
        while any(map(_lives, pids)) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(map(_lives, pids))
        executor.close()


@dataclass(frozen=True)
class _PutTogether:
    first: int

    def __call__(self, second: int) -> tuple[int, int, int]:
        return os.getpid(), self.first, second


def _first_part() -> Rest:
    return Rest(os.getpid, (), _PutTogether(os.getpid()))


def _time(config: Config) -> float:
    return 50_000.0 * (1 + 0.1 * abs(config["a"] - 3) + 0.25 * config["b"])  # type: ignore[operator]


def _lives(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"
