"""Compiles one config of a Triton kernel. Runs in a forked worker, which touches no device.

What it compiles goes into Triton's own disk cache under Triton's own key, so that the process that
asked for it loads it from there without compiling again.

Up to 3.6 Triton generates a C module for each signature and has the C compiler build it in the
process that launches, a third of a second each time. The worker makes Triton's own launcher
beforehand, so that the module is in Triton's cache under Triton's key when the kernel is loaded.
Later versions have no such module, and no launcher is made.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.builds.job import Built
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.intermediate import FACT, keep_stages
from whet.core.status import Status
from whet.targets.triton.request import DeviceLimits, IrRequest, Request
from whet.workers.stages import stage

if TYPE_CHECKING:
    from whet.targets.triton.packed.portable import PackedKernel


LauncherClass = Callable[[Any, Any], Any]

# A C compiler that takes longer is stuck; the process that launches then builds its own, as it
# would without us.
_LONGEST_WAIT_S = 10.0


def launcher_class() -> LauncherClass | None:
    """What compiles a launcher, as the active driver has it; None where Triton compiles none."""
    from triton.runtime.driver import driver

    launcher: LauncherClass | None = getattr(driver.active, "launcher_cls", None)
    module = sys.modules.get(getattr(launcher, "__module__", None) or "")
    return launcher if hasattr(module, "make_launcher") else None


class LauncherBuild:
    """The launcher of one request, made in a thread while the kernel is compiled.

    One worker at a time has the C compiler build a signature; the others wait for its library and
    find it in the cache. A failure is not ours to report: whoever launches meets it again.
    """

    def __init__(self, launcher: LauncherClass, request: Request) -> None:
        self._launcher = launcher
        self._request = request
        self._thread: threading.Thread | None = None

    @property
    def needs_kernel(self) -> bool:
        """How descriptors are passed is known only when the kernel has been compiled."""
        kinds = self._request.signature.values()
        return any(isinstance(kind, str) and kind.startswith("tensordesc") for kind in kinds)

    def start(self, metadata: Any) -> None:
        self._thread = threading.Thread(target=self._make, args=(metadata,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        if self._thread is not None:
            with stage("launcher"):
                self._thread.join(_LONGEST_WAIT_S)

    def make(self) -> None:
        """Now, in this thread; not for kernels that are needed for it."""
        self._make(_Metadata(self._request.options))

    def _make(self, metadata: Any) -> None:
        with suppress(Exception), _alone(_lock_path(self._request)):
            self._launcher(self._request.source(), metadata)


@contextmanager
def launcher_built(launcher: LauncherClass | None, request: Request) -> Iterator[list[Any]]:
    """Compile the kernel inside, and put it into the list. Whether that goes well or not, the
    launcher is there afterwards: other configs use the same."""
    kernels: list[Any] = []
    if launcher is None:
        yield kernels
        return
    build = LauncherBuild(launcher, request)
    if not build.needs_kernel:
        build.start(_Metadata(request.options))
    try:
        yield kernels
    finally:
        if build.needs_kernel and kernels:
            build.start(kernels[0].metadata)
        build.wait()


class _Metadata:
    """Of a kernel that is not compiled yet: its options. No launcher's source has more of it."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    def __getattr__(self, name: str) -> Any:
        return self._options.get(name)


