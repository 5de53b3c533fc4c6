"""A tuned table of an engine, looked at without a GPU."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet._version import __version__
from whet.core.errors import UsageError
from whet.interop import sglang, vllm
from whet.interop.files import FormatError, read_object
from whet.interop.serving import PARAMETERS, read_entries
from whet.interop.tables.engines import NAMES, folder_notes, reading
from whet.interop.tables.shapes import (
    BATCH_SIZES,
    DTYPES,
    SHARED_MEMORY,
    VALUES,
    Shape,
    architecture_of,
    shared_bytes,
)

# What public models have, for those that share a file's name: experts, intermediate size of one,
# hidden size, top-k. Only models for which a public source was looked at: the list is not complete.
MODELS: Mapping[str, tuple[int, int, int, int]] = {
    "Mixtral-8x7B": (8, 14336, 4096, 2),
    "Qwen3-30B-A3B": (128, 768, 2048, 8),
    "Qwen3-235B-A22B": (128, 1536, 4096, 8),
    "Qwen3-Next-80B-A3B": (512, 512, 2048, 10),
    "DeepSeek-V3": (256, 2048, 7168, 8),
    "DeepSeek-V3 with its shared expert": (257, 2048, 7168, 9),
    "Kimi-K2": (384, 2048, 7168, 8),
    "Llama-4-Scout": (16, 8192, 5120, 1),
    "GLM-4.5": (160, 1536, 5120, 8),
    "MiniMax-M2": (256, 1536, 3072, 8),
}
_MOST_RANKS = 16


@dataclass(frozen=True)
class Table:
    """What a file's name and place say of it."""

    engine: str
    shape: Shape
    device: str
    down: bool = False
    triton: str | None = None


@dataclass(frozen=True)
class Remark:
    """`level` is `error` where the engine fails on the file or computes nonsense, `warning`, or
    `note`."""

    level: str
    text: str


def table_of(path: Path, engine: str | None = None) -> Table:
    """The block's shape tells whose file it is, by a space; so does SGLang's folder."""
    folder = path.absolute().parent.name
    if engine is None:
        theirs = folder.startswith("triton_") or ", " in path.name or "_down." in path.name
        engine = "sglang" if theirs or "per_channel_quant" in path.name else "vllm"
    own = vllm if engine == "vllm" else sglang
    moe = vllm.MOE_NAME if engine == "vllm" else sglang.NAME
    if found := moe.fullmatch(path.name):
        kind = "moe"
    elif found := own.FP8_NAME.fullmatch(path.name):
        kind = "gemm"
    else:
        raise FormatError(f"{path} does not have a name that {NAMES[engine]} looks for")
    parts = found.groupdict()
    if any(value.isdecimal() and not int(value) for value in parts.values() if value):
        raise FormatError(f"{path} has a size of 0 in its name")
    block = (int(found["block_n"]), int(found["block_k"])) if parts["block_n"] else None
    return Table(
        engine,
        Shape(
            kind,
            int(parts.get("E") or 0),
            int(parts["N"]),
            int(parts.get("K") or 0),
            0,
            parts["dtype"] or "",
            block,
            bool(parts.get("per_channel_quant")),
        ),
        parts["device"],
        bool(parts.get("down")),
        folder if engine == "sglang" and kind == "moe" else None,
    )


def check(path: Path, table: Table, ep: int = 1) -> list[Remark]:
    """What there is to know of a file before it serves. One that cannot be parsed is a
    `FormatError`."""
    entries, version = read_entries(path)
    remarks = []
    if version is not None and (table.engine, table.shape.kind) != ("vllm", "moe"):
        remarks.append(_error("the loader reads triton_version as a number of tokens and raises"))
    remarks += _folder(table)
    answer = reading(table.engine, table.shape, table.device, ep)
    said = {"yes": "is read", "no": "is not read", "depends": "may be read"}[answer.answer]
    remarks.append(
        Remark(
            "warning" if answer.answer == "no" else "note",
            f"{said} by {NAMES[table.engine]} on {table.device} by default: {answer.why}",
        )
    )
    remarks.append(_note(folder_notes(table.engine, table.shape.kind)))
    unasked = (table.engine, table.shape.kind, table.shape.dtype) == ("vllm", "moe", "int8_w8a8")
    if unasked or table.shape.dtype not in DTYPES:
        remarks.append(
            Remark("warning", f"{NAMES[table.engine]} never looks for dtype={table.shape.dtype}")
        )
    missing = [str(m) for m in BATCH_SIZES if m not in entries]
    if missing:
        text = f"no entry for M = {', '.join(missing)}: the nearest M serves them"
        remarks.append(Remark("warning", text))
    about: dict[Remark, list[int]] = {}
    for m, config in sorted(entries.items()):
        for one in _entry(table, dict(config)):
            about.setdefault(one, []).append(m)
    remarks += [
        Remark(one.level, f"{one.text} (M = {', '.join(map(str, of))})")
        for one, of in about.items()
    ]
    if table.shape.kind == "moe":
        remarks += _sharers(table.shape)
    if table.down:
        remarks += _beside(path, {m: dict(config) for m, config in entries.items()})
    return remarks


