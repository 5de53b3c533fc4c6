"""The protocol of a shared store, played step by step by several hosts: the real stores and a real
server; network, clock and the moments at which something breaks are Hypothesis's to choose.

    python tests/faults/faults_protocol.py 2000     as many games instead of some

A link does its work when it is told to, in the thread of the game, so that what a game found is
found again. Before any statement, or after a commit, the network may be cut, the server may say
that it takes nothing, another host may write, or the process may die. Hosts also lend each other
their devices, whether or not they have the same code.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import psycopg
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from postgres_server import PostgresServer, new_namespace
from whet.core.config import Config
from whet.core.errors import OtherSourceError, StoreError
from whet.core.trial import Trial
from whet.engine.target import BenchLimits
from whet.store import open_store
from whet.store.faults import ServerAwayError
from whet.store.postgres import connections, local_first
from whet.store.postgres.local_first import LocalFirstStore
from whet.store.postgres.store import PostgresStore
from whet.store.postgres.verified import open_direct
from whet.store.protocol import LeaseHeld
from whet.targets.function import function
from whet.testing.samples import a_run, a_trial, a_workload

HOSTS = ("a", "b", "c")
WORKLOADS = [a_workload(kernel=name) for name in ("matmul", "softmax")]
# A loop that nothing ends would hang the game: no step takes as many statements.
MOST_STATEMENTS = 2000

FAULTS: dict[str, Callable[[], BaseException]] = {
    "cut": lambda: psycopg.OperationalError("server closed the connection unexpectedly"),
    "read-only": lambda: psycopg.errors.ReadOnlySqlTransaction("read-only transaction"),
    "full": lambda: psycopg.errors.DiskFull("No space left on device"),
    "timeout": lambda: psycopg.errors.QueryCanceled("statement timeout"),
    "killed": lambda: Killed(),
}


# What a kernel's file took from the environment when a host imported it.
BEST = 1


def kernel(a: int) -> float:
    return 1000.0 * (1 + abs(a - BEST))


@contextlib.contextmanager
def code_with(best: int) -> Iterator[None]:
    """As on a host that has this value."""
    with mock.patch.dict(globals(), BEST=best):
        yield


class Killed(BaseException):
    """The process is gone in the middle of what it did."""


class Endless(AssertionError):
    pass


class World:
    """What all hosts share, and what is going to happen next: `left` statements from now."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.now = 1000.0
        self.down: set[str] = set()
        self.playing: str | None = None
        self.left = 0
        self.event: Callable[[], None] | None = None
        self.after_commit = False
        self.writing = False
        self.statements = 0
        self.links: dict[str, StepLink] = {}

    def plan(self, left: int, event: Callable[[], None], after_commit: bool) -> None:
        self.left, self.event, self.after_commit = left, event, after_commit

    def step(self, committed: bool) -> None:
        if self.playing is None:
            return
        self.statements += 1
        if self.statements > MOST_STATEMENTS:
            raise Endless(f"{self.playing} does not come to an end")
        if self.event is None or committed != self.after_commit:
            return
        self.left -= 1
        if self.left < 0:
            event, self.event = self.event, None
            event()

    def pass_by(self) -> None:
        """Somebody waits for what its link does."""
        self.now += 0.5
        link = self.links.get(self.playing or "")
        if link is not None:
            link.step()

    @contextlib.contextmanager
    def as_host(self, name: str | None) -> Iterator[None]:
        before, self.playing = self.playing, name
        self.statements = 0
        try:
            yield
        finally:
            self.playing = before


class StepLink:
    """A link without a thread: what it was told to do some time is done by `step`."""

    world: ClassVar[World]

    def __init__(self, address: Any, *, wait_s: float, read_only: bool, on_return: Any) -> None:
        self._address, self._on_return = address, on_return
        self._store: PostgresStore | None = None
        self._told: list[Any] = []
        self._name = self.world.playing or ""
        self.world.links[self._name] = self

    @property
    def away(self) -> bool:
        return self._name in self.world.down

    def ask(self, work: Any, wait_s: float | None = None) -> Any:
        if self.away:
            raise ServerAwayError(self._address.location, "cut")
        if self._store is None:
            self._store = open_direct(self._address)
        return work(self._store)

    def tell(self, work: Any) -> None:
        if not self.away:
            self._told.append(work)

    def nudge(self) -> None:
        pass

    def drain(self, seconds: float) -> None:
        self.step()

    def step(self) -> float | None:
        try:
            for work in self._told:
                self.ask(work)
            self._told = []
            return self.ask(self._on_return)
        except StoreError:
            return 1.0

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


