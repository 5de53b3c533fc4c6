"""The choice that a lock file makes, and whether all ranks of a process group make the same."""

from __future__ import annotations

import base64
import json
import shlex
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from weakref import WeakKeyDictionary

from whet.core.config import Config
from whet.core.errors import NotTunedError, RanksDifferError
from whet.core.mode import Mode
from whet.core.run import Choice
from whet.core.workload import Workload
from whet.engine.lockfile.entries import LockEntry, LockFile, device_of, entry_id
from whet.engine.lockfile.in_force import InForce, choices_in_force, own_digest
from whet.engine.log import warn
from whet.engine.ranks import Board, BoardLostError, group_board
from whet.engine.settings import resolve_settings
from whet.learn.keys import distance, labels_of

_warned: set[tuple[str, ...]] = set()


def locked_choice(
    lock: LockFile,
    workload: Workload,
    mode: Mode,
    offers: Callable[[Config], bool],
    first: Callable[[str], Choice],
) -> Choice:
    """The entry of this key; where there is none, under `require` a `NotTunedError`, else the entry
    of the nearest key, else the author's `first` config. An entry for another source or device, or
    whose config the kernel no longer has, is not used."""
    entry = lock.by_id.get(entry_id(workload))
    if entry is not None and offers(entry.config):
        _warn_of_tools(lock, entry, workload)
        return Choice(entry.config, "exact", 1.0, f"locked in {lock.path}")
    why = _why_not(lock, entry, workload)
    if mode == "require":
        raise NotTunedError(
            f"{workload} is not in lock file {lock.path}: {why}; tune it, then add it with: "
            f"whet lock update {shlex.quote(str(lock.path))}"
        )
    near = _nearest(lock, workload, offers)
    if near is None:
        return first(f"not in {lock.path}: {why}; using the author's first config")
    away, found = near
    key = ", ".join(f"{name}={value}" for name, value in found.key.items())
    reason = f"not in {lock.path}: {why}; using its entry for {key} ({away:.1f} doublings away)"
    return Choice(found.config, "nearest", 0.0, reason)


def _why_not(lock: LockFile, entry: LockEntry | None, workload: Workload) -> str:
    """In the order in which a person would look for the reason."""
    if entry is not None:
        return f"its config [{entry.config}] is not one of the kernel's any more"
    known = lock.by_kernel.get(workload.kernel, [])
    if not known:
        return "it has no entry for this kernel"
    source = [one for one in known if one.fingerprint == workload.fingerprint]
    if not source:
        return "its entries for this kernel are for another source"
    if all(one.device != device_of(workload) for one in source):
        return f"its entries for this kernel are for another device ({source[0].device})"
    return "it has no entry for this key"


def _nearest(
    lock: LockFile, workload: Workload, offers: Callable[[Config], bool]
) -> tuple[float, LockEntry] | None:
    labels, device = labels_of(workload.key), device_of(workload)
    alike = [
        (distance(workload.key, one.key), one)
        for one in lock.by_kernel.get(workload.kernel, ())
        if one.fingerprint == workload.fingerprint
        and one.device == device
        and labels_of(one.key) == labels
    ]
    ranked = sorted(alike, key=lambda pair: (pair[0], json.dumps(dict(pair[1].key))))
    return next((pair for pair in ranked if offers(pair[1].config)), None)


def _warn_of_tools(lock: LockFile, entry: LockEntry, workload: Workload) -> None:
    now = {name: workload.toolchain.get(name, "none") for name in entry.toolchain}
    if now == entry.toolchain:
        return
    place = (str(lock.path), entry.kernel, *now.values(), *entry.toolchain.values())
    if place not in _warned:
        _warned.add(place)
        was = ", ".join(f"{name} {one}" for name, one in entry.toolchain.items())
        is_ = ", ".join(f"{name} {one}" for name, one in now.items())
        warn(
            f"{entry.kernel}: {lock.path} was written with {was}, and this is {is_}; the locked "
            "config is used, but its binary is another one"
        )


# A board takes short texts; a table of thousands of choices goes there in parts.
_PART = 1 << 20
_LOOK_EVERY_S = 0.02

# By id: what a person calls it, and the config's canonical text.
Table = dict[str, tuple[str, str]]


def digest() -> str:
    """One short hash of all choices that are in force in this process: which config each kernel,
    key and GPU uses. It does not depend on the order in which they were made.

    Under `torch.distributed` it must be called on every rank, as a collective: the ranks compare
    their choices, and each of them raises `RanksDifferError`, which names the kernel and the ranks,
    where two ranks use different configs for the same kernel, key and GPU. A rank may have called
    kernels that another has not.
    """
    board = group_board()
    if board is not None:
        _compared(board, "digest", _table(choices_in_force()))
    return own_digest()


def _table(choices: Mapping[str, InForce]) -> Table:
    return {id: (one.name, one.config.json) for id, one in choices.items()}


_calls: WeakKeyDictionary[Board, int] = WeakKeyDictionary()


