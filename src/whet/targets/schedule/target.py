"""`whet.schedule`: an MLIR program whose schedule is tuned."""

from __future__ import annotations

import difflib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from whet.builds.job import Job
from whet.core.config import Config
from whet.core.errors import ConfigFailure, UsageError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.mode import Mode, checked_mode
from whet.core.space import Space
from whet.core.workload import Origin, Workload
from whet.measure.timers import CpuTimer, MakeTimer, timer_maker
from whet.targets.base import asked, host_device
from whet.targets.fingerprint import digest
from whet.targets.key import key_of
from whet.targets.native.target import SharedObjectTarget
from whet.targets.schedule.analysis import dependences_of, rounding_of
from whet.targets.schedule.bindings import bindings
from whet.targets.schedule.compile import ScheduleSource, compile_schedule, schedule_shim, scheduled
from whet.targets.schedule.from_torch import torch_payload
from whet.targets.schedule.frontend import ScheduleBuilder
from whet.targets.schedule.payloads import Payload
from whet.targets.schedule.script import (
    ParameterFile,
    ScheduleScript,
    entry,
    parsed,
    place_in,
    prefix,
    read_parameters,
    read_script,
)
from whet.targets.schedule.sketches import sketch
from whet.workers.process import available_cores

_LIBRARY = Path(__file__).parent / "library"
_MOST_THREADS = 1024


@dataclass(frozen=True)
class ScheduleTarget(SharedObjectTarget):
    """Scheduled and compiled in pool workers, loaded and run in a process of its own."""

    name: str
    payload: Payload
    script: ScheduleScript
    space: Space
    args: Mapping[str, Any]
    given_key: Mapping[str, Any] | None
    compiler: str
    given_rtol: float | None
    given_atol: float | None
    mode: Mode | None = None
    threads: int = 1
    keep: Path | None = None
    file: str = ""
    place: str = ""
    make_timer: MakeTimer = CpuTimer

    @cached_property
    def expected(self) -> dict[str, Any] | None:
        if self.payload.reference is None:
            return None
        copies = {name: array.copy() for name, array in self.args.items()}
        answer = asked(f"reference= of {self.name}", partial(self.payload.reference, **copies))
        return self.payload.answered(answer)

    @cached_property
    def rtol(self) -> float:
        return max(1e-4, self._rounding) if self.given_rtol is None else self.given_rtol

    @cached_property
    def atol(self) -> float:
        """Relative to the size of the results, since what is small may be the sum of what is not;
        of several results the one with the smallest numbers decides."""
        if self.given_atol is not None or self.expected is None:
            return self.given_atol or 0.0
        real = [one for one in self.expected.values() if one.dtype.kind not in "ib"]
        sizes = [float(np.sqrt(np.nanmean(np.square(one, dtype=np.float64)))) for one in real]
        return max(1e-5, self._rounding) * min((one for one in sizes if one > 0), default=1.0)

    @cached_property
    def _rounding(self) -> float:
        return rounding_of(self.payload.text)

    def workload(self) -> Workload:
        version, mlir = self.compiler_version(), bindings()
        code = digest(self.payload.pattern or self.payload.text, self.script.canonical)
        return Workload(
            kernel=self.name,
            fingerprint=code,
            device=host_device(),
            key=self._key(),
            toolchain=FrozenMap({mlir.provider.distribution: mlir.version, self.compiler: version}),
            origin=Origin(code),
        )

    def _key(self) -> FrozenMap[Any]:
        problem = {n: one for n, one in self.args.items() if n not in self.payload.weights}
        key = key_of(self.given_key, problem)
        return key if self.threads == 1 else FrozenMap({**key, "threads": self.threads})

    def job(self, config: Config) -> Job | None:
        return Job(compile_schedule, (self.source, config, self.keep))

    def keeping(self, folder: Path) -> ScheduleTarget:
        return replace(self, keep=folder)

    def steps(self, config: Config | None = None) -> tuple[ScheduleStep, ...]:
        """The IR before the first and after each step of the script, for a config of the space;
        for the first one if there is none. Applied in this process."""
        chosen = self.space.first if config is None else config
        if chosen is None:
            raise UsageError(f"no config of '{self.name}' meets the constraints")
        if why := self.space.explain(chosen):
            raise UsageError(f"[{chosen}] is not in the space: {why}")
        return steps_of(self.source, chosen)

    @cached_property
    def source(self) -> ScheduleSource:
        return ScheduleSource(
            payload=self.payload.text,
            script=self.script.text,
            label=self.script.label,
            shim=schedule_shim(self.payload.symbol or self.payload.name, self.payload.shapes),
            compiler=self.compiler,
            threads=self.threads,
            rules=self.script.rules,
        )


