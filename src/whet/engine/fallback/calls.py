"""Calls of kernels and choices: which of them may tune, what the others use, and the store behind
them, which is kept open between them."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from whet.core.budget import Budget
from whet.core.errors import StoreError, UsageError, WhetError
from whet.core.mode import Mode
from whet.core.run import Choice
from whet.engine.fallback.mode import asked, current_mode
from whet.engine.fallback.untuned import choose, chosen_from, first_choice, lock_for, not_tuned
from whet.engine.guard import StoreLostError
from whet.engine.lockfile.in_force import lock_holds
from whet.engine.log import say_once
from whet.engine.settings import Settings, resolve_settings
from whet.engine.target import Target
from whet.engine.turns import shared_locks
from whet.store import sql  # noqa: F401 - nearly every store is a file; a call need not load it
from whet.store.opening import (
    is_missing,
    lock_folder,
    open_if_there,
    open_store,
    over_bundle,
    store_place,
)

if TYPE_CHECKING:
    from whet.engine.fallback.inheritance import StandIn
    from whet.store import Store


# Set while a choice is tuned: what its implementations launch is tuned with it.
must_tune: ContextVar[bool] = ContextVar("whet_must_tune", default=False)

Pick = TypeVar("Pick")
Outcome = TypeVar("Outcome")

# How often a call that another process is tuning looks whether that has ended.
LOOK_AGAIN_S = 1.0


class BusyElsewhere(Exception):
    """Another process has been tuning the same for too long; `pick` is to be used meanwhile."""

    def __init__(self, pick: Any) -> None:
        super().__init__(pick)
        self.pick = pick


class UndecidedCall(ABC, Generic[Pick]):
    """A call that no table leads to: what `CallDecisions` asks of it. `key` tells it apart from
    others in this process."""

    key: Any

    @abstractmethod
    def first(self) -> Pick:
        """The author's own, which mode `off` uses."""

    @abstractmethod
    def look_up(self, mode: Mode) -> tuple[Pick, bool]:
        """Measures nothing. Says whether it is the stored result of this very key, which is then
        among the tuned ones from now on."""

    @abstractmethod
    def tune(self) -> Pick:
        """It is among the tuned ones from now on. Raises `BusyElsewhere`."""

    @abstractmethod
    def is_captured(self) -> bool:
        """Whether a CUDA graph is being recorded, in which nothing can be timed."""

    @abstractmethod
    def while_capturing(self) -> Pick: ...

    def in_warm_up(self) -> Pick | None:
        """What is used where a warm-up does not want it tuned yet."""
        return None

    def in_background(self) -> Pick | None:
        """What is used while it is tuned between later calls, in place of a tuning now."""
        return None

    def wait_limit_s(self) -> float | None:
        """How long calls of this kernel may wait for tunings, all together."""
        return None

    def stand_in(self) -> tuple[Pick, int] | None:
        """What is used once they have waited so long, and for how many calls; None is nothing."""
        return None


