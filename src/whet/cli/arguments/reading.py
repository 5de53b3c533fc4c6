"""What the commands that read a store have in common. None of them ever makes one."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import PurePath
from typing import Any

from whet.cli.arguments.options import resolved
from whet.cli.terminal.output import (
    Column,
    flexible,
    ns_text,
    print_json,
    right,
    table,
    times_text,
    wrap,
)
from whet.core.errors import UsageError, WhetError, did_you_mean
from whet.core.run import Coverage, Outcome, Run
from whet.core.workload import Device, Workload
from whet.store import (
    Store,
    StoreReader,
    WorkloadSummary,
    is_missing,
    open_if_there,
    open_store,
    store_place,
)
from whet.store.matching import identity, lookalikes
from whet.targets.files import RecordedFiles

SHORT_ID = 8


class NothingKnownError(WhetError):
    """There is no store yet at `place`, or nothing in it that would help."""

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.place = place


@contextmanager
def empty_as(told: Mapping[str, Any] | None) -> Iterator[None]:
    """Where nothing is known, this is printed as JSON before that is said; None prints nothing."""
    try:
        yield
    except NothingKnownError:
        if told is not None:
            print_json(told)
        raise


def check_there(*stores: str) -> None:
    """Raises `UsageError` for the first that was named and is not there."""
    for store in stores:
        if is_missing(store):
            raise UsageError(f"no store at {store_place(store)}")


def open_known(store: str | None, *, read_only: bool = True, bundle: bool = True) -> Store:
    """The store under this flag, over the bundle in use unless `bundle` is false.

    `NothingKnownError` where there is no store yet and no bundle either.
    """
    settings = resolved(store=store).settings
    where, under = settings.store, settings.bundle if bundle else None
    if is_missing(where):
        if under is not None:
            return open_if_there(where, bundle=under)
        place = store_place(where)
        raise NothingKnownError(
            f"no results yet: there is no store at {place}; 'whet tune' creates it", place
        )
    return open_store(where, read_only=read_only, bundle=under, direct=True)


def chosen(store: StoreReader, name: str | None) -> list[WorkloadSummary]:
    """The workloads that go by this name, else those whose id starts with it.

    A name is the kernel's, the one that was typed to tune it, or `FILE.py:NAME`.
    """
    every = store.workloads()
    if not every:
        raise NothingKnownError(f"no results yet: store {store.location} is empty", store.location)
    if name is None:
        return every
    workloads = [one.workload for one in every]
    ids = named(name, workloads) or {w.id for w in workloads if w.id.startswith(name)}
    if not ids:
        names = known_names(workloads)
        raise UsageError(f"no results for kernel or workload '{name}'{did_you_mean(name, names)}")
    return [one for one in every if one.workload.id in ids]


def problem_text(workload: Workload) -> str:
    """`matmul(n=768)`."""
    key = ", ".join(f"{name}={value}" for name, value in workload.key.items())
    return f"{workload.kernel}({key})"


def moment_text(seconds: float) -> str:
    """`2026-05-03 14:05`, in the reader's own time."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def device_text(device: Device) -> str:
    """`NVIDIA H200 (sm_90, driver 570.12)`."""
    more = [device.architecture, f"driver {device.driver}" if device.driver else ""]
    return f"{device.name} ({', '.join(part for part in more if part)})"


def toolchain_text(toolchain: Mapping[str, str]) -> str:
    """`triton 3.6.0`; the tool is left out where its version names it: `gcc (Debian) 12.2.0`."""
    return ", ".join(
        version if version.startswith(tool) or not version[:1].isdigit() else f"{tool} {version}"
        for tool, version in toolchain.items()
    )


def coverage_of(runs: Sequence[Run], configs: int) -> Coverage | None:
    """How much of its space is tried where the store has these runs, newest first, and outcomes of
    `configs` configs; None where nobody tuned, as with what was imported."""
    ended = next((run for run in runs if run.outcome is not Outcome.RUNNING), None)
    run = ended or next(iter(runs), None)
    return None if run is None else run.coverage or run.covering(configs)


