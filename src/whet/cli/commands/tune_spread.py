"""Many keys over many devices: each key is tuned whole on one of them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from whet.cli.arguments.locate import file_of, locate, with_inputs
from whet.cli.arguments.missed import MissLocator
from whet.cli.arguments.options import Key, resolved
from whet.cli.arguments.reading import problem_text
from whet.cli.commands.tune import KeyOutcome, tune_keys
from whet.cli.commands.tune_missed import Offline, Settled
from whet.cli.terminal import progress
from whet.cli.terminal.output import say
from whet.core.event import Event, Noted
from whet.core.miss import Miss
from whet.targets.files import RecordedFiles
from whet.workers.process import available_cores

if TYPE_CHECKING:
    from whet.engine.executors.protocol import DeviceExecutor, Seat
    from whet.engine.executors.workloads import Spread
    from whet.targets.fingerprint import Source

Milestone = Callable[[str], None]


@dataclass(frozen=True)
class KeyTuner:
    """Makes, in the process of a device, what tunes keys there: the kernel from its file, which
    must be the `source` that it is here. Paths are those of `folder`, in which the command was
    given."""

    tunable: str
    inputs: str | None
    flags: Mapping[str, str | None]
    store: str | None
    source: Source | None = None
    folder: str = field(default_factory=os.getcwd)

    def __call__(self) -> _KeysThere:
        return _KeysThere(self)


class _KeysThere:
    milestone: Milestone = staticmethod(lambda name: None)

    def __init__(self, made_of: KeyTuner) -> None:

        self._made_of = made_of
        with standing_in(made_of.folder), redirect_stdout(sys.stderr):
            self._kernel: Any = with_inputs(locate(made_of.tunable), made_of.inputs)
            self._path = file_of(made_of.inputs or made_of.tunable)
        if made_of.source is not None:
            self._refuse_other(made_of.source)

    def _refuse_other(self, source: Source) -> None:
        from whet.targets.fingerprint import refuse_other
        from whet.targets.triton.source import source_of

        refuse_other(source, source_of(self._kernel.tuner))

    def tune(self, key: Key) -> KeyOutcome:

        one = self._made_of
        with standing_in(one.folder), telling(self.milestone):
            done, _ = tune_keys(
                self._kernel, [key], one.flags, store=one.store, path=self._path, quiet=True
            )
        outcome = done[0]
        # Exceptions with a result do not cross; what they say does.
        return (
            outcome if outcome.lost is None else replace(outcome, why=str(outcome.lost), lost=None)
        )


@contextmanager
def standing_in(folder: str) -> Iterator[None]:
    """A process of a device stands in a folder of its own. It stays there where its machine does
    not have this one: whole paths can be found from anywhere."""
    own = os.getcwd()
    with suppress(OSError):
        os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(own)


@contextmanager
def telling(milestone: Milestone) -> Iterator[None]:
    """Whoever waits for the tunings meanwhile is told every second that they go on, but not while
    they themselves say that they get nowhere."""
    from whet.engine.executors.workloads import GOES_ON
    from whet.engine.guard import NO_PROGRESS

    over, stuck = threading.Event(), threading.Event()

    def heard(event: Event) -> None:
        if isinstance(event, Noted) and event.text.startswith(NO_PROGRESS):
            stuck.set()
        else:
            stuck.clear()

    def tell() -> None:
        while not over.wait(1.0):
            if not stuck.is_set():
                milestone(GOES_ON)

    before, progress.in_quiet = progress.in_quiet, heard
    teller = threading.Thread(target=tell, name="whet goes on", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
        progress.in_quiet = before


def say_lost(device: str, why: str) -> None:
    say(f"whet: device {device} is no longer used: {why}; others tune its keys")


def jobs_for_each(flags: Mapping[str, str | None], seats: Sequence[Seat]) -> str:
    """The cores are divided between the devices."""
    return flags.get("jobs") or str(max(1, available_cores() // len(seats)))


def take_whole_keys(seats: Sequence[Seat], keys: int, store: str | None) -> bool:
    """Where each device has at least one to do. Devices of other machines take whole keys only
    into a store that they can reach: results are to end up in one."""
    shared = (store or "").lower().startswith(("postgresql://", "postgres://"))
    return 1 < len(seats) <= keys and (shared or not any(seat.remote for seat in seats))


def tune_keys_spread(
    executor: DeviceExecutor, tuner: KeyTuner, keys: Sequence[Key], *, quiet: bool
) -> tuple[list[KeyOutcome], bool]:
    """What came of the keys, in their order, and whether Ctrl-C ended it."""
    from whet.engine.executors.workloads import SILENT_S, longest_first, size_of, spread_workloads
    from whet.targets.triton.offline.kernel import key_text

    done: dict[int, KeyOutcome] = {}

    def heard(one: Spread[tuple[int, Key]]) -> None:
        number, key = one.item
        done[number] = one.answer if one.answer is not None else KeyOutcome(key, None, one.why)
        if not quiet:
            result = done[number].result
            what = done[number].why if result is None else f"[{result.config}]"
            text = f"{len(done)}/{len(keys)} {key_text(key)} on device {one.seat}: {what}"
            say(f"whet: {text}")

    try:
        items = longest_first(enumerate(keys), lambda one: size_of(one[1]))
        spread_workloads(
            executor.seats(),
            _Numbered(tuner),
            items,
            on_done=heard,
            on_lost=say_lost,
            silent_s=SILENT_S,
        )
    except KeyboardInterrupt:
        return [done[number] for number in sorted(done)], True
    return [done[number] for number in sorted(done)], False


@dataclass(frozen=True)
class _Numbered:
    """Items are keys with their place, since two keys may be equal."""

    inner: KeyTuner

    def __call__(self) -> _NumberedThere:
        return _NumberedThere(self.inner())


class _NumberedThere:
    milestone: Milestone = staticmethod(lambda name: None)

    def __init__(self, inner: _KeysThere) -> None:
        self._inner = inner

    def tune(self, item: tuple[int, Key]) -> KeyOutcome:
        self._inner.milestone = self.milestone
        return self._inner.tune(item[1])


@dataclass(frozen=True)
class MissTuner:
    """Makes, in the process of a device, what tunes recorded calls there. Paths are those of
    `folder`, in which the command was given."""

    tunable: str | None
    inputs: str | None
    flags: Mapping[str, str | None]
    roots: tuple[str, ...] = ()
    folder: str = field(default_factory=os.getcwd)

    def __call__(self) -> _MissesThere:
        return _MissesThere(self)


class _MissesThere:
    milestone: Milestone = staticmethod(lambda name: None)

    def __init__(self, made_of: MissTuner) -> None:

        self._folder = made_of.folder
        with standing_in(self._folder):
            settings = resolved(**made_of.flags).settings
            files = RecordedFiles(made_of.roots)  # the command itself has said what it runs
        self._offline = Offline(made_of.flags, settings, quiet=True)
        self._locator = MissLocator(
            made_of.tunable, made_of.inputs, "tune", files, lambda miss: "the store"
        )

    def tune(self, miss: Miss) -> Settled:
        with standing_in(self._folder), telling(self.milestone):
            return self._offline.settle(self._locator.locate(miss))


def settle_spread(
    executor: DeviceExecutor, tuner: MissTuner, misses: Sequence[Miss], *, quiet: bool
) -> tuple[list[Settled], bool]:
    """What came of them, in the order in which they ended, and whether Ctrl-C ended it."""
    from whet.engine.executors.workloads import SILENT_S, longest_first, size_of, spread_workloads

    done: list[Settled] = []

    def heard(one: Spread[Miss]) -> None:
        settled: Settled = one.answer or Settled(one.item, None, one.why)
        done.append(settled)
        if not quiet:
            what = settled.why if settled.result is None else f"[{settled.result.config}]"
            problem = problem_text(one.item.workload)
            text = f"{len(done)}/{len(misses)} {problem} on device {one.seat}: {what}"
            say(f"whet: {text}")

    items = longest_first(misses, lambda miss: size_of(miss.workload.key))
    try:
        spread_workloads(
            executor.seats(), tuner, items, on_done=heard, on_lost=say_lost, silent_s=SILENT_S
        )
    except KeyboardInterrupt:
        return done, True
    return done, False
