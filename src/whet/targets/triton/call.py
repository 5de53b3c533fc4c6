"""One call of a kernel that is to be tuned: its arguments, its hooks, and what must be put back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whet.core.config import Value
from whet.core.errors import ConfigFailure
from whet.core.lazy import cached_property
from whet.core.status import Status
from whet.targets.triton import device
from whet.targets.triton.compiler.capture import compile_request
from whet.targets.triton.keys import needed_keywords

# The rest is imported where it is used: a call that is stored is neither built nor measured.
if TYPE_CHECKING:
    from whet.measure.bench.protocol import DeviceRoom, Verdict
    from whet.targets.triton.checks import BitsExamination, Check, OutputGate
    from whet.targets.triton.request import DeviceLimits, Request

_REFUSAL = re.compile(r"out of resource: (.+?), Required: (\d+), Hardware limit: (\d+)")


class Call:
    """`tuner` is the decorated kernel; `keywords` include Triton's own `grid` and `warmup`."""

    def __init__(
        self,
        tuner: Any,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
        check: Check | None = None,
    ) -> None:
        self.tuner = tuner
        self.notes: list[str] = []
        self.gate: OutputGate | None = None
        self.bits: BitsExamination | None = None
        if check is not None:
            self._examine_by(check)
        self.bind(args, keywords)

    @cached_property
    def room(self) -> DeviceRoom:
        from whet.measure.bench.protocol import DeviceRoom

        return DeviceRoom()

    def _examine_by(self, check: Check) -> None:
        from whet.measure.bench.bits import BIT_CHECKS
        from whet.targets.triton.checks import BitsExamination, OutputGate

        if check in BIT_CHECKS:
            self.bits = BitsExamination(self.room)
        else:
            self.gate = OutputGate(check, self.room, self.notes)

    def bind(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        self.args = args
        self.keywords = {**keywords, "warmup": False}
        self.named = {**dict(zip(self.tuner.arg_names, args, strict=False)), **keywords}
        self._saved: dict[str, Any] | None = None
        self._declared: dict[str, Any] = {}

    def current(self, config: Any) -> dict[str, Any]:
        return {**self.keywords, **needed_keywords(config, self._defaults)}

    @cached_property
    def _defaults(self) -> Any:
        return device.default_options()

    def full(self, config: Any) -> dict[str, Any]:
        """What hooks get: every argument by name."""
        nargs = dict(zip(self.tuner.arg_names, self.args, strict=False))
        keywords = {k: v for k, v in self.keywords.items() if k not in ("grid", "warmup")}
        return {**nargs, **keywords, **config.all_kwargs()}

    def request(self, config: Any, limits: DeviceLimits) -> Request | None:
        return compile_request(self.tuner.fn, self.args, self.current(config), limits)

    @property
    def checks(self) -> bool:
        """Whether configs are looked at before they are timed."""
        return self.gate is not None or self.bits is not None

    @property
    def has_hooks(self) -> bool:
        tuner = self.tuner
        put_there = not (_is_tritons(tuner.pre_hook) and _is_tritons(tuner.post_hook))
        return bool(put_there or tuner.reset_to_zero or tuner.restore_value)

    def enter(self, config: Any) -> None:
        full = self.full(config)
        if config.pre_hook is not None:
            config.pre_hook(full)
        if not _is_tritons(self.tuner.pre_hook) or not self.tuner.restore_value:
            self.tuner.pre_hook(full)
        else:
            self.tuner.pre_hook(full, reset_only=True)
            self._save_declared(full)

    def _save_declared(self, full: Mapping[str, Any]) -> None:
        """Where Triton's own hook would look for them, but in memory that is taken once: it clones
        before every launch, and an allocation may wait for the device."""
        for name in self.tuner.restore_value:
            tensor = full[name]
            if name in self._declared:
                self._declared[name].copy_(tensor)
            elif tensor is not None:
                self._declared[name] = self._copied(tensor)
        self.tuner.restore_copies = dict(self._declared)

    def _copied(self, tensor: Any) -> Any:
        from whet.measure.bench.protocol import NoRoom

        try:
            return self.room.copy_of(tensor)
        except NoRoom:
            return tensor.clone()  # the author asked for it, so it is no matter of whet's limit

    def leave(self, config: Any, exception: Exception | None) -> None:
        self.tuner.post_hook(self.full(config), exception=exception)

    def refused(self, config: Any, text: str) -> None:
        """What the hooks see of a config that was refused before it could be launched."""
        error = out_of_resources(text)
        if error is not None:
            self.enter(config)
            self.leave(config, error)

    def protect(self, kernel: Any) -> None:
        """Saves, once, the tensors that the kernel updates and the author did not declare."""
        if self._saved is not None:
            return
        self._saved = {}
        declared = {*self.tuner.reset_to_zero, *self.tuner.restore_value}
        found = touched(kernel)
        for name in (*found.updated, *self.also_read(found)):
            tensor: Any = self.named.get(name)
            if name in declared or not hasattr(tensor, "clone"):
                continue
            try:
                self._saved[name] = self.room.copy_of(tensor)
            except Exception as error:  # torch's out-of-memory error has had many names
                self.notes.append(
                    f"not enough memory to save '{name}' ({type(error).__name__}), which the "
                    "kernel updates, so tuning will leave it changed; declare it in restore_value"
                )

    def also_read(self, found: Touched) -> list[str]:
        """What is only written under its own name, and read under another: `add(x, y, out=x)`."""
        starts = {name: _address(self.named.get(name)) for name in (*found.written, *found.read)}
        read = {starts[name] for name in found.read} - {None}
        return [n for n in found.written if n not in found.updated and starts[n] in read]

    def let_go(self) -> None:
        """Drops all copies; the next config to be loaded saves anew."""
        self._saved = None
        self._declared = {}
        if self.gate is not None:
            self.gate.let_go()
        if self.bits is not None:
            self.bits.let_go()

    def restore(self) -> None:
        for name, copy in (self._saved or {}).items():
            self.named[name].copy_(copy)


def _is_tritons(hook: Any) -> bool:
    """Whether Triton's constructor made it; authors give theirs, and subclasses put them there."""
    return getattr(hook, "__module__", None) == "triton.runtime.autotuner"


def out_of_resources(text: str) -> Exception | None:
    """Triton's own exception, from its own words."""
    from triton.runtime.errors import OutOfResources

    found = _REFUSAL.search(text)
    if found is None:
        return None
    error: Exception = OutOfResources(int(found[2]), int(found[3]), found[1])
    return error


@dataclass(frozen=True)
class Touched:
    """Names of pointer arguments: those one launch updates, writes at all, and reads."""

    updated: tuple[str, ...]
    written: tuple[str, ...]
    read: tuple[str, ...] = ()


def _address(tensor: Any) -> int | None:
    """Where a tensor's storage begins, so that views of one another are found too."""
    storage = getattr(tensor, "untyped_storage", None)
    if callable(storage):
        return int(storage().data_ptr())
    pointer = getattr(tensor, "data_ptr", None)
    return int(pointer()) if callable(pointer) else None


def touched(kernel: Any) -> Touched:
    from whet.targets.triton.compiler.effects import effects  # what is stored is not looked into

    ttir = kernel.asm.get("ttir")
    signature: Mapping[str, Any] = getattr(kernel.src, "signature", {})
    # What is specialised to a constant has no place among the compiled function's parameters.
    names = tuple(name for name, kind in signature.items() if kind != "constexpr")
    # A tuple or a descriptor has several places there, and ours can no longer be told apart.
    plain = all(isinstance(signature[name], str) for name in names)
    if ttir is None or not plain or any("tensordesc" in signature[name] for name in names):
        return Touched(names, names)
    found = effects(ttir)
    if found.unknown:
        return Touched(names, names)

    def named(places: frozenset[int]) -> tuple[str, ...]:
        return tuple(names[place] for place in sorted(places) if place < len(names))

    return Touched(named(found.updated), named(found.writes | found.atomics), named(found.reads))


class LoadedTriton:
    """One config, compiled and loaded: what a bench runs."""

    def __init__(self, call: Call, config: Any) -> None:
        from triton.runtime.errors import OutOfResources

        self._call = call
        self.config = config
        self._run = call.tuner.fn.run
        self._current = call.current(config)
        self._hooked = call.has_hooks or config.pre_hook is not None
        # Only where there is something to run: a timer queues fewer launches at once around hooks.
        self.before = self._enter if self._hooked else None
        self.after = self._leave if self._hooked else None
        try:
            kernel = self._run(*call.args, **{**self._current, "warmup": True})
            kernel = kernel.result() if hasattr(kernel, "result") else kernel
            kernel._init_handles()
        except OutOfResources as error:
            raise ConfigFailure(Status.RESOURCES, str(error)) from None
        self.facts: Mapping[str, Value] = {
            "registers": kernel.n_regs,
            "spills": kernel.n_spills,
            "shared_bytes": kernel.metadata.shared,
        }
        call.protect(kernel)
        self._written = touched(kernel).written if call.gate is not None else ()
        self._kernel = kernel if call.bits is not None else None

    def _enter(self) -> None:
        self._call.enter(self.config)

    def _keywords(self) -> dict[str, Any]:
        return self._current

    def repeat(self, n: int) -> None:
        args, current, run = self._call.args, self._keywords(), self._run
        try:
            for _ in range(n):
                run(*args, **current)
        except Exception as error:
            if self._hooked:
                self._call.leave(self.config, error)
            raise

    def _leave(self) -> None:
        self._call.leave(self.config, None)

    def check(self) -> Verdict:
        from whet.measure.bench.protocol import Verdict

        """Runs once from the state the caller left, and compares what it wrote."""
        call = self._call
        if call.bits is not None:
            self._examine(call.bits)
            return Verdict(True, "")
        if call.gate is None:
            return Verdict(True, "")
        call.restore()
        call.gate.prepare(call.named)
        # Declared tensors are put back by the hooks, so they are looked at before these.
        if self._hooked:
            self._enter()
        self.repeat(1)
        verdict = call.gate.judge(call.named, self._written)
        if self._hooked:
            self._leave()
        call.restore()
        return verdict

    def _examine(self, bits: BitsExamination) -> None:
        """What it writes becomes part of its facts; who may win is decided elsewhere."""
        call, found = self._call, touched(self._kernel)

        def launch() -> None:
            if self._hooked:
                self._enter()
            self.repeat(1)

        def leave() -> None:
            if self._hooked:
                self._leave()

        call.restore()
        from whet.targets.triton.checks import Traits, Written

        traits = Traits.of(self._kernel.asm.get("ttir") if self._kernel else None)
        args = Written(call.named, found.written, (*found.read, *found.updated), _address)
        self.facts = {**self.facts, **bits.facts(args, traits, launch, leave)}
        call.restore()

    def close(self) -> None:
        pass