def best_table(
    known: list[WorkloadSummary],
    covered: Mapping[str, Coverage | None],
    speedups: Mapping[str, float | None],
    width: int,
) -> list[str]:
    """One line a workload; the device only where there is more than one, and what it was built
    with only where a kernel was built with more than one version of that, and its source only
    where a kernel has several, and how much faster than the author's first config the best is only
    where that is known. `covered` and `speedups` are by workload."""
    workloads = [one.workload for one in known]
    devices = _devices(workloads)
    tools = _several_toolchains(workloads)
    sources = source_labels(workloads)
    gained = any(speedup is not None for speedup in speedups.values())
    layout = [
        Column("id"),
        flexible("workload"),
        *([flexible("source")] if sources else []),
        *([flexible("device")] if devices else []),
        *([flexible("built with")] if tools else []),
        right("best"),
        *([right("over first")] if gained else []),
        right("tried"),
        flexible("config"),
    ]
    rows = [
        (
            one.workload.id[:SHORT_ID],
            problem_text(one.workload),
            *([sources.get(one.workload.id, "")] if sources else []),
            *([devices[one.workload.id]] if devices else []),
            *([toolchain_text(one.workload.toolchain)] if tools else []),
            ns_text(one.median_ns),
            *([_times(speedups.get(one.workload.id))] if gained else []),
            tried_text(covered.get(one.workload.id), one.configs),
            _config_text(one),
        )
        for one in known
    ]
    return table(layout, rows, width)


def _times(speedup: float | None) -> str:
    return "–" if speedup is None else times_text(speedup)


def contested_lines(known: Sequence[WorkloadSummary], width: int) -> list[str]:
    """The picks on which stores that were merged disagree, and how to decide."""
    contested = [one for one in known if one.best is not None and one.rivals]
    if not contested:
        return []
    lines = [f"contested, because merged stores disagree; tune {_again(contested)} to decide:"]
    for one in contested:
        picks = " or ".join(f"[{trial.config}]" for trial in (one.best, *one.rivals) if trial)
        lines += wrap(f"  {problem_text(one.workload)}: {picks}", width, indent=4)
    return lines


def _again(contested: Sequence[WorkloadSummary]) -> str:
    return "it again" if len(contested) == 1 else "them again"


def _config_text(one: WorkloadSummary) -> str:
    if one.best is None:
        return "no working config yet"
    return f"{one.best.config} (contested)" if one.rivals else str(one.best.config)


def tried_text(coverage: Coverage | None, configs: int) -> str:
    """`50/65,536`, for a narrow column."""
    if coverage is None:
        return f"{configs:,}"
    return f"{coverage.tried:,}/{'?' if coverage.size is None else f'{coverage.size:,}'}"


def _devices(workloads: list[Workload]) -> dict[str, str]:
    """By workload id, and only where there are several devices. Those of one name are told apart
    by what differs, which comes first: the end is what a narrow column cuts off."""
    found = {identity(workload.device) for workload in workloads}
    if len(found) < 2:
        return {}
    said = {device: device.name for device in found}
    for several in lookalikes(found):
        drivers = len({device.driver for device in several}) > 1
        for device in several:
            part = f"driver {device.driver or 'unknown'}" if drivers else device.architecture
            said[device] = f"{part}, {device.name}" if part else device.name
    return {workload.id: said[identity(workload.device)] for workload in workloads}


def _several_toolchains(workloads: list[Workload]) -> bool:
    by_kernel: dict[str, set[str]] = {}
    for workload in workloads:
        by_kernel.setdefault(workload.kernel, set()).add(toolchain_text(workload.toolchain))
    return any(len(several) > 1 for several in by_kernel.values())


# So much of a fingerprint tells it from the few others of a kernel.
SHOWN = 8


def named(name: str, workloads: Iterable[Workload]) -> set[str]:
    """The ids of those that go by this name: the kernel's own, the one that `whet tune` was given,
    or `FILE.py:NAME` with either; FILE.py alone stands for all that is in it."""
    typed, (file, name) = name, _split(name)
    return {
        workload.id
        for workload in workloads
        if typed in workload.origin.places
        or any(_is_meant(file, name, workload, place) for place in workload.origin.places)
        or (not file and workload.kernel == name)
    }


def is_bare(typed: str) -> bool:
    """Whether it can only be a name that a store knows."""
    return ":" not in typed and not typed.endswith(".py") and not os.path.exists(typed)


# Names of what torch's compiler asks about, and how that is tuned.
COMPILED = "inductor."
AS_COMPILED = (
    "is tuned while torch.compile compiles a model: run the program with 'whet run --inductor'"
)


def place_of(typed: str, command: str, store: StoreReader) -> str:
    """`FILE.py:NAME` of a name that the store knows; anything else stays as it was typed.

    A store may come from anybody: it chooses only among the user's own files below this folder.
    """
    workloads = [one.workload for one in store.workloads()] if is_bare(typed) else []
    ids = named(typed, workloads)
    known = [one.origin.places for one in workloads if one.id in ids]
    if not known:
        return typed
    files = RecordedFiles([os.curdir])
    here = {own for places in known if (own := next(filter(partial(_is_own, files), places), None))}
    if len(here) == 1:
        return os.path.relpath(here.pop())
    if here:
        several = " and ".join(sorted(map(os.path.relpath, here)))
        raise UsageError(f"'{typed}' is the name of {several}; choose one of them")
    there = next((place for places in known for place in places), "")
    if not there and typed.startswith(COMPILED):
        raise UsageError(f"'{typed}' {AS_COMPILED}")
    if not there:
        raise UsageError(f"the store does not know the file of '{typed}'; use FILE.py:NAME")
    raise UsageError(
        f"'{typed}' is {there}, which is no file of yours below this folder; if you trust it, "
        f"use whet {command} {there}"
    )


def _is_own(files: RecordedFiles, place: str) -> bool:
    file = _divided(place)[0]
    try:
        files.allow(file, "the store")
    except UsageError:
        return False
    return file.endswith(".py") and ":" not in file  # which might be read as KIND:TEXT


def known_names(workloads: Iterable[Workload]) -> list[str]:
    """What may be typed: every kernel, and every other name that it was tuned under."""
    names: dict[str, None] = {}
    for workload in workloads:
        names[workload.kernel] = None
        names.update(dict.fromkeys(_divided(place)[1] for place in workload.origin.places))
    return list(names)


def _split(text: str) -> tuple[str, str]:
    """FILE and NAME of what was typed; either may be empty."""
    file, colon, name = text.rpartition(":")
    if colon and file.endswith(".py"):
        return file, name
    return (text, "") if text.endswith(".py") else ("", text)


def _divided(place: str) -> tuple[str, str]:
    file, _, name = place.rpartition(":")
    return file, name


def _is_meant(file: str, name: str, workload: Workload, place: str) -> bool:
    its_file, its_name = _divided(place)
    if name and name not in (its_name, workload.kernel):
        return False
    return not file or _is_file(file, its_file)


def _is_file(typed: str, known: str) -> bool:
    """The same file, or the end of its path: stores travel, and are read from other folders."""
    if os.path.abspath(typed) == known:
        return True
    end = PurePath(os.path.normpath(typed)).parts
    return not os.path.isfile(typed) and PurePath(known).parts[-len(end) :] == end


def source_labels(workloads: Sequence[Workload]) -> dict[str, str]:
    """By workload id, where a kernel of several sources comes from or what it has captured; empty
    where every kernel has only one source. `workloads` are the most recently tuned first."""
    by_kernel: dict[str, list[Workload]] = {}
    for workload in workloads:
        by_kernel.setdefault(workload.kernel, []).append(workload)
    labels: dict[str, str] = {}
    for several in by_kernel.values():
        if len({workload.fingerprint for workload in several}) > 1:
            labels |= _labels(several)
    return labels


def place_text(place: str, others: Collection[str] = ()) -> str:
    """`f.py:f`, with as many folders as tell it from the others."""
    file, name = _divided(place)
    parts = PurePath(file).parts
    files = {_divided(other)[0] for other in others} - {file}
    for count in range(1, len(parts) + 1):
        end = parts[-count:]
        if all(PurePath(other).parts[-count:] != end for other in files):
            return f"{os.path.join(*end)}:{name}"
    return place


def _labels(several: Sequence[Workload]) -> dict[str, str]:
    """By file and by what was captured, and where that is the same by the age of the source;
    the most recently tuned come first."""
    places = {one.origin.places[0] for one in several if one.origin.places}
    files = {_divided(place)[0] for place in places}
    said: dict[str, list[str]] = {}
    latest: dict[tuple[str, ...], str] = {}
    for one in several:
        here = one.origin.places[:1] if len(files) > 1 else ()
        label = [*(place_text(place, places) for place in here), *_captured(one, several)]
        newest = latest.setdefault(tuple(label), one.fingerprint)
        if newest != one.fingerprint:
            label.append(f"earlier source {one.fingerprint[:SHOWN]}")
        said[one.id] = label
    return {id: ", ".join(label) or "latest source" for id, label in said.items()}


def _captured(one: Workload, several: Sequence[Workload]) -> list[str]:
    """`M=256` where another workload of the same code has captured another M."""
    alike = [other.origin for other in several if other.origin.code == one.origin.code]
    return [
        f"{name}={value}"
        for name, value in one.origin.captured.items()
        if any(other.captured.get(name, value) != value for other in alike)
    ]
