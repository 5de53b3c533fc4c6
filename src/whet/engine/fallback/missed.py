"""What is missing: told to a person with the command that would fill it, or written down."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from whet.core.config import freeze_value
from whet.core.errors import NotTunedError, SpaceError
from whet.core.mode import Mode
from whet.core.workload import Workload
from whet.engine.settings import resolve_settings
from whet.engine.target import Target
from whet.store import store_place

if TYPE_CHECKING:
    from whet.core.miss import Argument, LaunchGrid, Miss, Placement
    from whet.store import StoreReader

# What an allocator of torch's gives at least; nobody specializes kernels on more.
_MOST_ALIGNED = 512


@runtime_checkable
class Traceable(Protocol):
    """A target that can say how it would be tuned from the command line.

    `defined_at` is `FILE.py:NAME`, empty where no name in any module leads to it;
    `call_arguments` are those of the call, by name; `tune_key` is what `--key` takes, None for
    a target without one; `tune_needs` is what the command still lacks, empty where nothing.
    """

    def defined_at(self) -> str: ...

    def call_arguments(self) -> Mapping[str, Any]: ...

    def tune_key(self) -> Mapping[str, Any] | None: ...

    def tune_needs(self) -> str: ...


@runtime_checkable
class TunedByCalling(Protocol):
    """A target that no command can tune: its arguments are those of a call in a program."""

    def tuned_by(self) -> str: ...


@runtime_checkable
class Relaunchable(Protocol):
    """A target whose call is a launch that may be made again without the program."""

    def launch_grids(self) -> Sequence[LaunchGrid]: ...

    def positional_arguments(self) -> int: ...

    def module_name(self) -> str:
        """The name under which its file can be imported, empty where there is none."""
        ...

    def recorded(self, arguments: Sequence[Argument], most: int) -> tuple[Argument, ...]:
        """The same with how each is compiled, the contents of integer tensors that have at most so
        many elements, and the ranges of larger ones; of tensors nothing where that is 0. Nothing of
        floating-point contents."""
        ...


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
    if isinstance(target, TunedByCalling):
        way = f"to tune it, {target.tuned_by()}"
    else:
        needs = target.tune_needs() if isinstance(target, Traceable) else ""
        way = f"tune it with: {tune_command(target, workload, store)}"
        way += f" ({needs})" if needs else ""
    where = "no store was opened" if store is None else f"not found in {_place(store)}"
    return NotTunedError(
        f"{workload} has no tuned result ({where}) and mode '{mode}' does not tune; {way}"
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
