"""`whet tune --missed`: the keys that were met where nothing may be tuned, tuned now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whet.cli import INTERRUPTED
from whet.cli.arguments.missed import (
    MissLocator,
    left_lines,
    making_again,
    recorded_files,
    recorders,
)
from whet.cli.arguments.reading import open_known, problem_text
from whet.cli.commands.tune import run_tuning, teach, tune_keys
from whet.cli.terminal.output import (
    columns,
    count_text,
    flexible,
    ns_text,
    page,
    print_json,
    print_lines,
    right,
    table,
)
from whet.core.errors import UsageError, WhetError
from whet.core.miss import Miss
from whet.engine.target import Target
from whet.store import open_store
from whet.store.matching import differences

if TYPE_CHECKING:
    from whet.cli.arguments.devices import Devices
    from whet.cli.arguments.missed import LocatedMiss
    from whet.core.run import Result
    from whet.engine.executors.protocol import DeviceExecutor
    from whet.engine.settings import Settings
    from whet.targets.triton.offline.kernel import Kernel


def tune_missed(
    tunable: str | None,
    inputs: str | None,
    flags: Mapping[str, str | None],
    settings: Settings,
    on: Devices,
    *,
    roots: Sequence[str] | None,
    json: bool,
    quiet: bool,
) -> None:
    """With a tunable, what was missed of that kernel, wherever it was defined; else everything,
    each where it says it is defined."""
    with open_known(flags["store"]) as opened:
        misses, place, recorder = opened.missed(), opened.location, recorders(opened)
    offline, files = Offline(flags, settings, quiet), recorded_files(roots)
    locator = MissLocator(tunable, inputs, "tune", files, recorder)
    located = [locator.locate(miss) for miss in locator.named(misses)]
    with on.opened(None) as executor:
        done, interrupted = _settled(located, offline, executor, tunable, inputs, roots or ())
    _keep(place, done)
    teach([one.result for one in done if one.result is not None], settings)
    if json:
        print_json(_as_json(done))
    else:
        print_lines(_lines(done, place))
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if any(one.result is None for one in done):
        raise typer.Exit(1)


def _settled(
    located: Sequence[LocatedMiss],
    offline: Offline,
    executor: DeviceExecutor | None,
    tunable: str | None,
    inputs: str | None,
    roots: Sequence[str],
) -> tuple[list[Settled], bool]:
    """Kernels for a GPU first, on the devices that were asked for: whole ones where there are
    enough of them, else the configs of each. What else was missed is tuned in this process."""
    from whet.cli.commands.tune_spread import (
        MissTuner,
        jobs_for_each,
        settle_spread,
        take_whole_keys,
    )
    from whet.engine.executors.current import using

    if executor is None:
        return _one_by_one(offline, located)
    kernels = [
        one for one in located if one.found is not None and not isinstance(one.found, Target)
    ]
    others = [one for one in located if one not in kernels]
    seats, store = executor.seats(), offline.settings.store
    if take_whole_keys(seats, len(kernels), store):
        each = {**offline.flags, "store": store, "jobs": jobs_for_each(offline.flags, seats)}
        tuner = MissTuner(tunable, inputs, each, tuple(roots))
        misses = [one.miss for one in kernels]
        done, interrupted = settle_spread(executor, tuner, misses, quiet=offline.quiet)
    else:
        with using(executor):
            done, interrupted = _one_by_one(offline, kernels)
    if interrupted:
        return done, True
    more, interrupted = _one_by_one(offline, others)
    return done + more, interrupted


def _one_by_one(offline: Offline, located: Sequence[LocatedMiss]) -> tuple[list[Settled], bool]:
    done: list[Settled] = []
    try:
        for one in located:
            done.append(offline.settle(one))  # noqa: PERF401 - Ctrl-C leaves what is done
    except TuningInterrupted:
        return done, True
    return done, False


def _keep(place: str, done: Sequence[Settled]) -> None:
    """A finished run takes its own workload off the list, not the one it has grown from: that one
    makes room for the record under the new name."""
    grown = [
        (one.miss, one.result.run.workload)
        for one in done
        if one.result is not None and one.result.run.workload.id != one.miss.workload.id
    ]
    settled = [one for one in done if one.result is not None]
    if settled and place != ":memory:":
        with open_store(place) as store:
            for miss, workload in grown:
                store.miss(replace(miss, workload=workload))
            store.forget_missed([miss.workload.id for miss, _ in grown])


def _as_json(done: Sequence[Settled]) -> dict[str, Any]:
    left = [one for one in done if one.result is None]
    return {
        "v": 1,
        "tuned": [one.result.to_json() for one in done if one.result is not None],
        "left": [{**one.miss.to_json(), "why": one.why} for one in left],
    }


def _lines(done: Sequence[Settled], place: str) -> list[str]:
    if not done:
        return [f"no missed keys in {place}"]
    layout = [flexible("missed"), right("median"), flexible("best")]
    rows = [
        (
            problem_text(one.miss.workload),
            ns_text(one.result.best.median_ns),
            str(one.result.config),
        )
        for one in done
        if one.result is not None
    ]
    lines = table(layout, rows, columns()) if rows else []
    left = [one for one in done if one.result is None]
    if left:
        lines += [""] * bool(rows) + [f"{count_text(len(left), 'key')} left"]
        lines += left_lines([(one.miss.workload, one.why) for one in left], page(), "  ")
    return lines


# What the same problem may differ in by now; the old miss is settled by the new result.
_GROWN = {"fingerprint", "toolchain"}


_BUCKETS = "; use the policy file it was recorded with, since that decides on buckets"


@dataclass(frozen=True)
class Settled:
    """A missed key and what came of it; without a result, `why` says why and what to do."""

    miss: Miss
    result: Result | None
    why: str = ""


class TuningInterrupted(Exception):
    """Ctrl-C: what was tuned so far is told, and nothing more is begun."""


@dataclass(frozen=True)
class Offline:
    """How everything is tuned that this command line asks for."""

    flags: Mapping[str, str | None]
    settings: Settings
    quiet: bool

    def settle(self, one: LocatedMiss) -> Settled:
        found, miss = one.found, one.miss
        if found is None:
            return Settled(miss, None, one.why)
        try:
            if isinstance(found, Target):
                result = self._target(found, miss)
            else:
                result = self._kernel(found, one.path, miss)
        except WhetError as error:
            return Settled(miss, None, str(error))
        differs = set(differences(miss.workload, result.run.workload)) - _GROWN
        if differs:
            what = f"{result.run.workload} instead; differs: {', '.join(sorted(differs))}"
            if isinstance(found, Target) or found.tuner.whet_inputs is not None:
                return Settled(miss, None, f"its inputs= produce {what}")
            return Settled(miss, None, f"the recorded call is {what}{_BUCKETS}")
        if result.source == "waited":
            return Settled(miss, None, result.notes[-1])
        return Settled(miss, result)

    def _target(self, target: Target, miss: Miss) -> Result:
        differs = set(differences(miss.workload, target.workload())) - _GROWN
        if differs:
            raise UsageError(
                f"{miss.where} is now {target.workload()}; tune it with the arguments it was "
                f"called with (differs: {', '.join(sorted(differs))})"
            )
        result, interrupted = run_tuning(target, self.settings, quiet=self.quiet)
        if interrupted or result is None:
            raise TuningInterrupted
        return result

    def _kernel(self, kernel: Kernel, path: Path, miss: Miss) -> Result:
        """By the kernel's own `inputs`, else by what was recorded of the call."""
        from whet.targets.triton.offline.tuning import check_device, check_ready

        with making_again(kernel, miss) as key:
            check_ready(kernel)
            check_device(miss.workload.device)
            store = self.settings.store
            done, interrupted = tune_keys(
                kernel, [dict(key)], self.flags, store=store, path=path, quiet=self.quiet
            )
        if interrupted:
            raise TuningInterrupted
        if done[0].result is None:
            raise WhetError(done[0].why)
        return done[0].result
