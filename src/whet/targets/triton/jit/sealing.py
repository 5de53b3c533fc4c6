"""`whet.serving.sealed`: from here on nothing may be compiled."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from whet.core.errors import UnforeseenCompileError, UsageError
from whet.engine.log import say_once
from whet.targets.triton.compiler.capture import CompileCall, Observer, ignore, observe
from whet.targets.triton.jit.preloading import (
    known_specializations,
    make_waiting_ready,
    was_foreseen,
    why_uncovered,
)
from whet.targets.triton.jit.recording import Origin, caller_of, record_choices
from whet.targets.triton.jit.specialization import Specialization, specialization_of
from whet.targets.triton.jit.variants import nearest

Action = Literal["warn", "error"]


class _Earlier(Observer):
    """What this process has compiled or loaded before, to compare with. Its memory is small beside
    that of the kernels themselves."""

    def __init__(self) -> None:
        self.known: dict[str, list[Specialization]] = {}
        self._lock = threading.Lock()

    def after(self, call: CompileCall, kernel: Any, seconds: float) -> None:
        found = specialization_of(call)
        with self._lock:
            self.known.setdefault(found.kernel, []).append(found)


_earlier = _Earlier()


def remember() -> None:
    """From now on what is met is known to a later seal."""
    observe(_earlier)


class Seal(Observer):
    """In force from when it was made until `open()` or the end of a `with` block. `unforeseen` has
    the message of each compile that was met."""

    def __init__(self, action: Action, exempt: Sequence[str]) -> None:
        self.action = action
        self.exempt = tuple(exempt)
        self.unforeseen: list[str] = []
        self._reported: set[str] = set()
        self._lock = threading.Lock()
        self._origin = Origin()

    def open(self) -> None:
        ignore(self)

    def before(self, call: CompileCall) -> None:
        if self._is_exempt() or was_foreseen(call):
            return
        one = specialization_of(call)
        self._report(one.id, lambda: _message(one))

    def before_library(self, name: str) -> None:
        text = (
            f"the C compiler is started for Triton's {name}; record on this platform and Python, "
            "and pack with 'whet pack --jit'"
        )
        if not self._is_exempt():
            self._report(f"C {name}", lambda: text)

    def other_compile(self, source: Any) -> None:
        text = (
            f"kernel {source.name} was compiled while serving, without triton.jit, as "
            "torch.compile does; it cannot be preloaded"
        )
        if not self._is_exempt():
            self._report(f"compiled {source.name}", lambda: text)

    def _is_exempt(self) -> bool:
        name = threading.current_thread().name
        if self._origin.is_behind_a_worker:
            return True
        return any(fnmatchcase(name, pattern) for pattern in self.exempt)

    def _report(self, identity: str, message: Callable[[], str]) -> None:
        with self._lock:
            first = identity not in self._reported
            self._reported.add(identity)
        if not first and self.action == "warn":
            return
        caller, tuning = caller_of(5)
        lines = [message()]
        lines += [f"called at {caller}"] if caller else []
        lines += ["it was to be measured: set WHET_MODE=cached"] if tuning else []
        text = "\n  ".join(lines)
        if first:
            self.unforeseen.append(text)
        if self.action == "error":
            raise UnforeseenCompileError(text)
        say_once(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()


def sealed(*, exempt: Sequence[str] = (), action: Action | None = None) -> Seal:
    """Says that everything is warm: from now on a kernel that has to be compiled, or loaded and was
    not preloaded, is reported once, or raises `whet.errors.UnforeseenCompileError`.

    `action` is "warn" or "error"; without it WHET_JIT decides, and else it is "warn". Threads whose
    names match a pattern in `exempt`, such as "warmup-*", may compile. Kernels that were waiting
    for their modules are made ready first. Returns a `Seal`, which `open()` or the end of a `with`
    block lifts.
    """
    wanted = action or os.environ.get("WHET_JIT", "")
    if wanted not in ("warn", "error"):
        if action is not None:
            raise UsageError(f"action={action!r} is not valid; use 'warn' or 'error'")
        wanted = "warn"
    make_waiting_ready()
    record_choices()
    seal = Seal("error" if wanted == "error" else "warn", exempt)
    observe(seal)
    return seal


def _message(one: Specialization) -> str:
    known = [*known_specializations(one.kernel), *_earlier.known.get(one.kernel, ())]
    found = nearest(one, known)
    what = f"kernel {one.kernel} is compiled while serving"
    if found is None:
        return f"{what}: it was never met before; record it with WHET_JIT=record"
    known_as, why = found
    if not why:
        reason = why_uncovered(known_as) or "it was loaded for another device, or made anew"
        return f"{what}: {reason}"
    lines = [f"{what}:", *map(str, why)]
    typed = [shlex.quote(d.line) for d in why if d.line]
    if typed:
        like = f" --like {known_as.id}" if len({other.id for other in known}) > 1 else ""
        lines.append(f"to add it: whet jit {shlex.quote(one.kernel)} --add {' '.join(typed)}{like}")
    return "\n  ".join(lines)
