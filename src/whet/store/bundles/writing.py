"""`write_bundle`: a store's results, cost models and binaries into one file. `unpack_bundle`: what
such a file holds, taken into a store and a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Protocol

from whet._version import __version__
from whet.core.config import Config
from whet.core.errors import BundleError, UsageError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.core.miss import Miss
from whet.core.run import Run
from whet.core.trial import Trial, new_id
from whet.core.workload import Device
from whet.store.bundles.archive import (
    JIT,
    MANIFEST,
    MAX_ENTRIES,
    MAX_ENTRY_BYTES,
    METADATA,
    MISSED,
    MOST_DIGITS,
    Archive,
    Entry,
    KernelPart,
    Manifest,
    binary_entry,
    index_entry,
    is_binary_key,
    is_file_name,
    model_entry,
    store_entry,
)
from whet.store.bundles.bundle import Bundle
from whet.store.bundles.records import Group, group_lines, joined, miss_lines, summary_lines
from whet.store.merging import MergeReport, trials_and_standing
from whet.store.picking import departing, lineages
from whet.store.protocol import Store, StoreReader, WorkloadSummary

# Lines that share an entry, about: to look one workload up, its whole entry is unpacked.
_LINES = 1024
_NO_TIME = (1980, 1, 1, 0, 0, 0)


class BinarySource(Protocol):
    """Compiled kernels by key; each has a `metadata.json` and files of its stages."""

    def keys(self) -> Iterable[str]: ...

    def files(self, key: str) -> Mapping[str, bytes]: ...


@dataclass(frozen=True)
class FolderBinaries:
    """A folder with a sub-folder for each key. Hidden files are drafts of somebody's."""

    path: Path

    def keys(self) -> list[str]:
        try:
            found = [entry.name for entry in os.scandir(self.path) if entry.is_dir()]
        except OSError as error:
            raise UsageError(
                f"cannot read the directory of binaries {self.path} ({error.strerror})"
            ) from None
        return sorted(name for name in found if is_binary_key(name))

    def files(self, key: str) -> dict[str, bytes]:
        inside = sorted((self.path / key).iterdir())
        return {
            path.name: path.read_bytes()
            for path in inside
            if stat.S_ISREG(path.lstat().st_mode) and not path.name.startswith(".")
        }


def write_bundle(
    path: str | Path,
    store: StoreReader,
    *,
    kernels: Iterable[str] | None = None,
    workloads: Collection[str] | None = None,
    models: Mapping[str, str] | None = None,
    binaries: BinarySource | None = None,
    best_only: bool = False,
    missed: bool = False,
    jit: Sequence[str] = (),
    created: float | None = None,
    choices: Mapping[str, Config] | None = None,
) -> Manifest:
    """Writes the whole file or none of it, and replaces only a bundle.

    The same content gives the same bytes but for the date, `created`. Workloads that were never
    tried are left out; with `best_only`, all but each workload's best trial, those it is contested
    with, and the runs that chose them. `kernels` and `workloads` (ids) confine it; None is all of
    them. With `missed`, keys that were met and not tuned come along, which whet 0.1 cannot read;
    `jit` are lines that describe specializations of kernels. `choices` are configs by workload id:
    only these workloads, and of each only what is known of that config, so that it is the best in
    the bundle.
    """
    target = Path(path).expanduser().absolute()
    _refuse_to_replace(target)
    kernels = None if kernels is None else list(kernels)
    best_only = best_only or choices is not None
    summaries = _confined(store, _asked(store, kernels, best_only), workloads, choices)
    with tempfile.TemporaryFile() as spool:
        draft = _Draft(spool)
        parts, digits = _put_store(draft, store, summaries, best_only)
        for kernel, text in sorted((models or {}).items()):
            draft.put(model_entry(kernel), text.encode())
        lost = _missed(store, summaries, kernels, workloads) if missed else []
        for name, lines in ((MISSED, miss_lines(lost)), (JIT, jit)):
            if lines:
                draft.put(name, joined(lines))
        if binaries is not None:
            _put_binaries(draft, binaries)
        manifest = Manifest(
            created=_date(time.time() if created is None else created),
            whet=__version__,
            best_only=best_only,
            digits=digits,
            entries=FrozenMap({name: entry for name, (entry, _) in draft.entries.items()}),
            toolchains=_distinct(one.workload.toolchain for one in summaries),
            devices=_distinct(_device(one.workload.device) for one in summaries),
            kernels=tuple(parts),
        )
        _write(target, manifest, draft)
    return manifest


