"""Which kernels `whet show` was asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from whet.cli.arguments.reading import (
    SHORT_ID,
    NothingKnownError,
    device_text,
    known_names,
    moment_text,
    named,
    open_known,
    toolchain_text,
)
from whet.cli.terminal.output import (
    Column,
    count_text,
    fields,
    flexible,
    ns_text,
    printable,
    right,
    seconds_text,
    shorten,
    table,
    times_text,
    wrap,
)
from whet.core.errors import UsageError, did_you_mean
from whet.core.miss import Miss
from whet.core.workload import Workload
from whet.engine.policy.checking import modules_of
from whet.engine.policy.finding import current_policy
from whet.engine.review.passport import KernelKey, KernelSource, Passport, passport


def passports(name: str, store: str | None) -> list[Passport]:
    """One for each kernel that goes by the name: its own, `FILE.py:NAME` or `MODULE:NAME`; empty
    where that may be the name of a workload. Raises `UsageError` for a store that knows kernels by
    recorded calls alone, and none of this name."""
    try:
        with open_known(store) as opened:
            known, calls = opened.workloads(), opened.missed(tuned=True)
            every = [one.workload for one in known] + [_met(miss) for miss in calls]
            ids = _named(name, every, calls)
            kernels = dict.fromkeys(one.kernel for one in every if one.id in ids)
            if every and not known and not kernels:
                hint = did_you_mean(name, known_names(every))
                raise UsageError(f"no recorded call of kernel '{name}'{hint}")
            return [
                passport(
                    opened,
                    [one for one in known if one.workload.kernel == kernel],
                    [miss for miss in calls if miss.workload.kernel == kernel],
                    current_policy(),
                )
                for kernel in kernels
            ]
    except NothingKnownError:
        return []


def _met(miss: Miss) -> Workload:
    """With where it was met, which a finished run would have written down."""
    return replace(miss.workload, origin=miss.workload.origin.at(miss.where))


def _named(name: str, every: Sequence[Workload], calls: Sequence[Miss]) -> set[str]:
    module, _, kernel = name.rpartition(":")
    if not module or module.endswith(".py"):
        return named(name, every)
    modules: dict[str, set[str]] = {}
    for miss in calls:
        modules.setdefault(miss.workload.id, set()).add(miss.module)
    return {
        one.id
        for one in every
        if one.kernel == kernel
        and (
            module in modules.get(one.id, ())
            or any(module in modules_of(place) for place in one.origin.places)
        )
    }


MOST_KEYS, MOST_OTHERS = 12, 3
MARGIN = 11


def passport_lines(told: Passport, width: int) -> list[str]:
    facts = fields(_facts(told, width - MARGIN), width, MARGIN)
    lines = [told.kernel, "", *facts, "", *_keys(told.keys, width)]
    return [printable(line) for line in lines]


def _facts(told: Passport, width: int) -> dict[str, str | Sequence[str]]:
    facts: dict[str, str | Sequence[str]] = {"source": _sources(told.sources, width)}
    if told.modules:
        facts["module"] = list(told.modules)
    recorded = sum(key.recorded for key in told.keys)
    facts["seen"] = _moments(told)
    facts["calls"] = _recorded_text(recorded)
    facts["on"] = [device_text(device) for device in told.devices[: MOST_OTHERS + 1]]
    tools = [toolchain_text(one) for one in told.toolchains]
    if any(tools):
        facts["built with"] = "; ".join(filter(None, tools))
    facts["keys"] = _counts(told)
    if told.specializations:
        facts["compiled"] = _several(
            [f"{_for(number)}: {shorten(text, 300)}" for text, number in told.specializations],
            "specialization",
        )
    facts["policy"] = _policy(told)
    if told.picks:
        facts["picks"] = _several(
            [f"{_for(number)}: {config}" for config, number in told.picks], "config"
        )
    facts["cost"] = (
        f"{seconds_text(told.cost_s)} of tuning in {count_text(told.runs, 'run')}"
        if told.runs
        else "nothing: never tuned here"
    )
    return facts


def _for(keys: int) -> str:
    return count_text(keys, "key")


def _moments(told: Passport) -> str:
    first, last = moment_text(told.first), moment_text(told.last)
    return first if first == last else f"{first} to {last}"


def _recorded_text(number: int) -> str:
    if not number:
        return "none recorded; 'whet run --record' records them"
    return f"{number:,} recorded"


def _ending(place: str, width: int) -> str:
    """A path is known by its end."""
    return place if len(place) <= width else f"…{place[1 - width :]}"


def _sources(sources: Sequence[KernelSource], width: int) -> list[str]:
    """The latest in full, of earlier ones how many there are."""
    latest, *earlier = sources
    text = [_ending(place, width) for place in latest.places[:MOST_OTHERS]]
    text.append(f"fingerprint {latest.fingerprint}")
    if latest.captured:
        text.append("captures " + ", ".join(f"{name}={value}" for name, value in latest.captured))
    if earlier:
        keys = sum(one.keys for one in earlier)
        text.append(f"and {count_text(len(earlier), 'earlier source')} with {_for(keys)}")
    return text


def _counts(told: Passport) -> str:
    words = {"tuned": "tuned", "unfinished": "cut short", "missed": "missed"}
    counts = {word: told.count(state) for state, word in words.items()}  # type: ignore[arg-type]
    return ", ".join(f"{number:,} {word}" for word, number in counts.items() if number)


def _several(texts: Sequence[str], noun: str) -> list[str]:
    shown = list(texts[:MOST_OTHERS])
    more = len(texts) - len(shown)
    return [*shown, *([f"and {count_text(more, f'other {noun}')}"] if more else [])]


def _policy(told: Passport) -> list[str]:
    if not told.policy_file:
        return ["there is no policy file"]
    if not told.policy:
        return [f"no rule of {told.policy_file} is about it"]
    place = Path(told.policy_file).parent
    return [
        f"{one.setting} = {one.value} ({one.where.removeprefix(f'{place}/')})"
        for one in told.policy
    ]


def _keys(keys: Sequence[KernelKey], width: int) -> list[str]:
    shown = keys[:MOST_KEYS]
    devices = len({key.workload.device.name for key in keys}) > 1
    layout = [
        Column("id"),
        flexible("key"),
        *([flexible("device")] if devices else []),
        Column("state"),
        right("best"),
        right("over first"),
        flexible("pick"),
    ]
    varying = _varying([key.workload for key in shown])
    rows = [
        (
            key.workload.id[:SHORT_ID],
            ", ".join(f"{n}={v}" for n, v in key.workload.key.items() if n in varying) or "–",
            *([key.workload.device.name] if devices else []),
            "cut short" if key.state == "unfinished" else key.state,
            ns_text(key.median_ns),
            "–" if key.speedup is None else times_text(key.speedup),
            "–" if key.config is None else str(key.config),
        )
        for key in shown
    ]
    lines = table(layout, rows, width)
    first = shown[0].workload.key.items()
    fixed = [(n, v) for n, v in first if n not in varying or len(shown) == 1]
    if fixed:
        said = ", ".join(f"{name}={value}" for name, value in fixed)
        lines += wrap(f"{'in all' if len(shown) > 1 else 'key'}: {said}", width, indent=2)
    if len(keys) > len(shown):
        lines.append(f"and {count_text(len(keys) - len(shown), 'other key')}: whet best KERNEL")
    return lines


def _varying(workloads: Sequence[Workload]) -> set[str]:
    """Names of the key that tell these apart; numbers and words where there is only one."""
    names = dict.fromkeys(name for one in workloads for name in one.key)
    if len(workloads) == 1:
        return {name for name in names if "." not in name}
    return {name for name in names if len({str(one.key.get(name)) for one in workloads}) > 1}
