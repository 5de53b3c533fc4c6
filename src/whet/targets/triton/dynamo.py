"""What `torch.compile` sees of a tuned kernel.

Dynamo reads a kernel's configs without knowing the shapes, and Inductor then benchmarks them by
itself. But it lets `early_config_prune` choose among them first, with the arguments at hand, and
traces it. So for keys that are tuned, that function looks the config up and leaves only this one.
For others it does what the author's own did, and where tuning is not allowed it leaves the first
of these, so that there is nothing to benchmark.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from whet.core.buckets import Buckets
from whet.core.config import Config
from whet.core.errors import NotTunedError, StoreError
from whet.core.mode import Mode
from whet.core.workload import Workload
from whet.engine.fallback.calls import opened
from whet.engine.lockfile.entries import LockEntry
from whet.engine.lockfile.in_force import locked_by
from whet.engine.log import say_once
from whet.engine.settings import resolve_settings
from whet.targets.fingerprint import Source
from whet.targets.triton import device
from whet.targets.triton.keys import agrees, claimed_key, plain_config
from whet.targets.triton.source import source_of

Prune = Callable[..., Any]

# Key arguments as (name, low, value), which is low < argument <= value, or equal where low is None;
# dtypes of tensors by name; and the place of the config in the list.
Row = tuple[tuple[tuple[str, Any, Any], ...], tuple[tuple[str, Any], ...], int]

# What a row is made of: key arguments, dtypes, the place of the config, and whether that was tuned
# for this very key. What was not counts only where nothing may be tuned.
Met = tuple[dict[str, Any], dict[str, Any], int, bool]

COMPARABLE = (bool, int, float, str)

# Dynamo compares a call with every row, and each comparison may become a guard.
MOST_ROWS = 32


class Lookup:
    """Grows by one row for every key that is in `met`, once Dynamo asks; `own_prune` is the
    author's."""

    def __init__(self) -> None:
        self.buckets = Buckets()
        self.met: deque[Met] = deque()
        self._own_prune: Prune | None = None
        self._exact: list[Row] = []
        self._inherited: list[Row] = []
        self._made: dict[Mode, Prune | None] = {}

    @property
    def own_prune(self) -> Prune | None:
        return self._own_prune

    @own_prune.setter
    def own_prune(self, prune: Prune | None) -> None:
        self._own_prune = prune
        self._made.clear()

    def _add(self, values: dict[str, Any], dtypes: dict[str, Any], place: int, exact: bool) -> None:
        new = self.row(values, dtypes, place)
        if new is None:
            return
        for rows in (self._exact, self._inherited) if exact else (self._inherited,):
            rows[:] = [row for row in rows if row[:2] != new[:2]]
        (self._exact if exact else self._inherited).append(new)
        self._made.clear()

    def row(self, values: Mapping[str, Any], dtypes: Mapping[str, Any], place: int) -> Row | None:
        """None where a value is nothing that Dynamo could compare."""
        if not all(isinstance(value, COMPARABLE) for value in values.values()):
            return None
        ranges = {name: self.buckets.bounds(name, value) for name, value in values.items()}
        compared = tuple((n, *(ranges[n] or (None, value))) for n, value in values.items())
        return compared, tuple(dtypes.items()), place

    def remember(self, rows: Iterable[Row]) -> None:
        """Stored results, for keys that nobody has called yet."""
        self._take_in()
        known = {row[:2] for row in self._exact}
        self._exact[:0] = [row for row in rows if row[:2] not in known]
        self._made.clear()

    def prune(self, mode: Mode) -> Prune | None:
        """What to show as `early_config_prune`; the same function until something is added."""
        self._take_in()
        if mode not in self._made:
            self._made[mode] = self._prune(mode)
        return self._made[mode]

    def _take_in(self) -> None:
        with suppress(IndexError):  # none is left, or another thread takes it
            while True:
                self._add(*self.met.popleft())

    def _prune(self, mode: Mode) -> Prune | None:
        if mode == "tune":
            rows = self._exact[-MOST_ROWS:]
            return _traceable(tuple(rows), self._own_prune, mode) if rows else self._own_prune
        rows = [] if mode == "off" else self._exact
        if mode in ("cached", "record"):
            rows = [*self._inherited, *rows]
        return _traceable(tuple(rows[-MOST_ROWS:]), self._own_prune, mode)


