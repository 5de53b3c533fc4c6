"""A process for each device of this host."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from whet.core.errors import UsageError
from whet.engine.executors.protocol import (
    DEVICE_VARIABLE,
    DeviceExecutor,
    Seat,
    SeatFacts,
    facts_here,
)
from whet.measure.gpu.nvml import installed_gpu
from whet.workers import process
from whet.workers.session import RemoteObject, Session


@dataclass(frozen=True)
class InEnvironment:
    """A factory that is unpacked only after its process has been given its device: what it names
    may look for one when it is imported."""

    variables: Mapping[str, str]
    packed: bytes

    def __call__(self) -> Any:
        os.environ.update(self.variables)
        return pickle.loads(self.packed)()


@dataclass(frozen=True)
class ForkedInEnvironment:
    """The same for a forked process, which has the factory already."""

    variables: Mapping[str, str]
    factory: Callable[[], Any]

    def __call__(self) -> Any:
        os.environ.update(self.variables)
        return self.factory()


class FactsThere:
    def facts(self) -> SeatFacts:
        return facts_here()


class ProcessSeat:
    """`variables` are what a process has in its environment to see this device alone."""

    remote = False

    def __init__(self, name: str, variables: Mapping[str, str]) -> None:
        self.name = name
        self._variables = {DEVICE_VARIABLE: name, **variables}
        self._facts: SeatFacts | None = None
        self._opened: WeakSet[Session] = WeakSet()

    def facts(self) -> SeatFacts:
        if self._facts is None:
            session = self.session(FactsThere)
            try:
                self._facts = session.call("facts", limit_s=60.0).value
            finally:
                session.close()
        return self._facts

    def session(
        self, factory: Callable[[], Any], mode: str = "spawn", *, preload: Sequence[str] = ()
    ) -> RemoteObject:
        session = Session(self._there(factory, mode), mode, preload=preload)
        self._opened.add(session)
        return session

    def close(self) -> None:
        for session in list(self._opened):
            session.close()

    def _there(self, factory: Callable[[], Any], mode: str) -> Callable[[], Any]:
        if mode == "fork":
            return ForkedInEnvironment(self._variables, factory)
        return InEnvironment(self._variables, process.pack(factory, "the factory"))


class ProcessPerDevice(DeviceExecutor):
    """`environment` gives what a process needs to see one device alone. Devices of another kind
    than the first are not used. Builds stay in this machine's pool."""

    name = "a process per device"

    def __init__(
        self, devices: Sequence[str], environment: Callable[[str], Mapping[str, str]]
    ) -> None:
        if not devices:
            raise UsageError("no device to measure on; name one, such as --devices 0")
        variables = {name: environment(name) for name in devices}
        kinds = {name: _kind(variables[name]) for name in devices}
        first = kinds[devices[0]]
        self._refused = tuple(
            f"device {name} is not used: {kind or 'no GPU'}, not {first or 'no GPU'}"
            for name, kind in kinds.items()
            if kind != first
        )
        self._seats = tuple(
            ProcessSeat(name, variables[name]) for name in devices if kinds[name] == first
        )

    def seats(self) -> Sequence[Seat]:
        return self._seats

    def refused(self) -> Sequence[str]:
        return self._refused

    def close(self) -> None:
        for seat in self._seats:
            seat.close()


def _kind(variables: Mapping[str, str]) -> str:
    """The name of the GPU that a process would see, where that can be told from here."""
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    return "" if visible is None else installed_gpu(visible)[0]
