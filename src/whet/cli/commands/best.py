"""`whet best`: the best known config, without tuning anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from whet.cli.arguments.options import JsonOption, StoreOption, argument
from whet.cli.arguments.reading import (
    NothingKnownError,
    best_table,
    chosen,
    contested_lines,
    coverage_of,
    device_text,
    empty_as,
    moment_text,
    open_known,
    toolchain_text,
)
from whet.cli.terminal.output import (
    columns,
    count_text,
    fields,
    page,
    print_json,
    print_lines,
    wrap,
)
from whet.cli.terminal.summary import against_first, timing_text
from whet.core.run import chosen_by, speedup_over

if TYPE_CHECKING:
    from whet.core.run import Coverage, Run
    from whet.core.trial import Trial
    from whet.store import StoreReader, WorkloadSummary

_CONTESTED = (
    "contested: a merged store picked another config, and the stores disagree on which is "
    "faster; tune again to decide. The other pick:"
)


def best(
    name: Annotated[
        str | None,
        argument(
            "NAME|ID",
            "A kernel name, the name it was tuned under, FILE.py:NAME, or the start of a "
            "workload id (default: everything).",
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show the best known config.

    Examples:
      whet best                    the best config of every workload
      whet best matmul             the best of one kernel
      whet best kernel.py:matmul   if several files have a kernel of that name
      whet best 3fa2               the best of the workload with this id
      whet best matmul --json | jq '.best[0].config'
    """
    empty = {"v": 1, "best": []} if json else None
    with empty_as(empty), open_known(store) as opened:
        known, place = chosen(opened, name), opened.location
        working = [one for one in known if one.best is not None]
        runs = {one.workload.id: opened.runs(one.workload.id) for one in known}
        gains = {one.workload.id: _gain(opened, one, runs[one.workload.id]) for one in working}
    covered = {one.workload.id: coverage_of(runs[one.workload.id], one.configs) for one in known}
    if json:
        told = [_as_json(one, gains[one.workload.id], covered[one.workload.id]) for one in working]
        print_json({"v": 1, "best": told})
    elif len(known) == 1 and working:
        (one,) = known
        print_lines(_details(one, gains[one.workload.id], covered[one.workload.id]))
    elif working:
        speedups = {id: gain.speedup for id, gain in gains.items()}
        print_lines(best_table(known, covered, speedups, columns()))
        print_lines(contested_lines(known, columns()))
    if not working:
        raise NothingKnownError(f"no working config of {known[0].workload.kernel} is known", place)


class _Gain(NamedTuple):
    """`run` chose the best config, which is `speedup` times as fast as the author's first."""

    run: Run | None
    first: Trial | None
    speedup: float | None

    @property
    def paired(self) -> bool:
        return self.run is not None and self.run.paired_speedup is not None


def _gain(store: StoreReader, one: WorkloadSummary, runs: Sequence[Run]) -> _Gain:
    assert one.best is not None
    run = chosen_by(runs, one.best.config)
    config = next((r.first for r in (run, *runs) if r is not None and r.first is not None), None)
    first = None if config is None else store.latest(one.workload.id, config.id)
    return _Gain(run, first, speedup_over(first, one.best, run))


def _as_json(one: WorkloadSummary, gain: _Gain, coverage: Coverage | None) -> dict[str, Any]:
    assert one.best is not None
    run, first = gain.run, gain.first
    timing = one.best.timing
    return {
        "workload": one.workload.to_json(),
        "config": dict(one.best.config),
        "config_id": one.best.config.id,
        "median_ns": one.best.median_ns,
        "interval_ns": None if timing is None else timing.interval_ns,
        "samples": 0 if timing is None else len(timing.samples),
        "created": one.best.created,
        "run": None if run is None else run.id,
        "first": None
        if first is None
        else {"config": dict(first.config), "median_ns": first.median_ns},
        "speedup": gain.speedup,
        "paired": gain.paired,
        "contested": [
            {"config": dict(rival.config), "median_ns": rival.median_ns} for rival in one.rivals
        ],
        "coverage": None if coverage is None else coverage.to_json(),
    }


def _details(one: WorkloadSummary, gain: _Gain, coverage: Coverage | None) -> list[str]:
    assert one.best is not None
    width = page()
    first = against_first(gain.first, one.best, gain.speedup, gain.paired)
    contested = [f"[{rival.config}] {timing_text(rival)}" for rival in one.rivals]
    parts: dict[str, str | list[str]] = {
        "best": [str(one.best.config), timing_text(one.best)],
        **({"contested": [_CONTESTED, *contested]} if contested else {}),
        **({"first": first} if first else {}),
        "from": _origin(gain.run),
        "measured": moment_text(one.best.created),
        "device": device_text(one.workload.device),
        "built by": toolchain_text(one.workload.toolchain) or "unknown tools",
        **({"source": list(one.workload.origin.places)} if one.workload.origin.places else {}),
        "space": count_text(one.configs, "config") if coverage is None else coverage.lines,
        "id": one.workload.id,
    }
    return [
        *wrap(str(one.workload), width, indent=2),
        "",
        *fields(parts, width, 11 if contested else 9),
    ]


def _origin(run: Run | None) -> str:
    if run is None:
        return "the lowest known median; no tuning run that chose it has finished"
    how = "all configs tried" if run.exhaustive else f"{count_text(run.trials, 'config')} tried"
    return f"the tuning run of {moment_text(run.started)} ({run.search}, {how})"