def _traceable(rows: tuple[Row, ...], own_prune: Prune | None, mode: Mode) -> Prune:
    """Plain enough for Dynamo: loops over constants, comparisons, no tensors made."""
    refuse, alone = mode == "require", mode != "tune"

    def early_config_prune(configs: Any, named_args: Any, **kwargs: Any) -> Any:
        given = {**named_args, **kwargs}
        for values, dtypes, place in rows:
            same = True
            for name, low, value in values:
                if name not in given or given[name] is None:
                    same = False
                    break
                if given[name] != value if low is None else not low < given[name] <= value:
                    same = False
                    break
            if same:
                for name, dtype in dtypes:
                    if name not in given or given[name] is None or given[name].dtype != dtype:
                        same = False
                        break
            if same:
                return [configs[place]]
        if refuse:
            raise NotTunedError(
                "torch.compile found no stored result for this key, and mode 'require' does "
                "not tune; call the kernel with this key without torch.compile to see the "
                "command that tunes it"
            )
        left = configs if own_prune is None else own_prune(configs, named_args, **kwargs)
        return left[:1] if alone else left

    return early_config_prune


def stored_rows(tuner: Any, lookup: Lookup, mode: Mode) -> list[Row]:
    """What the store knows of a kernel, as rows: it may meet keys that were never called. One row
    for each of the workloads tuned last that are this kernel's, on this device and with this
    Triton, timed as they would be now; with a lock file, one for each of its entries."""
    lock = locked_by(tuner.whet_lock, mode, resolve_settings().settings)
    name = str(tuner.base_fn.__name__)
    known: list[tuple[Workload | LockEntry, Config]]
    if lock is not None:
        known = [(one, one.config) for one in lock.by_kernel.get(name, ())]
    else:
        try:
            known = _stored(tuner, name, mode)
        except StoreError as error:
            say_once(f"stored results will not be used: {error}")
            return []
    source, here = source_of(tuner), device.describe(device.current_index())
    claimed = _claimed(tuner, source)
    places = {plain_config(config): place for place, config in enumerate(tuner.configs)}
    rows = []
    for workload, config in known:
        mine = workload.fingerprint == source.fingerprint and workload.device.name == here.name
        if mine and _same_kind(workload.key, claimed) and config in places:
            row = _row(tuner.keys, workload, places[config], lookup)
            rows += [] if row is None else [row]
    return rows[:MOST_ROWS] if lock is not None else rows[MOST_ROWS - 1 :: -1]


def _stored(tuner: Any, name: str, mode: Mode) -> list[tuple[Workload | LockEntry, Config]]:
    """Each workload of this Triton with its best config, if that was timed as it would be now."""
    import triton

    method = tuner.whet_method()
    found: list[tuple[Workload | LockEntry, Config]] = []
    with opened(resolve_settings().settings, mode) as store:
        for summary in store.workloads(name):
            workload, best = summary.workload, summary.best
            if dict(workload.toolchain) != {"triton": triton.__version__}:
                continue
            if best is None or best.timing is None:
                continue
            if method is None or best.timing.method == method:
                found.append((workload, best.config))
    return found


def _claimed(tuner: Any, source: Source) -> dict[str, Any]:
    from whet.measure.bench.bits import checked_key  # a stored call needs nothing that measures
    from whet.targets.triton.checks import bit_check_of

    return claimed_key(source, tuner.whet_buckets) | checked_key(bit_check_of(tuner))


def _row(keys: Any, workload: Workload | LockEntry, place: int, lookup: Lookup) -> Row | None:
    named: Mapping[str, Any] = workload.key
    values = {name: named[name] for name in keys if name in named}
    dtypes = {name[:-6]: _dtype(text) for name, text in named.items() if name.endswith(".dtype")}
    if None in dtypes.values():
        return None
    return lookup.row(values, dtypes, place)


def _same_kind(key: Mapping[str, Any], claimed: Mapping[str, Any]) -> bool:
    """A result that was checked for its bits is none where nobody asks for that, and vice versa."""
    from whet.measure.bench.bits import CHECK_KEY

    return agrees(key, claimed) and (CHECK_KEY in key) == (CHECK_KEY in claimed)


def _dtype(text: str) -> Any:
    """`torch.float16` as torch's own."""
    return getattr(sys.modules.get("torch"), text.removeprefix("torch."), None)
