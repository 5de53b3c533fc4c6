"""One config of a call, ready to be launched where neither its source nor its arguments are."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whet.targets.triton.call import Call
from whet.targets.triton.compiler.capture import jit_function
from whet.targets.triton.isolated.ipc_arguments import CannotIsolate, Packer

_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Launch:
    """A binary in Triton's disk cache, a grid, and the value of every parameter in order.

    Values are as a `Packer` writes them. `kwargs` and `options` are those of the config, for
    hooks. `reference` is what the outputs have to agree with, where that is another config.
    `contents` are the files themselves, for another machine.
    """

    hash: str
    files: Mapping[str, str]
    name: str
    signature: Mapping[str, Any]
    constants: tuple[Any, ...]
    attrs: Mapping[Any, Any]
    arg_names: tuple[str, ...]
    grid: tuple[int, int, int]
    values: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    pre_hook: Callable[[Any], None] | None = None
    reference: Launch | None = None
    contents: Mapping[str, bytes] | None = field(default=None, repr=False)

    def carried(self) -> Launch:
        """With all that another machine needs."""
        contents = {name: Path(path).read_bytes() for name, path in self.files.items()}
        reference = None if self.reference is None else self.reference.carried()
        return replace(self, contents=contents, reference=reference)

    def unpacked(self) -> dict[str, str]:
        """The files by name, written to this process's folder where they came along."""
        if self.contents is None:
            return dict(self.files)
        folder = Path.cwd() / self.hash
        folder.mkdir(exist_ok=True)
        for name, data in self.contents.items():
            (folder / name).write_bytes(data)
        return {name: str(folder / name) for name in self.contents}


def launch_of(call: Call, config: Any, packer: Packer) -> Launch:
    """What this config of the call would launch. Compiles nothing that has been built, and loads
    nothing onto the device.

    Raises `CannotIsolate`.
    """
    jit = jit_function(call.tuner.fn)
    heard: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    thread = threading.get_ident()

    def hear(*args: Any, **keywords: Any) -> None:
        if threading.get_ident() == thread:
            heard.append((args, keywords))

    before = jit.pre_run_hooks
    # Another list, since other threads may be walking through this one.
    jit.pre_run_hooks = [*before, hear]
    try:
        kernel = call.tuner.fn.run(*call.args, **{**call.current(config), "warmup": True})
    finally:
        jit.pre_run_hooks = before
    kernel = kernel.result() if hasattr(kernel, "result") else kernel
    if "tt.int_to_ptr" in kernel.asm.get("ttir", ""):
        raise CannotIsolate(
            "the kernel dereferences addresses that it loads or receives as integers"
        )
    bound = _bound(jit, *heard[-1])
    source = kernel.src
    return Launch(
        hash=kernel.hash,
        files={name: str(path) for name, path in kernel.metadata_group.items()},
        name=source.name,
        signature=dict(source.signature),
        constants=tuple(source.constants),
        attrs=dict(source.attrs),
        arg_names=tuple(jit.arg_names),
        grid=_grid(call.keywords["grid"], bound),
        values=tuple(_value(packer, bound[name], kind) for name, kind in source.signature.items()),
        kwargs={name: _constant(value) for name, value in config.all_kwargs().items()},
        pre_hook=config.pre_hook,
    )


def _bound(jit: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter by name, in order: what Triton hands to a grid."""
    own = {name: value for name, value in keywords.items() if name in jit.arg_names}
    found: inspect.BoundArguments = jit.signature.bind(*args, **own)
    found.apply_defaults()
    return dict(found.arguments)


def _grid(grid: Any, bound: dict[str, Any]) -> tuple[int, int, int]:
    sizes = tuple(grid(bound)) if callable(grid) else tuple(grid)
    x, y, z = (*(int(size) for size in sizes), 1, 1, 1)[:3]
    return x, y, z


def _value(packer: Packer, value: Any, kind: Any) -> Any:
    if kind == "constexpr":
        return _constant(value)
    if isinstance(kind, tuple | list) and isinstance(value, tuple | list):
        return tuple(_value(packer, *pair) for pair in zip(value, kind, strict=True))
    return packer.find(value)


def _constant(value: Any) -> Any:
    """Compiled into the kernel, so that launchers skip it; for hooks, as far as it can be sent."""
    if isinstance(value, _PLAIN):
        return value
    kinds = {kind.__name__ for kind in type(value).__mro__}
    if kinds & {"dtype", "constexpr"}:
        with contextlib.suppress(Exception):
            pickle.dumps(value)
            return value
    return None
