"""`whet serving`: the tuned tables of vLLM and SGLang."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, argument, option
from whet.cli.terminal.output import count_text, page, print_json, print_lines, wrap
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.interop.tables.checking import Remark, Table
    from whet.interop.tables.engines import Need
    from whet.interop.tables.models import Model

EngineOption = Annotated[str, option("--engine vllm|sglang", "Which engine.")]
OwnerOption = Annotated[
    str | None, option("--engine vllm|sglang", "Whose files they are (default: by the name).")
]
EpOption = Annotated[
    int, option("--ep N", "How many ranks share the experts out among themselves.", min=1)
]
TritonOption = Annotated[
    str | None, option("--triton VERSION", "For SGLang (default: the installed version).")
]
PathOption = Annotated[
    Path | None,
    option("--engine-path FOLDER", "Its checkout or package (default: what is installed)."),
]
FilesArgument = Annotated[list[Path], argument("FILE", "Tables, under the names that they have.")]


def show_shapes(
    model: Annotated[Path, argument("MODEL", "A config.json, or the folder that it is in.")],
    engine: EngineOption = "vllm",
    tp: Annotated[int, option("--tp N", "Tensor parallel size: how many ranks.", min=1)] = 1,
    ep: EpOption = 1,
    device: Annotated[
        str | None, option("--device NAME", "The GPU: NVIDIA_H200 (default: the one here).")
    ] = None,
    triton: TritonOption = None,
    dtype: Annotated[
        str | None,
        option("--dtype NAME", "If weights are quantised when loaded: fp8_w8a8, int8_w8a16…"),
    ] = None,
    block_shape: Annotated[
        str | None, option("--block-shape N,K", "The same: the shape of their blocks.")
    ] = None,
    missing: Annotated[
        bool,
        option("--missing", "Show what the engine does not ship; the exit code is then 1."),
    ] = False,
    engine_path: PathOption = None,
    json: JsonOption = False,
) -> None:
    """Show which tables a model makes an engine look up.

    Examples:
      whet serving shapes Qwen3-30B-A3B --tp 2 --device NVIDIA_H200
      whet serving shapes DeepSeek-V3/config.json --engine sglang --tp 8
      whet serving shapes Mixtral-8x7B --dtype fp8_w8a8
      whet serving shapes Qwen3-30B-A3B --tp 2 --missing
      whet serving shapes Qwen3-30B-A3B --missing --engine-path ~/vllm

    Fused MoE kernels have a table for the experts of one rank, and block-scaled
    products for their sizes. 'to try' counts the configs of the engine's own
    space without those that are another's binary, and without those that do not
    fit into the device's shared memory.

    With --missing the engine is found, not imported, and each table is:
      shipped        there
      other version  there for another Triton, which SGLang uses with a warning
      optional       SGLang's second product, which otherwise uses the first one's
      unread         not there, and not read on this GPU
      missing        the engine takes its default, with a warning
    """
    from whet.interop.tables.engines import find_package, needs
    from whet.interop.tables.models import read_model
    from whet.interop.tables.shapes import shapes, space

    _known(engine)
    read = read_model(model, dtype, _pair(block_shape))
    device = device or _own_device()
    package = find_package(engine, engine_path) if missing else None
    version = _triton(triton) if engine == "sglang" else None
    found = needs(engine, shapes(read, engine, tp, ep), device, version, ep, package)
    if json:
        rows = [_row(one, space(one.shape, device).count) for one in found]
        print_json({"v": 1, "model": read.name, "notes": list(read.notes), "tables": rows})
    else:
        print_lines([_heading(read, engine, tp, ep)])
        for one in found:
            print_lines(["", *_described(one, space(one.shape, device).count)])
        print_lines([] if found else ["no tables: neither experts nor block-quantised products"])
        print_lines(f"note: {one}" for one in read.notes)
    if any(one.status == "missing" for one in found):
        raise typer.Exit(1)


def check_files(
    files: FilesArgument,
    engine: OwnerOption = None,
    ep: EpOption = 1,
    json: JsonOption = False,
) -> None:
    """Check tables without a GPU: can they be loaded, launched, and are they read?

    Examples:
      whet serving check 'E=8,N=7168,device_name=NVIDIA_H200.json'
      whet serving check configs/triton_3_5_1/*.json --engine sglang

    The exit code is 1 for an error: what the engine cannot load or launch, or
    what makes results wrong. Nothing is timed.
    """
    from whet.interop.files import FormatError
    from whet.interop.tables.checking import Remark, check, table_of

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
    files: FilesArgument,
    out: Annotated[
        Path | None, option("--out FOLDER", "Where to (default: the engine's variable).")
    ] = None,
    into_package: Annotated[
        bool, option("--install", "Write into the engine's own package instead.")
    ] = False,
    engine: OwnerOption = None,
    engine_path: PathOption = None,
    triton: TritonOption = None,
    force: Annotated[bool, option("--force", "Overwrite files that differ.")] = False,
) -> None:
    """Put tables where an engine looks for them, with their provenance beside.

    Examples:
      whet serving install 'E=8,N=7168,device_name=NVIDIA_H200.json' --out tables
      whet serving install E=*.json --engine sglang --triton 3.5.1 --out moe
      whet serving install E=*.json --install

    Without --out they go to $VLLM_TUNED_CONFIG_FOLDER or $SGLANG_MOE_CONFIG_DIR.
    Nothing is written if a file has an error ('whet serving check'), and nothing
    into an engine's package without --install.
    """
    from whet.interop.files import OutFile, read_text, refuse_to_lose, write_out
    from whet.interop.tables.checking import check, provenance, table_of
    from whet.interop.tables.engines import folder_notes

    _known(engine)
    if out is not None and into_package:
        raise UsageError("--out and --install exclude each other")
    planned: list[tuple[Path, OutFile, OutFile]] = []
    notes: dict[str, None] = {}
    for path in files:
        table = table_of(path, engine)
        remarks = check(path, replace(table, triton=None))  # it may come from any folder
        if errors := [one.text for one in remarks if one.level == "error"]:
            raise UsageError(f"{path}: {errors[0]}; see 'whet serving check'")
        folder = _folder(table, out, into_package, engine_path)
        place, text = _place(table, path, triton, into_package), read_text(path)
        beside = place.with_name(f"{place.name.removesuffix('.json')}.provenance.json")
        origin = OutFile(beside, provenance(path, table, text, remarks))
        planned.append((folder, OutFile(place, text), origin))
        notes[folder_notes(table.engine, table.shape.kind)] = None
    for folder, file, _ in planned:
        if not force:
            refuse_to_lose(file, folder)
    for folder, file, origin in planned:
        print_lines([f"wrote {write_out(file, folder)}"])
        write_out(origin, folder)
    print_lines(line for one in notes for line in wrap(one, page(), 2))


def _folder(table: Table, out: Path | None, into_package: bool, path: Path | None) -> Path:
    from whet.interop.tables.engines import NAMES, VARIABLES, find_package, inside_package

    if into_package:
        return find_package(table.engine, path).folder(table.shape.kind)
    variable = VARIABLES[table.engine]
    if out is None and table.shape.kind == "gemm":
        raise UsageError(
            f"{NAMES[table.engine]} reads tables of block-scaled products from inside its package "
            "only; use --install, or --out to keep them elsewhere"
        )
    if out is None and not os.environ.get(variable):
        raise UsageError(f"give --out FOLDER, or set {variable}")
    folder = out or Path(os.environ[variable])
    if inside_package(folder):
        raise UsageError(f"{folder} is in an installed package; use --install to write there")
    return folder


def _place(table: Table, path: Path, triton: str | None, into_package: bool) -> PurePosixPath:
    from whet.interop.sglang import version_folder

    if (table.engine, table.shape.kind) != ("sglang", "moe"):
        return PurePosixPath(path.name)
    folder = table.triton or ""
    if triton is not None or not folder.startswith("triton_"):
        version = _triton(triton)
        if version is None:
            raise UsageError("SGLang has a folder for each version of Triton; give --triton 3.5.1")
        folder = version_folder(version)
    return PurePosixPath(*([] if into_package else ["configs"]), folder, path.name)


def _known(engine: str | None) -> None:
    from whet.interop.tables.shapes import ENGINES

    if engine is not None and engine not in ENGINES:
        raise UsageError(f"--engine is {' or '.join(ENGINES)}, not '{engine}'")


def _pair(typed: str | None) -> tuple[int, int] | None:
    if typed is None:
        return None
    n, _, k = typed.partition(",")
    if not n.strip().isdecimal() or not k.strip().isdecimal():
        raise UsageError(f"--block-shape '{typed}' is not N,K, such as 128,128")
    return int(n), int(k)


def _own_device() -> str:
    from whet.measure.gpu.nvml import installed_gpu

    name = installed_gpu(os.environ.get("CUDA_VISIBLE_DEVICES"))[0]
    if not name:
        raise UsageError("there is no GPU here; give --device NVIDIA_H200")
    return name


def _triton(given: str | None) -> str | None:
    from importlib import metadata

    if given is not None:
        return given
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return None


def _heading(model: Model, engine: str, tp: int, ep: int) -> str:
    from whet.interop.tables.engines import NAMES

    moe = f"{model.experts} experts, top-k {model.top_k}, " if model.experts else ""
    ranks = count_text(tp, "rank") + (f", experts over {ep}" if ep > 1 else "")
    return f"{model.name}: {moe}{model.quantisation.dtype or 'bf16'}; {NAMES[engine]} on {ranks}"


def _described(one: Need, configs: int | None) -> list[str]:
    shape = one.shape
    sizes = f"K {shape.k}, top-k {shape.top_k}, " if shape.kind == "moe" else ""
    of = f"{shape.of}, second product" if one.down else shape.of
    status = f"{one.status}; " if one.status else ""
    if one.status == "other version" and one.found is not None:
        status = f"other version ({one.found.parent.name}); "
    answer = {"yes": "read", "no": "not read", "depends": "may be read"}[one.reading.answer]
    return [
        *wrap(f"{shape}  {sizes}{of}", page(), 2),
        *([f"  {one.file}"] if one.file else []),
        *wrap(f"  {status}{configs:,} to try; {answer}: {one.reading.why}", page(), 4),
    ]


def _row(one: Need, configs: int | None) -> dict[str, Any]:
    return {
        **asdict(one.shape),
        "down": one.down,
        "configs": configs,
        "file": one.file and str(one.file),
        "status": one.status,
        "found": one.found and str(one.found),
        "read": one.reading.answer,
        "why": one.reading.why,
    }
