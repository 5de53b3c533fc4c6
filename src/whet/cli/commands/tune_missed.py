"""`whet tune --missed`: the keys that were met where nothing may be tuned, tuned now."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whet.cli.arguments.tuning import INTERRUPTED, run_tuning, teach
from whet.core.errors import UsageError, WhetError
from whet.core.miss import Miss

if TYPE_CHECKING:
    from whet.core.run import Result
    from whet.engine.settings import Settings
    from whet.engine.target import Target
    from whet.targets.triton.offline.kernel import Kernel


# What the same problem may differ in by now; the old miss is settled by the new result.
_GROWN = {"fingerprint", "toolchain"}


@dataclass(frozen=True)
class Settled:
    """A missed key and what came of it; without a result, `why` says why and what to do."""

    miss: Miss
    result: Result | None
    why: str = ""


class _Interrupted(Exception):
    """Ctrl-C: what was tuned so far is told, and nothing more is begun."""


@dataclass(frozen=True)
class _Offline:
    """How everything is tuned that this command line asks for."""

    flags: Mapping[str, str | None]
    settings: Settings
    quiet: bool

    def settle(self, found: Target | Kernel, path: Path, miss: Miss) -> Settled:
        from whet.engine.target import Target
        from whet.store.matching import differences

        try:
            if isinstance(found, Target):
                result = self._target(found, miss)
            else:
                result = self._kernel(found, path, miss)
        except WhetError as error:
            return Settled(miss, None, str(error))
        differs = set(differences(miss.workload, result.run.workload)) - _GROWN
        if differs:
            why = (
                f"its inputs= produce {result.run.workload} instead; differs: {', '.join(differs)}"
            )
            return Settled(miss, None, why)
        if result.source == "waited":
            return Settled(miss, None, result.notes[-1])
        return Settled(miss, result)

    def _target(self, target: Target, miss: Miss) -> Result:
        from whet.store.matching import differences

        differs = set(differences(miss.workload, target.workload())) - _GROWN
        if differs:
            raise UsageError(
                f"{miss.where} is now {target.workload()}; tune it with the arguments it was "
                f"called with (differs: {', '.join(sorted(differs))})"
            )
        result, interrupted = run_tuning(target, self.settings, quiet=self.quiet)
        if interrupted or result is None:
            raise _Interrupted
        return result

    def _kernel(self, kernel: Kernel, path: Path, miss: Miss) -> Result:
        """By the kernel's own `inputs`, else by what was recorded of the call."""
        from whet.targets.triton.recorded import recorded_inputs

        tuner = kernel.tuner
        recorded = tuner.whet_inputs is None
        if recorded:
            tuner.whet_inputs = recorded_inputs(kernel.name, miss)
        try:
            return self._made(kernel, path, miss)
        finally:
            if recorded:
                tuner.whet_inputs = None

    def _made(self, kernel: Kernel, path: Path, miss: Miss) -> Result:
        from whet.cli.commands.tune_keys import tune_keys
        from whet.targets.triton import device
        from whet.targets.triton.keys import input_key
        from whet.targets.triton.offline.tuning import check_ready

        check_ready(kernel)
        here = device.describe(device.current_index()).name
        if here != miss.workload.device.name:
            raise UsageError(f"it was recorded on {miss.workload.device.name}, but this is {here}")
        assert kernel.tuner.whet_inputs is not None
        key, unknown = input_key(kernel.tuner.whet_inputs, miss.arguments)
        if unknown:
            raise UsageError(
                f"the inputs function of kernel '{kernel.name}' needs {', '.join(unknown)}, "
                "which the recorded call does not provide; make them arguments of the kernel, or "
                "give them defaults"
            )
        store = self.settings.store
        done, interrupted = tune_keys(
            kernel, [key], self.flags, store=store, path=path, quiet=self.quiet
        )
        if interrupted:
            raise _Interrupted
        if done[0].result is None:
            raise WhetError(done[0].why)
        return done[0].result


def tune_missed(
    tunable: str | None,
    inputs: str | None,
    flags: Mapping[str, str | None],
    settings: Settings,
    *,
    json: bool,
    quiet: bool,
) -> None:
    """With a tunable, what was missed of that kernel, wherever it was defined; else everything,
    each where it says it is defined."""
    from whet.cli.arguments.reading import open_known
    from whet.cli.terminal.output import print_json, print_lines

    with open_known(flags["store"]) as opened:
        misses, place = opened.missed(), opened.location
    offline = _Offline(flags, settings, quiet)
    done: list[Settled] = []
    interrupted = False
    try:
        for miss, found, path in _located(tunable, inputs, misses):
            if isinstance(found, str):
                done.append(Settled(miss, None, found))
            else:
                done.append(offline.settle(found, path, miss))
    except _Interrupted:
        interrupted = True
    _forget(place, done)
    teach([one.result for one in done if one.result is not None], settings)
    if json:
        print_json(_as_json(done))
    else:
        print_lines(_lines(done, place))
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if any(one.result is None for one in done):
        raise typer.Exit(1)


def _located(
    tunable: str | None, inputs: str | None, misses: Sequence[Miss]
) -> list[tuple[Miss, Target | Kernel | str, Path]]:
    """Each miss with what it is a key of, or with why that cannot be had."""
    from whet.cli.arguments.inputs import with_inputs
    from whet.cli.arguments.locate import file_of, locate
    from whet.engine.target import Target

    known: dict[str, Target | Kernel | str] = {}
    if inputs is not None and tunable is None:
        raise UsageError("--inputs needs a single kernel; name it: whet tune FILE.py:NAME --missed")
    if tunable is not None:
        with redirect_stdout(sys.stderr):
            found = known[tunable] = with_inputs(locate(tunable), inputs)
        misses = [miss for miss in misses if miss.workload.kernel == found.name]
    located: list[tuple[Miss, Target | Kernel | str, Path]] = []
    for miss in misses:
        where = tunable or miss.where
        if not where:
            why = "its source file is unknown; name it: whet tune FILE.py:NAME --missed"
            located.append((miss, why, Path()))
            continue
        if where not in known:
            try:
                with redirect_stdout(sys.stderr):
                    known[where] = locate(where)
            except UsageError as error:
                known[where] = f"{error}; or name it: whet tune FILE.py:NAME --missed"
        usable = not isinstance(known[where], str | Target)
        located.append((miss, known[where], file_of(where) if usable else Path()))
    return located


def _forget(place: str, done: Sequence[Settled]) -> None:
    """A finished run takes its own workload off the list, not the one it has grown from."""
    from whet.store import open_store

    settled = [one.miss.workload.id for one in done if one.result is not None]
    if settled and place != ":memory:":
        with open_store(place) as store:
            store.forget_missed(settled)


def _as_json(done: Sequence[Settled]) -> dict[str, Any]:
    left = [one for one in done if one.result is None]
    return {
        "v": 1,
        "tuned": [one.result.to_json() for one in done if one.result is not None],
        "left": [{**one.miss.to_json(), "why": one.why} for one in left],
    }


def _lines(done: Sequence[Settled], place: str) -> list[str]:
    from whet.cli.arguments.reading import problem_text
    from whet.cli.terminal.output import Column, columns, count_text, ns_text, page, table, wrap

    if not done:
        return [f"no missed keys in {place}"]
    layout = [
        Column("missed", flexible=True),
        Column("median", align="right"),
        Column("best", flexible=True),
    ]
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
        for one in left:
            lines += wrap(f"  {problem_text(one.miss.workload)}: {one.why}", page(), indent=4)
    return lines
