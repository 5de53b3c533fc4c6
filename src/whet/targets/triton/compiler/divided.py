"""One config, compiled in two places: its Python here, the rest on any machine.

The frontend needs the kernel's Python, which may live in a script, a notebook or a closure. What it
makes, Triton's IR, is a text that needs none of that: a machine with the same Triton and the same
assembler turns it into the very binary that would have been made here. That goes into Triton's
cache of this machine, under the key that Triton has for the kernel.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.builds.job import Built
from whet.core.frozen import FrozenMap
from whet.targets.triton.compiler.compile import (
    LauncherClass,
    compile_kernel,
    facts,
    launcher_built,
    run_compiler,
    stage_hook,
    with_kept,
)
from whet.targets.triton.packed.portable import (
    as_bytes,
    environment,
    fill_cache,
    linked_libraries,
    place_in_triton,
    produced,
    toolchain,
)
from whet.targets.triton.request import DeviceLimits, IrRequest, Request
from whet.workers.task import Rest, Stayed, UnfitMachine

if TYPE_CHECKING:
    from whet.targets.triton.packed.portable import PackedKernel

_PLAIN = (bool, int, float, str, type(None))

# Stands for the folder of Triton's package, which lies elsewhere on every machine.
_OWN = "<triton>"

# Knobs by which people look into their own compiler, and what sets each.
_LOOKED_INTO = {
    "always_compile": "TRITON_ALWAYS_COMPILE",
    "override": "TRITON_KERNEL_OVERRIDE",
    "dump_ir": "TRITON_KERNEL_DUMP",
    "use_ir_loc": "USE_IR_LOC",
}


class Halted(BaseException):
    """The frontend is done. No `Exception`, since those are failures of the config."""

    def __init__(self, module: Any, metadata: Mapping[str, Any]) -> None:
        super().__init__()
        self.ttir = str(module)
        self.metadata = json.dumps(dict(metadata), default=vars)


@dataclass(frozen=True)
class TtirBuild:
    """What any machine can compile: plain values only. `tools` and `environment` are those under
    which the frontend ran, and have to be the same there."""

    name: str
    ttir: str
    target: tuple[str, Any, int]
    options: Mapping[str, Any]
    limits: DeviceLimits
    tools: Mapping[str, str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class TtirBuilt:
    """The files by stage, what the stages wrote into Triton's metadata, and whet's own facts."""

    files: Mapping[str, bytes]
    produced: Mapping[str, Any]
    facts: FrozenMap[Any]


def begin_kernel(
    request: Request,
    packed: PackedKernel | None = None,
    launcher: LauncherClass | None = None,
    keep: Path | None = None,
) -> Rest | Stayed:
    """`compile_kernel`, up to where another machine can go on."""
    why = "" if packed is not None else reason_to_stay(request)
    if packed is not None or why:
        name = request.fn.__name__
        said = f"{name} is compiled on this machine: {why}" if why else ""
        return Stayed(compile_kernel(request, packed, launcher, keep), said)
    try:
        with launcher_built(launcher, request):
            run_compiler(request, _halting(request.limits))
    except Halted as halted:
        return _rest(request, halted, keep)
    return Stayed(compile_kernel(request, None, launcher, keep))  # Triton's cache has it


def reason_to_stay(request: Request) -> str:
    """Why nobody else can compile this; empty where anybody can."""
    from triton import knobs

    for knob, variable in _LOOKED_INTO.items():
        if getattr(knobs.compilation, knob, None):
            return f"{variable} is set"
    for name in environment():
        if name.endswith(("_PATH", "_PATHS")):
            return f"{name} is set"
    if knobs.runtime.add_stages_inspection_hook is not None:
        return "the compiler's stages are inspected (add_stages_inspection_hook)"
    if request.options.get("ir_override"):
        return "an IR file overrides the kernel's own IR"
    for name, path in linked_libraries(request.options):
        if place_in_triton(path) is None:
            return f"it is linked with {name} ({path}), which is not Triton's own"
    for name, value in request.options.items():
        if not _is_plain(value):
            return f"the type of option '{name}' is {type(value).__qualname__}"
    return ""


def _rest(request: Request, halted: Halted, keep: Path | None) -> Rest:
    target = request.target
    build = TtirBuild(
        name=request.fn.__name__,
        ttir=halted.ttir,
        target=(target.backend, target.arch, target.warp_size),
        options=_with_libraries(request.options, lambda path: f"{_OWN}/{place_in_triton(path)}"),
        limits=request.limits,
        tools=toolchain(target),
        environment=environment(),
    )
    return Rest(compile_ttir, (build,), Placed(build.name, build.ttir, halted.metadata, keep))


@dataclass(frozen=True)
class Placed:
    """Makes of what another machine compiled what this one would have compiled."""

    name: str
    ttir: str
    metadata: str
    keep: Path | None

    def __call__(self, built: TtirBuilt) -> Built:
        metadata = {**json.loads(self.metadata), **built.produced}
        hash = str(metadata["hash"])
        fill_cache(hash, self.name, built.files, json.dumps(metadata), _OF_FRONTEND)
        if self.keep is None:
            return Built(hash, built.facts)
        texts = {n: body.decode() for n, body in built.files.items() if n not in _BINARY}
        texts = {"ttir": self.ttir, **texts}
        return Built(hash, with_kept(built.facts, hash, texts, self.keep))


_BINARY = ("cubin", "hsaco")

# What Triton's frontend has put into its cache before it was halted.
_OF_FRONTEND = ("source", "ttir")


def compile_ttir(build: TtirBuild) -> TtirBuilt:
    """On any machine, in a worker's own folder. Raises `UnfitMachine` where it would make another
    binary than the machine that asks."""
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget

    target = GPUTarget(*build.target)
    found = toolchain(target)
    for tool, version in build.tools.items():
        if found.get(tool) != version:
            raise UnfitMachine(_difference(tool, found.get(tool, "missing"), version))
    path = Path(f"{build.name[:100]}.ttir").absolute()
    path.write_text(build.ttir)
    given: dict[str, Any] = {}
    own = str(Path(triton.__file__).parent)
    options = _with_libraries(build.options, lambda path: path.replace(_OWN, own, 1))
    request = IrRequest(path, options, target, build.limits)
    with _surroundings(build.environment), knobs.cache.scope():
        knobs.cache.dir = str(Path("triton-cache").absolute())
        kernel = run_compiler(request, _listening(build.limits, given))
        found = produced(kernel, given)
    files = {stage: as_bytes(text) for stage, text in kernel.asm.items() if stage != "ttir"}
    return TtirBuilt(files, found, facts(kernel))


def _halting(limits: DeviceLimits) -> Callable[..., Any]:
    """Instead of the second stage."""

    def halt(module: Any, metadata: Any) -> Any:
        raise Halted(module, metadata)

    def change(stages: dict[str, Any]) -> None:
        stages[list(stages)[1]] = halt

    return stage_hook(limits, change=change)


def _listening(limits: DeviceLimits, given: dict[str, Any]) -> Callable[..., Any]:
    """Puts Triton's metadata as it was before the first stage that runs here into `given`."""

    def change(stages: dict[str, Any]) -> None:
        name = list(stages)[1]
        run = stages[name]

        def listening(module: Any, metadata: Any) -> Any:
            given.update(json.loads(json.dumps(dict(metadata), default=vars)))
            return run(module, metadata)

        stages[name] = listening

    return stage_hook(limits, change=change)


@contextmanager
def _surroundings(wanted: Mapping[str, str]) -> Iterator[None]:
    """The variables that Triton's compiler reads are those of the machine that asks."""
    before = {name: os.environ.get(name) for name in {*wanted, *environment()}}
    try:
        _set_variables({name: wanted.get(name) for name in before})
        if environment() != dict(wanted):
            raise UnfitMachine("its environment variables for Triton cannot be set")
        yield
    finally:
        _set_variables(before)


def _set_variables(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _difference(tool: str, found: str, wanted: str) -> str:
    if tool == "assembler":
        return f"{found}, not {wanted.removeprefix('ptxas ')}"
    return f"{tool} {found}, not {wanted}"


def _with_libraries(options: Mapping[str, Any], placed: Callable[[str], str]) -> dict[str, Any]:
    if "extern_libs" not in options:
        return dict(options)
    libraries = tuple((name, placed(path)) for name, path in linked_libraries(options))
    return {**options, "extern_libs": libraries}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN
