"""Kernels of one name: which of them is meant, and how a listing tells them apart."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import PurePath

from whet.core.errors import UsageError
from whet.core.workload import Workload
from whet.store import StoreReader
from whet.targets.files import RecordedFiles

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
