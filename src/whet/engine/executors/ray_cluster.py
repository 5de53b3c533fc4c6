"""A Ray cluster: its machines, and what lives in actors there. Imports Ray where it is used."""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from whet.core.errors import UsageError, install_extra
from whet.core.frozen import FrozenMap
from whet.core.tested import check_tested
from whet.engine.executors.protocol import DEVICE_VARIABLE, SeatFacts, SeatLostError, facts_here
from whet.workers.answers import Reply
from whet.workers.pool import open_pool
from whet.workers.session import Session
from whet.workers.task import Kind, Task, TaskOutcome

NAMESPACE, BOARD = "whet", "whet-board"

# Calls of an actor in this group have a thread of their own, whatever keeps the others busy.
PULSE = "pulse"


@dataclass(frozen=True)
class Node:
    """`name` is what people call it: its host's; where a cluster is tried out on one machine,
    several share that, and the id is part of it."""

    id: str
    name: str
    address: str
    cpus: int
    gpus: int

    def builds(self, build_on: str) -> bool:
        """Whether `--build-on` names it: `all`, `cpu`, `gpu`, or names and addresses."""
        if build_on in ("all", "gpu", "cpu"):
            return build_on == "all" or (self.gpus > 0) == (build_on == "gpu")
        wanted = {part.strip() for part in build_on.split(",")}
        return bool(wanted & {self.name, self.address, self.id, self.name.partition("/")[0]})


def connect(address: str) -> bool:
    """Whether the connection is ours to end."""
    try:
        import ray
    except ImportError:
        raise UsageError(f"--ray needs Ray; install it with {install_extra('ray')}") from None
    check_tested("ray", ray.__version__)
    if ray.is_initialized():
        return False
    _keep_stdout_clean()
    # Ray repeats what its processes print; ours say what there is to say.
    quiet: dict[str, Any] = {
        "namespace": NAMESPACE,
        "log_to_driver": False,
        "logging_level": "ERROR",
        "include_dashboard": False if address == "local" else None,
    }
    try:
        if address == "local":
            ray.init(address="local", **quiet)
        else:
            del quiet["include_dashboard"]
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        text = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"no Ray cluster at {address} ({text}); start one with ray start --head"
        ) from None
    return True


def _keep_stdout_clean() -> None:
    """Ray prints what befalls its machines on stdout, where results go, and has no option for it.
    We say which device is lost."""
    with suppress(Exception):
        from ray._private import worker

        worker.print_to_stdstream = lambda *args, **keywords: None


def connected() -> bool:
    import ray

    return bool(ray.is_initialized())


def nodes() -> list[Node]:
    """Those alive, in the order they joined as far as Ray tells."""
    import ray

    alive = [one for one in ray.nodes() if one["Alive"]]
    hosts = Counter(map(_host, alive))
    return [_node(one, alone=hosts[_host(one)] == 1) for one in alive]


def _host(one: dict[str, Any]) -> str:
    return str(one["NodeManagerHostname"] or one["NodeName"])


def _node(one: dict[str, Any], *, alone: bool) -> Node:
    resources, id = one["Resources"], one["NodeID"]
    return Node(
        id=id,
        name=_host(one) if alone else f"{_host(one)}/{id[:6]}",
        address=one["NodeManagerAddress"],
        cpus=int(resources.get("CPU", 0)),
        gpus=int(resources.get("GPU", 0)),
    )


