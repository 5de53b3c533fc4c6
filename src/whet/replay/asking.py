"""A search that a program outside carries out: it is asked for configs, and told what came of them.

All of it is a file of JSON lines, from which the search is made again each time: first what it is a
search of, then every question and every answer in their order. The same file gives the same search.

Why it is so: docs/decisions/agents.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeAlias

from whet._version import __version__
from whet.core.budget import Budget
from whet.core.config import Config, frozen_values
from whet.core.decoding import number, text, whole
from whet.core.errors import SpaceError, UsageError, did_you_mean
from whet.core.process import user_and_host
from whet.core.run import Outcome, Run, Stop
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Summary, Timing, median, median_interval
from whet.core.trial import Trial, new_id
from whet.interop.findings import Finding
from whet.replay.table import Declared
from whet.search import RACED_WHOLE, Strategy, make_strategy
from whet.store import Store

# Whose timings these are: they are kept apart from what whet has measured.
TOLD = "told"
MOST_ASKED = 10_000
MOST_SAMPLES = 100_000
_FAILURES = tuple(str(status) for status in Status if status.failed)


def read_json(said: str, what: str) -> Any:
    """JSON as the standard has it, which knows no NaN."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        return json.loads(said, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not valid JSON: {error}") from None


def space_of(data: Any) -> Space:
    """Of `{"BM": [16, 32]}`, of a list of configs, or of `{"parameters": …, "constraints": […]}`,
    whose parameters are such an object, or a list with their kinds. Constraints are expressions
    over the parameters, which run nothing."""
    constraints: Any = ()
    if isinstance(data, dict) and isinstance(data.get("parameters"), dict | list):
        constraints = data.get("constraints", [])
        texts = isinstance(constraints, list) and all(type(one) is str for one in constraints)
        if not texts:
            raise SpaceError("the constraints of a space are a list of texts")
        if isinstance(data["parameters"], list):
            try:
                return Declared.from_json({"constraints": constraints, **data}).space()
            except (KeyError, TypeError, ValueError) as error:
                raise SpaceError(f"the parameters of the space are not valid: {error}") from None
        data = data["parameters"]
    if not isinstance(data, dict | list) or not data:
        raise SpaceError(
            'a space is an object such as {"BM": [16, 32], "unroll": [true, false]}, or a list of '
            "configs"
        )
    space = Space(data, constraints)
    if space.first is None:
        raise SpaceError("the space has no valid config")
    return space


