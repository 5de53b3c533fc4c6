"""The builds of many workloads at once, begun before their runs."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from whet.builds.builder import ENOUGH, MEMORY
from whet.builds.job import Built, Job
from whet.builds.shared import SharedPool
from whet.core.config import Config
from whet.core.status import LimitKind
from whet.engine.recall import recalled
from whet.engine.settings import Settings
from whet.engine.target import Target
from whet.search import RACED_WHOLE
from whet.search.unguided import spread
from whet.store import StoreReader
from whet.workers.task import Kind, Task

# A run starts before all of its builds have ended: these are the ones that may have to be cut, and
# nobody but the run knows when. Until then its workload would hold up the device.
LEFT = 0.25

# How often builds under way are looked at, besides whenever one ends.
LOOK_S = 0.25

# What is built with little effort before anything is known of a space: all of a list of so many
# configs, of which there is little to leave out, and this share of a longer one. More are built
# where they promise something.
FEWEST, SHARE = 8, 0.25

# With little effort, nobody waits for a build that takes so many times what half of the others of
# its kernel took, when at least so many of them are there: of three libraries' kernels none within
# 2 % of its best took more than 1.6 times that, and those that do have spilled their registers.
LONG, LONG_S, TIMED = 1.6, 0.75, 3


@dataclass(eq=False)
class Prospect:
    """A workload to be tuned: what its run will want built. `identities` has those that have to be
    built, by config; the rest of `configs` has been, or needs no build. `size` says how much there
    is to compile, in any unit, until it is known how long the first config took. One that is
    `partial` need not be built whole; `took_s` is what builds of its other configs took."""

    name: str
    workload_id: str
    configs: tuple[Config, ...]
    size: float = 0.0
    identities: dict[Config, str] = field(default_factory=dict)
    first_s: float = 0.0
    partial: bool = False
    took_s: tuple[float, ...] = ()


class Ahead:
    """One pool for all of them. The author's first configs come first, since with these a program
    can go on; then the workloads that take longest to build, so that no long build is left for the
    end."""

    def __init__(self, settings: Settings, jobs: int | None = None) -> None:
        self._settings = settings
        self.pool = SharedPool(settings.jobs if jobs is None else jobs)
        self._prospects: list[Prospect] = []
        self._placed = 0
        self._lock = threading.Lock()

    def begin(self, prospect: Prospect, jobs: Iterable[tuple[Config, Job]]) -> None:
        """Starts what is not known to this process yet, each as soon as it is there; the first of
        `jobs` before all others. May be called again with more of the same."""
        with self._lock:
            if prospect not in self._prospects:
                self._prospects.append(prospect)
            place = self._ranked().index(prospect)
        for order, (config, job) in enumerate(jobs):
            if job.identity is None or self._known(job.identity):
                continue
            prospect.identities[config] = job.identity
            task = Task(
                job.call, job.args, self._settings.build_limit_s, None, str(config), job.identity
            )
            self.pool.begin(task, place if order == 0 else _order(place, order))
        self.put_in_order(anew=True)

    def put_in_order(self, *, anew: bool = False) -> None:
        """When there are more of them, or it is known of more what their first config took."""
        with self._lock:
            known = sum(self._first_s(one) > 0 for one in self._prospects)
            if known <= self._placed and not anew:
                return
            self._placed = known
            ranked = self._ranked()
        self.pool.reorder(
            {
                identity: place if order == 0 else _order(place, order)
                for place, one in enumerate(ranked)
                for order, identity in enumerate(one.identities.values())
            }
        )

    def _ranked(self) -> list[Prospect]:
        """The longest first; what is not known is taken to be like the rest, for its size."""
        known = [(s, one.size) for one in self._prospects if (s := self._first_s(one)) and one.size]
        rate = sum(s for s, _ in known) / sum(size for _, size in known) if known else 1.0
        return sorted(self._prospects, key=lambda one: -(self._first_s(one) or one.size * rate))

    def due(self, prospect: Prospect) -> bool:
        """Whether its run would find enough to begin with."""
        left = self.pool.outstanding(prospect.identities.values())
        if left == 0:
            return True
        if prospect.partial:  # those that take too long will be left out
            return False
        built = len(prospect.configs) - left
        return built >= ENOUGH and left <= LEFT * len(prospect.configs)

    def left(self, prospect: Prospect) -> int:
        return self.pool.outstanding(prospect.identities.values())

    def ready(self, prospect: Prospect, timeout: float | None = None) -> Config | None:
        """One of its configs that can be launched without compiling it, as soon as there is any;
        None where none could be built, or the time is up."""
        found: list[Config] = []

        def there_is_one() -> bool:
            found.extend(self._built(prospect)[:1])
            return bool(found) or self.left(prospect) == 0

        self.pool.wait_for(there_is_one, timeout)
        return found[0] if found else None

    def wait(
        self, prospects: Sequence[Prospect], timeout: float | None, longer_s: float = 0.0
    ) -> None:
        """Until one of these is due, and then up to `longer_s` for more of them; meanwhile the
        others are put in order."""
        end = None if timeout is None else time.monotonic() + timeout
        due = False
        while not due and (end is None or time.monotonic() < end):
            left = LOOK_S if end is None else min(LOOK_S, max(0.0, end - time.monotonic()))
            due = self.any_due(prospects, left)
        self.pool.wait_for(lambda: all(map(self.due, prospects)), longer_s)

    def any_due(self, prospects: Sequence[Prospect], timeout: float) -> bool:
        self.put_in_order()
        if self.pool.idle:
            for one in prospects:
                if one.partial:
                    self._leave_out_long(one)
        return self.pool.wait_for(lambda: any(map(self.due, prospects)), timeout)

    def close(self) -> None:
        self.pool.close()

    def _leave_out_long(self, prospect: Prospect) -> None:
        """Where cores have nothing else to do, what takes too long is all that is waited for. The
        author's first config is built in any case."""
        running = self.pool.running_s(list(prospect.identities.values())[1:])
        ended = [self.pool.outcome(identity) for identity in prospect.identities.values()]
        seconds = [*prospect.took_s, *(one.seconds for one in ended if one is not None)]
        if not running or len(seconds) < max(TIMED, len(running)):
            return
        usual = median([*seconds, *running.values()])
        too_long = {id for id, spent in running.items() if spent > max(LONG_S, LONG * usual)}
        for config in [c for c, id in prospect.identities.items() if id in too_long]:
            self.pool.give_up(prospect.identities.pop(config))
            prospect.configs = tuple(one for one in prospect.configs if one != config)

    def _built(self, prospect: Prospect) -> list[Config]:
        return [config for config in prospect.configs if self._is_built(prospect, config)]

    def _is_built(self, prospect: Prospect, config: Config) -> bool:
        identity = prospect.identities.get(config)
        if identity is None:
            return True
        outcome = self.pool.outcome(identity)
        if outcome is None:
            remembered = MEMORY.recall(identity, {})
            return remembered is not None and remembered.artifact is not None
        return outcome.kind is Kind.DONE and isinstance(outcome.value, Built)

    def _known(self, identity: str) -> bool:
        limits: dict[LimitKind, float | None] = {"build_s": self._settings.build_limit_s}
        return MEMORY.recall(identity, limits) is not None

    def _first_s(self, prospect: Prospect) -> float:
        identity = next(iter(prospect.identities.values()), None)
        if identity is not None and not prospect.first_s:
            outcome = self.pool.outcome(identity)
            prospect.first_s = 0.0 if outcome is None else outcome.seconds
        return prospect.first_s


def _order(place: int, order: int) -> int:
    """After all first ones: workload by workload, and in each in the order that was given."""
    return 10_000 + 1_000 * place + min(order, 999)


def wanted(target: Target, store: StoreReader, settings: Settings) -> tuple[Config, ...]:
    """What a run would have to build: nothing where the store has the answer, and of a space that
    is searched, not tried whole, only the first. With little effort it is a part of the space, far
    from one another, from which the run guesses what the rest is worth."""
    known, space = recalled(target, target.workload(), store, settings), target.space
    if known.answers(space, settings.budget, settings.effort, confirm=True):
        return ()
    first = space.first
    if not space.is_small(RACED_WHOLE) or settings.budget.trials is not None:
        return () if first is None else (first,)
    quick = settings.effort == "quick"
    some = spread(space, max(FEWEST, math.ceil(SHARE * len(list(space))))) if quick else space
    left = (config for config in some if config.id not in known.settled)
    return tuple(config for config in left if target.reject(config) is None)
