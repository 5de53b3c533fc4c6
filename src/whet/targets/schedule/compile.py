"""Applies a script to a payload and compiles what comes out. Runs in a pool worker."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from whet.builds import Built
from whet.core.config import Config
from whet.core.errors import ConfigFailure, UsageError
from whet.core.frozen import FrozenMap
from whet.core.intermediate import FACT, keep_stages
from whet.core.status import Status
from whet.targets.native.compile import link_shared, run_compiler, shim
from whet.targets.schedule.bindings import Bindings, bindings, located
from whet.targets.schedule.exponential import expand_exponentials
from whet.targets.schedule.insight import insight
from whet.targets.schedule.legality import guard, reason
from whet.targets.schedule.limits import excess
from whet.targets.schedule.parameter_file import SetRule
from whet.targets.schedule.passes import lowering
from whet.targets.schedule.script import (
    apply_rules,
    bind,
    entry,
    operations,
    parsed,
    place_in,
    prefix,
)
from whet.workers.stages import stage

_RUNTIME = Path(__file__).parent / "runtime.c"


@dataclass(frozen=True)
class ScheduleSource:
    """Everything a worker needs to build any config. `label` is the script's file."""

    payload: str
    script: str
    label: str
    shim: str
    compiler: str
    threads: int = 1
    rules: tuple[SetRule, ...] = ()


def compile_schedule(source: ScheduleSource, config: Config, keep: Path | None = None) -> Built:
    """A shared object of the scheduled payload. The machine code is made here rather than where it
    runs, so that a schedule that compiles for minutes is stopped like any other build. The program
    before and after the script goes to `keep`."""
    mlir, stages = bindings(), {}
    with mlir.context(), mlir.ir.Location.unknown():
        with stage("schedule"):
            payload = scheduled(mlir, source, config, Path())
            if why := excess(mlir, payload):
                place = _where_exceeded(mlir, source, config)
                raise ConfigFailure(Status.BUILD_ERROR, f"{place}: {why}")
        if keep is not None:
            stages = {
                "insight": insight(mlir, payload),
                "script": source.script,
                "payload": source.payload,
                "scheduled": str(payload),
            }
        with stage("lower"):
            _lower(mlir, payload, source.threads)
        with stage("compile"):
            _write_runtime(source)
            _compile(mlir, payload)
    undefined = ["-Wl,-z,defs"] if sys.platform == "linux" else []  # an error elsewhere anyway
    built = link_shared(source.compiler, source.shim, ["runtime.o", *undefined, "-pthread", "-lm"])
    if keep is None or not _kept(keep, config.id, stages):
        return built
    name = code_name(config.id, stages)
    return replace(built, facts=FrozenMap({**built.facts, FACT: name}))


def _kept(folder: Path, config_id: str, stages: Mapping[str, str]) -> bool:
    """A config is worth measuring whether or not its program can be kept."""
    try:
        keep_stages(folder, code_name(config_id, stages), stages)
    except OSError:
        return False
    return True


def code_name(config_id: str, stages: Mapping[str, str]) -> str:
    return hashlib.sha256("\0".join((config_id, *stages.values())).encode()).hexdigest()[:32]


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
        apply_rules(mlir, script, source.rules, source.label)
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


def _where_exceeded(mlir: Bindings, source: ScheduleSource, config: Config) -> str:
    """The step that makes it too large."""
    script = parsed(mlir, source.script, source.label)
    steps = list(entry(script, source.label).body.operations)[:-1]
    for number, step in enumerate(steps, start=1):
        if excess(mlir, scheduled(mlir, source, config, Path(), prefix(number))):
            return place_in(step, source.label)
    return source.label


def _payload(mlir: Bindings, text: str, folder: Path) -> Any:
    """From a file, so that MLIR's messages tell its places from those of the script."""
    path = folder / "payload.mlir"
    path.write_text(text)
    try:
        return mlir.ir.Module.parseFile(str(path))
    except mlir.ir.MLIRError as error:
        raise ConfigFailure(Status.BUILD_ERROR, f"the payload is not valid: {error}") from None


def _lower(mlir: Bindings, payload: Any, threads: int) -> None:
    if any(one.name.startswith("gpu.") for one in operations(mlir, payload)):
        raise ConfigFailure(
            Status.BUILD_ERROR,
            "the schedule maps loops to a GPU, which can be shown (whet schedule show) but not run",
        )
    try:
        expand_exponentials(mlir, payload)
        pipeline = f"builtin.module({','.join(lowering(threads))})"
        mlir.pass_manager.parse(pipeline).run(payload.operation)
    except mlir.ir.MLIRError as error:
        said = str(error).partition("error: ")[2] or str(error)
        raise ConfigFailure(Status.BUILD_ERROR, f"cannot be lowered: {said}") from None


def _compile(mlir: Bindings, payload: Any) -> None:
    """Into `kernel.o`. What LLVM has no word for is found here, and named on stderr only."""
    libraries = [str(Path("runtime.so").absolute())]
    try:
        engine = mlir.execution_engine(payload, opt_level=3, shared_libs=libraries, enable_pic=True)
    except RuntimeError as error:
        left = _left_over(mlir, payload)
        raise ConfigFailure(Status.BUILD_ERROR, f"cannot be compiled: {left or error}") from None
    engine.dump_to_object_file("kernel.o")


def _left_over(mlir: Bindings, payload: Any) -> str:
    """The first operation of a dialect that is not LLVM's."""
    for operation in operations(mlir, payload):
        if operation.name.partition(".")[0] not in ("builtin", "llvm", "omp"):
            said = f"{operation.name} at {operation.location} was not lowered"
            if operation.name not in ("linalg.pack", "linalg.unpack"):
                return said
            return f"{said}; the script must, with transform.structured.lower_{operation.name[7:]}"
    return ""


def _write_runtime(source: ScheduleSource) -> None:
    """As an object to link, and as a library in which MLIR finds that nothing is missing."""
    for name, binary in _runtime(source.compiler, source.threads).items():
        Path(name).write_bytes(binary)


@cache
def _runtime(compiler: str, threads: int) -> dict[str, bytes]:
    """The same for every config, so each worker compiles it once."""
    flags = ["-O2", "-fPIC", "-pthread", f"-DWHET_THREADS={threads}"]
    run_compiler([compiler, *flags, "-c", str(_RUNTIME), "-o", "runtime.o"])
    run_compiler([compiler, *flags, "-shared", "runtime.o", "-o", "runtime.so"])
    return {name: Path(name).read_bytes() for name in ("runtime.o", "runtime.so")}


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