def schedule(
    payload: Payload | Callable[..., Any],
    given: Any = None,
    /,
    *,
    script: str | Path | ScheduleBuilder | None = None,
    args: Mapping[str, Any] | None = None,
    constraints: Sequence[Any] = (),
    name: str | None = None,
    key: Mapping[str, Any] | None = None,
    threads: int | None = 1,
    compiler: str = "cc",
    rtol: float | None = None,
    atol: float | None = None,
    mode: Mode | None = None,
    timer: str | MakeTimer = CpuTimer,
) -> ScheduleTarget:
    """Makes the schedule of an MLIR program tunable.

    `payload` is from `whet.targets.schedule.payloads`: `matmul(512, 512, 512)`, and `given` a
    script; or it is a torch module or function, and `given` are its example inputs, one tensor or a
    tuple of them. Such a program computes with arrays like these, its weights are arguments, and
    torch is the reference. `script` is a transform-dialect file, relative to the calling file, its
    text, or a `ScheduleBuilder`; every open `transform.tune.knob` and `transform.tune.alternatives`
    in it becomes a parameter. A script that is fixed has its parameters in a `.toml` of the same
    name. Without a script, the payload's own starting script is used, or one is derived from its
    loops and indexing maps. `args` are the arrays by name, random ones if there are none. The
    result is compared with the payload's reference, within `rtol` and `atol`; without them, within
    what the program's types and the lengths of its sums explain. Parallel loops of the script run
    on `threads` threads; None means all cores.
    `constraints`, `key`, `mode` and `timer` are those of `whet.native`; `compiler` is the C
    compiler that links.
    """
    file = sys._getframe(1).f_code.co_filename
    caller = Path(file).parent
    if isinstance(payload, Payload):
        script = given if script is None else script
    else:
        payload = torch_payload(payload, given)
    threads = _threads(threads)
    if threads > 1:
        _check_parallel(payload)
    read = read_script(*_text(payload, script, caller), _beside(script, caller))
    return ScheduleTarget(
        name=name or payload.name,
        payload=payload,
        script=read,
        space=read.space(constraints, payload.sizes),
        args=payload.arguments() if args is None else _checked(payload, args),
        given_key=key,
        threads=threads,
        compiler=compiler,
        given_rtol=rtol,
        given_atol=atol,
        mode=None if mode is None else checked_mode(mode),
        file=file,
        make_timer=timer_maker(timer),
    )


def _threads(given: int | None) -> int:
    if given is None:
        return available_cores()
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= _MOST_THREADS:
        raise UsageError(f"threads={given!r}; give a number from 1 to {_MOST_THREADS}, or None")
    return given


def _check_parallel(payload: Payload) -> None:
    found = dependences_of(payload.text)
    if found and not any(one.parallel for one in found):
        added = ", ".join(dict.fromkeys(one.label for one in found if one.loops))
        raise UsageError(
            f"'{payload.name}' cannot be shared among threads: every loop of {added or 'it'} adds "
            "to the same elements; leave threads= out"
        )


