"""What is used where nothing may be tuned, and how it is told or recorded that it is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.core.config import Config, freeze_value
from whet.core.errors import NotTunedError, SpaceError, StoreError, TuningFailedError
from whet.core.mode import Mode
from whet.core.run import Choice, Outcome, Result, Run
from whet.core.status import Status
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.engine.fallback.mode import mode_for
from whet.engine.lockfile.in_force import in_force, lock_holds, locked_by, not_locked
from whet.engine.log import log_event, logger
from whet.engine.recall import timed_like
from whet.engine.settings import Settings, resolve_settings
from whet.engine.target import Relaunchable, Target, Traceable, bit_check_of, quick_space
from whet.store import Pick, Store, open_if_there, open_store, store_place

if TYPE_CHECKING:
    from whet.core.miss import Argument, Miss, Placement
    from whet.engine.lockfile.entries import LockFile
    from whet.store import StoreReader


# Imported where it is used: few have a lock file, and most keys are stored.

# The bits of a config that was right at another key are not known at this one.
UNCHECKED = "bits were not compared at this key; using the author's first config"


def open_for(mode: Mode, where: str | Path | None, settings: Settings) -> Store:
    """Only `record` writes; asking must not make a store where there is none."""
    bundle, wait_s = settings.bundle, settings.store_wait_s
    if mode == "record":
        return open_store(where, bundle=bundle, wait_s=wait_s)
    return open_if_there(where, bundle=bundle, wait_s=wait_s)


def choose(
    target: Target, *, store: Store | str | Path | None = None, mode: Mode | None = None
) -> Choice:
    """Returns the config to use now, without building or measuring anything.

    In this order: the stored best of this workload; a config inherited from other workloads of the
    same kernel; the author's first config. `mode` defaults to that of the kernel, the context or
    the settings: `require` accepts only a stored best and raises `NotTunedError` otherwise,
    `record` also records that it was missing, and `off` opens no store and returns the first
    config. With a lock file, `cached` and `require` choose from that file alone.
    """
    mode = mode_for(target, mode)
    lock = lock_for(target, mode)
    if lock is not None:
        return chosen_from(lock, target, mode)
    start = time.perf_counter()
    workload = target.workload()
    if mode == "off":
        choice = first_choice(
            target, "mode 'off' uses no stored results; using the author's first config"
        )
    else:
        with ExitStack() as stack:
            if store is None or isinstance(store, str | Path):
                settings = resolve_settings().settings
                where = settings.store if store is None else store
                store = stack.enter_context(open_for(mode, where, settings))
            choice = _known(target, workload, store, mode)
    in_force(workload, choice.config)
    log_event(
        "chosen",
        workload,
        pick=choice.config,
        source=choice.source,
        cost_s=time.perf_counter() - start,
        reason=choice.reason,
    )
    return choice


def lock_for(target: object, mode: Mode, settings: Settings | None = None) -> LockFile | None:
    """The lock file that a choice for this target comes from; None where no lock holds."""
    own: str | None = getattr(target, "lock", None)
    if settings is None:
        if not lock_holds(own, mode):
            return None
        settings = resolve_settings().settings
    return locked_by(own, mode, settings)


def chosen_from(lock: LockFile, target: Target, mode: Mode) -> Choice:
    """By the lock's entries alone: no store is opened, nothing measured and no clock read."""
    from whet.engine.lockfile.choosing import locked_choice, same_lock_on_all_ranks

    same_lock_on_all_ranks(lock)
    workload = target.workload()
    choice = locked_choice(
        lock,
        workload,
        mode,
        offers=lambda config: _offers(target, config),
        first=lambda reason: first_choice(target, reason),
    )
    if choice.source == "nearest" and bit_check_of(target) == "bitwise":
        choice = first_choice(target, f"not in {lock.path}; {UNCHECKED}")
    in_force(workload, choice.config)
    if choice.source != "exact":
        not_locked(workload, choice)
    log_event(
        "chosen",
        workload,
        pick=choice.config,
        source=choice.source,
        cost_s=0.0,
        reason=choice.reason,
    )
    return choice


