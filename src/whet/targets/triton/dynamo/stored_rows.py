"""What the store knows of a kernel, as rows for Dynamo: it may meet keys that were never called."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from whet.core.errors import StoreError
from whet.core.mode import Mode
from whet.core.workload import Workload
from whet.engine.lockfile.entries import LockEntry, LockFile
from whet.engine.lockfile.finding import locked_by
from whet.engine.settings import resolve_settings
from whet.measure.bench.bits import CHECK_KEY, checked_key
from whet.targets.triton import device
from whet.targets.triton.compiler.source import source_of
from whet.targets.triton.configs import plain_config
from whet.targets.triton.dynamo.lookup import MOST_ROWS, Lookup, Row
from whet.targets.triton.keys import agrees, claimed_key
from whet.targets.triton.measuring.bits import bit_check_of
from whet.targets.triton.stores import opened
from whet.targets.triton.warn import say_once


def stored_rows(tuner: Any, lookup: Lookup, mode: Mode) -> list[Row]:
    """One for each of the workloads tuned last that are this kernel's, on this device and with
    this Triton, timed as they would be now; with a lock file, one for each of its entries."""
    import triton

    lock = locked_by(tuner.whet_lock, mode, resolve_settings().settings)
    if lock is not None:
        return _locked_rows(lock, tuner, lookup)

    index, source = device.current_index(), source_of(tuner)
    claimed = claimed_key(source, tuner.whet_buckets) | checked_key(bit_check_of(tuner))
    here, method = device.describe(index), tuner.whet_method()
    places = {plain_config(config): place for place, config in enumerate(tuner.configs)}
    rows: list[Row] = []
    try:
        with opened(resolve_settings().settings, mode) as store:
            known = store.workloads(str(tuner.base_fn.__name__))
    except StoreError as error:
        say_once(f"stored results will not be used: {error}")
        return rows
    for summary in known:
        workload, best = summary.workload, summary.best
        mine = workload.fingerprint == source.fingerprint and workload.device.name == here.name
        if not mine or not _same_kind(workload.key, claimed):
            continue
        if dict(workload.toolchain) != {"triton": triton.__version__}:
            continue
        if best is None or best.config not in places or best.timing is None:
            continue
        if method is not None and best.timing.method != method:
            continue
        row = _row(tuner.keys, workload, places[best.config], lookup)
        rows += [] if row is None else [row]
    return rows[MOST_ROWS - 1 :: -1]


def _locked_rows(lock: LockFile, tuner: Any, lookup: Lookup) -> list[Row]:
    source, here = source_of(tuner), device.describe(device.current_index())
    claimed = claimed_key(source, tuner.whet_buckets) | checked_key(bit_check_of(tuner))
    places = {plain_config(config): place for place, config in enumerate(tuner.configs)}
    rows = []
    for one in lock.by_kernel.get(str(tuner.base_fn.__name__), ()):
        mine = one.fingerprint == source.fingerprint and one.device.name == here.name
        if mine and _same_kind(one.key, claimed) and one.config in places:
            row = _row(tuner.keys, one, places[one.config], lookup)
            rows += [] if row is None else [row]
    return rows[:MOST_ROWS]


def _row(keys: Any, workload: Workload | LockEntry, place: int, lookup: Lookup) -> Row | None:
    named: Mapping[str, Any] = workload.key
    values = {name: named[name] for name in keys if name in named}
    dtypes = {name[:-6]: _dtype(text) for name, text in named.items() if name.endswith(".dtype")}
    if None in dtypes.values():
        return None
    return lookup.row(values, dtypes, place)


def _same_kind(key: Mapping[str, Any], claimed: Mapping[str, Any]) -> bool:
    """A result that was checked for its bits is none where nobody asks for that, and vice versa."""
    return agrees(key, claimed) and (CHECK_KEY in key) == (CHECK_KEY in claimed)


def _dtype(text: str) -> Any:
    """`torch.float16` as torch's own."""
    return getattr(sys.modules.get("torch"), text.removeprefix("torch."), None)
