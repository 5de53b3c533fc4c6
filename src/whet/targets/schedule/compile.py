"""Applies a script to a payload and compiles what comes out. Runs in a pool worker."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.builds import Built
from whet.core.config import Config
from whet.core.errors import ConfigFailure, UsageError
from whet.core.status import Status
from whet.targets.native.compile import link_shared, shim
from whet.targets.schedule.bindings import Bindings, bindings, located
from whet.targets.schedule.legality import guard, reason
from whet.targets.schedule.script import bind, entry, parsed
from whet.workers.stages import stage

_VECTOR_OPTIONS = "reassociate-fp-reductions=true" + (
    " enable-arm-neon=true" if platform.machine() in ("aarch64", "arm64") else ""
)
LOWERING = (
    "canonicalize",
    "cse",
    "func.func(convert-linalg-to-loops)",
    "buffer-deallocation-pipeline",
    "func.func(promote-buffers-to-stack)",
    "func.func(convert-vector-to-scf{full-unroll=true})",
    "expand-strided-metadata",
    "lower-affine",
    "convert-scf-to-cf",
    f"convert-vector-to-llvm{{{_VECTOR_OPTIONS}}}",
    "finalize-memref-to-llvm",
    "convert-arith-to-llvm",
    "convert-index-to-llvm",
    "convert-cf-to-llvm",
    "convert-func-to-llvm",
    "convert-ub-to-llvm",
    "reconcile-unrealized-casts",
    "canonicalize",
    "cse",
)


@dataclass(frozen=True)
class ScheduleSource:
    """Everything a worker needs to build any config. `label` is the script's file."""

    payload: str
    script: str
    label: str
    shim: str
    compiler: str


def compile_schedule(source: ScheduleSource, config: Config) -> Built:
    """A shared object of the scheduled payload. The machine code is made here rather than where it
    runs, so that a schedule that compiles for minutes is stopped like any other build."""
    mlir = bindings()
    with mlir.context(), mlir.ir.Location.unknown():
        with stage("schedule"):
            payload = scheduled(mlir, source, config, Path())
        with stage("lower"):
            _lower(mlir, payload)
        with stage("compile"):
            engine = mlir.execution_engine(payload, opt_level=3, enable_pic=True)
            engine.dump_to_object_file("kernel.o")
    undefined = ["-Wl,-z,defs"] if sys.platform == "linux" else []  # an error elsewhere anyway
    return link_shared(source.compiler, source.shim, [*undefined, "-lm"])


def scheduled(
    mlir: Bindings,
    source: ScheduleSource,
    config: Config,
    folder: Path,
    cut: Callable[[Any], None] | None = None,
) -> Any:
    """The payload as the script leaves it, in the context of the caller. `cut` may shorten the
    sequence before it is applied; `folder` is where files may be left."""
    try:
        script = parsed(mlir, source.script, source.label)
        sequence = entry(script, source.label)
        payload = _payload(mlir, source.payload, folder)
        bind(mlir, script, config)
        if cut is not None:
            cut(sequence)
        guard(mlir, script)
        mlir.interpreter.apply_named_sequence(
            payload.operation, sequence.operation, script.operation
        )
    except UsageError as error:
        raise ConfigFailure(Status.BUILD_ERROR, str(error)) from None
    except (ValueError, mlir.ir.MLIRError) as error:
        said = reason(located(error, source.label))
        raise ConfigFailure(Status.BUILD_ERROR, said) from None
    return payload


def _payload(mlir: Bindings, text: str, folder: Path) -> Any:
    """From a file, so that MLIR's messages tell its places from those of the script."""
    path = folder / "payload.mlir"
    path.write_text(text)
    try:
        return mlir.ir.Module.parseFile(str(path))
    except mlir.ir.MLIRError as error:
        raise ConfigFailure(Status.BUILD_ERROR, f"the payload is not valid: {error}") from None


def _lower(mlir: Bindings, payload: Any) -> None:
    try:
        mlir.pass_manager.parse(f"builtin.module({','.join(LOWERING)})").run(payload.operation)
    except mlir.ir.MLIRError as error:
        raise ConfigFailure(Status.BUILD_ERROR, f"cannot be lowered: {error}") from None


def schedule_shim(function: str, shapes: Mapping[str, Sequence[int]]) -> str:
    """C that calls the payload with plain pointers: a memref is passed as pointer, aligned pointer,
    offset, sizes and strides."""
    types, values = [], []
    for at, shape in enumerate(shapes.values()):
        strides = [1]
        for size in reversed(shape[1:]):
            strides.insert(0, strides[0] * size)
        numbers = [0, *shape, *strides[: len(shape)]]
        types += ["void *", "void *", *["int64_t"] * len(numbers)]
        values += [f"a{at}", f"a{at}", *map(str, numbers)]
    pointers = ["void *"] * len(shapes)
    named = ", ".join(f"void *a{at}" for at in range(len(shapes)))
    return (
        shim("whet_call", pointers)
        + f"extern void {function}({', '.join(types)});\n"
        + f"void whet_call({named})\n{{ {function}({', '.join(values)}); }}\n"
    )
