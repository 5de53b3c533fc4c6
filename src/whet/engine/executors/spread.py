"""A bench over many devices: first looks on whichever is free, what is compared on one.

Why it is so: docs/decisions/devices.md.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from whet.core.config import Config
from whet.core.errors import ConfigFailure, HostFailure, OtherSourceError, UsageError
from whet.engine.executors import calibration
from whet.engine.executors.calibration import (
    AgreementPolicy,
    DeviceAgreement,
    KeptAgreement,
    Round,
    agreement,
)
from whet.engine.executors.protocol import DeviceExecutor, Seat, SeatLostError
from whet.engine.target import BenchLimits, Target
from whet.measure.bench.protocol import Answer, Bench, Built, Sampled, Visit
from whet.measure.bench.remote import NotSetUp
from whet.store import Store

# Looks per device in one visit: enough that none waits long for the others.
LOOKS_EACH = 4

# Rounds that are enough where an agreement is on record.
FEW_ROUNDS = 3

# What a calibration may take of each device, and the rounds it has in any case.
CALIBRATION_NS, LEAST_ROUNDS = 2e9, 5


class SpreadBench(Bench):
    """First looks at many configs are shared out over the devices; every other visit, whose samples
    are compared with each other, is made on one, `home`.

    The first few configs that work are the control: before a second device is used, and again
    after each shared visit, all devices sample them at the same time. One that does not agree
    with the others is left out, said so, and what it measured in that visit is measured again.
    A device that is lost costs what it was measuring.
    """

    in_process = False

    def __init__(
        self,
        seats: Callable[[], Sequence[Seat]],
        open_bench: Callable[[Seat], Bench],
        say: Callable[[str], None],
        policy: AgreementPolicy | None = None,
        recorded: KeptAgreement | None = None,
        keep: Callable[[KeptAgreement], None] = lambda found: None,
    ) -> None:
        self._seats = seats
        self._open_bench = open_bench
        self._say = say
        self._policy = policy or AgreementPolicy()
        self._recorded = recorded
        self._keep = keep
        self._crew = StationThreads()
        self._stations: dict[str, Station] = {}
        self._gone: dict[str, str] = {}
        self._controls: dict[str, Built] = {}
        self._control_ns: dict[str, float] = {}
        self._rounds: list[Round] = []
        self._calibrated: set[str] = set()
        if recorded is not None:
            for name, why in recorded.left_out.items():
                self._gone[name] = why
        self._welcome()

    @property
    def stations(self) -> Sequence[Station]:
        return tuple(self._stations.values())

    @property
    def left_out(self) -> dict[str, str]:
        return dict(self._gone)

    @property
    def width(self) -> int:
        """How many configs are best looked at in one visit."""
        many = len(self._stations)
        return 1 if many == 1 else LOOKS_EACH * many

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        if visit.first:
            self._welcome()
        if not visit.first or len(self._stations) == 1:
            return self._at_home(visit)
        answers: dict[str, Answer] = {}
        rest = visit.built
        if not self._controls:
            few, rest = rest[: self._policy.kernels], rest[self._policy.kernels :]
            answers.update(self._founded(visit.of(*few)))
        if rest and (len(rest) == 1 or not self._controls):
            answers.update(self._answered(visit.of(*rest)))
        elif rest:
            answers.update(self._shared(visit.of(*rest)))
        return tuple(answers[id] for id in visit.ids)

    def forget(self, config: Config) -> None:
        if config.id not in self._controls:
            for station in self._stations.values():
                station.bench.forget(config)

    def end_call(self) -> None:
        for station in self.stations:
            station.bench.end_call()

    def close(self) -> None:
        self._crew.close()
        for name in list(self._stations):
            self._stations.pop(name).bench.close()

    @property
    def _home(self) -> Station:
        for station in self._stations.values():
            return station
        why = "; ".join(f"{name}: {reason}" for name, reason in self._gone.items())
        raise NoDeviceLeftError(f"no device is left to measure on ({why})")

    def _welcome(self) -> None:
        """Opens what has joined."""
        known = self._stations.keys() | self._gone.keys()
        for seat in self._seats():
            if seat.name not in known:
                try:
                    self._stations[seat.name] = Station(seat.name, self._open_bench(seat))
                except SeatLostError as lost:
                    self._drop(seat.name, lost.reason)

    def _at_home(self, visit: Visit) -> tuple[Answer, ...]:
        while True:
            home = self._home
            try:
                return home.measure(visit)
            except SeatLostError as lost:
                self._drop(home.name, lost.reason)

    def _answered(self, visit: Visit) -> dict[str, Answer]:
        return dict(zip(visit.ids, self._at_home(visit), strict=True))

    def _founded(self, visit: Visit) -> dict[str, Answer]:
        """The first few, which are the control from then on. Where their device turns out not to
        agree with the others, they are looked at again."""
        answers, home = self._answered(visit), self._home
        if not self._add_controls(visit, answers):
            return answers
        self._calibrate(visit)
        return answers if self._home is home else self._answered(visit)

    def _add_controls(self, visit: Visit, answers: Mapping[str, Answer]) -> bool:
        added = False
        for config, artifact in visit.built:
            one = answers[config.id]
            if len(self._controls) == self._policy.kernels or not isinstance(one, Sampled):
                continue
            if one.reading.quality == "clean" and not one.hopeless:
                self._controls[config.id] = (config, artifact)
                self._control_ns[config.id] = min(one.reading.samples)
                added = True
        return added

    def _shared(self, visit: Visit) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        todo = visit.built
        while todo:
            self._calibrate(visit)
            if len(self._stations) == 1:
                at_home = visit.of(*todo)
                return {**answers, **dict(zip(at_home.ids, self._at_home(at_home), strict=True))}
            taken = self._crew.share_out(visit.of(*todo), self.stations)
            for name, why in taken.lost.items():
                self._drop(name, why)
            if len(set(taken.by.values())) > 1:
                self._check(visit)
            trusted = self._trusted(taken)
            answers.update(trusted)
            todo = tuple(one for one in todo if one[0].id not in trusted)
        if len(self._controls) < self._policy.kernels and self._add_controls(visit, answers):
            self._all(self._control_visit(visit, first=True), self.stations)
        return answers

    def _trusted(self, taken: SharedVisit) -> dict[str, Answer]:
        """Of those still in use. What ended in the loss of a device says nothing of a config."""
        return {id: one for id, one in taken.answers.items() if taken.by[id] in self._stations}

    def _calibrate(self, visit: Visit) -> None:
        new = [name for name in self._stations if name not in self._calibrated]
        if not new:
            return
        home = self._home.name
        joined = [self._stations[name] for name in new if name != home]
        self._all(self._control_visit(visit, first=True), joined)
        for _ in range(self._many_rounds):
            self._take_round(visit)
        self._calibrated.update(self._stations)
        found = self._judge(self._policy.rounds)
        if len(found.standings) > 1:
            self._keep(KeptAgreement.of(found, self._rounds))

    @property
    def _many_rounds(self) -> int:
        each = sum(self._control_ns.values())
        affordable = max(LEAST_ROUNDS, int(CALIBRATION_NS / max(1.0, each)))
        recorded = self._recorded
        if recorded is not None and set(self._stations) <= set(recorded.devices):
            return min(FEW_ROUNDS, affordable)
        return min(self._policy.rounds, affordable)

    def _check(self, visit: Visit) -> None:
        """Over the last rounds; one that steps out of line in the very last is looked at again at
        once, since it would take several to move that."""
        self._take_round(visit)
        if agreement(self._rounds[-1:], self._policy).left_out:
            for _ in range(FEW_ROUNDS - 1):
                self._take_round(visit)
            self._judge(FEW_ROUNDS)
        self._judge(self._policy.rounds)

    def _judge(self, last: int) -> DeviceAgreement:
        found = agreement(self._rounds[-last:], self._policy, list(self._stations))
        for name, why in found.left_out.items():
            if name in self._stations:
                self._drop(name, why)
        # What is left was never compared with those that are gone.
        self._rounds = [
            {name: ns for name, ns in one.items() if name in self._stations}
            for one in self._rounds[-self._policy.rounds :]
        ]
        return found

    def _take_round(self, visit: Visit) -> None:
        """All devices at the same time, so that what befalls all of them is no difference."""
        found = self._all(self._control_visit(visit), self.stations)
        ids = list(self._controls)
        taken = {
            name: {
                id: min(one.reading.samples)
                for id, one in zip(ids, answers, strict=True)
                if isinstance(one, Sampled) and math.isfinite(min(one.reading.samples))
            }
            for name, answers in found.items()
        }
        for name, ns in taken.items():
            if not ns:
                self._drop(name, "configs that work elsewhere fail there")
        self._rounds.append({name: ns for name, ns in taken.items() if ns})

    def _control_visit(self, visit: Visit, first: bool = False) -> Visit:
        return Visit(tuple(self._controls.values()), 1, first, visit.limit_s)

    def _all(self, visit: Visit, stations: Sequence[Station]) -> dict[str, tuple[Answer, ...]]:
        def ask(station: Station) -> tuple[Answer, ...] | SeatLostError:
            try:
                return station.measure(visit)
            except SeatLostError as lost:
                return lost

        asked = {one.name: partial(ask, one) for one in stations}
        found = self._crew.together(asked, stations)
        lost = {name: one for name, one in found.items() if isinstance(one, SeatLostError)}
        for name, one in lost.items():
            self._drop(name, one.reason)
        return {n: one for n, one in found.items() if not isinstance(one, SeatLostError)}

    def _drop(self, name: str, why: str) -> None:
        self._gone[name] = why
        station = self._stations.pop(name, None)
        if station is not None:
            station.bench.close()
        self._say(f"device {name} is not used any more: {why}")


T = TypeVar("T")

# Parts of a visit per station: the fewer are left, the smaller they get, so that all end together.
PARTS = 2


@dataclass(eq=False)
class Station:
    """`doing` is what it measures now, for people."""

    name: str
    bench: Bench
    doing: str = ""
    visits: int = 0

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        """Raises `SeatLostError` where its process is gone or cannot be made ready."""
        self.doing = f"[{visit.built[0][0]}]" + (
            f" and {len(visit.built) - 1} more" if len(visit.built) > 1 else ""
        )
        try:
            answers = self.bench.measure(visit)
        except NotSetUp as problem:
            raise SeatLostError(self.name, problem.message) from problem
        except OtherSourceError as problem:
            raise SeatLostError(self.name, str(problem)) from problem
        finally:
            self.doing = ""
        for one in answers:
            if isinstance(one, NotSetUp):
                raise SeatLostError(self.name, one.message)
        self.visits += 1
        return answers


@dataclass
class SharedVisit:
    """What became of a visit that was shared out: answers and who gave them, by config id; and
    stations that were lost meanwhile, with the reason."""

    answers: dict[str, Answer] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)


class StationThreads:
    """Stations at work, each in a thread of its own. Whoever waits for them ends their calls when
    interrupted."""

    def __init__(self, most: int = 256) -> None:
        self._threads = ThreadPoolExecutor(most, "whet-device")

    def share_out(self, visit: Visit, stations: Sequence[Station]) -> SharedVisit:
        """Each takes some of what is left, until nothing is. What a lost one had goes back."""
        todo: deque[Built] = deque(visit.built)
        taken, lock = SharedVisit(), threading.Lock()

        def some() -> list[Built]:
            with lock:
                many = max(1, len(todo) // (PARTS * len(stations)))
                return [todo.popleft() for _ in range(min(many, len(todo)))]

        def work(station: Station) -> None:
            while chunk := some():
                try:
                    answers = station.measure(visit.of(*chunk))
                except SeatLostError as lost:
                    with lock:
                        todo.extendleft(reversed(chunk))
                        taken.lost[station.name] = lost.reason
                    return
                with lock:
                    for (config, _), one in zip(chunk, answers, strict=True):
                        taken.answers[config.id], taken.by[config.id] = one, station.name

        left = list(stations)
        while left and todo:
            self.together({one.name: partial(work, one) for one in left}, stations)
            left = [one for one in left if one.name not in taken.lost]
        return taken

    def together(
        self, calls: Mapping[str, Callable[[], T]], stations: Sequence[Station]
    ) -> dict[str, T]:
        """All at the same time; what each has returned. The first exception is raised when all
        have ended."""
        futures: dict[str, Future[T]] = {
            name: self._threads.submit(call) for name, call in calls.items()
        }
        try:
            wait(futures.values())
        except BaseException:
            for station in stations:
                station.bench.end_call()
            raise
        return {name: future.result() for name, future in futures.items()}

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def failed(answer: Answer) -> bool:
    return isinstance(answer, ConfigFailure)


class NoDeviceLeftError(HostFailure):
    """Every device is lost or was left out."""


def bench_on(
    executor: DeviceExecutor,
    target: Target,
    limits: BenchLimits,
    store: Store,
    say: Callable[[str], None],
    policy: AgreementPolicy | None = None,
) -> Bench:
    """A bench over all seats of the executor. Raises `UsageError` where the target can only be
    measured in this process."""
    policy = policy or AgreementPolicy()
    device = target.workload().device
    where = f"{executor.name} {socket.gethostname()} {device.name} {device.driver}"
    recorded = _recorded(store, where, policy, say)

    def open_bench(seat: Seat) -> Bench:
        bench = target.bench(
            replace(
                limits,
                isolate=True,
                open_session=seat.session,
                elsewhere=seat.remote,
                device=seat.name,
            )
        )
        if bench.in_process:
            bench.close()
            raise UsageError(
                f"'{target.name}' can only be measured in this process, so not on other devices; "
                "omit --devices and --ray"
            )
        return bench

    for text in executor.refused():
        say(text)
    return SpreadBench(
        executor.seats,
        open_bench,
        say,
        policy,
        recorded,
        lambda found: calibration.keep(store.models, where, found),
    )


def _recorded(
    store: Store, where: str, policy: AgreementPolicy, say: Callable[[str], None]
) -> KeptAgreement | None:
    """What an earlier run found, while it holds."""
    found = calibration.kept(store.models, where)
    if found is None or not 0 <= time.time() - found.date < policy.valid_s:
        return None
    date = datetime.fromtimestamp(found.date, UTC).strftime("%Y-%m-%d %H:%M UTC")
    for name, why in found.left_out.items():
        say(f"device {name} is not used: {why} (calibrated {date})")
    return found