@dataclass(frozen=True)
class Told:
    """What came of a config: a time, or why there is none."""

    config: Config
    status: Status
    timing: Summary | None = None
    error: str = ""
    at: float = 0.0

    @classmethod
    def read(cls, data: Any, find: Callable[[Mapping[str, Any]], Config]) -> Told:
        """Of `{"id": …, "ns": 81.5}`; a `UsageError` says what is wrong with it."""
        if not isinstance(data, dict):
            raise UsageError(f"a result is a JSON object, not {json.dumps(data)[:60]}")
        config = find(data)
        timed = [name for name in ("ns", "seconds", "samples_ns") if data.get(name) is not None]
        error = data.get("error") or ""
        status = data.get("status") or ("run_error" if error or not timed else "ok")
        if not isinstance(error, str):
            raise UsageError(f"the error of [{config}] is not a text")
        if status not in ("ok", *_FAILURES):
            hint = did_you_mean(str(status), ("ok", *_FAILURES))
            raise UsageError(f"the status of [{config}] is unknown{hint}")
        if status != "ok":
            return cls(config, Status(status), None, error, time.time())
        if len(timed) != 1:
            raise UsageError(
                f"the result of [{config}] has {' and '.join(timed) or 'no time'}; give one of ns, "
                "seconds and samples_ns, or an error"
            )
        timing = _summary(config, timed[0], data[timed[0]])
        return cls(config, Status.OK, timing, at=time.time())

    def to_json(self) -> dict[str, Any]:
        timing = self.timing
        return {
            "config": dict(self.config),
            "status": str(self.status),
            "timing": None if timing is None else timing.to_json(),
            "error": self.error,
            "at": self.at,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Told:
        timing = data["timing"]
        return cls(
            Config(data["config"]),
            Status(data["status"]),
            None if timing is None else Summary.from_json(timing),
            text(data, "error"),
            number(data, "at"),
        )

    def trial(self, workload_id: str, **more: Any) -> Trial:
        timing = None if self.timing is None else Timing((), TOLD, foreign=self.timing)
        return Trial(workload_id, self.config, self.status, timing, error=self.error, **more)


def _summary(config: Config, name: str, value: Any) -> Summary:
    samples = value if name == "samples_ns" else [value]
    good = isinstance(samples, list) and 0 < len(samples) <= MOST_SAMPLES
    good = good and all(type(one) in (int, float) and 0 < one < 1e18 for one in samples)
    if not good:
        raise UsageError(f"{name} of [{config}] is not above 0 and finite")
    unit = 1e9 if name == "seconds" else 1.0
    taken = [float(one) * unit for one in samples]
    low, high = median_interval(taken) or (min(taken), max(taken))
    return Summary(median(taken), low, high, TOLD)


def config_in(space: Space, data: Any) -> Config:
    """A config of the space, or a `UsageError` that says why it is none."""
    if not isinstance(data, dict):
        raise UsageError(f"a config is a JSON object, not {json.dumps(data)[:60]}")
    config = Config(data)
    reason = space.explain(config)
    if reason is not None:
        raise UsageError(f"[{config}] is not in the space: {reason}")
    return config


@dataclass(frozen=True)
class Opening:
    """What is searched, and how; the first line of the file. `space` is as it was given."""

    kernel: str
    space: Any
    search: str = "auto"
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    key: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""
    started: float = 0.0
    id: str = field(default_factory=new_id)

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "id": self.id,
            "kernel": self.kernel,
            "key": dict(self.key),
            "device": self.device,
            "space": self.space,
            "search": self.search,
            "seed": self.seed,
            "budget": self.budget.to_json(),
            "started": self.started,
            "whet": __version__,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Opening:
        if data["v"] != 1:
            raise ValueError(f"it is of version {data['v']}, which this whet does not know")
        return cls(
            text(data, "kernel"),
            data["space"],
            text(data, "search"),
            whole(data, "seed"),
            Budget.from_json(data["budget"]),
            frozen_values(data["key"]),
            text(data, "device"),
            number(data, "started"),
            text(data, "id"),
        )


@dataclass(frozen=True)
class Asked:
    n: int
    configs: tuple[Config, ...]


Event: TypeAlias = "Asked | Budget | tuple[Told, ...]"


class Session:
    """The search of one file, as far as it has come. `write` adds a line to the file."""

    def __init__(
        self, opening: Opening, events: Iterable[Event], write: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self.opening = opening
        self.budget = opening.budget
        self.space = space_of(opening.space)
        # By id: what was asked for, and the latest that was told.
        self.asked: dict[str, Config] = {}
        self.told: dict[str, Told] = {}
        self._all_told: list[Told] = []
        self._dry = False
        self._events: list[Event] = []
        self._write = write
        self._made: tuple[int, Strategy] | None = None
        for event in events:
            self._add(event)

    @property
    def pending(self) -> list[Config]:
        """Asked for, and nothing has been told of them yet."""
        return [config for id, config in self.asked.items() if id not in self.told]

    @property
    def left(self) -> int | None:
        """How many more the budget allows to be asked for."""
        trials = self.budget.trials
        return None if trials is None else max(0, trials - len(self.asked))

    @property
    def best(self) -> Told | None:
        timed = [(one.timing.median_ns, one) for one in self.told.values() if one.timing]
        return min(timed, key=lambda pair: pair[0])[1] if timed else None

    @property
    def stopped(self) -> Stop | None:
        """Why nothing more will be asked for."""
        budget = self.budget
        if len(self.told) == self.space.count:
            return Stop.COMPLETE
        if budget.seconds is not None and time.time() > self.opening.started + budget.seconds:
            return Stop.TIME
        if self.left == 0:
            return Stop.TRIALS
        return Stop.SEARCH if self._dry else None

    def ask(self, n: int) -> list[Config]:
        """At most `n` that were not asked for before; [] once the search is over."""
        if self.stopped is not None:
            return []
        n = n if self.left is None else min(n, self.left)
        strategy = self._brought_up()
        if strategy is None:  # it is told all, and what it repeats is left out
            strategy, self._made = self._new(), None
            strategy.tell(_trials(self._all_told))
            configs = _unknown(strategy, n, self.asked.keys() | self.told.keys())
        else:
            configs = strategy.ask(n)
        if configs or not self.pending:
            self._write({"asked": n, "configs": list(map(dict, configs))})
            self._add(Asked(n, tuple(configs)))
            self._made = self._made and (len(self._events), strategy)
        else:  # it waits for what it asked for, and is not over
            self._made = None
        return configs

    def extend(self, budget: Budget) -> None:
        """From now on this is the budget of the whole search."""
        if budget != self.budget:
            self._write({"budget": budget.to_json()})
            self._add(budget)

    def continues(self, before: Session) -> None:
        """Saves making a search again that `before`, of the same file, has made."""
        if before._made and before._events == self._events[: len(before._events)]:
            self._made = before._made

    def read(self, data: Any) -> list[Told]:
        """The results that somebody tells, none of them if one is wrong."""
        listed = data.get("results") if isinstance(data, dict) and "results" in data else data
        listed = listed if isinstance(listed, list) else [listed]
        return [Told.read(one, self._find) for one in listed]

    def tell(self, results: Sequence[Told]) -> None:
        if results:
            self._write({"told": [one.to_json() for one in results]})
            self._add(tuple(results))

    def keep(self, store: Store) -> None:
        """Brings the store up to what was told, as results that whet has not measured itself; a
        second time adds nothing."""
        run = self.run()
        store.save_run(run)
        store.append(
            one.trial(
                run.workload.id,
                run_id=run.id,
                created=one.at,
                id=_id(self.opening.id, at),
            )
            for at, one in enumerate(self._all_told)
        )

    def run(self) -> Run:
        opening, best, stopped = self.opening, self.best, self.stopped
        over = stopped is not None and not self.pending
        ended = Outcome.FAILED if best is None else Outcome.FINISHED
        finding = Finding(opening.kernel, opening.device, frozen_values(opening.key), TOLD, ())
        return Run(
            workload=finding.workload,
            space_id=self.space.id,
            space_size=self.space.count,
            search=opening.search,
            seed=opening.seed,
            budget=self.budget,
            outcome=ended if over else Outcome.RUNNING,
            exhaustive=stopped is Stop.COMPLETE,
            first=self.space.first,
            best=best.config if best is not None and over else None,
            trials=len(self.told),
            tried=len(self.told),
            stopped=stopped if over else None,
            started=opening.started,
            wall_s=max(0.0, time.time() - opening.started),
            whet=__version__,
            id=opening.id,
            writer="@".join(user_and_host()),
        )

    def _find(self, data: Mapping[str, Any]) -> Config:
        if "config" in data:
            return config_in(self.space, data["config"])
        asked = self.asked
        config = asked.get(str(data.get("id")))
        if config is None:
            raise UsageError(
                f"no config with the id {json.dumps(data.get('id'))[:40]} was asked for"
                f"{did_you_mean(str(data.get('id')), list(asked)[-8:])}"
            )
        return config

    def _add(self, event: Event) -> None:
        self._events.append(event)
        if isinstance(event, Asked):
            self.asked.update((config.id, config) for config in event.configs)
            self._dry = not event.configs
        elif isinstance(event, Budget):
            self.budget = event
        else:
            self._all_told += event
            self.told.update((one.config.id, one) for one in event)

    def _brought_up(self) -> Strategy | None:
        """The search after all that was asked and told; None where this version of whet would have
        asked for other configs."""
        done, strategy = self._made or (0, self._new())
        for event in self._events[done:]:
            if isinstance(event, tuple):
                strategy.tell(_trials(event))
            elif isinstance(event, Asked) and strategy.ask(event.n) != list(event.configs):
                return None
        self._made = len(self._events), strategy
        return strategy

    def _new(self) -> Strategy:
        opening, space = self.opening, self.space
        trials = opening.budget.trials
        whole = space.is_small(RACED_WHOLE if trials is None else trials)
        return make_strategy(opening.search, space, opening.seed, whole=whole)


def _trials(told: Iterable[Told]) -> list[Trial]:
    return [one.trial("", id=one.config.id) for one in told]


def _unknown(strategy: Strategy, n: int, known: Iterable[str]) -> list[Config]:
    known = set(known)
    found: list[Config] = []
    while len(found) < n:
        asked = strategy.ask(n - len(found))
        if not asked:
            break
        found += [config for config in asked if config.id not in known]
    return found


def _id(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


@contextmanager
def opened(
    path: Path, begin: Callable[[], Opening] | None = None, before: Session | None = None
) -> Iterator[Session]:
    """The session in the file, which no other process has meanwhile. `begin` says what one is of
    that is not there yet; `before` is the same session, as it was earlier."""
    if begin is None and not path.is_file():
        raise UsageError(f"no session in {path}; 'whet ask {path} --space …' begins one")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "a+b"))
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"cannot open {path}: {why}") from None
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UsageError(f"{path} is no plain file; choose another for the session")
        fcntl.flock(file, fcntl.LOCK_EX)
        session = _read(path, file, begin)
        if before is not None:
            session.continues(before)
        yield session