@dataclass
class _Draft:
    """The entries so far, one after another in a file without a name."""

    spool: BinaryIO
    entries: dict[str, tuple[Entry, int]] = field(default_factory=dict)

    def put(self, name: str, data: bytes) -> None:
        if len(data) > MAX_ENTRY_BYTES or len(self.entries) >= MAX_ENTRIES:
            raise BundleError(
                f"too much for one bundle ({name} has {len(data)} bytes, after "
                f"{len(self.entries)} other entries); select kernels with --kernel, or use "
                "--best-only"
            )
        self.entries[name] = Entry(hashlib.sha256(data).hexdigest(), len(data)), self.spool.tell()
        self.spool.write(data)

    def read(self, name: str) -> bytes:
        entry, at = self.entries[name]
        self.spool.seek(at)
        return self.spool.read(entry.bytes)


def _asked(store: StoreReader, kernels: list[str] | None, best_only: bool) -> list[WorkloadSummary]:
    every = store.workloads()
    known = {one.workload.kernel for one in every}
    for kernel in kernels or ():
        if kernel not in known:
            raise UsageError(
                f"no results for kernel '{kernel}'{did_you_mean(kernel, sorted(known))}"
            )
    found = [
        one
        for one in every
        if (kernels is None or one.workload.kernel in kernels)
        and (one.best is not None if best_only else one.trials or store.runs(one.workload.id))
    ]
    return sorted(found, key=lambda one: one.workload.id)


def _put_store(
    draft: _Draft, store: StoreReader, summaries: list[WorkloadSummary], best_only: bool
) -> tuple[list[KernelPart], int]:
    """One entry after another is made and let go; what each kernel has of them, and how many
    digits of their ids divide the workloads."""
    lines = sum(1 if best_only else one.trials for one in summaries) + 2 * len(summaries)
    digits = next((n for n in range(MOST_DIGITS) if 16**n * _LINES >= lines), MOST_DIGITS)
    indexes: dict[str, list[str]] = {}
    counts: dict[str, list[int]] = {}
    name, content = "", list[str]()
    for summary in summaries:
        home = store_entry(summary.workload.id, digits)
        if home != name and content:
            draft.put(name, joined(content))
            content = []
        name = home
        group = _best_group(store, summary) if best_only else _whole_group(store, summary)
        kernel = summary.workload.kernel
        content += group_lines(group)
        indexes.setdefault(kernel, []).extend(summary_lines(group.summary()))
        sums = counts.setdefault(kernel, [0, 0, 0])
        for at, more in enumerate((1, len(group.trials), len(group.runs))):
            sums[at] += more
    if content:
        draft.put(name, joined(content))
    for place, kernel in enumerate(sorted(indexes)):
        draft.put(index_entry(place), joined(indexes[kernel]))
    return [KernelPart(kernel, *counts[kernel]) for kernel in sorted(counts)], digits


def _whole_group(store: StoreReader, summary: WorkloadSummary) -> Group:
    id_ = summary.workload.id
    trials, standing = trials_and_standing(store, id_)
    return Group(summary.workload, trials, standing, _runs(store, id_))


def _runs(store: StoreReader, workload_id: str) -> tuple[Run, ...]:
    """Oldest first. Whose they are matters only where it decides between contested picks; else a
    copy of a store gives the same bytes."""
    runs = store.runs(workload_id)
    return tuple(runs[::-1]) if len(lineages(runs)) > 1 else departing(runs[::-1])


def _best_group(store: StoreReader, summary: WorkloadSummary) -> Group:
    assert summary.best is not None
    picks = (summary.best, *summary.rivals)
    runs = _runs(store, summary.workload.id)
    ids = {_picked_by(pick, runs) for pick in picks}
    kept = tuple(run for run in runs if run.id in ids)
    return Group(summary.workload, picks, picks, kept)


def _confined(
    store: StoreReader,
    summaries: list[WorkloadSummary],
    workloads: Collection[str] | None,
    choices: Mapping[str, Config] | None,
) -> list[WorkloadSummary]:
    """With the config that was chosen as the best; without those whose config is not known."""
    if workloads is not None:
        summaries = [one for one in summaries if one.workload.id in workloads]
    if choices is None:
        return summaries
    found = []
    for one in summaries:
        config = choices.get(one.workload.id)
        trials = () if config is None else store.trials(one.workload.id)
        trial = next((trial for trial in trials if trial.config == config), None)
        if trial is not None:
            found.append(replace(one, best=trial, rivals=()))
    return found


