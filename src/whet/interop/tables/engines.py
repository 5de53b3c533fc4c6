"""The tables that an engine ships, and which of them it reads on a GPU.

Read in vLLM a014e35 and SGLang cce0a12 of August 2026; engines change what they prefer.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from whet.core.errors import UsageError
from whet.interop import sglang, vllm
from whet.interop.tables.models import PACKED
from whet.interop.tables.shapes import ENGINES, Shape, architecture_of, table_name

# In the package, the newest place first.
_FOLDERS = {
    ("vllm", "moe"): ("model_executor/layers/fused_moe/configs",),
    ("vllm", "gemm"): ("model_executor/layers/quantization/utils/configs",),
    ("sglang", "moe"): (
        "srt/layers/moe/moe_runner/triton_utils/configs",
        "srt/layers/moe/fused_moe_triton/configs",
    ),
    ("sglang", "gemm"): (
        "kernels/ops/quantization/configs",
        "srt/layers/quantization/configs",
    ),
}
NAMES = {"vllm": "vLLM", "sglang": "SGLang"}
VARIABLES = {"vllm": vllm.FOLDER_VARIABLE, "sglang": sglang.FOLDER_VARIABLE}


@dataclass(frozen=True)
class Package:
    """An engine's files, installed or checked out."""

    engine: str
    root: Path

    def folder(self, kind: str) -> Path:
        """Of the tables of a kind; the first of its names where none is there."""
        places = [self.root / one for one in _FOLDERS[self.engine, kind]]
        return next((one for one in places if one.is_dir()), places[0])


def find_package(engine: str, path: Path | None = None) -> Package:
    """The package itself, or a checkout that it is in; without a path the installed one, which is
    not imported."""
    if engine not in ENGINES:
        raise UsageError(f"the engine is {' or '.join(ENGINES)}, not '{engine}'")
    if path is None:
        spec = importlib.util.find_spec(engine)
        # A folder of that name, which Python takes for a package too, has no origin.
        places = list(spec.submodule_search_locations or ()) if spec and spec.origin else []
        if not places:
            raise UsageError(f"{NAMES[engine]} is not installed; give --engine-path FOLDER")
        return Package(engine, Path(places[0]))
    for root in (path / engine, path / "python" / engine, path):
        found = Package(engine, root)
        if found.folder("moe").is_dir() or found.folder("gemm").is_dir():
            return found
    raise UsageError(f"{path} is not a checkout or package of {NAMES[engine]}")


@dataclass(frozen=True)
class Reading:
    """Whether an engine reads the table of a shape by default: `yes`, `no` or `depends`."""

    answer: str
    why: str


def reading(engine: str, shape: Shape, device: str, ep: int = 1) -> Reading:
    if shape.dtype in PACKED:
        return Reading("no", f"{shape.dtype} weights have kernels of their own (Marlin and others)")
    architecture = architecture_of(device)
    if architecture is None:
        return Reading("depends", f"whet does not know which kernels are preferred on {device}")
    if engine == "vllm":
        return _vllm(shape, architecture, ep)
    return _sglang(shape, architecture)


def _vllm(shape: Shape, architecture: str, ep: int) -> Reading:
    if shape.kind == "gemm":
        if architecture == "rocm":
            return Reading("yes", "Triton, unless AITER is switched on")
        return Reading("no", "on NVIDIA it prefers DeepGEMM, CUTLASS and Marlin to Triton")
    if architecture == "rocm":
        return Reading("yes", "Triton, unless AITER is switched on")
    fp8 = shape.dtype == "fp8_w8a8"
    if fp8 and architecture == "sm_80":
        return Reading("no", "the GPU has no fp8, so that Marlin is used")
    if architecture in ("sm_80", "sm_89") or shape.dtype == "int8_w8a16":
        return Reading("yes", "Triton")
    if fp8 and shape.block_shape and architecture == "sm_90":
        if ep > 1:
            return Reading("no", "with expert parallelism it prefers FlashInfer and DeepGEMM")
        return Reading("yes", "Triton is preferred on Hopper without expert parallelism")
    if fp8 and architecture == "sm_90":
        return Reading(
            "depends", "with static activation scales FlashInfer comes first, where it is installed"
        )
    if architecture == "sm_90":
        return Reading("yes", "Triton is preferred on Hopper")
    return Reading("depends", "FlashInfer comes first, where it is installed")


