"""`whet tune --missed --devices`: whole keys over devices, each found and tuned there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whet.cli.commands.tune_missed_one import Offline, Settled
from whet.cli.commands.tune_spread import Milestone, say_lost, standing_in, telling
from whet.cli.terminal.output import say
from whet.core.miss import Miss

if TYPE_CHECKING:
    from whet.engine.executors.protocol import DeviceExecutor
    from whet.engine.executors.workloads import Spread


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
        from whet.cli.arguments.missed import MissLocator
        from whet.cli.arguments.options import resolved
        from whet.targets.files import RecordedFiles

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
    from whet.cli.arguments.reading import problem_text
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