def _lock_path(request: Request) -> Path:
    from triton import knobs

    text = f"{request.target} {list(request.signature.values())}"
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return Path(knobs.cache.dir) / f"whet-launcher-{digest}.lock"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """A worker that is killed lets go of the lock. Without its file it locks nobody out: whoever
    comes later finds the library, which is looked for under the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        with suppress(OSError):
            path.unlink()
    finally:
        os.close(descriptor)


class Refused(Exception):
    """Needs more of something than the device has: found before the expensive stages."""

    def __init__(self, required: int, limit: int, name: str) -> None:
        super().__init__(required, limit, name)
        self.required, self.limit, self.name = required, limit, name


def compile_kernel(
    request: Request,
    packed: PackedKernel | None = None,
    launcher: LauncherClass | None = None,
    keep: Path | None = None,
) -> Built:
    """With a packed kernel, no stage of the compiler runs. What launches it is built meanwhile,
    where Triton compiles that as well. What the stages made goes to `keep`."""
    with launcher_built(launcher, request) as kernels:
        kernels.append(compiled_kernel(request, packed))
    [kernel] = kernels
    found = facts(kernel)
    if keep is not None:
        texts = {name: text for name, text in kernel.asm.items() if isinstance(text, str)}
        found = with_kept(found, kernel.hash, texts, keep)
    return Built(kernel.hash, found)


def with_kept(
    found: FrozenMap[Any], name: str, texts: Mapping[str, str], folder: Path
) -> FrozenMap[Any]:
    """A config is worth measuring whether or not its code can be kept."""
    try:
        keep_stages(folder, name, texts)
    except OSError:
        return found
    return FrozenMap({**found, FACT: name}) if texts else found


def compiled_kernel(request: Request, packed: PackedKernel | None = None) -> Any:
    """Triton's `CompiledKernel`, not loaded onto any device; raises `ConfigFailure`."""
    from triton import knobs

    chained = knobs.runtime.add_stages_inspection_hook
    return run_compiler(request, stage_hook(request.limits, chained), packed)


def run_compiler(
    request: Request | IrRequest, hook: Callable[..., Any], packed: PackedKernel | None = None
) -> Any:
    """Triton's compiler, with this look at its stages. A failure is a `ConfigFailure`."""
    import triton
    from triton import knobs

    try:
        _check_threads(request)
        placed = packed is not None and _placed(packed, request)
        knobs.runtime.add_stages_inspection_hook = hook
        with nullcontext() if placed else stage("frontend"):
            return triton.compile(
                request.source(), target=request.target, options=dict(request.options)
            )
    except Refused as refused:
        raise ConfigFailure(Status.RESOURCES, out_of_resources_text(refused)) from None
    except Exception as error:
        raise ConfigFailure(Status.BUILD_ERROR, failure_text(error)) from None


def failure_text(error: BaseException) -> str:
    """What an error of Triton's says, what is wrong first: its own text begins with a place. That
    of a function which the kernel calls is the cause of one without words at the call."""
    from triton.compiler.errors import CompilationError

    while isinstance(error.__cause__, CompilationError):
        error = error.__cause__
    kind = type(error).__name__
    if not (isinstance(error, CompilationError) and error.error_message and error.src):
        return f"{kind}: {error}"
    node: Any = error.node
    first = error.error_message.strip().partition("\n")[0]
    line = error.src.split("\n")[node.lineno - 1].strip()
    return f"{kind}: {first} (at {node.lineno}:{node.col_offset}: {line})\n{error}"


def _placed(packed: PackedKernel, request: Any) -> bool:
    """False where it could not be used; the kernel is then compiled."""
    from whet.targets.triton.packed.portable import place

    limit, needed = request.limits.shared_bytes, packed.metadata["produced"]["shared"]
    if limit is not None and needed > limit:
        raise Refused(needed, limit, "shared memory")
    try:
        place(packed, request)
    except OSError:
        return False
    return True


def out_of_resources_text(refused: Refused) -> str:
    """In Triton's own words, which tools look for."""
    return (
        f"out of resource: {refused.name}, Required: {refused.required}, "
        f"Hardware limit: {refused.limit}. Reducing block sizes or `num_stages` may help."
    )


def facts(kernel: Any) -> FrozenMap[Any]:
    metadata = kernel.metadata
    binary = kernel.kernel if isinstance(kernel.kernel, bytes) else str(kernel.kernel).encode()
    return FrozenMap(
        {
            "shared_bytes": metadata.shared,
            "num_warps": metadata.num_warps,
            "binary": hashlib.sha256(binary).hexdigest()[:16],
            "binary_bytes": len(binary),
        }
    )


