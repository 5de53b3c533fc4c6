"""Stores, bundles and what is kept in them, damaged in every way a disk or a stranger can."""

from __future__ import annotations

import hashlib
import io
import json
import math
import sqlite3
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.target import Target, WrongAnswerError, folder, written
from whet.core.config import Config
from whet.core.errors import BundleError, StoreError
from whet.core.miss import Argument, Miss
from whet.core.process import Mark, ProcessName
from whet.core.status import Limit, Status
from whet.core.timeline import Span, Timeline
from whet.core.trial import Trial
from whet.store import MemoryStore, SqliteStore, Store, StoreReader
from whet.store import rows as kept
from whet.store.bundles.bundle import open_bundle
from whet.store.bundles.writing import write_bundle
from whet.testing.samples import a_run, a_timing, a_trial, a_workload

KEY = "ab" * 16
_WORKLOADS = (a_workload(key={"M": 64}), a_workload(key={"M": 4096}), a_workload(kernel="softmax"))
WORDS = (
    "ok", "build_error", "finished", "running", "clean", "cold", "samples_ns", "timing", "config",
    "status", "foreign", "median_ns", "low_ns", "high_ns", "source", "standing", "trials", "runs",
    "workload", "id", "device", "limits", "key", "cost", "work_s", "best", "first", "created",
    "store.jsonl", "index-0.jsonl", "manifest", "entries", "sha256", "bytes", "digits", "kernels",
)  # fmt: skip


def _fill(store: Store) -> Store:
    for at, workload in enumerate(_WORKLOADS):
        store.put_workload(workload)
        trials = [
            a_trial(workload, {"BM": 1}, 30.0),
            a_trial(workload, {"BM": 2, "tile": (1, 2)}, 20.0),
            a_trial(workload, {"BM": 3}, status=Status.BUILD_ERROR, limit=Limit("build_s", 2.0)),
            a_trial(workload, {"BM": 1}, timing=a_timing(25.0, l2="cold")),
        ]
        # Nothing in a seed may change from one process to the next.
        fixed = [replace(trial, id=f"{at:02x}{n:030x}") for n, trial in enumerate(trials)]
        store.append(fixed)
        store.save_run(a_run(workload, {"BM": 1}, started=100.0, id=f"{at:032x}"))
        run = a_run(workload, {"BM": 2, "tile": (1, 2)}, started=200.0, id=f"f{at:031x}")
        store.save_run(run)
        store.save_timeline(run.id, _TIMELINE)
        store.mark(Mark(workload.id, run.id, (trials[0].config,), _PROCESS, 5.0))
    store.miss(_MISS)
    return store


_TIMELINE = Timeline(
    (Span("worker 1", "build", 0.0, 1.5, "c0"), Span("device", "measure", 1.5, 0.25, "c0", 1))
)
_PROCESS = ProcessName("host", "boot", 17, 42)
_MISS = Miss(
    a_workload(key={"M": 9}), "kernel.py:matmul", (Argument("x", "Tensor", "f32", (4, 4)),), 5.0
)


def _check_trial(trial: Trial) -> None:
    """What every reader does with a trial must work."""
    text = json.dumps(trial.to_json())
    if Status(trial.status).measured and trial.timing is not None and trial.timing.samples:
        trial.timing.interval_ns  # noqa: B018
    str(trial.config), trial.config.id, hash(trial), len(text)


def _check_best(best: Trial | None, trials: list[Trial]) -> None:
    if best is None:
        return
    _check_trial(best)
    ns = best.median_ns
    timed = ns is not None and math.isfinite(ns) and ns > 0
    # What somebody else's file only names as the choice has no timing at all.
    if best.status is not Status.OK or not (timed or best.timing is None):
        raise WrongAnswerError(f"the best is {best.status} and takes {ns} ns")
    if all(best.id != trial.id for trial in trials):
        raise WrongAnswerError("the best is not among the trials")