def _read(path: Path, file: IO[bytes], begin: Callable[[], Opening] | None) -> Session:
    file.seek(0)
    data = file.read()
    # Who was killed while writing has left a line without an end, and nobody an answer to it.
    kept = data[: data.rfind(b"\n") + 1]

    def write(line: Mapping[str, Any]) -> None:
        nonlocal kept
        packed = json.dumps(line).encode() + b"\n"
        file.truncate(len(kept))
        file.write(packed)
        file.flush()
        os.fsync(file.fileno())
        kept += packed

    lines = kept.decode(errors="replace").splitlines()
    if not lines:
        if begin is None or data.strip():
            raise UsageError(f"{path} is no session; 'whet ask {path} --space …' begins one")
        opening = begin()
        session = Session(opening, (), write)
        session._new()  # what cannot be searched is no session
        write(opening.to_json())
        return session
    at = 1
    try:
        opening = Opening.from_json(read_json(lines[0], "it"))
        events: list[Event] = []
        for line in lines[1:]:
            at += 1
            events.append(_event(read_json(line, "it")))
        return Session(opening, events, write)
    except (AttributeError, KeyError, TypeError, ValueError, UsageError) as error:
        why = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else error
        raise UsageError(f"line {at} of {path} is no line of a session: {why}") from None


def _event(data: Mapping[str, Any]) -> Event:
    if "asked" in data:
        return Asked(whole(data, "asked"), tuple(Config(one) for one in data["configs"]))
    if "budget" in data:
        return Budget.from_json(data["budget"])
    return tuple(Told.from_json(one) for one in data["told"])
