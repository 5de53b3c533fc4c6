"""`whet.serving.preload`: kernels of a bundle, ready before the first call.

Each goes the way of a call that launches nothing: Triton binds the arguments, computes its own key,
finds the binary in its disk cache, where it was put a moment before, and keeps it in memory. Then
it is loaded onto the device. No stage of a compiler runs, and Triton's check of changed globals
works as ever.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from whet.core.errors import UsageError, WhetError
from whet.engine.log import say_once
from whet.store.bundles.bundle import open_bundle
from whet.targets.triton.compiler.capture import CompileCall, Observer, observe, ready_to_fork
from whet.targets.triton.jit.records import (
    is_library,
    place_library,
    specializations_in,
)
from whet.targets.triton.jit.specialization import (
    NotReproducibleError,
    Specialization,
    kernel_name,
    mock_call,
    specialization_of,
)
from whet.targets.triton.live import instances, with_subclasses
from whet.targets.triton.packed.binary_cache import BundleCache, PackedKernel
from whet.targets.triton.packed.portable import (
    NotPortableError,
    kernel_fingerprint,
    place,
    portable_key,
    related_key,
    tools_here,
    tools_text,
)
from whet.targets.triton.request import Request


class LiveKernels:
    """Every `JITFunction` that exists now. Only the garbage collector knows all of them: those of
    closures, and those that were made before anybody listened."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Any]] = {}
        self._by_function: dict[str, list[Any]] = {}
        for jit in _live():
            name = kernel_name(jit)
            self._by_name.setdefault(name, []).append(jit)
            self._by_function.setdefault(name.partition(":")[2], []).append(jit)

    def named(self, name: str) -> list[Any]:
        """Those of this module and function; where there are none, of any module: a script is
        `__main__` here and may be imported elsewhere. Whether it is the same kernel is decided by
        its source, not by its name."""
        return self._by_name.get(name) or self._by_function.get(name.partition(":")[2], [])

    def one(self, name: str) -> Any:
        """For a kernel that is a constant of another one."""
        found = self.named(name)
        if not found:
            raise NotReproducibleError(f"kernel {name} does not exist in this process")
        return found[-1]


def _live() -> list[Any]:
    from triton.runtime.jit import JITFunction

    return instances(set(with_subclasses(JITFunction)), "params")


_MOST_THREADS = 8
_MADE_BY_A_CALL = "<locals>"
_ANOTHER_SOURCE = "the kernel's source is not what was packed"
_local = threading.local()


@dataclass(frozen=True)
class Uncovered:
    """A specialization that the first call of its kernel will have to compile."""

    kernel: str
    id: str
    why: str


@dataclass(frozen=True)
class Preloaded:
    """`ready` are loaded on every device that was asked for; kernels in `waiting` do not exist yet,
    and their binaries are used when they do; those in `uncovered` are compiled when called."""

    ready: int
    waiting: tuple[str, ...]
    uncovered: tuple[Uncovered, ...]
    libraries: int
    devices: tuple[int, ...]
    seconds: float

    def __str__(self) -> str:
        parts = [f"{self.ready:,} specializations ready in {self.seconds:.2f} s"]
        if self.waiting:
            parts.append(f"waiting for {', '.join(self.waiting)}")
        parts += uncovered_lines((one.kernel, one.why) for one in self.uncovered)
        return "; ".join(parts)


def uncovered_lines(found: Iterable[tuple[str, str]]) -> list[str]:
    """One for each kernel and reason."""
    return [
        f"{kernel} is not covered: {why}" + (f" ({count:,} specializations)" if count > 1 else "")
        for (kernel, why), count in Counter(found).items()
    ]


class _Mismatch(Exception):
    """The call that was made again is not the recorded one, or its binary cannot be used."""


def preload(
    bundle: str | Path | Sequence[str | Path],
    *,
    devices: Sequence[int] | str | None = None,
    threads: int | None = None,
) -> Preloaded:
    """Makes the kernels that `whet pack --jit` has put into a bundle ready on the current device,
    on the `devices` given by number, or on `"all"`. Nothing is launched or compiled.

    Kernels whose modules are not imported yet are served from the bundle when they are first
    called, or made ready by `whet.serving.sealed()` or by another `whet.serving.preload` of the
    same bundle.
    Libraries in the bundle are code of the host: preload only bundles that you trust.
    """
    start = time.perf_counter()
    with _lock:
        entries, libraries = take(bundle)
        numbers = _devices(devices)
        ready, uncovered = _make_ready(entries, numbers, threads)
    return Preloaded(
        ready,
        tuple(sorted({one.kernel for one in entries if one.id in _bundles.waiting})),
        tuple(uncovered),
        libraries,
        numbers,
        time.perf_counter() - start,
    )


