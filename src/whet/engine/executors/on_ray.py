"""A Ray cluster: a seat for each GPU, and builds wherever there is a core."""

from __future__ import annotations

import itertools
import json
import pickle
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from typing import Any
from weakref import WeakSet

from whet.builds.shared import PoolSource
from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap
from whet.engine.executors.node_pool import DividedPool, NodePool
from whet.engine.executors.protocol import (
    DeviceExecutor,
    Seat,
    SeatFacts,
    SeatLostError,
    facts_here,
)
from whet.engine.executors.ray_cluster import (
    BOARD,
    NAMESPACE,
    PULSE,
    BuildHost,
    ClusterBoard,
    DeviceHost,
    Node,
    SessionAnswer,
    connect,
    connected,
    nodes,
    on_node,
)
from whet.measure.bench.protocol import Visit
from whet.workers import process
from whet.workers.answers import Reply
from whet.workers.task import Task, TaskOutcome

# What a new machine has to answer within.
JOIN_S = 120.0


class RaySeat:
    remote = True

    def __init__(self, name: str, node: str, actor: Any, facts: SeatFacts) -> None:
        self.name = name
        self.node = node
        self.actor = actor
        self.pulse = Pulse(actor)
        self._facts = facts
        self._sessions: WeakSet[RaySession] = WeakSet()

    @property
    def doing(self) -> str:
        """What its sessions are asked at the moment, for people."""
        return "; ".join(session.doing for session in list(self._sessions) if session.doing)

    def facts(self) -> SeatFacts:
        return self._facts

    def session(
        self, factory: Callable[[], Any], mode: str = "spawn", *, preload: Sequence[str] = ()
    ) -> RaySession:
        packed = packed_factory(factory, mode)
        session = RaySession(self.actor, self.name, packed, preload, self.pulse)
        self._sessions.add(session)
        return session


class RayBuilds:
    """A `BuildNode` in an actor."""

    def __init__(self, name: str, slots: int, actor: Any) -> None:
        self.name = name
        self.slots = slots
        self.actor = actor
        self.pulse = Pulse(actor)
        self._open: set[Future[TaskOutcome]] = set()

    def start(self, ticket: int, task: Task) -> Future[TaskOutcome]:
        done: Future[TaskOutcome] = Future()
        try:
            from ray import cloudpickle

            reference = self.actor.build.remote(ticket, bytes(cloudpickle.dumps(task)))
        except TypeError as error:  # it cannot be sent
            done.set_exception(error)
            return done
        except Exception as error:
            done.set_exception(SeatLostError(self.name, f"its process has ended ({error})"))
            return done
        self._open.add(done)
        reference.future().add_done_callback(lambda other: self._pass_on(other, done))
        return done

    def give_up(self) -> None:
        """Its machine is silent: what it was building is to be built elsewhere."""
        while self._open:
            self._fail(self._open.pop(), SILENT)

    def limit(self, ticket: int, limit_s: float | None) -> None:
        with suppress(Exception):  # it is gone, which its futures tell
            self.actor.limit.remote(ticket, limit_s)

    def cancel(self, ticket: int) -> None:
        with suppress(Exception):
            self.actor.cancel.remote(ticket)

    def _pass_on(self, other: Future[TaskOutcome], done: Future[TaskOutcome]) -> None:
        problem = other.exception()
        if problem is None:
            now = time.monotonic()
            outcome = other.result()
            with suppress(InvalidStateError):  # it was given up
                done.set_result(replace(outcome, started=now - outcome.seconds, ended=now))
        else:
            self._fail(done, "its machine has ended")
        self._open.discard(done)

    def _fail(self, done: Future[TaskOutcome], why: str) -> None:
        with suppress(InvalidStateError):
            done.set_exception(SeatLostError(self.name, why))