def _check_threads(request: Request | IrRequest) -> None:
    limit = request.limits.threads
    needed = request.options.get("num_warps", 4) * request.target.warp_size
    if limit is not None and needed > limit:
        raise Refused(needed, limit, "threads")


def stage_hook(
    limits: DeviceLimits,
    chained: Callable[..., Any] | None = None,
    change: Callable[[dict[str, Any]], None] = lambda stages: None,
) -> Callable[..., Any]:
    """Times every stage, and looks at shared memory before the code generator runs. `change` may
    put others in their place.

    A user's own hook is kept, and so is the cache key: from 3.7 on Triton also calls the hook
    without arguments and adds what it returns to the key.
    """

    def hook(*args: Any) -> Any:
        if not args:
            return chained() if chained is not None else ("", "")
        if chained is not None:
            chained(*args)
        backend, stages, options = args[:3]
        for name, run in list(stages.items()):
            stages[name] = _timed(name, run)
        if "llir" in stages:
            stages["llir"] = _guarded(stages["llir"], backend, options, limits)
        change(stages)
        return None

    return hook


def _timed(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def timed(source: Any, metadata: Any) -> Any:
        with stage(name):
            return run(source, metadata)

    return timed


def _guarded(
    run: Callable[..., Any], backend: Any, options: Any, limits: DeviceLimits
) -> Callable[..., Any]:
    def guarded(module: Any, metadata: Any) -> Any:
        with stage("allocation"):
            shared, tensor = _needed_memory(module, backend, options)
        if shared is not None and limits.shared_bytes is not None and shared > limits.shared_bytes:
            raise Refused(shared, limits.shared_bytes, "shared memory")
        if (
            tensor is not None
            and limits.tensor_memory is not None
            and tensor > limits.tensor_memory
        ):
            raise Refused(tensor, limits.tensor_memory, "tensor memory")
        return run(module, metadata)

    return guarded


def _needed_memory(module: Any, backend: Any, options: Any) -> tuple[int | None, int | None]:
    """Runs only the passes that allocate, on a copy. (None, None) where that is not possible: then
    the kernel is compiled, and Triton finds out itself."""
    from triton._C.libtriton import ir

    try:
        copy = _copied(module)
        manager = ir.pass_manager(copy.context)
        if backend.target.backend == "cuda":
            _allocate_cuda(manager, backend, options)
        else:
            _allocate_hip(manager, options)
        manager.run(copy, "whet_allocation")
        tensor = copy.get_int_attr("ttg.tensor_memory_size")
        return copy.get_int_attr("ttg.shared"), tensor
    except Exception:
        return None, None


def _copied(module: Any) -> Any:
    """Modules cannot be cloned from Python; their text can be read back."""
    from triton._C.libtriton import ir

    path = Path("allocation.mlir")
    path.write_text(module.str_nodebug() if hasattr(module, "str_nodebug") else str(module))
    copy = ir.parse_mlir_module(str(path), module.context)
    copy.context = module.context
    path.unlink()
    return copy


def _allocate_cuda(manager: Any, backend: Any, options: Any) -> None:
    from triton._C.libtriton import nvidia, passes
    from triton.backends.nvidia import compiler as cuda

    capability = backend._parse_arch(options.arch)
    version = cuda.get_ptx_version_from_options(options, backend.target.arch)
    passes.ttgpuir.add_combine_tensor_select_and_if(manager)
    passes.ttgpuir.add_allocate_warp_groups(manager)
    passes.convert.add_scf_to_cf(manager)
    passes.gluon.add_inliner(manager)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, capability, version)
    nvidia.passes.ttnvgpuir.add_allocate_tensor_memory(manager)


def _allocate_hip(manager: Any, options: Any) -> None:
    from triton._C.libtriton import amd, passes

    passes.convert.add_scf_to_cf(manager)
    passes.gluon.add_inliner(manager)
    try:
        amd.passes.ttgpuir.add_allocate_shared_memory(manager, options.arch)
    except TypeError:  # 3.6 does not ask for the architecture
        amd.passes.ttgpuir.add_allocate_shared_memory(manager)
