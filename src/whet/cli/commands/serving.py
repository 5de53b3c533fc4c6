"""`whet serving`: the tuned tables of vLLM and SGLang."""

from __future__ import annotations

import hashlib
import json as json_text
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer

from whet._version import __version__
from whet.cli.arguments.options import JsonOption, argument, option
from whet.cli.terminal.output import count_text, page, print_json, print_lines, wrap
from whet.core.errors import UsageError
from whet.interop import sglang
from whet.interop.files import (
    FormatError,
    OutFile,
    read_object,
    read_text,
    refuse_to_lose,
    write_out,
)
from whet.interop.tables.checking import Remark, Table, check, table_of
from whet.interop.tables.engines import (
    NAMES,
    VARIABLES,
    Shipped,
    find_package,
    folder_notes,
    inside_package,
    reading,
    shipped,
)
from whet.interop.tables.models import PACKED, Model, read_model
from whet.interop.tables.shapes import ENGINES, Shape, shapes, space, table_path
from whet.measure.gpu.nvml import installed_gpu

ModelArgument = Annotated[Path, argument("MODEL", "A config.json, or the folder that it is in.")]
EngineOption = Annotated[str, option("--engine vllm|sglang", "Which engine.")]
TpOption = Annotated[int, option("--tp N", "Tensor parallel size: how many ranks.", min=1)]
EpOption = Annotated[
    int, option("--ep N", "How many of them share the experts out among themselves.", min=1)
]
DeviceOption = Annotated[
    str | None,
    option("--device NAME", "The GPU: NVIDIA_H200, or 'NVIDIA H200' (default: the one here)."),
]
TritonOption = Annotated[
    str | None, option("--triton VERSION", "For SGLang (default: the installed version).")
]
DtypeOption = Annotated[
    str | None,
    option("--dtype NAME", "If weights are quantised when loaded: fp8_w8a8, int8_w8a16…"),
]
BlockOption = Annotated[str | None, option("--block-shape N,K", "The same: their blocks.")]
PathOption = Annotated[
    Path | None,
    option("--engine-path FOLDER", "A checkout or package of it (default: what is installed)."),
]


def show_shapes(
    model: ModelArgument,
    engine: EngineOption = "vllm",
    tp: TpOption = 1,
    ep: EpOption = 1,
    device: DeviceOption = None,
    triton: TritonOption = None,
    dtype: DtypeOption = None,
    block_shape: BlockOption = None,
    json: JsonOption = False,
) -> None:
    """Show which tables a model makes an engine look up, and their names.

    Examples:
      whet serving shapes Qwen3-30B-A3B --tp 2
      whet serving shapes DeepSeek-V3/config.json --engine sglang --tp 8
      whet serving shapes Mixtral-8x7B --dtype fp8_w8a8 --device NVIDIA_H200

    MoE kernels look for the experts' sizes on one rank, and block-scaled products
    for theirs. 'configs' is how many are worth a try: the engine's own space
    without those that are another's binary, and without those that do not fit
    into the device's shared memory.
    """
    read, found = _needed(model, engine, tp, ep, dtype, block_shape)
    device, triton = _device(device), _triton(engine, triton)
    if json:
        rows = [_shape_json(engine, one, device, triton, ep) for one in found]
        print_json({"v": 1, "model": read.name, "notes": list(read.notes), "shapes": rows})
        return
    print_lines([_heading(read, engine, tp, ep), ""])
    for one in found:
        details = [f"K {one.k}", f"top-k {one.top_k}"] if one.kind == "moe" else []
        count = space(one, device).count
        print_lines(wrap(f"{one}  {', '.join([*details, one.of])}", page(), 2))
        if one.dtype not in PACKED:
            print_lines([f"  {count:,} configs"])
            if device:
                print_lines([f"  {table_path(engine, one, device, triton)}"])
        if device:
            answer = reading(engine, one, device, ep)
            print_lines(wrap(f"  read: {answer.answer}; {answer.why}", page(), 4))
    print_lines([] if found else ["no tables: neither experts nor block-quantised products"])
    print_lines(f"note: {one}" for one in read.notes)


