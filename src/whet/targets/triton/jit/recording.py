"""`WHET_JIT=record`: writes down every specialization that a program meets, with its binary."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.util import Finalize
from typing import Any

from whet.engine.log import say_once
from whet.targets.triton.compiler.capture import CompileCall, Observer, observe
from whet.targets.triton.jit.records import Records, keep_drivers_library
from whet.targets.triton.jit.specialization import (
    JitArgument,
    Met,
    Specialization,
    encoded,
    kernel_name,
    specialization_of,
)
from whet.targets.triton.packed.architectures import resources
from whet.targets.triton.packed.portable import NotPortableError, pack, portable_key
from whet.workers.reaper import MARKER

_OURS = ("whet", "triton")
_MEASURING = ("whet.measure.", "whet.engine.", "whet.targets.triton.foreign")
_BENCHMARKS = frozenset({"_bench", "benchmark", "do_bench"})
_MOST_FRAMES = 200


def caller_of(depth: int = 2) -> tuple[str, bool]:
    """`file.py:12 in function` of the first frame that is neither Triton's nor ours, and whether
    the call was made to measure a config."""
    frame: Any = sys._getframe(depth)
    found, measuring = "", False
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        module = str(frame.f_globals.get("__name__", ""))
        code = frame.f_code
        if module.partition(".")[0] not in _OURS:
            found = found or f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        elif module.startswith(_MEASURING):
            measuring = True
        elif module in ("triton.runtime.autotuner", "triton.testing"):
            measuring = measuring or code.co_name in _BENCHMARKS
        frame = frame.f_back
    return found, measuring


class Origin:
    """The process in which it was made, to be compared with the one that asks."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._worker = os.environ.get(MARKER)

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._process

    @property
    def is_behind_a_worker(self) -> bool:
        """A fork of whet's works for the process in which this was made; any other fork, such as a
        server's engine or one of its workers, works for itself."""
        return not self.is_here and os.environ.get(MARKER) != self._worker


class JitRecorder(Observer):
    """Written down as they are met, so that a program that is killed loses none. What a tuner
    compiled to measure it is marked as such, until the end shows that it was chosen."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self._begun = False
        self._start_here()

    def _start_here(self) -> None:
        """In the process that records: the one it was made in, or a fork of that."""
        self._origin = Origin()
        self._lock = threading.Lock()
        self._measured: list[tuple[Any, Specialization]] = []
        # The processes of multiprocessing end without atexit.
        Finalize(None, self.finish, exitpriority=0)

    def _is_ours(self) -> bool:
        if self._origin.is_behind_a_worker:
            return False  # its parent hears of what it compiles
        if not self._origin.is_here:
            self._start_here()
        return True

    def after(self, call: CompileCall, kernel: Any, seconds: float) -> None:
        """Never raises: a call must not fail because it could not be written down."""
        if not self._is_ours():
            return
        caller, tuning = caller_of(4)
        with _failure_said("specializations will not be recorded"):
            met = Met(time.time(), caller, tuning, seconds)
            one = self._with_binary(call, kernel, specialization_of(call, met))
            with self._lock:
                if not self._begun:
                    self._begun = True
                    keep_drivers_library(self.records)
                if tuning:
                    self._measured.append((call.jit, one))
                self.records.add([one])
            future = _promised(kernel)
            if future is not None:
                future.add_done_callback(lambda future: self._compiled(call, future, one))

    def _compiled(self, call: CompileCall, future: Any, one: Specialization) -> None:
        """By a thread of Triton's AsyncCompileMode; the call has gone on long ago."""
        with _failure_said("specializations will not be recorded"):
            if future.cancelled() or future.exception() is not None:
                found = replace(one, why="it could not be compiled")
            else:
                found = self._with_binary(call, future.result(), replace(one, why=""))
            with self._lock:
                self.records.add([found])

    def other_compile(self, source: Any) -> None:
        """Kept so that it can be named: nothing packs or preloads it."""
        if not hasattr(source, "fn") or not self._is_ours():
            return
        caller, tuning = caller_of(4)
        with _failure_said("specializations will not be recorded"):
            one = _described(source, Met(time.time(), caller, tuning))
            with self._lock:
                self.records.add([one])

    def _with_binary(self, call: CompileCall, kernel: Any, one: Specialization) -> Specialization:
        if _promised(kernel) is not None:
            return replace(one, why="its compilation was not finished when the program ended")
        if kernel is None:
            return replace(one, why="a hook of Triton's kept it from being compiled")
        if one.opaque:
            return replace(one, why=f"{one.opaque} has a value that cannot be written down")
        try:
            request = call.request()
            key = portable_key(request)
            if key not in self.records.binaries:
                self.records.binaries.put(pack(kernel, request, resources(kernel, None), key))
            return replace(one, binary=key)
        except NotPortableError as error:
            return replace(one, why=str(error))

    def finish(self) -> None:
        """What was compiled to be measured and was then chosen is one that the program uses."""
        if not self._origin.is_here:
            return
        with _failure_said("chosen configs were not recorded"), self._lock:
            chosen = _chosen_configs() if self._measured else {}
            left, used = [], []
            for jit, one in self._measured:
                if _is_chosen(one, chosen.get(id(jit), [])):
                    used.append(replace(one, met=replace(one.met, tuning=False)))
                else:
                    left.append((jit, one))
            self._measured = left
            self.records.add(used)


@contextmanager
def _failure_said(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        say_once(f"{what}: {type(error).__name__}: {error}")


def _promised(kernel: Any) -> Any:
    """The future of what Triton's AsyncCompileMode has given out and not compiled yet."""
    return kernel.future if hasattr(kernel, "result") else None


def _described(source: Any, met: Met) -> Specialization:
    """Of a kernel that somebody compiled without a call."""
    import triton
    from triton.runtime.driver import driver

    target = driver.active.get_current_target()
    return Specialization(
        kernel=kernel_name(source.fn),
        arguments=tuple(
            JitArgument(str(name), encoded(kind), None) for name, kind in source.signature.items()
        ),
        options=(),
        target=(target.backend, target.arch, target.warp_size),
        triton=triton.__version__,
        why="it was compiled without triton.jit, as torch.compile does",
        met=met,
    )


def _chosen_configs() -> dict[int, list[Any]]:
    """The configs that live autotuners have chosen, by their `JITFunction`."""
    from whet.targets.triton.adoption import live
    from whet.targets.triton.compiler.capture import jit_function

    found: dict[int, list[Any]] = {}
    for tuner in live():
        configs = [*getattr(tuner, "cache", {}).values(), getattr(tuner, "best_config", None)]
        try:
            found.setdefault(id(jit_function(tuner)), []).extend(c for c in configs if c)
        except AttributeError:  # a tuner around something that is no kernel
            continue
    return found


def _is_chosen(one: Specialization, configs: list[Any]) -> bool:
    values = {argument.name: argument.special for argument in one.arguments}
    values |= dict(one.options)
    return any(
        all(values.get(name, value) == value for name, value in config.all_kwargs().items())
        for config in configs
    )


_recorder: JitRecorder | None = None


def record_choices() -> None:
    """What tuners have chosen until now, for a program that may be killed later."""
    if _recorder is not None:
        _recorder.finish()


def start_recording(records: Records) -> JitRecorder:
    global _recorder
    if _recorder is None:
        _recorder = JitRecorder(records)
        observe(_recorder)
        atexit.register(_recorder.finish)
    return _recorder