class RayExecutor(DeviceExecutor):
    """`address` is that of a cluster, or `local` for one that is started here and ends with it.

    `measure_on="cpu"` is for kernels that run on the CPU: then a machine is a seat. `build_on` is
    `all`, `cpu` (machines without a GPU), `gpu`, or names and addresses of machines. `expected` are
    the facts that a machine must have; by default those of this process. Of its tools only those
    in `build_tools` count where it builds, if that is given. `environment` are variables that its
    processes get, None for one that they must not have.
    """

    def __init__(
        self,
        address: str,
        *,
        measure_on: str = "gpu",
        build_on: str = "all",
        expected: SeatFacts | None = None,
        build_tools: Collection[str] | None = None,
        environment: Mapping[str, str | None] | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.name = f"Ray at {address}"
        self._measure_on = measure_on
        self._build_on = build_on
        self._expected = expected or facts_here()
        self._build_tools = build_tools
        self._environment = dict(environment or {})
        self._say = say
        self._lock = threading.Lock()
        self._seats: dict[str, RaySeat] = {}
        self._builds: dict[str, RayBuilds] = {}
        self._known: set[str] = set()
        self._pending: dict[str, tuple[Node, str, Any, Any, float]] = {}
        self._refused: dict[str, str] = {}
        self._pool = NodePool(on_unfit=self._unfit)
        self._closed = threading.Event()
        self._own = connect(address)
        self._board = _board()
        try:
            self._look()
            self._settle()
            if not self._seats:
                raise UsageError(self._no_seat(address))
        except BaseException:
            self.close()
            raise
        self._thread = threading.Thread(target=self._watch, name="whet-ray", daemon=True)
        self._thread.start()

    def seats(self) -> Sequence[Seat]:
        with self._lock:
            return tuple(seat for seat in self._seats.values() if not seat.pulse.silent)

    def builders(self, mode: str, jobs: int | None = None) -> PoolSource | None:
        """What is built whole in a fork of this process cannot be built elsewhere."""
        if not self._pool.slots or mode == "fork":
            return None
        return DividedPool(self._pool, jobs, self._say) if mode == "divided" else self._pool

    def build_slots(self, mode: str) -> int | None:
        return None if mode == "fork" else self._pool.slots or None

    def refused(self) -> Sequence[str]:
        with self._lock:
            return tuple(self._refused.values())

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self._pool.close()
        if connected():
            import ray

            with self._lock:
                actors = [seat.actor for seat in self._seats.values()]
                actors += [node.actor for node in self._builds.values()]
                actors += [actor for _, _, actor, _, _ in self._pending.values()]
            for actor in (*actors, self._board):
                with suppress(Exception):
                    ray.kill(actor)
            if self._own:
                ray.shutdown()

    def _no_seat(self, address: str) -> str:
        why = "; ".join(self._refused.values())
        if why:
            return f"no machine of the cluster at {address} can be used: {why}"
        kind = "a GPU" if self._measure_on == "gpu" else "a free core"
        return f"no machine of the cluster at {address} has {kind}; see ray status"

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_S):
            with suppress(Exception):  # the cluster is gone; seats say so when they are used
                self._listen()
                self._look()
                self._welcome()
                self._post()

    def _listen(self) -> None:
        """Machines may hang without ending: they are lost all the same."""
        with self._lock:
            seats, builds = list(self._seats.values()), list(self._builds.items())
        for seat in seats:
            seat.pulse.look()
        for id, one in builds:
            one.pulse.look()
            if one.pulse.silent:
                self._pool.remove(id)
                one.give_up()

    def _look(self) -> None:
        """Machines that have joined get their actors; those that are gone are forgotten."""
        found = nodes()
        alive = {node.id for node in found}
        for node in found:
            if node.id not in self._known:
                self._known.add(node.id)
                self._join(node)
        with self._lock:
            gone = [name for name, seat in self._seats.items() if seat.node not in alive]
            for name in gone:
                del self._seats[name]
            for id in [id for id in self._builds if id not in alive]:
                del self._builds[id]
                self._pool.remove(id)

    def _join(self, node: Node) -> None:
        names: list[tuple[str, str, Any]] = []
        seats = node.gpus if self._measure_on == "gpu" else min(1, node.cpus)
        for number in range(seats):
            name = f"{node.name}:{number}" if self._measure_on == "gpu" else node.name
            gpus = 1 if self._measure_on == "gpu" else 0
            host = on_node(DeviceHost, node, gpus=gpus, cpus=0, threads=4)
            actor = host.remote(name, self._environment)
            names.append((name, "seat", actor))
        if node.cpus and node.builds(self._build_on):
            threads = 2 * node.cpus + 4
            host = on_node(BuildHost, node, gpus=0, cpus=0, threads=threads)
            actor = host.remote(node.cpus, self._environment)
            names.append((node.id, "builds", actor))
        for name, kind, actor in names:
            self._pending[f"{kind} {name}"] = (node, name, actor, actor.facts.remote(), time.time())

    def _settle(self) -> None:
        """Waits for those that were there from the beginning."""
        end = time.monotonic() + JOIN_S
        while self._pending and time.monotonic() < end:
            self._welcome(0.2)

    def _welcome(self, wait_s: float = 0.0) -> None:
        import ray

        waiting = dict(self._pending)
        if not waiting:
            return
        ready, _ = ray.wait(
            [one[3] for one in waiting.values()], num_returns=len(waiting), timeout=wait_s
        )
        for key, (node, name, actor, facts, since) in waiting.items():
            if facts in ready:
                del self._pending[key]
                self._admit(node, name, actor, facts, seat=key.startswith("seat "))
            elif time.time() - since > JOIN_S:
                del self._pending[key]

    def _admit(self, node: Node, name: str, actor: Any, facts: Any, *, seat: bool) -> None:
        import ray

        try:
            found: SeatFacts = answered(facts, name)
        except SeatLostError:
            return
        gpu = seat and self._measure_on == "gpu"
        tools = None if seat else self._build_tools
        differences = found.differences(self._expected, device=gpu, tools=tools)
        with self._lock:
            if differences:
                what = "device" if seat else "machine"
                text = f"{what} {name if seat else node.name} is not used: {', '.join(differences)}"
                new = text not in self._refused.values()
                self._refused[name] = text
            elif seat:
                self._seats[name] = RaySeat(name, node.id, actor, found)
            else:
                self._builds[name] = RayBuilds(name, node.cpus, actor)
        if differences:
            ray.kill(actor)
            if new:
                self._say(text)
        elif not seat:
            self._pool.add(self._builds[name])

    def _unfit(self, id: str, reason: str) -> None:
        """A machine that a build has refused."""
        name = next((node.name for node in nodes() if node.id == id), id)
        text = f"machine {name} does not build: {reason}"
        with self._lock:
            self._refused[id] = text
        self._say(text)

    def _post(self) -> None:
        names = {node.id: node.name for node in nodes()}
        builds = self._pool.under_way
        with self._lock:
            rows = {
                "v": 1,
                "devices": {name: seat.doing for name, seat in self._seats.items()},
                "builds": {
                    names.get(id, id): {"slots": one.slots, "building": builds.get(id, [])}
                    for id, one in self._builds.items()
                },
                "refused": list(self._refused.values()),
            }
        self._board.post.remote(json.dumps(rows))


def _board() -> Any:
    import ray

    return (
        ray.remote(ClusterBoard)
        .options(name=BOARD, namespace=NAMESPACE, num_cpus=0, get_if_exists=True)
        .remote()
    )


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