def missing(
    model: ModelArgument,
    engine: EngineOption = "vllm",
    tp: TpOption = 1,
    ep: EpOption = 1,
    device: DeviceOption = None,
    triton: TritonOption = None,
    engine_path: PathOption = None,
    dtype: DtypeOption = None,
    block_shape: BlockOption = None,
    json: JsonOption = False,
) -> None:
    """Show which tables a model needs and the engine does not ship.

    Examples:
      whet serving missing Qwen3-30B-A3B --tp 2 --device NVIDIA_H200
      whet serving missing DeepSeek-V3 --engine sglang --tp 8 --triton 3.5.1
      whet serving missing Mixtral-8x7B --engine-path ~/vllm

    The exit code is 1 if any is missing. The engine is found, not imported.
      shipped        it is there
      other version  SGLang has it for another Triton, and uses that with a warning
      optional       SGLang's second product, which uses the first one's otherwise
      unread         not there, but the engine does not read it on this GPU
      missing        the engine's default is used, with a warning
    """
    read, found = _needed(model, engine, tp, ep, dtype, block_shape)
    device, triton = _device(device), _triton(engine, triton)
    if device is None:
        raise UsageError("there is no GPU here; give --device NVIDIA_H200")
    package = find_package(engine, engine_path)
    rows = [shipped(package, one, device, triton, ep) for one in found]
    if engine == "sglang":
        moe = [one for one in found if one.kind == "moe" and one.dtype not in PACKED]
        rows += [shipped(package, one, device, triton, ep, down=True) for one in moe]
    absent = [one for one in rows if one.status == "missing"]
    if json:
        print_json({"v": 1, "model": read.name, "tables": [_shipped_json(one) for one in rows]})
    else:
        print_lines([_heading(read, engine, tp, ep), f"in {package.root}", ""])
        for row in rows:
            print_lines(wrap(f"{row.status:<14} {row.name}", max(page(), 100), 15))
            if row.status == "other version" and row.path:
                print_lines([f"{'':<15}{row.path.parent.name}"])
            if row.status == "unread":
                print_lines(wrap(f"{'':<15}{row.reading.why}", page(), 15))
        print_lines(["", f"{len(absent)} of {count_text(len(rows), 'table')} missing"])
    if absent:
        raise typer.Exit(1)


def check_files(
    files: Annotated[list[Path], argument("FILE…", "Tables, under the names that they have.")],
    engine: Annotated[
        str | None, option("--engine vllm|sglang", "Whose files they are (default: by the name).")
    ] = None,
    ep: EpOption = 1,
    json: JsonOption = False,
) -> None:
    """Check tables without a GPU: do they parse, fit, and get read at all?

    Examples:
      whet serving check 'E=8,N=7168,device_name=NVIDIA_H200.json'
      whet serving check configs/triton_3_5_1/*.json --engine sglang

    The exit code is 1 for an error: what the engine cannot load or launch, or
    what makes results wrong. Nothing is timed.
    """
    _known(engine)
    found: list[tuple[Path, list[Remark]]] = []
    for path in files:
        try:
            found.append((path, check(path, table_of(path, engine), ep)))
        except FormatError as error:
            found.append((path, [Remark("error", str(error))]))
    errors = sum(one.level == "error" for _, remarks in found for one in remarks)
    if json:
        rows = [
            {"file": str(path), "remarks": [[one.level, one.text] for one in remarks]}
            for path, remarks in found
        ]
        print_json({"v": 1, "errors": errors, "files": rows})
    else:
        for path, remarks in found:
            print_lines([path.name])
            for one in remarks:
                print_lines(wrap(f"  {one.level + ':':<9}{one.text}", page(), 11))
        print_lines([f"{count_text(len(found), 'file')}, {count_text(errors, 'error')}"])
    if errors:
        raise typer.Exit(1)


def install(
    files: Annotated[list[Path], argument("FILE…", "Tables, under the names that they have.")],
    out: Annotated[
        Path | None,
        option("--out FOLDER", "Where to (default: the folder of the engine's variable)."),
    ] = None,
    into_package: Annotated[
        bool, option("--install", "Write into the engine's own package instead.")
    ] = False,
    engine: Annotated[
        str | None, option("--engine vllm|sglang", "Whose files they are (default: by the name).")
    ] = None,
    engine_path: PathOption = None,
    triton: TritonOption = None,
    force: Annotated[bool, option("--force", "Overwrite files that differ.")] = False,
) -> None:
    """Put tables where an engine looks for them, with their provenance beside.

    Examples:
      whet serving install 'E=8,N=7168,device_name=NVIDIA_H200.json' --out tables
      whet serving install E=*.json --engine sglang --triton 3.5.1 --out moe
      whet serving install E=*.json --install

    Without --out: $VLLM_TUNED_CONFIG_FOLDER, or $SGLANG_MOE_CONFIG_DIR. Nothing is
    written if a file has an error ('whet serving check'), and nothing into an
    engine's package without --install.
    """
    _known(engine)
    if out is not None and into_package:
        raise UsageError("--out and --install exclude each other")
    planned: list[tuple[Path, OutFile]] = []
    for path in files:
        table = table_of(path, engine)
        remarks = check(path, replace(table, triton=None))  # it may come from any folder
        if errors := [one.text for one in remarks if one.level == "error"]:
            raise UsageError(f"{path}: {errors[0]}; see 'whet serving check'")
        folder = _folder(table, out, into_package, engine_path)
        place = _place(table, path, triton, into_package)
        text = read_text(path)
        origin = json_text.dumps(_provenance(path, table, text, remarks), indent=2) + "\n"
        beside = place.with_name(place.name.removesuffix(".json") + ".provenance.json")
        planned += [(folder, OutFile(place, text)), (folder, OutFile(beside, origin))]
    for folder, file in planned:
        if not force and not file.path.name.endswith(".provenance.json"):
            refuse_to_lose(file, folder)
    for folder, file in planned:
        print_lines([f"wrote {write_out(file, folder)}"])
    kinds = {(table_of(path, engine).engine, table_of(path, engine).shape.kind) for path in files}
    print_lines(line for one in sorted(kinds) for line in wrap(folder_notes(*one), page(), 2))


