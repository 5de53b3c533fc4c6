"""`whet show cost`: where the time of a tuning went, what was saved, and when it has paid off."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.cli.arguments.reading import (
    SHORT_ID,
    NothingKnownError,
    chosen,
    empty_as,
    moment_text,
    open_known,
    problem_text,
)
from whet.cli.terminal.output import (
    Column,
    count_text,
    fields,
    flexible,
    ns_text,
    page,
    print_json,
    print_lines,
    right,
    seconds_text,
    table,
    times_text,
    told_by_values,
    wrap,
)
from whet.cli.terminal.summary import WALL_NAMES, WORK_NAMES, phase_bars
from whet.core.config import Config
from whet.core.errors import UsageError, WhetError
from whet.core.run import Outcome, Run
from whet.engine.account import SAMPLES_EACH, Account, Payback, Tuning, account

if TYPE_CHECKING:
    from whet.core.timeline import Timeline
    from whet.store import StoreReader, WorkloadSummary

SHOWN = 10


def cost(
    name: str | None,
    run: str | None,
    top: int | None,
    timeline: str | None,
    store: str | None,
    json: bool,
) -> None:
    empty = {"v": 1, "keys": []} if json else None
    with empty_as(empty), open_known(store) as opened:
        tunings, left_out = _chosen_tunings(opened, name, run)
        if timeline is not None:
            _write_timelines(Path(timeline), opened, tunings)
    if timeline is not None and not json:
        return
    told = account(tunings)
    if json:
        data = told.to_json()
        print_json({**data, **{name: data[name][: top or None] for name in ("keys", "configs")}})
        return
    lines = account_lines(told, tunings, SHOWN if top is None else top, page())
    print_lines(lines + _left_out_lines(left_out))


def _chosen_tunings(
    store: StoreReader, name: str | None, run_id: str | None
) -> tuple[list[Tuning], list[WorkloadSummary]]:
    """What to account for, the longest run first, and the workloads of the same name that are
    left out because they are of another version, device or toolchain. What was imported cost
    nothing here."""
    from whet.interop.findings import is_foreign

    known = [one for one in chosen(store, name) if not is_foreign(one.workload)]
    if run_id is not None:
        return [_tuning(store, _run_named(store, known, run_id))], []
    runs = {one.workload.id: found for one in known if (found := _latest_run(store, one))}
    if not runs:
        what = f"no tuning run of {name}" if name else "no tuning run"
        raise NothingKnownError(f"{what} in {store.location}", store.location)
    if name is None:
        latest = max(runs.values(), key=lambda run: run.started + run.wall_s)
        return [_tuning(store, latest)], []
    working = [one for one in known if one.workload.id in runs]
    alike = [one for one in working if _version(one) == _version(working[0])]
    tunings = [_tuning(store, runs[one.workload.id]) for one in alike]
    tunings.sort(key=lambda tuning: -tuning.run.cost.wall_s)
    return tunings, [one for one in working if one not in alike]


def _latest_run(store: StoreReader, one: WorkloadSummary) -> Run | None:
    """The newest that wrote down its cost; else the newest that left a trial, killed as it was."""
    runs = store.runs(one.workload.id)
    for run in runs:
        if run.trials and run.cost.wall:
            return run
    left = {trial.run_id for trial in store.trials(one.workload.id, all=True)} if runs else set()
    return next((run for run in runs if run.id in left), None)


def _version(one: WorkloadSummary) -> tuple[Any, ...]:
    workload = one.workload
    return workload.kernel, workload.fingerprint, workload.device, workload.toolchain


def _run_named(store: StoreReader, known: Sequence[WorkloadSummary], run_id: str) -> Run:
    runs = [run for one in known for run in store.runs(one.workload.id)]
    found = [run for run in runs if run.id.startswith(run_id)] if run_id else []
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(run.id[:12] for run in found[:4])
        raise UsageError(f"--run {run_id} matches {len(found)} runs: {ids}; give more of the id")
    where = f" of {known[0].workload.kernel}" if len(known) == 1 else ""
    newest = max(runs, key=lambda run: run.started, default=None)
    hint = "there are none" if newest is None else f"the newest is {newest.id}"
    raise UsageError(f"no run{where} has an id starting with '{run_id}'; {hint}")


def _tuning(store: StoreReader, run: Run) -> Tuning:
    return Tuning(run, tuple(store.trials(run.workload.id, all=True)), run.first)


def _left_out_lines(left_out: Sequence[WorkloadSummary]) -> list[str]:
    if not left_out:
        return []
    ids = ", ".join(one.workload.id[:SHORT_ID] for one in left_out[:4])
    more = ", …" if len(left_out) > 4 else ""
    text = (
        f"not included: {count_text(len(left_out), 'workload')} for another version of the "
        f"kernel, device or toolchain (whet show cost ID: {ids}{more})"
    )
    return ["", *wrap(text, page(), indent=2)]


def _write_timelines(path: Path, store: StoreReader, tunings: Sequence[Tuning]) -> None:
    found: list[tuple[Tuning, Timeline]] = []
    for tuning in tunings:
        kept = store.timeline(tuning.run.id)
        if kept is not None:
            found.append((tuning, kept))
    if not found:
        runs = f"run {tunings[0].run.id} has" if len(tunings) == 1 else "none of the runs has"
        raise WhetError(
            f"{runs} no timeline: killed runs and runs by older versions of whet have none; "
            "tune again to get one"
        )
    try:
        path.write_text(json.dumps(_trace(found), ensure_ascii=False), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the timeline to {path}: {error.strerror}") from None
    without = len(tunings) - len(found)
    missing = f"; {count_text(without, 'run')} without a timeline" if without else ""
    print(f"whet: wrote {path}; open it in https://ui.perfetto.dev{missing}", file=sys.stderr)


def _trace(found: Sequence[tuple[Tuning, Timeline]]) -> dict[str, Any]:
    """One process for each run, each beginning when it did."""
    began = min(tuning.run.started for tuning, _ in found)
    events: list[Any] = []
    in_order = sorted(found, key=lambda pair: pair[0].run.started)
    for number, (tuning, timeline) in enumerate(in_order, start=1):
        run = tuning.run
        trace = timeline.to_perfetto(
            {trial.config.id: str(trial.config) for trial in tuning.trials},
            process=f"{problem_text(run.workload)}, run {run.id[:SHORT_ID]}",
            number=number,
            offset_s=run.started - began,
        )
        events += trace["traceEvents"]
    return {"displayTimeUnit": "ms", "traceEvents": events}


_CONFIG_COLUMNS = (
    right("build"),
    Column("mostly"),
    right("first call"),
    right("measure"),
    Column("status"),
    flexible("config"),
)
_MARGIN = 15


def account_lines(account: Account, tunings: Sequence[Tuning], shown: int, width: int) -> list[str]:
    """`shown` is how many configs, and how many keys, are listed; 0 is all."""
    lines = [*_heading(account, tunings, width)]
    if len(account.keys) > 1:
        lines += ["", *_keys(account, shown, width)]
    lines += ["", *_wall(account, width)]
    lines += ["", *_work(account, width)]
    lines += ["", *_configs(account, shown, width)]
    lines += ["", "what was saved", *_indented(_saved(account), width)]
    if account.stock is not None:
        lines += ["", "what stock triton.autotune would have spent", *_stock(account, width)]
    lines += ["", "when the tuning pays for itself", *_payback(account, width)]
    return lines


def _heading(account: Account, tunings: Sequence[Tuning], width: int) -> list[str]:
    tried = sum(key.tried for key in account.keys)
    length = f" in {seconds_text(account.wall_s)}" if account.wall else ""
    known = sum(len(tuning.known) for tuning in tunings if tuning.known_fits)
    before = f", {known:,} already known" if known else ""
    what = f"{count_text(tried, 'config')} tried"
    if len(tunings) > 1:  # a config is tried once at each key
        what = f"{count_text(tried, 'trial')} of {count_text(len(account.configs), 'config')}"
    work = f"{what}{before}{',' if before and length else ''}{length}"
    run = tunings[0].run
    if len(tunings) == 1:
        head = str(run.workload)
        line = f"run {run.id}"
        more = f"{moment_text(run.started)}, {_outcome(run)}: {work}"
        return [*wrap(head, width, indent=2), line, more]
    head = (
        f"{run.workload.kernel}, {count_text(len(tunings), 'key')}, on {run.workload.device.name}"
    )
    return [*wrap(head, width, indent=2), f"the latest run of each: {work}"]


def _outcome(run: Run) -> str:
    return "still running, or killed" if run.outcome is Outcome.RUNNING else str(run.outcome)


def _keys(account: Account, shown: int, width: int) -> list[str]:
    layout = [
        right("wall"),
        right("share"),
        right("configs"),
        right("builds"),
        right("measured"),
        Column("id"),
        flexible("key"),
    ]
    every = account.keys
    listed = every[: shown or None]
    varying = _varying([key.workload.key for key in every])
    rows = [
        (
            seconds_text(key.wall_s),
            _percent(key.wall_s, account.wall_s),
            f"{key.tried:,}",
            f"{key.builds:,}",
            f"{key.measured:,}",
            key.workload.id[:SHORT_ID],
            ", ".join(f"{name}={key.workload.key[name]}" for name in varying),
        )
        for key in listed
    ]
    rows.append(
        (
            seconds_text(account.wall_s),
            _percent(account.wall_s, account.wall_s),
            f"{sum(key.tried for key in every):,}",
            f"{sum(key.builds for key in every):,}",
            f"{sum(key.measured for key in every):,}",
            "",
            f"all {len(every):,} keys",
        )
    )
    more = len(every) - len(listed)
    lines = table(layout, rows, width)
    return [*lines, f"{count_text(more, 'key')} not shown (--top 0)"] if more else lines


def _varying(keys: Sequence[Mapping[str, object]]) -> list[str]:
    """The names that tell the keys apart, of those that all have."""
    shared = [name for name in keys[0] if all(name in key for key in keys)]
    return [name for name in shared if any(key[name] != keys[0][name] for key in keys)]


def _wall(account: Account, width: int) -> list[str]:
    if not account.wall:
        return [f"wall time: unknown, {account.unknown['wall']}"]
    rows = [(WALL_NAMES[phase], seconds) for phase, seconds in account.wall.items()]
    return ["wall time", *phase_bars(rows, account.wall_s, width), _sum(account.wall_s)]


def _work(account: Account, width: int) -> list[str]:
    """Phases, and beneath each what is known of its parts."""
    work = account.work
    total = sum(seconds for phase, seconds in work.items() if "." not in phase)
    if not total:
        return ["worker time: none was recorded"]
    rows: list[tuple[str, float]] = []
    for phase, name in WORK_NAMES.items():
        seconds = work.get(phase, 0.0)
        rows += [(name, seconds), *_parts(phase, seconds, work)]
    return ["worker time, over all processes", *phase_bars(rows, total, width), _sum(total)]


def _parts(phase: str, seconds: float, work: Mapping[str, float]) -> list[tuple[str, float]]:
    """The costliest first, then what no stage of a build claims: starting it, for the most."""
    start = f"{phase}."
    parts = [(name.removeprefix(start), s) for name, s in work.items() if name.startswith(start)]
    named = [(f"  {'in the kernels' if name == 'kernel' else name}", s) for name, s in parts]
    named.sort(key=lambda part: -part[1])
    rest = seconds - sum(s for _, s in named)
    if named and phase == "build" and rest > 0.005 * seconds:
        named.append(("  the rest", rest))
    return named


def _sum(seconds: float) -> str:
    return f"  {'in all':<20}{seconds_text(seconds):>12}"


def _configs(account: Account, shown: int, width: int) -> list[str]:
    listed = account.configs[: shown or None]
    if not listed:
        return ["configs: none was tried"]
    title, names = _config_names([cost.config for cost in listed], width)
    cells = [
        {
            "build": seconds_text(cost.build_s) if cost.build_s else "–",
            "mostly": f"{cost.stage} {_percent(cost.stage_s, cost.build_s, 0)}"
            if cost.stage
            else "–",
            "first call": seconds_text(cost.first_call_s) if cost.first_call_s else "–",
            "measure": seconds_text(cost.measure_s) if cost.measure_s else "–",
            "status": next(iter(cost.statuses)) if len(cost.statuses) == 1 else "various",
            "config": name,
        }
        for cost, name in zip(listed, names, strict=True)
    ]
    # A callable is not built, and a kernel that is built has no first call of its own.
    told = [column for column in _CONFIG_COLUMNS if any(row[column.title] != "–" for row in cells)]
    rows = [tuple(row[column.title] for column in told) for row in cells]
    more = len(account.configs) - len(listed)
    rest = sum(cost.total_s for cost in account.configs[len(listed) :])
    tail = [f"and {count_text(more, 'more config')} for {seconds_text(rest)} (--top 0)"]
    lines = table(told, rows, width) + (tail if more else [])
    return [*wrap(title, width, indent=2), *lines]


def _config_names(configs: Sequence[Config], width: int) -> tuple[str, list[str]]:
    """Long configs that have the same parameters are told by their values alone."""
    title, (by, names) = "most expensive configs", told_by_values(configs, width - 42)
    return f"{title}, {by}" if by else title, names


def _saved(account: Account) -> dict[str, str | Sequence[str]]:
    return {
        "racing": _racing(account),
        "early rejects": _refusal(account),
        "cutting": _cutting(account),
        "side by side": _overlap(account),
        "the cache": _cache(account),
    }


def _racing(account: Account) -> str:
    racing = account.racing
    if racing is None:
        return f"unknown: {account.unknown['racing']}"
    timed = f"the timed calls took {seconds_text(racing.taken_s)}"
    each = f"{SAMPLES_EACH} samples for each of {count_text(racing.configs, 'config')}"
    full = f"{each} would have taken {seconds_text(racing.full_s)}"
    if racing.taken_s > racing.full_s:
        return f"saved nothing: {timed}; {full}. The closest configs were sampled more often"
    return f"{timed}; {full}, so racing took {_percent(racing.taken_s, racing.full_s, 0)} of that"


def _refusal(account: Account) -> str:
    refusal = account.refusal
    if not refusal.configs:
        return "no config is known to have been rejected early"
    text = f"{count_text(refusal.configs, 'config')} rejected before code generation"
    if refusal.saved_s is None or refusal.typical_s is None:
        return f"{text}; their build time is unknown, since none was built here"
    if not refusal.saved_s:
        return f"{text}, in {seconds_text(refusal.spent_s)}: no less than building takes here"
    return (
        f"{text}, in {seconds_text(refusal.spent_s)}: at least {seconds_text(refusal.saved_s)} "
        "of building saved, estimated (the others took a median of "
        f"{seconds_text(refusal.typical_s)}, and rejected ones are larger)"
    )


def _cutting(account: Account) -> str:
    cut = account.cutting
    parts = []
    if cut.builds:
        parts.append(f"{count_text(cut.builds, 'build')} after {seconds_text(cut.build_s)} in all")
    if cut.runs:
        parts.append(f"{count_text(cut.runs, 'run')} after {seconds_text(cut.run_s)} in all")
    if not parts:
        return "nothing was cut short"
    return f"{' and '.join(parts)}; the remaining time they needed is unknown"


def _overlap(account: Account) -> str:
    overlap = account.overlap
    if overlap is None:
        return f"unknown: {account.unknown['wall']}"
    if not overlap.build_s:
        return "nothing was built"
    built, waited = seconds_text(overlap.build_s), seconds_text(overlap.waiting_s)
    return f"{built} of building in {waited} of waiting"


def _cache(account: Account) -> str | list[str]:
    cache, lines = account.cache, []
    if cache.known and cache.known_s is not None:
        known = count_text(cache.known, "config")
        lines.append(f"{known} already known, which took {seconds_text(cache.known_s)} then")
    elif cache.known:
        known = count_text(cache.known, "config")
        lines.append(f"{known} already known, not all in this space; the time saved is unknown")
    if cache.built and cache.built_s is not None:
        built = count_text(cache.built, "config")
        lines.append(f"{built} already built: {seconds_text(cache.built_s)} of building, estimated")
    return lines or "nothing was known or built before"


def _stock(account: Account, width: int) -> list[str]:
    stock = account.stock
    assert stock is not None
    ratio = ""
    if account.wall_s:
        ratio = f", {times_text(stock.total_s / account.wall_s)} this tuning's"
    pairs: dict[str, str | Sequence[str]] = {
        "total": f"{seconds_text(stock.total_s)}, estimated{ratio}",
        "building": f"{seconds_text(stock.build_s)}: one at a time, each as long as it took here "
        "in parallel; a rejected one counts as the median, a cut one as far as it got",
        "measuring": f"{seconds_text(stock.benchmark_s)}: "
        f"{count_text(stock.benchmarks, 'benchmark')} at its measured cost",
    }
    return _indented(pairs, width)


def _payback(account: Account, width: int) -> list[str]:
    payback = account.payback
    if payback is None:
        return wrap(f"  unknown: {account.unknown['payback']}", width, indent=2)
    each = "" if len(account.keys) == 1 else f" of each of {count_text(payback.keys, 'key')}"
    pairs: dict[str, str | Sequence[str]] = {
        "break even": _gain(payback, each),
        "under 10 %": f"of run time after {payback.calls_to_tenth:,} calls{each}, at "
        f"{ns_text(payback.best_ns)} {'a call' if not each else 'for one of each'}",
    }
    return _indented(pairs, width)


def _gain(payback: Payback, each: str) -> str:
    rival = "the author's first config" if payback.is_first else "the config measured first"
    if payback.calls is None:
        return f"never: {rival} is the best"
    return f"after {payback.calls:,} calls{each}: {ns_text(payback.gain_ns)} less than with {rival}"


def _indented(pairs: Mapping[str, str | Sequence[str]], width: int) -> list[str]:
    return [f"  {line}".rstrip() for line in fields(pairs, width - 2, _MARGIN)]


def _percent(part: float, whole: float, digits: int = 1) -> str:
    return f"{part / whole:.{digits}%}" if whole else "–"
