"""What is missing: told to a person with the command that would fill it, or written down."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from whet.core.config import freeze_value
from whet.core.errors import NotTunedError, SpaceError
from whet.core.miss import Argument, Miss
from whet.core.mode import Mode
from whet.core.workload import Workload
from whet.engine.target import Target
from whet.store import StoreReader, store_place


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


def miss_for(target: Target, workload: Workload) -> Miss:
    where, named = "", {}
    if isinstance(target, Traceable):
        where, named = target.defined_at(), dict(target.call_arguments())
    arguments = tuple(summarised(name, value) for name, value in named.items())
    return Miss(workload, where, arguments, time.time())


def summarised(name: str, value: Any) -> Argument:
    kind = type(value).__name__
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
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
    needs = target.tune_needs() if isinstance(target, Traceable) else ""
    where = "no store was opened" if store is None else f"not found in {_place(store)}"
    return NotTunedError(
        f"{workload} has no tuned result ({where}) and mode '{mode}' does not tune; tune it "
        f"with: {tune_command(target, workload, store)}" + (f" ({needs})" if needs else "")
    )


def tune_command(target: Target, workload: Workload, store: StoreReader | None) -> str:
    where = key = None
    if isinstance(target, Traceable):
        where, key = target.defined_at(), target.tune_key()
    words = ["whet", "tune", where or f"FILE.py:{workload.kernel}"]
    if key:
        words += ["--key", ",".join(f"{name}={value}" for name, value in key.items())]
    if store is not None and store.location not in (":memory:", store_place(environ={})):
        words += ["--store", store.location]
    return shlex.join(words)