def take(bundle: str | Path | Sequence[str | Path]) -> tuple[list[Specialization], int]:
    """Reads bundles, and puts their libraries where Triton looks for them; how many of these fit
    this host. No driver is asked. All kernels wait until they are made ready, or called."""
    from triton import knobs

    if knobs.compilation.always_compile:
        raise UsageError("TRITON_ALWAYS_COMPILE is set, so that no binary is used; unset it")
    paths = [bundle] if isinstance(bundle, str | Path) else list(bundle)
    with _lock:
        taken = [_bundles.take(path) for path in paths]
        observe(_bundles)
    return [one for entries, _ in taken for one in entries], sum(count for _, count in taken)


class _Bundles(Observer):
    """Everything that was preloaded in this process; an observer of compiles, which puts what is
    asked for into Triton's disk cache. With `at_first_call`, all that waits is made ready then."""

    def __init__(self) -> None:
        self.entries: list[Specialization] = []
        self.waiting: dict[str, Specialization] = {}
        self._served: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
        self.devices: tuple[int, ...] | None = None
        self.at_first_call = False
        self.reasons: dict[str, str] = {}
        self._taken: dict[tuple[Path, int], tuple[list[Specialization], int]] = {}
        self._caches: list[BundleCache] = []
        self._packed: dict[str, PackedKernel] = {}

    def take(self, path: str | Path) -> tuple[list[Specialization], int]:
        """Once; a second time it is known already."""
        opened = open_bundle(path)
        identity = opened.path, opened.path.stat().st_mtime_ns
        if identity in self._taken:
            opened.close()
            return self._taken[identity]
        cache, libraries = BundleCache(opened), 0
        found = specializations_in(opened)
        if not found:
            raise UsageError(f"{path} has no specializations; pack it with 'whet pack --jit'")
        for key in {*cache.keys()} - {one.binary for one in found}:
            packed = cache.get(key)
            if packed is not None and is_library(packed.metadata):
                libraries += place_library(packed)
        self._caches.append(cache)
        self.entries += found
        self.waiting |= {one.id: one for one in found if not one.why}
        self._taken[identity] = found, libraries
        return self._taken[identity]

    def packed(self, key: str) -> PackedKernel | None:
        if key not in self._packed:
            found = next((one for cache in self._caches if (one := cache.get(key))), None)
            if found is None:
                return None
            self._packed[key] = found
        return self._packed[key]

    def before(self, call: CompileCall) -> None:
        wanted: Specialization | None = getattr(_local, "wanted", None)
        if wanted is not None:
            self._place_wanted(call, wanted)
            return
        if self.at_first_call:
            self.at_first_call = False
            make_waiting_ready()
        self.offer(call)

    def offer(self, call: CompileCall) -> bool:
        """Whether its binary came from a bundle."""
        if not self._caches:
            return False
        if call.key in self._served.get(call.jit, ()):
            return True
        with suppress(WhetError, NotPortableError, OSError):
            request = call.request()
            packed = self.packed(portable_key(request))
            if packed is not None:
                self._place(packed, request, call)
                return True
        return False

    def _place(self, packed: PackedKernel, request: Request, call: CompileCall) -> None:
        place(packed, request)
        self._served.setdefault(call.jit, set()).add(call.key)

    def forget_binaries(self) -> None:
        """They are in Triton's cache now, and in the bundle for who comes later."""
        self._packed.clear()

    def _place_wanted(self, call: CompileCall, wanted: Specialization) -> None:
        if specialization_of(call).id != wanted.id:
            raise _Mismatch("its arguments cannot be made again as they were")
        request = call.request()
        key = portable_key(request)
        if key != wanted.binary:
            raise _Mismatch(_why_other(self.packed(wanted.binary), request))
        packed = self.packed(key)
        if packed is None:
            raise _Mismatch("its binary is not in the bundle")
        self._place(packed, request, call)

    def before_library(self, name: str) -> None:
        """No C compiler while a kernel is made ready."""
        if getattr(_local, "wanted", None) is not None:
            raise _Mismatch(
                f"Triton's {name} for it was not packed, or for another platform or Python"
            )


_bundles = _Bundles()
_lock = threading.RLock()


def was_foreseen(call: CompileCall) -> bool:
    """Whether its binary came from a bundle."""
    return getattr(_local, "wanted", None) is not None or _bundles.offer(call)


def preload_at_first_call(paths: Sequence[str]) -> None:
    """For a process that is only starting: libraries now, kernels when the first one is called."""
    take(paths)
    _bundles.at_first_call = True


def known_specializations(kernel: str) -> list[Specialization]:
    return [one for one in _bundles.entries if one.kernel == kernel]


def why_uncovered(one: Specialization) -> str:
    """Why one that is in a bundle is compiled all the same; empty where nobody knows."""
    return _bundles.reasons.get(one.id, "")


def make_waiting_ready() -> None:
    """Kernels that did not exist when their bundle was preloaded, and do now. What cannot be
    covered is said once."""
    with _lock:
        if not _bundles.waiting:
            return
        devices = _devices(None) if _bundles.devices is None else _bundles.devices
        _, uncovered = _make_ready(list(_bundles.waiting.values()), devices, None)
    for line in uncovered_lines((one.kernel, one.why) for one in uncovered):
        say_once(line)


