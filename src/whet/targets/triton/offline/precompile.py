"""Kernels compiled for architectures that are not at hand, many configs at once.

Triton gets a driver that says what would be there, and tensors that have a shape, a dtype and an
alignment but no memory.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import count
from types import SimpleNamespace
from typing import Any, Literal, NoReturn

from whet.builds.builder import Builder, BuildMemory
from whet.builds.job import BuildResult, Built, Job
from whet.core.config import Config
from whet.core.errors import UsageError, WhetError
from whet.core.status import Status
from whet.core.workload import Device
from whet.engine.fallback.untuned import choose
from whet.store import Store
from whet.targets.triton.call import Call
from whet.targets.triton.compiler.capture import identified_request, ready_to_fork
from whet.targets.triton.compiler.compile import compiled_kernel, facts
from whet.targets.triton.offline.kernel import Kernel, Key, key_text, make_inputs
from whet.targets.triton.offline.tuning import offline_target, received
from whet.targets.triton.packed.architectures import Architecture, Resources, resources
from whet.targets.triton.packed.portable import FolderCache, NotPortableError, pack, portable_key
from whet.targets.triton.request import Request
from whet.targets.triton.target import TritonTarget

# Kernels keep what they know of a device under its number, so each architecture has one of its own,
# far from those of real devices.
_FIRST_INDEX = 1 << 16
_fresh = count(_FIRST_INDEX)
_indices: dict[str, int] = {}


class NoDriver:
    """Enough of Triton's driver to bind the arguments of a call. Nothing can be launched."""

    def __init__(self, architecture: Architecture, device: Device) -> None:
        self.whet_device = device
        self.utils = self
        self._target = architecture.target
        if architecture.name not in _indices:
            _indices[architecture.name] = next(_fresh)
        self._index = _indices[architecture.name]

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return self._index

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)  # which `without_memory` makes `meta`

    def get_device_properties(self, device: int) -> dict[str, Any]:
        limits = self.whet_device.limits
        return {
            "max_shared_mem": limits.shared_memory_bytes,
            "max_num_regs": limits.registers,
            "multiprocessor_count": limits.multiprocessors,
            "warpSize": self._target.warp_size,
        }


@contextmanager
def imagined(architecture: Architecture, device: Device | None = None) -> Iterator[None]:
    """Triton believes in a device of this architecture until the block ends."""
    from triton.runtime.driver import driver

    from whet.targets.triton import device as at_hand

    before = driver._active
    driver.set_active(NoDriver(architecture, device or architecture.device))
    at_hand.describe.cache_clear()
    try:
        yield
    finally:
        driver._active = before
        at_hand.describe.cache_clear()


class NoLaunchError(UsageError):
    """A kernel was launched where there is only something to compile for."""


@contextmanager
def loading(architecture: Architecture) -> Iterator[None]:
    """For running a file of kernels: as on such a device, but nothing can be launched on it."""
    from triton.runtime import autotuner as stock
    from triton.runtime.jit import JITFunction

    from whet.targets.triton.autotuner import Autotuner

    def refuse(kernel: Any, *args: Any, **keywords: Any) -> NoReturn:
        raise NoLaunchError(f"this machine has no {architecture.label} to launch a kernel on")

    kinds: list[Any] = [JITFunction, stock.Autotuner, Autotuner]
    own = [(kind, kind.run) for kind in kinds]
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401 - the file may ask it for a device as soon as it has imported it
    with imagined(architecture), without_memory(), torch_answers(architecture):
        for kind in kinds:
            kind.run = refuse
        try:
            yield
        finally:
            for kind, run in own:
                kind.run = run


@contextmanager
def torch_answers(architecture: Architecture) -> Iterator[None]:
    """What libraries ask torch about the device when they are imported, as far as the architecture
    tells; a property that it does not tell is an `AttributeError`."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    device = architecture.device
    maker = "NVIDIA" if device.vendor == "nvidia" else "AMD"
    known = SimpleNamespace(
        name=f"{maker} {(*architecture.products, architecture.name)[0].upper()}",
        major=architecture.capability[0],
        minor=architecture.capability[1],
        gcnArchName=architecture.name,
        warp_size=architecture.target.warp_size,
        shared_memory_per_block_optin=device.limits.shared_memory_bytes,
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: known.name,
        "get_device_capability": lambda device=None: architecture.capability,
        "get_device_properties": lambda device=None: known,
    }
    own = {name: getattr(torch.cuda, name) for name in answers}
    vars(torch.cuda).update(answers)
    try:
        yield
    finally:
        vars(torch.cuda).update(own)


def without_memory() -> AbstractContextManager[Any]:
    """What asks torch for a tensor on a GPU gets one on the `meta` device until the block ends."""
    if "torch" not in sys.modules:
        return nullcontext()
    import torch
    from torch.overrides import TorchFunctionMode

    meta = torch.device("meta")

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return meta if value.type == "cuda" else value
        if isinstance(value, str) and value.partition(":")[0] == "cuda":
            return meta
        return value

    class OnMeta(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function is torch.device:  # moved where it is used
                return function(*args, **(kwargs or {}))
            if function is torch.Tensor.cuda:
                return args[0].to(meta)
            named = {name: moved(value) for name, value in (kwargs or {}).items()}
            if named.get("pin_memory"):
                named["pin_memory"] = False
            return function(*map(moved, args), **named)

    return OnMeta()


Which = Literal["space", "stored", "pick"]


@dataclass(frozen=True)
class Order:
    """One binary to make, for all `keys` whose calls would ask for the very same. `kernel` is
    there where several kernels are compiled at once."""

    architecture: Architecture
    config: Config
    request: Request
    identity: str
    keys: tuple[Key, ...]
    why: str = ""
    kernel: str = ""


@dataclass(frozen=True)
class Made:
    """What came of an order. `portable` is its key in a binary cache; empty where it cannot be in
    one, and then `error` says why, as it does for what could not be compiled."""

    order: Order
    status: Status
    resources: Resources | None = None
    portable: str = ""
    binary_bytes: int = 0
    seconds: float = 0.0
    error: str = ""
    was_there: bool = False


def orders(
    kernel: Kernel,
    architectures: Sequence[Architecture],
    keys: Sequence[Key],
    which: Which,
    store: Store,
) -> list[Order]:
    """What is to be compiled. Runs code of the user's: `inputs`, and what prunes configs."""
    found: dict[str, Order] = {}
    for architecture in architectures:
        for key in keys:
            for order in _orders_for(kernel, architecture, key, which, store):
                known = found.get(order.identity)
                if known is None:
                    found[order.identity] = order
                elif key not in known.keys:
                    found[order.identity] = replace(known, keys=(*known.keys, key))
    return list(found.values())


