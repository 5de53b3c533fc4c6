"""The choice that a lock file makes: by its entries alone, without a clock or a measurement."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

from whet.core.config import Config
from whet.core.errors import NotTunedError
from whet.core.mode import Mode
from whet.core.run import Choice
from whet.core.workload import Workload
from whet.engine.lockfile.entries import LockEntry, LockFile, device_of, entry_id
from whet.engine.log import warn
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