def on_node(kind: type, node: Node, *, gpus: int, cpus: int, threads: int) -> Any:
    """An actor class that is started on this machine or nowhere, and never again elsewhere."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return ray.remote(concurrency_groups={PULSE: 1})(kind).options(
        num_gpus=gpus,
        num_cpus=cpus,
        max_concurrency=threads,
        max_restarts=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
    )


@dataclass(frozen=True)
class UnpackedFactory:
    """A factory as bytes: only the process that makes the object needs what it is made of."""

    packed: bytes

    def __call__(self) -> Any:
        return pickle.loads(self.packed)()


@dataclass(frozen=True)
class SessionAnswer:
    """What a call came to, and how the session stands after it."""

    generation: int
    made: int
    reply: Reply | None = None
    problem: BaseException | None = None
    set_up: FrozenMap[float] = field(default_factory=FrozenMap)


class Orphaned:
    """Knows whether Ray's process on this machine, whose child an actor is, has ended. The actor
    then ends too, and its workers with it; that these died is no news of what they ran."""

    def __init__(self) -> None:
        self._parent = os.getppid()

    def __bool__(self) -> bool:
        return os.getppid() != self._parent


def take_over(environment: Mapping[str, str | None]) -> None:
    """Variables of the process that tunes; None for one that is not set there."""
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class DeviceHost:
    """Has one device to itself. Objects live in processes of their own, so that what crashes or
    hangs there does not end the actor."""

    def __init__(self, name: str, environment: Mapping[str, str | None] | None = None) -> None:
        take_over({**(environment or {}), DEVICE_VARIABLE: name})
        self._name = name
        self._orphaned = Orphaned()
        self._sessions: dict[int, Session] = {}

    def facts(self) -> SeatFacts:
        return facts_here()

    def pid(self) -> int:
        return os.getpid()

    def open(self, number: int, packed: bytes, preload: Sequence[str]) -> None:
        self._sessions[number] = Session(UnpackedFactory(packed), "spawn", preload=preload)

    def prepare(self, number: int) -> None:
        session = self._sessions.get(number)  # calls of an actor with threads may overtake `open`
        if session is not None:
            session.prepare()

    def discard(self, number: int) -> None:
        self._sessions[number].discard()

    def abort(self, number: int) -> None:
        self._sessions[number].abort()

    def close(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            session.close()

    def call(
        self,
        number: int,
        packed: bytes,
        limit_s: float | None,
        memory_bytes: int | None,
        parts_s: Mapping[str, float] | None,
    ) -> SessionAnswer:
        session = self._sessions[number]
        reply: Reply | None = None
        problem: BaseException | None = None
        try:
            method, args = pickle.loads(packed)
            reply = session.call(
                method, *args, limit_s=limit_s, memory_bytes=memory_bytes, parts_s=parts_s
            )
        except Exception as error:
            error.__traceback__ = None
            lost = SeatLostError(self._name, "its machine has ended")
            problem = lost if self._orphaned else error
        return SessionAnswer(session.generation, session.made, reply, problem, session.set_up)


class BuildHost:
    """Builds with the cores of one machine, each build in a process that can be killed."""

    def __init__(self, jobs: int, environment: Mapping[str, str | None] | None = None) -> None:
        take_over(environment or {})
        self._orphaned = Orphaned()
        self._pool = open_pool(jobs, "spawn")
        self._outcomes: dict[int, TaskOutcome] = {}
        self._tickets: dict[int, int] = {}
        self._news = threading.Condition()
        threading.Thread(target=self._collect, daemon=True).start()

    def facts(self) -> SeatFacts:
        return facts_here()

    def pid(self) -> int:
        return os.getpid()

    def build(self, ticket: int, packed: bytes) -> TaskOutcome:
        """Blocks until it has ended. Times are those of this machine: only `seconds` counts."""
        task: Task = pickle.loads(packed)
        with self._news:
            own = self._tickets[ticket] = self._pool.submit(task)
            self._news.notify_all()
            self._news.wait_for(lambda: own in self._outcomes)
            del self._tickets[ticket]
            outcome = replace(self._outcomes.pop(own), ticket=ticket)
        if outcome.kind is not Kind.DONE and self._orphaned:
            raise SeatLostError("", "its machine has ended")
        return outcome

    def limit(self, ticket: int, limit_s: float | None) -> None:
        with self._news:
            own = self._tickets.get(ticket)
        if own is not None:
            self._pool.limit([own], limit_s)

    def cancel(self, ticket: int) -> None:
        with self._news:
            own = self._tickets.get(ticket)
        if own is not None:
            self._pool.cancel(own)

    def close(self) -> None:
        self._pool.close()

    def _collect(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._pool.pending)
            outcomes = self._pool.wait(None)
            with self._news:
                self._outcomes.update({one.ticket: one for one in outcomes})
                self._news.notify_all()


class ClusterBoard:
    """Who does what, for whoever asks: written by the tuning, read by `whet store stats --ray`."""

    def __init__(self) -> None:
        self._text = "{}"
        self._at = time.time()

    def post(self, text: str) -> None:
        self._text, self._at = text, time.time()

    def read(self) -> tuple[str, float]:
        return self._text, time.time() - self._at


def read_cluster(address: str) -> dict[str, Any]:
    """Machines of the cluster, and what a tuning that is under way does with them; `devices` is
    missing where there is none. Raises `UsageError` where there is no cluster."""
    own = connect(address)
    import ray

    try:
        found: dict[str, Any] = {
            "v": 1,
            "machines": [
                {"name": one.name, "address": one.address, "cpus": one.cpus, "gpus": one.gpus}
                for one in nodes()
            ],
        }
        with suppress(ValueError):  # there is no such actor
            board = ray.get_actor(BOARD, namespace=NAMESPACE)
            text, age_s = ray.get(board.read.remote(), timeout=10)
            found.update(json.loads(text), age_s=age_s)
        return found
    finally:
        if own:
            ray.shutdown()