def _picked_by(pick: Trial, runs: Sequence[Run]) -> str:
    """The run that chose it; of a pick that none did, the one that measured it."""
    chose = (run.id for run in reversed(runs) if run.chose and run.best == pick.config)
    return next(chose, pick.run_id)


def _missed(
    store: StoreReader,
    summaries: Sequence[WorkloadSummary],
    kernels: Iterable[str] | None,
    workloads: Collection[str] | None,
) -> list[Miss]:
    """Of the kernels that were asked for."""
    if kernels is None and workloads is None:
        return store.missed()
    named = {*(kernels or ()), *(one.workload.kernel for one in summaries)}
    return [miss for miss in store.missed() if miss.workload.kernel in named]


def _put_binaries(draft: _Draft, binaries: BinarySource) -> None:
    for key in sorted(binaries.keys()):
        files = binaries.files(key)
        wrong = [name for name in files if not is_file_name(name)]
        if wrong or not is_binary_key(key):
            raise UsageError(f"cannot pack binary {key}: {wrong or [key]} is not a valid name")
        if METADATA not in files:
            raise UsageError(f"cannot pack binary {key}: it has no {METADATA}")
        for file, data in sorted(files.items()):
            draft.put(binary_entry(key, file), data)


def _distinct(maps: Iterable[Mapping[str, str]]) -> tuple[FrozenMap[str], ...]:
    found = {tuple(sorted(one.items())) for one in maps}
    return tuple(FrozenMap(dict(items)) for items in sorted(found))


def _device(device: Device) -> dict[str, str]:
    return {
        "name": device.name,
        "vendor": device.vendor,
        "architecture": device.architecture,
        "driver": device.driver,
    }


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _refuse_to_replace(target: Path) -> None:
    if os.path.lexists(target):
        try:
            Archive(target).close()
        except BundleError:
            raise UsageError(
                f"{target} already exists and is not a bundle; delete it, or use another name"
            ) from None


def _write(target: Path, manifest: Manifest, draft: _Draft) -> None:
    """Under another name first, then into place."""
    unfinished = target.with_name(f".{target.name}.{new_id()}.new")
    try:
        with unfinished.open("xb") as file:
            _zip(file, manifest, draft)
            file.flush()
            os.fsync(file.fileno())
        _check_readable(unfinished, target)
        os.replace(unfinished, target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _check_readable(unfinished: Path, target: Path) -> None:
    """A kernel's name may be one that no reader would take from a stranger."""
    try:
        Archive(unfinished).close()
    except BundleError as error:
        reason = str(error).replace(str(unfinished), target.name)
        raise UsageError(
            f"{target} was not written, because it could not be read back: {reason}"
        ) from None


def _zip(file: BinaryIO, manifest: Manifest, draft: _Draft) -> None:
    import json
    import zipfile

    def entries() -> Iterator[tuple[str, bytes]]:
        yield MANIFEST, json.dumps(manifest.to_json(), indent=1).encode()
        for name in sorted(draft.entries):
            yield name, draft.read(name)

    try:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=False) as archive:
            for name, data in entries():
                info = zipfile.ZipInfo(name, _NO_TIME)
                info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
                archive.writestr(info, data, zipfile.ZIP_DEFLATED, compresslevel=6)
    except zipfile.LargeZipFile:
        raise BundleError("more than 4 GiB for one bundle; select kernels with --kernel") from None


@dataclass(frozen=True)
class Unpacked:
    """What was not there before."""

    merged: MergeReport
    binaries: int


def unpack_bundle(bundle: Bundle, store: Store, binaries: Path | None = None) -> Unpacked:
    """All of it is checked before the first byte is written. A second time adds nothing.

    Each compiled kernel becomes a sub-folder of `binaries`, whole or not at all; one whose key is
    there already is left as it is.
    """
    bundle.check()
    merged = store.merge(bundle.store)
    count = 0
    for key in bundle.binary_keys() if binaries is not None else ():
        assert binaries is not None
        try:
            count += _put_binary(binaries, key, bundle.binary_files(key))
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"cannot write binary {key} to {binaries}: {reason}") from None
    return Unpacked(merged, count)


def _put_binary(folder: Path, key: str, files: dict[str, bytes]) -> bool:
    target = folder / key
    if os.path.lexists(target):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{key[:32]}.{new_id()}.new"
    draft.mkdir()
    try:
        for name, data in files.items():
            with (draft / name).open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        draft.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        return False  # another process was quicker
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True