class CallDecisions(Generic[Pick]):
    """Which calls of one kernel, or of one choice, may tune, and what the others use.

    `stopgaps` are what modes that do not tune use, by mode and key. They are kept apart from what
    is tuned, where a later mode would take them for that.
    """

    def __init__(self) -> None:
        self.stopgaps: dict[tuple[Mode, Hashable], Pick] = {}
        self._busy: dict[Hashable, tuple[Pick, float]] = {}
        self._without_context: Mode | None = None
        self._waited_s = 0.0
        self._due: set[Hashable] = set()
        # For how many calls the latest answer stands in for a tuning; None where it is no stand-in.
        self.calls_left: int | None = None

    def mode(self, own: Mode | None, forget: Callable[[], object]) -> Mode:
        """`forget` drops what was dispatched under another `WHET_MODE`, as soon as that is
        noticed."""
        mode = current_mode(own)
        if asked.get() is None and mode != self._without_context:
            self._without_context = mode
            forget()
        return mode

    def known(
        self, mode: Mode, key: Hashable, tuned: Mapping[Any, Pick], lock: str | None = None
    ) -> Pick | None:
        """Under a lock file, what was found in another way does not count."""
        if mode != "tune" and lock_holds(lock, mode):
            return self.stopgaps.get((mode, key))
        return tuned.get(key)

    def decide(
        self, call: UndecidedCall[Pick], mode: Mode, lock: str | None = None
    ) -> tuple[Pick, bool]:
        """What a call uses that is not known; and whether that will hold, or is only for a moment
        in which nothing can be tuned."""
        self.calls_left = None
        if mode != "tune":
            return self.without_tuning(call, mode, lock), True
        if call.is_captured():
            return call.while_capturing(), False
        pick = call.in_warm_up()
        if pick is not None:
            return pick, False
        busy = self._busy.get(call.key)
        if busy is not None and time.monotonic() < busy[1]:
            return busy[0], False
        pick = call.in_background()
        if pick is not None:
            return pick, True
        standing = self._stands_in(call)
        if standing is not None:
            pick, self.calls_left = standing
            return pick, True
        began = time.monotonic()
        try:
            return call.tune(), True
        except BusyElsewhere as elsewhere:
            found: Pick = elsewhere.pick
            self._busy[call.key] = (found, time.monotonic() + LOOK_AGAIN_S)
            return found, False
        finally:
            self._waited_s += time.monotonic() - began

    def _stands_in(self, call: UndecidedCall[Pick]) -> tuple[Pick, int] | None:
        """Ranks agree on tunings, and not on what each of them has in its store."""
        limit = call.wait_limit_s()
        if limit is None or self._waited_s < limit or call.key in self._due or must_tune.get():
            return None
        from whet.engine.ranks import group_board  # few have a limit

        return call.stand_in() if group_board() is None else None

    def pays(self, key: Hashable) -> None:
        """What stands in for its tuning has served so many calls: the next one tunes."""
        self._due.add(key)

    def without_tuning(
        self, call: UndecidedCall[Pick], mode: Mode, lock: str | None = None
    ) -> Pick:
        """A stored result is as good as a tuned one; any other choice is a stopgap."""
        if mode == "off":
            return call.first()
        place = (mode, call.key)
        if place not in self.stopgaps:
            pick, exact = call.look_up(mode)
            if exact and not lock_holds(lock, mode):
                return pick
            self.stopgaps[place] = pick
        return self.stopgaps[place]

    def tuned(self, key: Hashable) -> bool:
        """Once a key is tuned, the modes that do not tune use that too. Says whether one of them
        used something else."""
        stale = [place for place in self.stopgaps if place[1] == key]
        for place in stale:
            del self.stopgaps[place]
        return bool(stale)

    def clear(self) -> None:
        self.stopgaps.clear()
        self._busy.clear()
        self._due.clear()


def choice_without_tuning(
    target: Target,
    mode: Mode,
    unreadable: str,
    instead: Callable[[Store], Choice | None] | None = None,
) -> Choice:
    """Builds and measures nothing; with a lock file no store is opened.

    Under `require` raises `NotTunedError` without a stored result of this very key; a store that
    cannot be read is a reason to use the first config in any other mode, as `unreadable` says.
    `instead` may find a choice in the store that comes before all others.
    """
    lock = lock_for(target, mode)
    if lock is not None:
        return chosen_from(lock, target, mode)
    try:
        with opened(resolve_settings().settings, mode) as store:
            found = None if instead is None else instead(store)
            return choose(target, store=store, mode=mode) if found is None else found
    except StoreError as error:
        if mode == "require":
            raise not_tuned(target, target.workload(), mode, None) from error
        say_once(f"stored results will not be used: {error}")
        return first_choice(target, unreadable)


def stands_in(target: Target) -> StandIn | None:
    """What may be used in place of a tuning; None where the store cannot be read, too."""
    from whet.engine.fallback.inheritance import stand_in  # few have a limit

    try:
        with opened(resolve_settings().settings) as store:
            return stand_in(target, store)
    except WhetError:
        return None