def _check_store(store: StoreReader) -> None:
    for summary in store.workloads():
        workload = summary.workload
        trials = store.trials(workload.id)
        for trial in [*trials, *store.trials(workload.id, all=True)]:
            _check_trial(trial)
            if trial.workload_id != workload.id:
                raise WrongAnswerError("a trial is of another workload")
        _check_best(store.best(workload.id), trials)
        for run in store.runs(workload.id):
            json.dumps(run.to_json())
            timeline = store.timeline(run.id)
            if timeline is not None:
                timeline.to_perfetto({})
        for mark in store.marks(workload.id):
            json.dumps(mark.to_json())
        store.match(workload)
        str(workload)
    store.missed()


@cache
def sqlite_file() -> bytes:
    path = folder() / "seed.db"
    _fill(SqliteStore(path)).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return path.read_bytes()


_PATCH = struct.Struct("<IB")


def _store_file(data: bytes) -> None:
    """Patches of a whole store: five bytes each, where and what; a last odd byte cuts it short."""
    body = bytearray(sqlite_file())
    whole = len(data) // _PATCH.size * _PATCH.size
    for place, value in _PATCH.iter_unpack(data[:whole]):
        body[place % len(body)] = value
    if len(data) > whole:
        del body[len(body) * data[-1] // 256 :]
    for leftover in folder().glob("fuzzed.db*"):
        leftover.unlink()
    path = written("fuzzed.db", bytes(body))
    with SqliteStore(path, read_only=len(data) % 2 == 0) as store:
        _check_store(store)
        for workload in _WORKLOADS:
            for config in ({"BM": 1}, {"BM": 2, "tile": (1, 2)}):
                found = store.latest(workload.id, Config(config).id)
                if found is not None and found.config != Config(config):
                    raise WrongAnswerError("another config is found under this id")


def _patches() -> list[bytes]:
    size = len(sqlite_file())
    places = [100, 105, *range(4096, size, size // 40)]
    return [_PATCH.pack(place, 7) for place in places] + [b"\x80", b"\x10"]


def _row(data: bytes) -> None:
    """Columns of one row, as JSON: text where the database has text, samples as numbers."""
    try:
        kind, *columns = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        return
    if kind == "trial" and len(columns) == 14:
        samples = columns[10]
        if isinstance(samples, list):
            numbers = [float(one) for one in samples if isinstance(one, float)]
            columns[10] = np.array(numbers).tobytes()
        trial = kept.trial_of(tuple(_column(one) for one in columns), "w", "here")
        _check_trial(trial)
    elif kind == "workload" and len(columns) == 2:
        workload = kept.workload_of((1, _column(columns[1])), "here")
        str(workload), workload.id, json.dumps(workload.to_json()), hash(workload)
    elif kind == "run" and len(columns) == 1:
        run = kept.run_of(1, _column(columns[0]), _WORKLOADS[0], "here")
        json.dumps(run.to_json())
        _ = run.budget.covers(run.budget), str(run.budget)
    elif kind == "miss" and len(columns) == 1:
        json.dumps(kept.miss_of((1, _column(columns[0])), "here").to_json())


def _column(value: Any) -> Any:
    """Objects stand for the text that they are in the database."""
    return json.dumps(value) if isinstance(value, dict) else value


def _row_seeds() -> list[bytes]:
    trial = a_trial(_WORKLOADS[0], {"BM": 2, "tile": (1, 2)}, 20.0, limit=Limit("run_s", 3.0))
    timing = trial.timing
    assert timing is not None
    assert trial.limit is not None
    columns = [
        1, "id", "ok", 5.0, "run", dict(trial.config), trial.cost.to_json(), dict(trial.facts),
        trial.limit.to_json(), timing.meta_json(), list(timing.samples), "", trial.config.id, 20.0,
    ]  # fmt: skip
    foreign = {"median_ns": 5.0, "low_ns": 4.0, "high_ns": 6.0, "source": "triton"}
    other = [*columns[:9], {**timing.meta_json(), "foreign": foreign}, [], "", columns[12], 5.0]
    run = {**a_run(_WORKLOADS[0], {"BM": 1}, id="r").to_json(), "workload": None}
    found: list[list[Any]] = [
        ["trial", *columns], ["trial", *other], ["workload", 1, _WORKLOADS[0].to_json()],
        ["run", run], ["miss", _MISS.to_json()],
    ]  # fmt: skip
    return [json.dumps(one).encode() for one in found]


def _timeline(data: bytes) -> None:
    kept.timeline_of((1, data), "here").to_perfetto({"c0": "BM=1"})


@cache
def bundle_bytes() -> bytes:
    class Binaries:
        def keys(self) -> list[str]:
            return [KEY]

        def files(self, key: str) -> dict[str, bytes]:
            return {"metadata.json": b'{"name": "matmul", "shared": 0}', "matmul.cubin": b"\x7fELF"}

    path = folder() / "seed.whet"
    models = {"matmul": '{"trees": []}'}
    write_bundle(path, _fill(MemoryStore()), created=0.0, models=models, binaries=Binaries())
    return path.read_bytes()


def _read_bundle(path: Path) -> None:
    with open_bundle(path) as bundle:
        for workload in _WORKLOADS:
            bundle.store.best(workload.id)
        bundle.check()
        _check_store(bundle.store)
        for key in bundle.binary_keys():
            bundle.binary(key)
        for name in bundle.model_names():
            bundle.model(name)
        target = MemoryStore()
        target.merge(bundle.store)
        _check_store(target)


def _bundle(data: bytes) -> None:
    _read_bundle(written("fuzzed.whet", data))


def _forged_bundle(data: bytes) -> None:
    """A bundle whose manifest is honest about entries that are not: lines of JSON by entry."""
    try:
        given = json.loads(data)
        entries = {
            str(name): b"".join(json.dumps(line).encode() + b"\n" for line in lines)
            for name, lines in given["entries"].items()
        }
        manifest = dict(given["manifest"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return
    if not given.get("keep"):
        manifest["entries"] = {
            name: {"sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body)}
            for name, body in entries.items()
        }
    buffer = io.BytesIO()
    try:
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, body in {"manifest.json": json.dumps(manifest).encode(), **entries}.items():
                archive.writestr(zipfile.ZipInfo(name), body)
    except (ValueError, UnicodeEncodeError, zipfile.LargeZipFile):
        return
    _read_bundle(written("forged.whet", buffer.getvalue()))


def _forged_seeds() -> list[bytes]:
    with zipfile.ZipFile(io.BytesIO(bundle_bytes())) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files.pop("manifest.json"))
    entries = {
        name: [json.loads(line) for line in body.splitlines()]
        for name, body in files.items()
        if name.endswith((".json", ".jsonl"))
    }
    return [json.dumps({"manifest": manifest, "entries": entries}).encode()]


def _same(seeds: Callable[[], bytes]) -> Callable[[], list[bytes]]:
    return lambda: [seeds()]


TARGETS = (
    Target(
        "store-rows", _row, _row_seeds, (StoreError,), ("store/rows", "core/"), "json", WORDS,
        60_000,
    ),
    Target(
        "store-file", _store_file, _patches, (StoreError,), ("store/",), per_million=12_000,
        forbidden=("os.system", "subprocess"),
    ),
    Target(
        "timeline", _timeline, _same(_TIMELINE.packed), (StoreError,), ("core/timeline",),
        per_million=20_000,
    ),
    Target(
        "bundle", _bundle, _same(bundle_bytes), (BundleError,), ("store/bundles",),
        per_million=15_000,
    ),
    Target(
        "bundle-forged", _forged_bundle, _forged_seeds, (BundleError,), ("store/bundles", "core/"),
        "json", WORDS, 30_000,
    ),
)  # fmt: skip