def _error(text: str) -> Remark:
    return Remark("error", text)


def _note(text: str) -> Remark:
    return Remark("note", text)


def _folder(table: Table) -> list[Remark]:
    if table.triton is None:
        return []
    if not table.triton.startswith("triton_"):
        return [_error("SGLang reads such files from a folder configs/triton_VERSION only")]
    try:
        sglang.version_folder(table.triton.removeprefix("triton_").replace("_", "."))
    except UsageError:
        return [
            _error(f"SGLang cannot parse the folder '{table.triton}', and fails for every shape")
        ]
    return []


def _entry(table: Table, config: dict[str, Any]) -> list[Remark]:
    extras = vllm.EXTRAS if table.engine == "vllm" else sglang.EXTRAS
    unknown = [one for one in config if one not in PARAMETERS and one not in extras]
    found = [_error(f"the kernel does not take {one}") for one in unknown]
    for name, values in VALUES.items():
        value = config.get(name, values[0])
        if value < 1 or (value & (value - 1) and not name.startswith(("GROUP", "num_stages"))):
            found.append(_error(f"{name} = {value} is not a power of two"))
        elif value not in values:
            found.append(_note(f"{name} = {value} is not among those that tuners try"))
    shape, k = table.shape, config["BLOCK_SIZE_K"]
    if shape.block_shape and k > (limit := min(shape.block_shape)):
        if shape.kind == "gemm" and shape.k > limit:
            found.append(_error(f"BLOCK_SIZE_K = {k} is above the block's {limit}: wrong results"))
        elif shape.kind == "moe":
            found.append(_note(f"BLOCK_SIZE_K = {k} is lowered to the block's {limit}"))
    architecture = architecture_of(table.device)
    memory = SHARED_MEMORY.get(architecture or "")
    if memory and "num_stages" in config:
        need = shared_bytes(config, shape, architecture)
        if need > memory:
            found.append(_error(f"needs {need:,} bytes of shared memory; a block has {memory:,}"))
    return found


def _sharers(shape: Shape) -> list[Remark]:
    found = sharers(shape)
    if len(found) < 2:
        return []
    return [_note(f"its name holds neither K nor top-k; {'; '.join(found)} share it")]


def sharers(shape: Shape) -> list[str]:
    """The public models that read a fused-MoE table of this name, with the ranks they need."""
    found = []
    for name, (experts, size, hidden, top_k) in MODELS.items():
        tp, rest = divmod(size, shape.n)
        if experts == shape.experts and not rest and tp <= _MOST_RANKS and not tp & (tp - 1):
            found.append(f"{name} on {tp} (K {hidden}, top-k {top_k})")
    return found


def _beside(path: Path, entries: Mapping[int, Mapping[str, Any]]) -> list[Remark]:
    """Both products share one order of tokens, which BLOCK_SIZE_M makes."""
    up = path.with_name(re.sub(r"_down(?=\.json$)", "", path.name))
    if not up.is_file():
        return [_error(f"the file of the first product, {up.name}, is not beside it")]
    first, _ = read_entries(up)
    nearest = {m: first[min(first, key=lambda other: abs(other - m))] for m in entries}
    differing = [
        str(m)
        for m, config in sorted(entries.items())
        if config["BLOCK_SIZE_M"] != nearest[m]["BLOCK_SIZE_M"]
    ]
    if not differing:
        return []
    return [
        Remark(
            "warning",
            f"BLOCK_SIZE_M is not the first product's at M = {', '.join(differing)}: SGLang takes "
            "that one",
        )
    ]


def provenance(path: Path, table: Table, text: str, remarks: Sequence[Remark]) -> str:
    """What is written beside a table that is put in place; what lay beside it before is kept."""
    beside = path.with_name(f"{path.name.removesuffix('.json')}.provenance.json")
    said = {
        "v": 1,
        "file": path.name,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "engine": table.engine,
        "device": table.device,
        "whet": __version__,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "warnings": [one.text for one in remarks if one.level == "warning"],
        **({"origin": read_object(beside)} if beside.is_file() else {}),
    }
    return json.dumps(said, indent=2) + "\n"