def checked_wait(given: Any) -> float | None:
    """Seconds, of a number or of a text such as 10s."""
    seconds = Budget.parse(given).seconds
    if seconds is None:
        raise UsageError(f"wait_limit is {given!r}; give a time, such as 10s")
    return seconds


@contextlib.contextmanager
def all_tuned() -> Iterator[None]:
    """What is launched meanwhile is tuned, whatever its limits."""
    before = must_tune.set(True)
    try:
        yield
    finally:
        must_tune.reset(before)


def in_store_or_memory(
    settings: Settings,
    tune_in: Callable[[Store], Outcome],
    lost: Callable[[StoreError], None] = lambda _: None,
) -> Outcome:
    """A full disk, say, is no reason not to run: then what was measured so far need not be measured
    again. `lost` is told."""
    try:
        with opened(settings) as store:
            return tune_in(store)
    except StoreError as error:
        say_once(f"results will not be saved: {error}")
        lost(error)
        return tune_in(_so_far(error))


def _so_far(error: StoreError) -> Store:
    from whet.store import MemoryStore

    store = MemoryStore()
    result = error.result if isinstance(error, StoreLostError) else None
    if result is not None:
        store.put_workload(result.run.workload)
        store.append(result.trials)
    return store


@dataclass
class _Kept:
    """A store that stays open, and how many use it now."""

    place: str
    store: Store
    writing: bool
    users: int = 0


_last: _Kept | None = None
_keeping = threading.Lock()


@contextlib.contextmanager
def opened(settings: Settings, mode: Mode = "tune") -> Iterator[Store]:
    """A store that cannot be used must not stop a kernel from running.

    It is opened for writing where the mode writes, and made only then.

    The last one stays open, since closing it costs milliseconds and the next shape may come at
    once; it is opened anew where somebody has put another in its place.
    """
    try:
        place = store_place(settings.store)
        writing = mode in ("tune", "record")
        known = place != ":memory:" and (writing or not is_missing(settings.store))
        kept = _taken(place, writing, settings.store_wait_s) if known else None
    except WhetError as error:
        say_once(f"results will not be saved: {error}")
        place, kept = ":memory:", None
    if kept is None:
        with _opened_once(place, settings) as store:
            yield _over_bundle(store, settings)
        return
    try:
        yield _over_bundle(kept.store, settings)
    finally:
        with _keeping:
            kept.users -= 1
            if kept is not _last and not kept.users:
                kept.store.close()


def _opened_once(place: str, settings: Settings) -> Store:
    """In memory, or where there is none yet and the mode must not make one."""
    if place == ":memory:":
        return open_store(place)
    return open_if_there(place, wait_s=settings.store_wait_s)


# Bundles that packages bring along.
_shipped: dict[str, None] = {}


def ship(bundle: str | Path) -> None:
    """From now on, results of this bundle lie under the user's store and the user's own bundle."""
    _shipped[str(bundle)] = None


def _over_bundle(store: Store, settings: Settings) -> Store:
    """Nor must a bundle that cannot be used."""
    own = () if settings.bundle is None else (settings.bundle,)
    for bundle in (*own, *_shipped):
        try:
            store = over_bundle(store, bundle)
        except WhetError as error:
            say_once(f"the bundle will not be used: {error}")
    return store


def _taken(place: str, writing: bool, wait_s: float) -> _Kept:
    global _last
    with _keeping:
        if (
            _last is None
            or _last.place != place
            or _last.store.replaced
            or (writing and not _last.writing)
        ):
            store = open_store(place, read_only=not writing, wait_s=wait_s)
            if _last is not None and not _last.users:
                _last.store.close()
            _last = _Kept(place, store, writing)
        _last.users += 1
        return _last


def _close_last() -> None:
    if _last is not None:
        with contextlib.suppress(Exception):
            _last.store.close()


atexit.register(_close_last)


def timing_locks(settings: Settings) -> Path:
    """Beside the store; for one that is no file, where all users of the host find it."""
    return lock_folder(settings.store) or shared_locks()
