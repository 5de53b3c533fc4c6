"""Many keys over many devices: each key is tuned whole on one of them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

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
Item = TypeVar("Item")
Outcome = TypeVar("Outcome", KeyOutcome, Settled)


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

    def tune(self, item: tuple[int, Key]) -> KeyOutcome:
        one, key = self._made_of, item[1]
        with standing_in(one.folder), telling(self.milestone):
            done, _ = tune_keys(
                self._kernel, [key], one.flags, store=one.store, path=self._path, quiet=True
            )
        outcome = done[0]
        # Exceptions with a result do not cross; what they say does.
        return (
            outcome if outcome.lost is None else replace(outcome, why=str(outcome.lost), lost=None)
        )


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


def _say_lost(device: str, why: str) -> None:
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
    from whet.targets.triton.offline.kernel import key_text

    def settled(one: Spread[tuple[int, Key]]) -> tuple[int, KeyOutcome]:
        number, key = one.item
        return number, one.answer or KeyOutcome(key, None, one.why)

    # Items are keys with their place, since two keys may be equal.
    done, interrupted = _spread(
        executor,
        tuner,
        list(enumerate(keys)),
        lambda item: item[1],
        lambda item: key_text(item[1]),
        settled,
        quiet,
    )
    return [outcome for _, outcome in sorted(done, key=lambda pair: pair[0])], interrupted


def settle_spread(
    executor: DeviceExecutor, tuner: MissTuner, misses: Sequence[Miss], *, quiet: bool
) -> tuple[list[Settled], bool]:
    """What came of them, in the order in which they ended, and whether Ctrl-C ended it."""

    def settled(one: Spread[Miss]) -> tuple[int, Settled]:
        return 0, one.answer or Settled(one.item, None, one.why)

    done, interrupted = _spread(
        executor,
        tuner,
        misses,
        lambda miss: miss.workload.key,
        lambda miss: problem_text(miss.workload),
        settled,
        quiet,
    )
    return [one for _, one in done], interrupted


def _spread(
    executor: DeviceExecutor,
    tuner: Any,
    items: Sequence[Item],
    key_of: Callable[[Item], Mapping[str, Any]],
    name_of: Callable[[Item], str],
    settled: Callable[[Spread[Item]], tuple[int, Outcome]],
    quiet: bool,
) -> tuple[list[tuple[int, Outcome]], bool]:
    """What came of each item, with its place, in the order in which they ended."""
    from whet.engine.executors.workloads import SILENT_S, longest_first, size_of, spread_workloads

    done: list[tuple[int, Outcome]] = []

    def heard(one: Spread[Item]) -> None:
        done.append(settled(one))
        if not quiet:
            outcome = done[-1][1]
            what = outcome.why if outcome.result is None else f"[{outcome.result.config}]"
            name = f"{name_of(one.item)} on device {one.seat}"
            say(f"whet: {len(done)}/{len(items)} {name}: {what}")

    ordered = longest_first(items, lambda item: size_of(key_of(item)))
    try:
        spread_workloads(
            executor.seats(), tuner, ordered, on_done=heard, on_lost=_say_lost, silent_s=SILENT_S
        )
    except KeyboardInterrupt:
        return done, True
    return done, False
