"""The tables that an engine ships, and which of them it reads on a GPU.

Read in vLLM a014e35 and SGLang cce0a12 of August 2026; engines change what they prefer.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from whet.core.errors import UsageError
from whet.interop import sglang, vllm
from whet.interop.tables.models import PACKED
from whet.interop.tables.shapes import ENGINES, Shape, architecture_of, table_path

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
class Need:
    """A table that a model needs. `file` is under the engine's folder, and None where no version of
    Triton says which, or there is no such table. With a package to look into, `status` is:

    `shipped`; `other version`, where SGLang takes the table of another Triton; `optional`, which is
    SGLang's second product without one of its own, served by the first one's; `unread`, where the
    engine would not read it on this GPU; or `missing`.
    """

    shape: Shape
    file: PurePosixPath | None
    reading: Reading
    down: bool = False
    status: str = ""
    found: Path | None = None


def need(
    engine: str,
    shape: Shape,
    device: str,
    triton: str | None = None,
    ep: int = 1,
    down: bool = False,
    package: Package | None = None,
) -> Need:
    answer = reading(engine, shape, device, ep)
    if shape.dtype in PACKED:
        return Need(shape, None, answer, down, "unread" if package else "")
    versioned = engine == "sglang" and shape.kind == "moe"
    file = table_path(engine, shape, device, triton, down) if triton or not versioned else None
    if package is None:
        return Need(shape, file, answer, down)
    folder = package.folder(shape.kind)
    name = table_path(engine, shape, device, triton or "0", down).name
    places = [one / name for one in _versions(folder, triton)] if versioned else [folder / name]
    found = next((one for one in places if one.is_file()), None)
    if found is None:
        status = "unread" if answer.answer == "no" else "optional" if down else "missing"
    else:
        status = "shipped" if file in (None, PurePosixPath(found.relative_to(folder))) else ""
    return Need(shape, file, answer, down, status or "other version", found)


def needs(
    engine: str,
    found: Sequence[Shape],
    device: str,
    triton: str | None = None,
    ep: int = 1,
    package: Package | None = None,
) -> list[Need]:
    """Of each shape, and of the second product in SGLang."""
    both = [(one, False) for one in found]
    if engine == "sglang":
        both += [(one, True) for one in found if one.kind == "moe" and one.dtype not in PACKED]
    return [need(engine, one, device, triton, ep, down, package) for one, down in both]


def _versions(folder: Path, triton: str | None) -> list[Path]:
    """SGLang's folders in the order in which it looks into them."""
    numbers = {
        one: tuple(map(int, found[1].split("_")))
        for one in (folder.iterdir() if folder.is_dir() else ())
        if (found := re.fullmatch(r"triton_(\d+(?:_\d+)*)", one.name))
    }
    own = "" if triton is None else sglang.version_folder(triton)
    return sorted(numbers, key=lambda one: (one.name == own, numbers[one]), reverse=True)


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


def inside_package(folder: Path) -> bool:
    """Whether a folder belongs to an engine that is installed."""
    at = Path(os.path.realpath(folder))
    return any(one.name in ENGINES and (one / "__init__.py").exists() for one in (at, *at.parents))