def _folder(table: Table, out: Path | None, into_package: bool, path: Path | None) -> Path:
    if into_package:
        return find_package(table.engine, path).folder(table.shape.kind)
    variable = VARIABLES[table.engine]
    given = os.environ.get(variable)
    if out is None and table.shape.kind == "gemm":
        raise UsageError(
            f"{NAMES[table.engine]} reads tables of block-scaled products from inside its package "
            "only; use --install, or --out to keep them elsewhere"
        )
    folder = out or (Path(given) if given else None)
    if folder is None:
        raise UsageError(f"give --out FOLDER, or set {variable}")
    if inside_package(folder):
        raise UsageError(f"{folder} is in an installed package; use --install to write there")
    return folder


def _place(table: Table, path: Path, triton: str | None, into_package: bool) -> PurePosixPath:
    if (table.engine, table.shape.kind) != ("sglang", "moe"):
        return PurePosixPath(path.name)
    folder = table.triton or ""
    if triton is not None or not folder.startswith("triton_"):
        version = _triton("sglang", triton)
        if version is None:
            raise UsageError(
                "SGLang has one folder for each version of Triton; give --triton 3.5.1"
            )
        folder = sglang.version_folder(version)
    return PurePosixPath(*([] if into_package else ["configs"]), folder, path.name)


def _provenance(path: Path, table: Table, text: str, remarks: Sequence[Remark]) -> dict[str, Any]:
    beside = path.with_name(path.name.removesuffix(".json") + ".provenance.json")
    return {
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


def _needed(
    path: Path, engine: str, tp: int, ep: int, dtype: str | None, block_shape: str | None
) -> tuple[Model, tuple[Shape, ...]]:
    _known(engine)
    block = None
    if block_shape is not None:
        parts = block_shape.split(",")
        if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
            raise UsageError(f"--block-shape '{block_shape}' is not N,K, such as 128,128")
        block = (int(parts[0]), int(parts[1]))
    model = read_model(path, dtype, block)
    return model, shapes(model, engine, tp, ep)


def _known(engine: str | None) -> None:
    if engine is not None and engine not in ENGINES:
        raise UsageError(f"--engine is {' or '.join(ENGINES)}, not '{engine}'")


def _device(given: str | None) -> str | None:
    if given is not None:
        return given
    return installed_gpu(os.environ.get("CUDA_VISIBLE_DEVICES"))[0] or None


def _triton(engine: str, given: str | None) -> str | None:
    if given is not None or engine != "sglang":
        return given
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return None


def _heading(model: Model, engine: str, tp: int, ep: int) -> str:
    moe = f"{model.experts} experts, top-k {model.top_k}, " if model.experts else ""
    dtype = model.quantisation.dtype or "bf16"
    ranks = count_text(tp, "rank") + (f", experts over {ep}" if ep > 1 else "")
    return f"{model.name}: {moe}{dtype}; {NAMES[engine]} on {ranks}"


def _shape_json(
    engine: str, shape: Shape, device: str | None, triton: str | None, ep: int
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": shape.kind,
        "E": shape.experts,
        "N": shape.n,
        "K": shape.k,
        "top_k": shape.top_k,
        "dtype": shape.dtype,
        "block_shape": shape.block_shape,
        "per_channel_quant": shape.per_channel,
        "of": shape.of,
        "configs": space(shape, device).count,
    }
    if device:
        packed = shape.dtype in PACKED
        found["file"] = None if packed else str(table_path(engine, shape, device, triton))
        answer = reading(engine, shape, device, ep)
        found |= {"read": answer.answer, "why": answer.why}
    return found


def _shipped_json(one: Shipped) -> dict[str, Any]:
    return {
        "status": one.status,
        "file": one.name,
        "path": None if one.path is None else str(one.path),
        "read": one.reading.answer,
        "why": one.reading.why,
    }