def _compared(board: Board, what: str, table: Table) -> None:
    """Waits for all ranks; whoever comes later finds what the earlier ones wrote."""
    turn = _calls[board] = _calls.get(board, 0) + 1
    place = f"whet/{what}/{turn}"
    try:
        _publish(board, f"{place}/{board.rank}", table)
        tables = _gathered(board, place)
    except BoardLostError as lost:
        warn(f"ranks could not compare their choices: {lost}")
        return
    _refuse_differences(tables, "the choices in force")


def _gathered(board: Board, place: str) -> dict[int, Table]:
    wait_s = resolve_settings().settings.agree_wait_s
    until = time.monotonic() + wait_s
    tables: dict[int, Table] = {}
    while True:
        for rank in range(board.size):
            if rank not in tables and (found := _published(board, f"{place}/{rank}")) is not None:
                tables[rank] = found
        if len(tables) == board.size:
            return tables
        if time.monotonic() > until:
            late = _ranks_text([rank for rank in range(board.size) if rank not in tables])
            raise RanksDifferError(
                f"{late} did not call whet.digest() within {wait_s:g} s; call it on every rank"
            )
        time.sleep(_LOOK_EVERY_S)


class LockComparison:
    """Compares lock files as ranks come to use them, without waiting for anybody: each rank writes
    down its own, and looks at those of the others that it has not seen yet."""

    def __init__(self) -> None:
        self._agreeing: WeakKeyDictionary[Board, dict[str, set[int]]] = WeakKeyDictionary()
        self._guard = Lock()

    def check(self, lock: LockFile) -> None:
        """Raises `RanksDifferError` where a rank that is known by now has another lock file."""
        board = group_board()
        if board is None:
            return
        with self._guard:
            by_path = self._agreeing.setdefault(board, {})
            if len(by_path.get(str(lock.path), ())) == board.size:
                return
            try:
                self._look(board, lock, by_path)
            except BoardLostError as lost:
                by_path[str(lock.path)] = set(range(board.size))
                warn(f"ranks could not compare their lock files: {lost}")

    def _look(self, board: Board, lock: LockFile, by_path: dict[str, set[int]]) -> None:
        place = f"whet/lock/{lock.path.name}"
        own = {id: (str(one), one.config.json) for id, one in lock.by_id.items()}
        seen = by_path.get(str(lock.path))
        if seen is None:
            _publish(board, f"{place}/{board.rank}", own, lock.digest)
            seen = by_path[str(lock.path)] = {board.rank}
        tables = {board.rank: own}
        for rank in range(board.size):
            if rank in seen:
                continue
            said = board.get(f"{place}/{rank}/digest")
            if said == lock.digest:
                seen.add(rank)
            elif said is not None:
                tables[rank] = _published(board, f"{place}/{rank}") or {}
        if len(tables) > 1:
            _refuse_differences(tables, f"lock file {lock.path.name}", whole=True)


_locks = LockComparison()
same_lock_on_all_ranks = _locks.check


def _publish(board: Board, place: str, table: Table, said: str = "") -> None:
    packed = base64.b85encode(zlib.compress(json.dumps(table).encode(), 1)).decode()
    parts = [packed[at : at + _PART] for at in range(0, len(packed), _PART)] or [""]
    for number, part in enumerate(parts):
        board.set(f"{place}/{number}", part)
    board.set(f"{place}/parts", str(len(parts)))
    board.set(f"{place}/digest", said or "there")  # last: the rest is there now


def _published(board: Board, place: str) -> Table | None:
    if board.get(f"{place}/digest") is None:
        return None
    count = int(board.get(f"{place}/parts") or "0")
    text = "".join(board.get(f"{place}/{number}") or "" for number in range(count))
    found = json.loads(zlib.decompress(base64.b85decode(text)))
    return {id: (name, config) for id, (name, config) in found.items()}


def _refuse_differences(tables: Mapping[int, Table], what: str, whole: bool = False) -> None:
    """With `whole`, an entry that a rank lacks is a difference too."""
    missing = partial(_config, absent=whole)
    texts: list[str] = []
    for id in sorted({id for table in tables.values() for id in table}):
        by_config: dict[str, list[int]] = {}
        for rank in sorted(tables):
            config = missing(tables[rank].get(id))
            if config is not None:
                by_config.setdefault(config, []).append(rank)
        if len(by_config) > 1:
            name = next(table[id][0] for table in tables.values() if id in table)
            sides = sorted(by_config.items(), key=lambda side: (-len(side[1]), side[1]))
            said = "; ".join(f"{_ranks_text(ranks)}: {config}" for config, ranks in sides)
            texts.append(f"{name} ({said})")
    if texts:
        more = f", and {len(texts) - 3} more" if len(texts) > 3 else ""
        raise RanksDifferError(
            f"ranks disagree in {what}: {', '.join(texts[:3])}{more}; give every rank the same "
            "lock file"
        )


def _config(found: tuple[str, str] | None, absent: bool) -> str | None:
    if found is None:
        return "no entry" if absent else None
    return found[1]


def _ranks_text(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks))}"
