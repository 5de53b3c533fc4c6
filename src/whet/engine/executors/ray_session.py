"""Calls to what lives on a seat of a Ray cluster."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from whet.core.frozen import FrozenMap
from whet.engine.executors.protocol import SeatLostError
from whet.engine.executors.ray_cluster import PULSE
from whet.engine.executors.ray_node import SessionAnswer
from whet.measure.bench.protocol import Visit
from whet.workers import process
from whet.workers.answers import Reply

_numbers = itertools.count(1)

# How often actors are asked for a sign of life and waits look whether there was one, and after how
# many such looks without an answer an actor is given up.
LOOK_S, SILENT_LOOKS = 0.5, 60
SILENT = "its machine gives no sign of life"


class Pulse:
    """Whether an actor answers. Counted in looks, not by the clock: a process that was suspended
    itself must not find that everybody else was silent meanwhile."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._asked: Any = None
        self._looks = 0

    @property
    def silent(self) -> bool:
        return self._looks >= SILENT_LOOKS

    def look(self) -> None:
        import ray

        if self._asked is not None and not ray.wait([self._asked], timeout=0)[0]:
            self._looks += 1
            return
        self._looks = 0
        with suppress(Exception):  # it has ended, which whoever waits for it is told
            self._asked = self._actor.pid.options(concurrency_group=PULSE).remote()


class RaySession:
    """A `Session` in an actor. Calls block until the answer is there, or the actor is gone: its
    process has ended, or has given no sign of life for too long, as `pulse` knows."""

    def __init__(
        self, actor: Any, seat: str, packed: bytes, preload: Sequence[str], pulse: Pulse
    ) -> None:
        self._actor = actor
        self._seat = seat
        self._pulse = pulse
        self._number = next(_numbers)
        self._closed = False
        self.generation = 1
        self.made = 0
        self.set_up: FrozenMap[float] = FrozenMap()
        self.doing = ""
        self._opened = self._asked("open", packed, tuple(preload))

    def prepare(self) -> None:
        self._asked("prepare")

    def discard(self) -> None:
        self._tell("discard")

    def abort(self) -> None:
        self._tell("abort")

    def call(
        self,
        method: str,
        *args: Any,
        limit_s: float | None = None,
        memory_bytes: int | None = None,
        parts_s: Mapping[str, float] | None = None,
    ) -> Reply:
        if self._closed:
            raise RuntimeError("the session is closed")
        packed = process.pack((method, args), f"an argument of '{method}'", remedy="")
        self.doing = _described(method, args)
        try:
            if self._opened is not None:
                self._awaited(self._opened)
                self._opened = None
            asked = self._asked("call", packed, limit_s, memory_bytes, parts_s)
            answer: SessionAnswer = self._awaited(asked)
        finally:
            self.doing = ""
        self.generation, self.made = answer.generation, answer.made
        self.set_up = answer.set_up
        if answer.problem is not None:
            raise answer.problem
        assert answer.reply is not None
        return answer.reply

    def close(self, wait: bool = True) -> None:
        if not self._closed:
            self._closed = True
            self._tell("close")

    def _awaited(self, reference: Any) -> Any:
        """The limits of a call are kept on the other machine, as long as that is alive."""
        import ray

        while not ray.wait([reference], timeout=LOOK_S)[0]:
            if self._pulse.silent:
                raise SeatLostError(self._seat, SILENT)
        return answered(reference, self._seat)

    def _asked(self, method: str, *args: Any) -> Any:
        """Ray says so at once where it knows already that the actor is gone."""
        try:
            return getattr(self._actor, method).remote(self._number, *args)
        except Exception as error:
            raise SeatLostError(self._seat, f"its process has ended ({error})") from None

    def _tell(self, method: str) -> None:
        """What is gone need not be told."""
        with suppress(SeatLostError):
            self._asked(method)


def _described(method: str, args: tuple[Any, ...]) -> str:
    """For people who ask what a device is doing."""
    subject = args[0] if args else ""
    if isinstance(subject, Visit):
        rest = f" and {len(subject.ids) - 1} more" if len(subject.ids) > 1 else ""
        return f"measuring [{subject.built[0][0]}]{rest}"
    return f"{method} {subject}".strip()


def answered(reference: Any, seat: str, timeout: float | None = None) -> Any:
    """What the actor returned; `SeatLostError` where it is gone."""
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError, RayError

    try:
        return ray.get(reference, timeout=timeout)
    except GetTimeoutError:
        raise SeatLostError(seat, f"no answer within {timeout:g} s") from None
    except RayActorError:
        raise SeatLostError(seat, "its process or its machine has ended") from None
    except RayError as error:
        text = str(error).strip().splitlines()
        raise SeatLostError(seat, text[-1] if text else type(error).__name__) from None


def packed_factory(factory: Callable[[], Any], mode: str) -> bytes:
    """By value where it exists in this process only: Ray's pickle knows how."""
    if mode == "fork":
        from ray import cloudpickle

        return bytes(cloudpickle.dumps(factory))
    return pickle.dumps(factory, protocol=5)