def _text(
    payload: Payload, script: str | Path | ScheduleBuilder | None, caller: Path
) -> tuple[str, str]:
    """The script, and what messages call it."""
    if isinstance(script, ScheduleBuilder):
        return script.text, "script"
    if isinstance(script, str) and "\n" in script:
        return script, "script"
    if script is None:
        path = _LIBRARY / f"{payload.name}.mlir"
        # Only the builder's payloads are what their names say.
        if not payload.pattern or not path.is_file():
            return sketch(payload), "sketch"
    else:
        path = caller / script
    if not path.is_file():
        near = [p.name for p in path.parent.glob("*.mlir")] if path.parent.is_dir() else []
        raise UsageError(f"no such script: {path}{did_you_mean(path.name, near)}")
    return path.read_text(), path.name


def _beside(script: str | Path | ScheduleBuilder | None, caller: Path) -> ParameterFile | None:
    """`schedule.toml` beside `schedule.mlir`, where there is one."""
    if isinstance(script, ScheduleBuilder) or script is None or "\n" in str(script):
        return None
    path = (caller / script).with_suffix(".toml")
    return read_parameters(path.read_text(), path.name) if path.is_file() else None


def _checked(payload: Payload, args: Mapping[str, Any]) -> dict[str, Any]:
    for name in args:
        if name not in payload.shapes:
            raise UsageError(
                f"'{name}' is not an array of {payload.name}{did_you_mean(name, payload.shapes)}"
            )
    for name, shape in payload.shapes.items():
        array = args.get(name)
        if (
            not isinstance(array, np.ndarray)
            or array.shape != shape
            or array.dtype != payload.dtype(name)
            or not array.flags.c_contiguous
        ):
            size = "x".join(map(str, shape))
            kind = payload.dtype(name)
            raise UsageError(f"'{name}' must be a contiguous {kind} array of {size}")
    return {name: args[name] for name in payload.shapes}


@dataclass(frozen=True)
class ScheduleStep:
    """Step 0 is the payload as it was given. `problem` says why a step could not be applied; there
    are none after it, and its `ir` is that of the step before."""

    number: int
    place: str
    operation: str
    ir: str
    problem: str = ""


def steps_of(source: ScheduleSource, config: Config) -> tuple[ScheduleStep, ...]:
    """Every operation of the sequence is a step; alternatives are one, whichever is taken."""
    found: list[ScheduleStep] = []
    for number, (place, operation) in enumerate(_listed(source)):
        try:
            found.append(ScheduleStep(number, place, operation, _replayed(source, config, number)))
        except ConfigFailure as failure:
            before = found[-1].ir if found else source.payload
            found.append(ScheduleStep(number, place, operation, before, failure.message))
            break
    return tuple(found)


def diff_of(before: ScheduleStep, after: ScheduleStep) -> list[str]:
    """Lines as `diff -u` has them; none where nothing has changed."""
    names = (f"step {before.number}", f"step {after.number}")
    lines = difflib.unified_diff(before.ir.splitlines(), after.ir.splitlines(), *names, lineterm="")
    return list(lines)


def step_at(steps: Sequence[ScheduleStep], number: int) -> ScheduleStep:
    if not 0 <= number < len(steps):
        raise UsageError(f"there is no step {number}; the script has steps 0 to {len(steps) - 1}")
    return steps[number]


def _listed(source: ScheduleSource) -> list[tuple[str, str]]:
    mlir = bindings()
    with mlir.context(), mlir.ir.Location.unknown():
        module = parsed(mlir, source.script, source.label)  # its operations do not keep it alive
        operations = list(entry(module, source.label).body.operations)[:-1]
        return [
            ("payload", ""),
            *((place_in(one, source.label), one.operation.name) for one in operations),
        ]


def _replayed(source: ScheduleSource, config: Config, number: int) -> str:
    mlir = bindings()
    with (
        tempfile.TemporaryDirectory() as folder,
        mlir.context(),
        mlir.ir.Location.unknown(),
    ):
        return str(scheduled(mlir, source, config, Path(folder), prefix(number)))