def _sglang(shape: Shape, architecture: str) -> Reading:
    if architecture == "rocm":
        return Reading("depends", "AITER comes first, where it is switched on")
    if shape.kind == "gemm":
        if architecture in ("sm_90", "sm_100"):
            return Reading("no", "DeepGEMM comes first; it is part of SGLang's installation")
        if architecture == "sm_120":
            return Reading("no", "CUTLASS comes first")
        return Reading("yes", "Triton")
    if architecture in ("sm_100", "sm_120"):
        return Reading("depends", "FlashInfer comes first for some models")
    return Reading("yes", "Triton, unless DeepEP or another --moe-a2a-backend is used")


@dataclass(frozen=True)
class Shipped:
    """`status` is `shipped`, `other version` (SGLang takes a table of another Triton), `unread`
    (the engine does not read it on this GPU, so that it does not matter), `optional` (the second
    product's, without which the first one's is used), or `missing`."""

    shape: Shape
    name: str
    status: str
    path: Path | None
    reading: Reading


def shipped(
    package: Package,
    shape: Shape,
    device: str,
    triton: str | None = None,
    ep: int = 1,
    down: bool = False,
) -> Shipped:
    """Whether the package has the table, where the engine would look for it."""
    answer = reading(package.engine, shape, device, ep)
    if shape.dtype in PACKED:
        return Shipped(shape, "–", "unread", None, answer)
    name = table_name(package.engine, shape, device, down)
    folder = package.folder(shape.kind)
    status, path = "missing", None
    if package.engine == "sglang" and shape.kind == "moe":
        for version in _versions(folder, triton):
            if (folder / version / name).is_file():
                path = folder / version / name
                exact = triton is None or version == sglang.version_folder(triton)
                status = "shipped" if exact else "other version"
                break
    elif (folder / name).is_file():
        status, path = "shipped", folder / name
    if path is None:
        status = "unread" if answer.answer == "no" else "optional" if down else "missing"
    return Shipped(shape, name, status, path, answer)


def _versions(folder: Path, triton: str | None) -> list[str]:
    """SGLang's folders in the order in which it looks into them."""
    found = [one.name for one in folder.iterdir()] if folder.is_dir() else []
    numbers = {}
    for name in found:
        parts = name.removeprefix("triton_").split("_")
        if name.startswith("triton_") and all(part.isdigit() for part in parts):
            numbers[name] = tuple(map(int, parts))
    own = "" if triton is None else sglang.version_folder(triton)
    return sorted(numbers, key=lambda name: (name == own, numbers[name]), reverse=True)


def folder_notes(engine: str, kind: str) -> str:
    """What the engine's variable does for tables of this kind."""
    variable = VARIABLES[engine]
    if kind == "gemm":
        return f"{variable} has no part in these tables: they are read from inside the package only"
    if engine == "vllm":
        return f"tables in {variable} come before those that vLLM ships, which stay in use"
    return (
        f"{variable} takes the place of all that SGLang ships: copy what else you need; a folder "
        "without 'configs' in it makes SGLang fail"
    )


def place(engine: str, kind: str, folder: Path, path: PurePosixPath) -> Path:
    """Where a table goes under the folder that the engine's variable names."""
    return folder / "configs" / path if (engine, kind) == ("sglang", "moe") else folder / path


def inside_package(folder: Path) -> bool:
    """Whether a folder belongs to an engine that is installed."""
    at = Path(os.path.realpath(folder))
    return any(one.name in ENGINES and (one / "__init__.py").exists() for one in (at, *at.parents))