def _known(target: Target, workload: Workload, store: Store, mode: Mode) -> Choice:
    exact = exact_pick(target, workload, store)
    if exact is not None:
        sure = 1.0 / (1 + len(exact.rivals))
        return Choice(exact.trial.config, "exact", sure, _reason(exact))
    if mode == "require":
        raise not_tuned(target, workload, mode, store)
    if mode == "record":
        record_miss(target, workload, store)
    if bit_check_of(target) == "bitwise":
        return first_choice(target, UNCHECKED)
    # Here, since it brings models with it, and what is stored needs none.
    from whet.engine.fallback.inheritance import inherited

    choice = inherited(target, store, workload=workload)
    if choice is not None and _offers(target, choice.config):
        return choice
    return first_choice(target, "no results for this kernel; using the author's first config")


def _reason(pick: Pick) -> str:
    if not pick.rivals:
        return "tuned for this workload"
    return f"tuned for this workload, but {contested_text(pick.rivals)}"


def contested_text(rivals: Sequence[Trial]) -> str:
    """Why nobody can be sure of a pick, and what to do about it."""
    others = " and ".join(f"[{rival.config}]" for rival in rivals)
    return (
        f"contested: a merged store picked {others}, and the two stores disagree on which is "
        "faster; tune again to decide"
    )


def first_choice(target: Target, reason: str) -> Choice:
    quick = quick_space(target)
    first = target.space.first if quick is None else quick.first()
    if first is None:
        raise TuningFailedError(f"the space of '{target.name}' has no valid config")
    return Choice(first, "first", 0.0, reason)


def exact_pick(target: Target, workload: Workload, store: Store) -> Pick | None:
    """The stored best of this workload among what the space still offers and what was timed as
    the target would be now; two ways of timing are never compared with each other."""
    pick = store.pick(workload.id)
    if pick is None:
        return None

    def usable(trial: Trial) -> bool:
        return timed_like(trial, target.method) and _offers(target, trial.config)

    if usable(pick.trial) and not pick.rivals:
        return pick
    picks = [trial for trial in (pick.trial, *pick.rivals) if usable(trial)]
    if picks:
        return Pick(picks[0], tuple(picks[1:]))
    others = {
        trial.config.id: trial
        for trial in store.trials(workload.id)
        if trial.status is Status.OK and usable(trial)
    }
    for run in store.runs(workload.id):
        if run.chose and run.best is not None and run.best.id in others:
            return Pick(others[run.best.id])
    best = min(others.values(), key=lambda trial: trial.median_ns or 0.0, default=None)
    return None if best is None else Pick(best)


def _offers(target: Target, config: Config) -> bool:
    quick = quick_space(target)
    return config in target.space if quick is None else quick.offers(config)


def record_miss(
    target: Target,
    workload: Workload,
    store: Store,
    complain: Callable[[str], None] = logger.warning,
) -> None:
    """A store that cannot be written must not stop a kernel from running."""

    try:
        new = store.miss(miss_for(target, workload))
    except StoreError as error:
        complain(f"cannot record missed keys: {error}")
        return
    if new:
        reason = "recorded for whet tune --missed"
        log_event("missed", workload, pick=None, source="none", cost_s=0.0, reason=reason)


def locked_result(lock: LockFile, target: Target) -> Result:
    """What the lock file says of this very workload; `NotTunedError` where it says nothing."""
    workload = target.workload()
    choice = chosen_from(lock, target, "require")
    run = Run(
        workload=workload,
        space_id=target.space.id,
        space_size=target.space.count,
        search="locked",
        seed=0,
        outcome=Outcome.FINISHED,
        best=choice.config,
    )
    best = Trial(workload.id, choice.config, Status.OK)
    return Result(run, best, None, (), known=1, source="stored", notes=(choice.reason,))


def stored_result(target: Target, store: Store, mode: Mode) -> Result:
    """The exact stored result, in a mode that does not tune; `NotTunedError` without one."""
    workload = target.workload()
    pick = exact_pick(target, workload, store)
    if pick is None:
        if mode == "record":
            record_miss(target, workload, store)
        raise not_tuned(target, workload, mode, store)
    best, runs = pick.trial, store.runs(workload.id)
    run = next((run for run in runs if run.best == best.config), None) or Run(
        workload=workload,
        space_id=target.space.id,
        space_size=target.space.count,
        search="stored",
        seed=0,
        outcome=Outcome.FINISHED,
        best=best.config,
        started=best.created,
    )
    known = len(store.trials(workload.id))
    notes = (contested_text(pick.rivals),) if pick.rivals else ()
    return Result(run, best, None, (), known=known, source="stored", equals=run.equals, notes=notes)


