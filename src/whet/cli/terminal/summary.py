"""What the phases of a tuning are called in every report."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from whet.cli.terminal.output import (
    PAGE,
    bar_text,
    count_text,
    fields,
    first_line,
    ns_text,
    page,
    printable,
    seconds_text,
    shorten,
    times_text,
    wrap,
)
from whet.core.config import Config
from whet.core.run import Result
from whet.core.trial import WALL_PHASES, Trial
from whet.store import printable as without_password
from whet.store import unsent

WALL_NAMES = {
    "measure": "measuring",
    "load": "loading",
    "first_call": "first calls",
    "check": "checking",
    "search": "searching",
    "waiting": "waiting for builds",
    "queue": "waiting for others",
    "idle": "overhead",
}
WORK_NAMES = {
    "build": "building",
    "load": "loading",
    "first_call": "first calls",
    "check": "checking",
    "warmup": "warming up",
    "measure": "measuring",
    "search": "searching",
}


_EQUALS_SHOWN = 3
_WORTH_A_BAR_S = 0.05
_FAILURES_SHOWN = 5
_PHASES_SHOWN = 3
_WORTH_NAMING = 0.02


def summary(result: Result, location: str, store: str | None = None) -> list[str]:
    """`store` is what was given as `--store`, to be given again to the commands that follow."""
    width = page()
    lines = [*_heading(result, width), *fields(_parts(result), width)]
    lines += failures(result.trials, width)
    lines += ["", *ledger(result, width)]
    return [*lines, "", *whereabouts(result, location, store)]


def brief(result: Result) -> str:
    """A result as `print` shows it in a Python program, which has the rest in its hands."""
    parts = _parts(result)
    parts["time"] = _time_text(result)
    listed = ".trials has every config of this run, " if result.trials else ""
    parts["more"] = f"{listed}.to_json() has everything"
    return "\n".join(map(printable, [*_heading(result, PAGE), *fields(parts, PAGE)]))


def _heading(result: Result, width: int) -> list[str]:
    return [*wrap(str(result.run.workload), width, indent=2), "", *interruption(result)]


def _parts(result: Result) -> dict[str, str | Sequence[str]]:
    parts: dict[str, str | Sequence[str]] = {"best": [str(result.config), timing_text(result.best)]}
    if result.first is not None:
        parts["first"] = [str(result.first.config), first_text(result)]
    if result.equals:
        parts["equal"] = equals_text(result)
    parts["trials"] = trials_text(result)
    if result.run.coverage is not None:
        parts["space"] = result.run.coverage.lines
    notes = [note for note in result.notes if not (result.equals and "no significant" in note)]
    if notes:
        parts["notes"] = notes
    return parts


def interruption(result: Result) -> list[str]:
    if result.source == "waited":
        return ["not finished: this is the best known so far", ""]
    return ["interrupted: this is the best so far", ""] if result.interrupted else []


def timing_text(trial: Trial) -> str:
    """`1.23 ms (1.21 ms to 1.25 ms at 95 %, 40 samples)`."""
    timing = trial.timing
    if timing is None:
        return "not measured"
    samples = "" if timing.foreign else f", {count_text(len(timing.samples), 'sample')}"
    if timing.interval_ns is None:
        return f"{ns_text(timing.median_ns)}{samples}"
    low, high = timing.interval_ns
    return f"{ns_text(timing.median_ns)} ({ns_text(low)} to {ns_text(high)} at 95 %{samples})"


def first_text(result: Result) -> str:
    assert result.first is not None
    if result.first.config == result.best.config:
        median = ns_text(result.first.median_ns)
        return f"{median}; no config tried is {'shown to be ' if result.equals else ''}faster"
    paired = result.paired_speedup is not None
    return against_first(result.first, result.best, result.speedup, paired)


def against_first(first: Trial | None, best: Trial, speedup: float | None, paired: bool) -> str:
    """What the author's first config takes; nothing where that is the best, or unknown."""
    if first is None or first.median_ns is None or first.config == best.config:
        return ""
    median = ns_text(first.median_ns)
    if speedup is None:
        return median
    # Medians of two different moments need not have this ratio; the reader should know why.
    how = "side by side, " if paired else ""
    return f"{median}; {how}the best is {times_text(speedup)} as fast"


def equals_text(result: Result) -> list[str]:
    """Names the equals by what they do not share with the best: long configs look alike."""
    equals = result.equals
    title = f"no significant difference from {count_text(len(equals), 'config')} with"
    shown = [f"  {difference(config, result.config)}" for config in equals[:_EQUALS_SHOWN]]
    more = len(equals) - _EQUALS_SHOWN
    return [title, *shown, *([f"  and {more} more"] if more > 0 else [])]