def _orders_for(
    kernel: Kernel, architecture: Architecture, key: Key, which: Which, store: Store
) -> Iterator[Order]:
    with imagined(architecture), without_memory():
        grid, args, keywords = make_inputs(kernel, key)
        call = Call(kernel.tuner, *received(kernel, grid, args, keywords))
    nothing = True
    for device in _devices(kernel, architecture, which, store):
        with imagined(architecture, device), without_memory():
            target = offline_target(kernel, call)
            for config, why in _wanted(target, which, store):
                nothing = False
                keywords = call.current(target.menu.by_id[config.id])
                captured = identified_request(
                    kernel.tuner.fn, call.args, keywords, architecture.limits
                )
                assert captured is not None  # nothing was ever compiled for such a device
                yield Order(architecture, config, *captured, (key,), why)
    if nothing:
        raise UsageError(
            f"no config of '{kernel.name}' has been measured for {key_text(key) or 'this key'} "
            f"on {architecture.name}; use --configs pick or --configs space"
        )


def _devices(
    kernel: Kernel, architecture: Architecture, which: Which, store: Store
) -> list[Device]:
    """Devices of this architecture on which the kernel has been tuned; else one that stands for
    all of them."""
    known = [] if which == "space" else store.workloads(kernel.name)
    devices = dict.fromkeys(summary.workload.device for summary in known)
    fitting = [device for device in devices if device.architecture == architecture.name]
    return fitting or [architecture.device]


def _wanted(target: TritonTarget, which: Which, store: Store) -> list[tuple[Config, str]]:
    if which == "space":
        return [(config, "") for config in target.space]
    if which == "pick":
        choice = choose(target, store=store)
        return [(choice.config, f"{choice.source}: {choice.reason}")]
    match = store.match(target.workload())
    if match is None or not set(match.differs) <= {"toolchain"}:
        return []
    return [
        (trial.config, f"measured for {match.workload}")
        for trial in store.trials(match.workload.id)
        if trial.status.measured and trial.config in target.space
    ]


def precompile(
    ordered: Sequence[Order],
    *,
    jobs: int | None = None,
    limit_s: float | None = None,
    cache: FolderCache | None = None,
    on_made: Callable[[Made], None] = lambda made: None,
) -> list[Made]:
    """Compiles in parallel, in processes of their own, and puts what is made into the cache.

    What the cache has already is not compiled again. Nothing that goes wrong with one config
    keeps the others from being compiled.
    """
    done: dict[str, Made] = {}
    waiting: dict[str, Order] = {}
    for target in {order.request.target for order in ordered}:
        ready_to_fork(target)
    with Builder(jobs, "fork", limit_s, memory=BuildMemory()) as builder:
        for order in ordered:
            made = None if cache is None else _packed_already(order, cache)
            if made is not None:
                done[order.identity] = made
                on_made(made)
                continue
            label = Config({"for": order.architecture.name, "as": order.identity})
            waiting[label.id] = order
            builder.submit(label, Job(_compile, (order, cache), order.identity))
        while waiting:
            for result in builder.ready():
                order = waiting.pop(result.config.id)
                done[order.identity] = made = _made(order, result)
                on_made(made)
    return [done[order.identity] for order in ordered]


def _packed_already(order: Order, cache: FolderCache) -> Made | None:
    try:
        packed = cache.get(portable_key(order.request))
        if packed is None:
            return None
        found = Resources(**packed.metadata["resources"])
    except (WhetError, NotPortableError, KeyError, TypeError):  # it is made anew
        return None
    size = max((len(body) for name, body in packed.files.items() if name != "ttir"), default=0)
    return Made(order, Status.OK, found, packed.key, size, was_there=True)


def _compile(order: Order, cache: FolderCache | None) -> Built:
    """In a process of its own."""
    request = order.request
    kernel = compiled_kernel(request)
    found = resources(kernel, order.architecture.unit)
    key, why = "", ""
    try:
        key = portable_key(request)
        if cache is not None:
            cache.put(pack(kernel, request, found, key))
    except NotPortableError as error:
        key, why = "", f"not packed: {error}"
    return Built((found, key, why), facts(kernel))


def _made(order: Order, result: BuildResult) -> Made:
    if result.status is not Status.OK:
        return Made(order, result.status, seconds=result.seconds, error=result.error)
    found, key, why = result.artifact
    size = result.facts.get("binary_bytes", 0)
    return Made(order, Status.OK, found, key, int(str(size)), result.seconds, why)