def _why_other(packed: PackedKernel | None, request: Request) -> str:
    if packed is not None:
        there, here = tools_text(packed.metadata), tools_text(tools_here(request.target))
        if there != here:
            return f"it was packed with {there}, but this machine has {here}"
    return _ANOTHER_SOURCE


def _make_ready(
    entries: Iterable[Specialization], devices: tuple[int, ...], threads: int | None
) -> tuple[int, list[Uncovered]]:
    """Entries for other architectures are left alone: a bundle may serve several."""
    from triton.runtime.driver import driver

    target = driver.active.get_current_target()
    here = (target.backend, target.arch, target.warp_size)
    entries = [one for one in entries if one.target == here]
    uncovered = {one.id: Uncovered(one.kernel, one.id, one.why) for one in entries if one.why}
    live = LiveKernels()
    work: dict[str, list[Specialization]] = {}
    for one in entries:
        if one.id in uncovered:
            continue
        if live.named(one.kernel):
            work.setdefault(one.kernel, []).append(one)
            _bundles.waiting.pop(one.id, None)
    _bundles.devices = devices
    if work:
        _learn_keys(jit for name in work for jit in live.named(name))
    for device in devices:
        for found in _on_device(device, work.values(), live, threads or _threads()):
            uncovered |= {one.id: one for one in found}
    for one in entries:
        if one.id in uncovered and not one.why and _MADE_BY_A_CALL in one.kernel:
            del uncovered[one.id]  # the next one of this name may be the one
            _bundles.waiting[one.id] = one
    _bundles.forget_binaries()
    _bundles.reasons |= {one.id: one.why for one in uncovered.values()}
    done = [one for group in work.values() for one in group]
    ready = sum(one.id not in uncovered and one.id not in _bundles.waiting for one in done)
    return ready, list(uncovered.values())


def _learn_keys(kernels: Iterable[Any]) -> None:
    """Triton's key hashes its own library, which takes a second and leaves Python alone, so the
    kernels' sources are read meanwhile. Both are remembered."""
    from triton.runtime.driver import driver

    with ThreadPoolExecutor(1) as aside:
        hashed = aside.submit(ready_to_fork, driver.active.get_current_target())
        for jit in kernels:
            with suppress(Exception):  # it is said of the specialization that needs it
                kernel_fingerprint(jit)
        hashed.result()


def _threads() -> int:
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)) + 1)


def _on_device(
    device: int, groups: Iterable[list[Specialization]], live: LiveKernels, threads: int
) -> list[list[Uncovered]]:
    """Which device is current is a thread's own state with torch, and may be the process's with
    other drivers."""
    from triton.runtime.driver import driver

    active: Any = driver.active
    before = active.get_current_device()

    def use(number: int) -> None:
        if active.get_current_device() != number:
            active.set_current_device(number)

    try:
        with ThreadPoolExecutor(threads, initializer=lambda: use(device)) as pool:
            return list(pool.map(lambda group: _ready_kernel(group, live), groups))
    finally:
        use(before)


def _devices(asked: Sequence[int] | str | None) -> tuple[int, ...]:
    from triton.runtime.driver import driver

    if asked is None:
        return (driver.active.get_current_device(),)
    if isinstance(asked, str):
        if asked != "all":
            raise UsageError(f"devices={asked!r} is not valid; use numbers, or 'all'")
        import torch

        return tuple(range(torch.cuda.device_count()))
    return tuple(asked)


def _ready_kernel(entries: list[Specialization], live: LiveKernels) -> list[Uncovered]:
    """In one thread, so that nobody else makes the same kernel ready at once."""
    failed = []
    for one in entries:
        why = ""
        for jit in live.named(one.kernel):  # closures share a name; their sources tell them apart
            why = _ready(jit, one, live)
            if not why:
                break
        if why:
            failed.append(Uncovered(one.kernel, one.id, why))
    return failed


def _ready(jit: Any, one: Specialization, live: LiveKernels) -> str:
    """Why not; empty where it is loaded on the current device."""
    from triton.runtime.driver import driver

    hooks, jit.pre_run_hooks = jit.pre_run_hooks, []  # these expect tensors
    _local.wanted = one
    try:
        # A kernel that is in memory already would be taken for the one that was packed.
        if not one.binary.startswith(related_key(jit, driver.active.get_current_target())):
            return _ANOTHER_SOURCE
        places, names = mock_call(jit, one, live.one)
        kernel = jit.run(*places, grid=(1,), warmup=True, **names)
        if kernel is None:
            return "a hook of Triton's kept it from being loaded"
        kernel._init_handles()
    except (_Mismatch, NotReproducibleError, NotPortableError, WhetError) as error:
        return str(error)
    except Exception as error:  # of Triton's or the driver's; the call itself will say it again
        return f"{type(error).__name__}: {error}"
    finally:
        _local.wanted = None
        jit.pre_run_hooks = hooks
    return ""