# What an allocator of torch's gives at least; nobody specializes kernels on more.
_MOST_ALIGNED = 512


def miss_for(target: Target, workload: Workload) -> Miss:
    from whet.core.miss import Miss

    where, named = "", {}
    if isinstance(target, Traceable):
        where, named = target.defined_at(), dict(target.call_arguments())
    storages: list[_Memory] = []
    arguments = tuple(
        replace(summarised(name, value), placement=_placement(value, storages))
        for name, value in named.items()
    )
    miss = Miss(workload, where, arguments, time.time())
    if not isinstance(target, Relaunchable):
        return miss
    most = resolve_settings().settings.record_values
    return replace(
        miss,
        arguments=target.recorded(arguments, most),
        grids=tuple(target.launch_grids()),
        positional=target.positional_arguments(),
        module=target.module_name(),
    )


@dataclass
class _Memory:
    """Memory of a tensor's storage, and of what else was found to lie in it."""

    begin: int
    end: int


def _placement(value: Any, storages: list[_Memory]) -> Placement | None:
    """Of a tensor of torch's, which need not be imported for this."""
    from whet.core.miss import Placement

    if not hasattr(value, "untyped_storage"):
        return None
    try:
        storage = value.untyped_storage()
        begin, size = int(storage.data_ptr()), int(storage.nbytes())
        address = int(value.data_ptr())
        stride = tuple(int(step) for step in value.stride())
        offset, item = int(value.storage_offset()), int(value.element_size())
    except Exception:  # sparse, nested, or of another library that only looks alike
        return None
    aligned = min(_MOST_ALIGNED, address & -address) if address else _MOST_ALIGNED
    for number, known in enumerate(storages):
        same = known.begin == begin
        # Two storages lie in the same memory where a tensor came by way of another library.
        inside = known.begin <= begin < known.end and (address - known.begin) % item == 0
        if same or (inside and size):
            known.end = max(known.end, begin + size)
            moved = offset if same else (address - known.begin) // item
            return Placement(stride, moved, number, aligned)
    storages.append(_Memory(begin, begin + size))
    return Placement(stride, offset, len(storages) - 1, aligned)


def summarised(name: str, value: Any) -> Argument:
    from whet.core.miss import Argument

    kind = type(value).__name__
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is not None and shape == () and isinstance(value, Number):  # a number of numpy's
        value, dtype = value.item(), None  # type: ignore[attr-defined]
        kind = type(value).__name__
    if dtype is not None:
        sizes = tuple(int(n) for n in shape) if shape is not None else ()
        return Argument(name, kind, str(dtype), sizes)
    try:
        return Argument(name, kind, value=freeze_value(value))
    except SpaceError:
        return Argument(name, kind)


def _place(store: StoreReader) -> str:
    """Where there is no file yet, an empty store in memory stands for it."""
    return "a store, since there is none yet" if store.location == ":memory:" else store.location


def not_tuned(
    target: Target, workload: Workload, mode: Mode, store: StoreReader | None
) -> NotTunedError:
    """Names the kernel, the key, the device and what to type."""
    command = tune_command(target, workload, store)
    remedy = f"tune it with: {command}"
    if isinstance(target, Traceable):
        remedy = target.tune_remedy(command)
    where = "no store was opened" if store is None else f"not found in {_place(store)}"
    return NotTunedError(
        f"{workload} has no tuned result ({where}) and mode '{mode}' does not tune; {remedy}"
    )


def tune_command(target: Target, workload: Workload, store: StoreReader | None) -> str:
    import shlex

    where = key = None
    if isinstance(target, Traceable):
        where, key = target.defined_at(), target.tune_key()
    words = ["whet", "tune", where or f"FILE.py:{workload.kernel}"]
    if key:
        words += ["--key", ",".join(f"{name}={value}" for name, value in key.items())]
    if store is not None and store.location not in (":memory:", store_place(environ={})):
        words += ["--store", store.location]
    return shlex.join(words)
