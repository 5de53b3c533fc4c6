"""The measuring process's side: loads launches, and is to a bench what a target is elsewhere."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from whet.core.config import Config
from whet.measure.bench.protocol import Recovering, Verdict
from whet.targets.triton.call import Call, LoadedTriton
from whet.targets.triton.checks import BitsExamination, OutputGate
from whet.targets.triton.isolated.ipc_arguments import IpcArguments, Unpacker


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


@dataclass(frozen=True)
class IpcCall:
    """A call, ready to be sent: what `Call` and its tuner are made of. Makes a loader there.

    `expected` are the outputs that a check function computed beforehand; `agree` asks for those of
    the first config, and `bits` for hashes of what each config writes.
    """

    device: int
    ipc_arguments: IpcArguments
    arg_names: tuple[str, ...]
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]
    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    pre_hook: Callable[..., None] | None = None
    post_hook: Callable[..., None] | None = None
    expected: Mapping[str, Any] | None = None
    agree: bool = False
    bits: bool = False
    cache_dir: str = ""

    def __call__(self) -> IsolatedLoader:
        return IsolatedLoader(self)


class IsolatedLoader(Recovering):
    def __init__(self, ipc_call: IpcCall) -> None:
        from triton import knobs

        if ipc_call.cache_dir:
            knobs.cache.dir = ipc_call.cache_dir
        self._torch = _torch_on(ipc_call.device)
        self._unpacker = Unpacker(ipc_call.ipc_arguments)
        self._call = _IsolatedCall(ipc_call, self._unpacker)
        self._kernels: dict[str, Any] = {}

    def load(self, config: Config, artifact: Launch) -> LoadedTriton:
        launch, gate = artifact, self._call.gate
        if launch.reference is not None and gate is not None and not gate.settled:
            _Loaded(self._call, self._config(launch.reference), self._synchronize).check()
        return _Loaded(self._call, self._config(launch), self._synchronize)

    def recover(self, problem: BaseException) -> bool:
        """What the problem's frames hold is freed with them; a context that is gone shows when it
        is waited for."""
        traceback.clear_frames(problem.__traceback__)
        gc.collect()
        try:
            self._synchronize()
            if self._torch is not None:
                self._torch.cuda.empty_cache()
        except Exception:
            return False
        return True

    def _synchronize(self) -> None:
        if self._torch is not None:
            self._torch.cuda.synchronize()

    def _config(self, launch: Launch) -> _Config:
        kernel = self._kernels.get(launch.hash)
        if kernel is None:
            kernel = self._kernels[launch.hash] = _kernel(launch)
        return _Config(launch, kernel, tuple(map(self._unpacker.decoded, launch.values)))


class _Config:
    """To hooks what a `triton.Config` is; and what is run for it."""

    def __init__(self, launch: Launch, kernel: Any, values: tuple[Any, ...]) -> None:
        self.kwargs = launch.kwargs
        self.pre_hook = launch.pre_hook
        self._launch = launch
        self._values = values
        self._runner: Any = None
        self.kernel = kernel

    def all_kwargs(self) -> dict[str, Any]:
        return dict(self.kwargs)

    def launch(self) -> None:
        if self._runner is None:
            self._runner = self.kernel[self._launch.grid]
        self._runner(*self._values)


class _IsolatedCall(Call):
    """A `Call` whose kernel is a binary: which one, the config says."""

    def __init__(self, ipc_call: IpcCall, unpacker: Unpacker) -> None:
        from triton.runtime.autotuner import Autotuner

        def run(*args: Any, config: _Config, warmup: bool = False) -> Any:
            if not warmup:
                config.launch()
            return config.kernel

        kernel = SimpleNamespace(run=run, fn=_no_source)
        tuner = Autotuner(
            kernel,
            list(ipc_call.arg_names),
            [],
            [],
            list(ipc_call.reset_to_zero),
            list(ipc_call.restore_value),
            pre_hook=ipc_call.pre_hook,
            post_hook=ipc_call.post_hook,
        )
        keywords = {name: unpacker.decoded(value) for name, value in ipc_call.keywords.items()}
        super().__init__(tuner, tuple(map(unpacker.decoded, ipc_call.args)), keywords)
        if ipc_call.expected is not None:
            expected = {name: unpacker.decoded(value) for name, value in ipc_call.expected.items()}
            self.gate = OutputGate(lambda named: expected, self.room, self.notes)
        elif ipc_call.agree:
            self.gate = OutputGate("agree", self.room, self.notes)
        elif ipc_call.bits:
            self.bits = BitsExamination(self.room)

    def current(self, config: Any) -> dict[str, Any]:
        return {"config": config}


class _Loaded(LoadedTriton):
    def __init__(self, call: Call, config: _Config, synchronize: Callable[[], None]) -> None:
        super().__init__(call, config)
        self._synchronize = synchronize

    def check(self) -> Verdict:
        """What a launch has done to the context is known before anything else runs in it."""
        verdict = super().check()
        self._synchronize()
        return verdict


def _no_source() -> None:
    """In the place of a kernel's Python function, which is not here."""


def _kernel(launch: Launch) -> Any:
    """Triton's `CompiledKernel`, as Triton makes it of what it finds in its cache."""
    from triton.compiler import CompiledKernel

    source = SimpleNamespace(
        name=launch.name,
        signature=dict(launch.signature),
        constants=dict.fromkeys(launch.constants),
        attrs=dict(launch.attrs),
        fn=SimpleNamespace(arg_names=list(launch.arg_names), launch_metadata=None),
    )
    return CompiledKernel(source, launch.unpacked(), launch.hash)


def _torch_on(device: int) -> Any:
    """torch with its device chosen and its context there; None where there is none to choose."""
    import torch

    if not torch.cuda.is_available():
        return None
    torch.cuda.set_device(device)
    torch.cuda.synchronize()
    _lend_memory(torch)
    return torch


def _lend_memory(torch: Any) -> None:
    """To kernels that need room of their own; the program has an allocator, which is not here."""
    import triton

    def allocate(size: int, alignment: int, stream: int | None) -> Any:
        return torch.empty(size, dtype=torch.int8, device="cuda")

    triton.set_allocator(allocate)