class StillLease:
    """A lease that nobody renews: whether it runs out is a step of the game."""

    def __init__(self, token: int, seconds: float, renew: Any, end: Any) -> None:
        self.token, self._end, self.lost = token, end, False

    def release(self) -> None:
        self._end()


class Game(RuleBasedStateMachine):
    server: ClassVar[PostgresServer]
    space: ClassVar[str]
    counts: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.world = StepLink.world = World(self.server.url(self.space))
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._stack.enter_context(_patched(self.world))
        self._stores: dict[str, LocalFirstStore] = {}
        self._written: set[str] = set()  # what a host was told is kept
        self._leases: dict[tuple[str, str], Any] = {}
        self._age = 0.0
        self._code = dict.fromkeys(HOSTS, 1)
        self._measured: dict[str, int] = {}
        Game.counts["games"] += 1

    @initialize()
    def _empty(self) -> None:
        """Sooner than new tables."""
        open_store(self.world.url, direct=True).close()
        found = self.server.sql(
            f"SELECT tablename FROM pg_tables WHERE schemaname = '{self.space}'"
        )
        names = [f"{self.space}.{name}" for (name,) in found if name not in ("versions", "writers")]
        self.server.sql(f"TRUNCATE {', '.join(names)} CASCADE")

    def _store(self, name: str) -> LocalFirstStore:
        if name not in self._stores:
            environ = {"XDG_DATA_HOME": str(self._folder / name)}
            with self.world.as_host(name):
                opened = open_store(self.world.url, environ=environ, wait_s=1.0)
            assert isinstance(opened, LocalFirstStore)
            self._stores[name] = opened
        return self._stores[name]

    def _do(self, name: str, work: Callable[[LocalFirstStore], Any]) -> Any:
        """A step of a host; one that is killed in it is started again by its next."""
        Game.counts["steps"] += 1
        try:
            store = self._store(name)
            with self.world.as_host(name):
                return work(store)
        except Killed:
            self._forget(name)
        except ServerAwayError:
            Game.counts["told away"] += 1
        return None

    def _forget(self, name: str) -> None:
        store = self._stores.pop(name, None)
        for key in [key for key in self._leases if key[0] == name]:
            del self._leases[key]
        if store is not None:
            store._link.close()
            store._outbox.close()
            store._own.close()

    def _trial(self, workload: Any, config: int, **changes: Any) -> Trial:
        """No two take the same time: of equals each store has the one it met first."""
        time_ns = 1000.0 + (self._age * 7919) % 1000 + config / 10
        return a_trial(workload, {"BM": config}, time_ns, created=self._age, **changes)

    @rule(name=st.sampled_from(HOSTS), at=st.integers(0, 1), n=st.integers(1, 4))
    def append(self, name: str, at: int, n: int) -> None:
        workload = WORKLOADS[at]
        self._age += 1.0
        made = [self._trial(workload, k) for k in range(n)]

        def work(store: LocalFirstStore) -> None:
            store.put_workload(workload)
            store.append(made)
            self._written |= {trial.id for trial in made}

        self._do(name, work)

    @rule(name=st.sampled_from(HOSTS), at=st.integers(0, 1), best=st.integers(0, 3))
    def finish(self, name: str, at: int, best: int) -> None:
        """A run that chooses one of what it tried, under a lease where there is one."""
        workload = WORKLOADS[at]
        self._age += 1.0
        run = a_run(workload, {"BM": best}, started=self._age)
        trial = self._trial(workload, best, run_id=run.id)

        def work(store: LocalFirstStore) -> None:
            store.save_run(run)
            store.append([trial])
            self._written.add(trial.id)

        self._do(name, work)

    @rule(name=st.sampled_from(HOSTS), best=st.integers(1, 3))
    def deploy(self, name: str, best: int) -> None:
        self._code[name] = best

    @rule(name=st.sampled_from(HOSTS), lender=st.sampled_from(HOSTS))
    def borrow(self, name: str, lender: str) -> None:
        """Tunes the kernel of `name` on a device of `lender`, where it is imported again."""
        opened: list[Callable[[], Any]] = []

        def open_session(factory: Callable[[], Any], mode: str = "", *, preload: Any = ()) -> Any:
            opened.append(factory)
            return mock.Mock()

        target = function(kernel, {"a": [1, 2, 3]}, name="lent")
        with code_with(self._code[name]):
            workload = target.workload()
            target.bench(BenchLimits(open_session=open_session, elsewhere=True))
        with code_with(self._code[lender]):
            try:
                opened[0]()
            except OtherSourceError:
                Game.counts["other code refused"] += 1
                return
            times = {a: target.fn(a=a) for a in (1, 2, 3)}
        self._age += 1.0
        run = a_run(workload, {"a": min(times, key=times.__getitem__)}, started=self._age)
        made = [
            a_trial(workload, {"a": a}, time, created=self._age, run_id=run.id)
            for a, time in times.items()
        ]

        def work(store: LocalFirstStore) -> None:
            store.put_workload(workload)
            store.append(made)
            store.save_run(run)
            self._written |= {trial.id for trial in made}

        self._measured[workload.id] = self._code[name]
        self._do(name, work)

    @rule(name=st.sampled_from(HOSTS), at=st.integers(0, 1))
    def lease(self, name: str, at: int) -> None:
        id = WORKLOADS[at].id

        def work(store: LocalFirstStore) -> None:
            store.put_workload(WORKLOADS[at])
            store._link.step()
            held = store.lease(id, name)
            if held is not None and not isinstance(held, LeaseHeld):
                assert not any(other == id for _, other in self._leases), "two have one lease"
                self._leases[name, id] = held

        self._do(name, work)

    @precondition(lambda self: self._leases)
    @rule(data=st.data(), lost=st.booleans())
    def lease_ends(self, data: Any, lost: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self._leases)))
        held = self._leases.pop(key)
        if lost:
            self._past(key[1])
        else:
            self._do(key[0], lambda store: held.release())
            self._past(key[1])  # where it could not be given back it runs out

    def _past(self, workload_id: str) -> None:
        past = f"UPDATE {self.space}.leases SET until = now() - interval '1 s'"
        self.server.sql(f"{past} WHERE id = '{workload_id}'")

    @rule(name=st.sampled_from(HOSTS), at=st.integers(0, 1))
    def read(self, name: str, at: int) -> None:
        def work(store: LocalFirstStore) -> None:
            standing = {trial.id for trial in store.trials(WORKLOADS[at].id)}
            # More may have come by then, never less.
            assert standing <= {trial.id for trial in store.trials(WORKLOADS[at].id, all=True)}

        self._do(name, work)

    @rule(name=st.sampled_from(HOSTS), at=st.integers(0, 1), left=st.integers(0, 12))
    def read_anew(self, name: str, at: int, left: int) -> None:
        """A new process fetches what another one is writing just then."""
        self._forget(name)
        self.something_is_coming("another writes", left, False, at)
        self._do(name, lambda store: (store.best(WORKLOADS[at].id), store._link.step()))

    @rule(name=st.sampled_from(HOSTS))
    def send(self, name: str) -> None:
        self._do(name, lambda store: store._link.step())

    @rule(name=st.sampled_from(HOSTS))
    def restart(self, name: str) -> None:
        self._do(name, lambda store: store.close())
        self._forget(name)

    @rule(name=st.sampled_from(HOSTS))
    def network(self, name: str) -> None:
        self.world.down ^= {name}

    @rule(seconds=st.sampled_from([1.0, 40.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(
        fault=st.sampled_from([*FAULTS, "another writes"]),
        left=st.integers(0, 12),
        after=st.booleans(),
        at=st.integers(0, 1),
    )
    def fault(self, fault: str, left: int, after: bool, at: int) -> None:
        self.something_is_coming(fault, left, after, at)

    def something_is_coming(self, fault: str, left: int, after: bool, at: int) -> None:
        more = [0] * 6  # another host that is busy writes between any two statements, for a while

        def event() -> None:
            if fault == "another writes" and self.world.writing:
                self.world.plan(0, event, after)  # it would wait for this one's locks
                return
            Game.counts[fault] += 1
            if fault != "another writes":
                raise FAULTS[fault]()
            self._other_writes(WORKLOADS[at])
            if more:
                self.world.plan(more.pop(), event, after)

        self.world.plan(left, event, after)

    def _other_writes(self, workload: Any) -> None:
        self._age += 1.0
        trials = [self._trial(workload, 9)]
        with self.world.as_host(None), open_store(self.world.url, direct=True) as server:
            server.put_workload(workload)
            server.append(trials)
        self._written.add(trials[0].id)

    @invariant()
    def nothing_is_refused(self) -> None:
        for store in self._stores.values():
            assert store._outbox.refused == []

    def teardown(self) -> None:
        try:
            self._settle()
        finally:
            for name in list(self._stores):
                self._forget(name)
            self._stack.close()

    def _settle(self) -> None:
        """The network is whole again, and everybody starts once more."""
        self.world.event, self.world.down = None, set()
        for name in HOSTS:
            self._forget(name)
            self.world.now += 1000.0
            for _ in range(50):
                if not self._store(name).unsent:
                    break
                self._do(name, lambda store: store._link.step())
            assert self._store(name).unsent == 0, f"{name} cannot send"
        with open_store(self.world.url, direct=True) as server:
            for name in HOSTS:
                self._forget(name)  # each asks once in the life of a process
                self.world.now += 1000.0
            for id in (*(workload.id for workload in WORKLOADS), *self._measured):
                self._check(server, id)
            for id, code in self._measured.items():
                best = server.best(id)
                assert best is None or best.config["a"] == code, "another code was measured"
            rows = self.server.sql(f"SELECT id FROM {self.space}.trials")
            found = [str(id) for (id,) in rows]
        assert len(found) == len(set(found)), "something is there twice"
        assert self._written <= set(found), "something never arrived"

    def _check(self, server: Any, workload_id: str) -> None:
        every = server.trials(workload_id, all=True)
        youngest: dict[Config, float] = {}
        for trial in every:
            youngest[trial.config] = max(trial.created, youngest.get(trial.config, 0.0))
        standing = {trial.config: trial.created for trial in server.trials(workload_id)}
        assert standing == youngest
        best = server.best(workload_id)
        for name in HOSTS:
            store = self._store(name)
            with self.world.as_host(name):
                store.best(workload_id)
                store._link.step()
                mine = {trial.id for trial in store.trials(workload_id, all=True)}
                assert mine == {trial.id for trial in every}, f"{name} knows other trials"
                assert store.best(workload_id) == best, f"{name} would choose another"


@contextlib.contextmanager
def _patched(world: World) -> Iterator[None]:
    execute, done = psycopg.Connection.execute, connections._done

    def counted(self: Any, query: Any, *rest: Any, **how: Any) -> Any:
        world.step(committed=False)
        return execute(self, query, *rest, **how)

    def committed(db: Any, work: Any, one_state: bool, write: bool) -> Any:
        before, world.writing = world.writing, world.writing or write
        try:
            found = done(db, work, one_state, write)
        finally:
            world.writing = before
        world.step(committed=True)
        return found

    clock = types.SimpleNamespace(
        monotonic=lambda: world.now, sleep=lambda seconds: world.pass_by()
    )
    with (
        mock.patch.object(psycopg.Connection, "execute", counted),
        mock.patch.object(connections, "_done", committed),
        mock.patch.object(local_first, "ServerLink", StepLink),
        mock.patch.object(local_first, "HeldLease", StillLease),
        mock.patch.object(local_first, "time", clock),
    ):
        yield


def play(server: PostgresServer, games: int, *, shrink: bool = False) -> Counter[str]:
    """Raises what a game found; else how much was played. The same games each time."""
    Game.server, Game.space, Game.counts = server, new_namespace(), Counter()
    plan = settings(
        max_examples=games,
        stateful_step_count=40,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
    )
    run_state_machine_as_test(Game, settings=plan)
    return Game.counts


if __name__ == "__main__":
    with PostgresServer() as running:
        print(dict(play(running, int(sys.argv[1]) if sys.argv[1:] else 500, shrink=True)))