def difference(config: Config, other: Config) -> Config:
    """`BM=64 BN=32` against `BM=64 BN=16` is `BN=32`."""
    return Config({name: value for name, value in config.items() if other.get(name) != value})


def trials_text(result: Result) -> str:
    if result.source == "stored":
        return f"none needed: answered from the store ({count_text(result.known, 'trial')})"
    if result.source == "waited":
        return f"none: another process was tuning this; {result.known:,} already known"
    counts = Counter(result.statuses).most_common()
    by_status = ", ".join(f"{n:,} {status}" for status, n in counts)
    known = f"; {result.known:,} already known" if result.known else ""
    return f"{len(result.trials):,}{f' ({by_status})' if by_status else ''}{known}"


def failures(trials: Sequence[Trial], width: int) -> list[str]:
    """What went wrong, each kind once: `3× build_error  kernel.c:4: error: …`."""
    kinds = Counter(
        (str(trial.status), first_line(trial.error)) for trial in trials if trial.status.failed
    )
    if not kinds:
        return []
    lines = ["", "failures"]
    for (status, text), n in kinds.most_common(_FAILURES_SHOWN):
        lines.append(shorten(f"  {n:>4}× {status:<13} {text}".rstrip(), width))
    more = len(kinds) - _FAILURES_SHOWN
    return [*lines, f"  and {count_text(more, 'more kind')}"] if more > 0 else lines


def ledger(result: Result, width: int) -> list[str]:
    """Where the wall time went, as bars; looking it up has no phases worth a bar."""
    wall, total = result.run.cost.wall, result.run.wall_s
    lines = [f"{'time':<9}{seconds_text(total)} in all"]
    if result.source == "stored" and wall.get("queue", 0.0) < _WORTH_A_BAR_S:
        return lines
    rows = [(WALL_NAMES[phase], wall.get(phase, 0.0)) for phase in WALL_PHASES]
    return lines + phase_bars(
        [one for one in rows if total and one[1] >= 0.0005 * total], total, width
    )


def phase_bars(rows: Iterable[tuple[str, float]], total: float, width: int) -> list[str]:
    """`  measuring   3.10 s   73.8%  █████` for each phase that took any time."""
    return [
        f"  {name:<20}{seconds_text(seconds):>12}  {seconds / total:>6.1%}  "
        f"{bar_text(seconds / total, max(4, width - 46))}".rstrip()
        for name, seconds in rows
        if seconds > 0
    ]


def _time_text(result: Result) -> str:
    """`4.20 s: measuring 3.10 s, waiting for builds 900 ms`."""
    wall, total = result.run.cost.wall, result.run.wall_s
    largest = sorted(WALL_PHASES, key=lambda phase: -wall.get(phase, 0.0))[:_PHASES_SHOWN]
    shown = [phase for phase in largest if wall.get(phase, 0.0) >= _WORTH_NAMING * total > 0.0]
    if result.source == "stored" or not shown:
        return seconds_text(total)
    named = ", ".join(f"{WALL_NAMES[phase]} {seconds_text(wall[phase])}" for phase in shown)
    return f"{seconds_text(total)}: {named}"


def program() -> str:
    """`whet` where a shell finds that, else as it was started: `.venv/bin/whet`."""
    started = sys.argv[0]
    if os.path.basename(started) == "whet" and shutil.which("whet") is None:
        return shlex.quote(started)
    return "whet"


def whereabouts(
    result: Result, location: str, store: str | None, more: Sequence[str] = ()
) -> list[str]:
    """Where it is kept, and what to type next: `more` after what there always is.

    Paths and commands stay whole, however long: they are there to be copied.
    """
    workload = result.run.workload
    again = f" --store {shlex.quote(without_password(store))}" if store else ""
    name = shlex.quote(workload.kernel)
    if location == ":memory:":
        lines, commands = ["not saved: the store is :memory:"], [*more]
    else:
        lines = [f"saved in {location}", f"         as workload {workload.id}"]
        if waiting := unsent(location).waiting:
            lines.append(f"         {waiting} entries are still on this host: the server was away;")
            lines.append("         the next run that uses this store sends them")
        whet = program()
        commands = [f"{whet} best {name}{again}", f"{whet} show trials {name}{again}", *more]
    starts = ["next", *[""] * len(commands)]
    return lines + [f"{start:<9}{text}" for start, text in zip(starts, commands, strict=False)]
