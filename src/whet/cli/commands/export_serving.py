"""`whet export vllm-moe`, `vllm-fp8` and `sglang-moe`: configs for a serving engine to find."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.export_options import (
    DeviceOption,
    ForceOption,
    KernelArgument,
    WhereOption,
    pairs,
    selected,
    write_all,
)
from whet.cli.arguments.options import StoreOption
from whet.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from whet.interop.files import OutFile
    from whet.interop.serving import Layout, Pick

VLLM_MOE_EXAMPLES = """\b
Examples:
  whet export vllm-moe fused_moe_kernel --extra E=8 --out configs
  whet export vllm-moe moe --m-key tokens --extra E=8 --extra N=14336
  whet export vllm-moe moe --dtype fp8_w8a8 --block-shape 128,128
"""
VLLM_FP8_EXAMPLES = """\b
Examples:
  whet export vllm-fp8 block_fp8_gemm --out configs
  whet export vllm-fp8 block_fp8_gemm --where K=7168 --param BLOCK_SIZE_M=BM
"""
SGLANG_MOE_EXAMPLES = """\b
Examples:
  whet export sglang-moe fused_moe_kernel --extra E=8
  whet export sglang-moe fused_moe_kernel --down --triton 3.5.1 --out moe
"""

_SIZES = "MNKE"

MKeyOption = Annotated[
    str | None,
    typer.Option(
        "--m-key", metavar="NAME", help="The key's name for M, the number of tokens (default: M)."
    ),
]
NKeyOption = Annotated[
    str | None, typer.Option("--n-key", metavar="NAME", help="The key's name for N (default: N).")
]
KKeyOption = Annotated[
    str | None, typer.Option("--k-key", metavar="NAME", help="The key's name for K (default: K).")
]
EKeyOption = Annotated[
    str | None,
    typer.Option(
        "--e-key", metavar="NAME", help="The key's name for E, the number of experts (default: E)."
    ),
]
ExtraOption = Annotated[
    list[str] | None,
    typer.Option(
        "--extra",
        metavar="NAME=NUMBER",
        help="A size or parameter missing from the results: E=8, GROUP_SIZE_M=1.",
    ),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param", metavar="THEIRS=YOURS", help="Rename a parameter: BLOCK_SIZE_M=TILE_M."
    ),
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype", metavar="NAME", help="Data type as the engine spells it: fp8_w8a8, int8_w8a16."
    ),
]
BlockShapeOption = Annotated[
    str | None,
    typer.Option("--block-shape", metavar="N,K", help="Block shape of a block-quantised weight."),
]
TritonOption = Annotated[
    str | None,
    typer.Option(
        "--triton",
        metavar="VERSION",
        help="The Triton version used for tuning (default: from the store).",
    ),
]
OutOption = Annotated[str | None, typer.Option("--out", metavar="DIR", help="Output directory.")]


def vllm_moe(
    name: KernelArgument,
    m_key: MKeyOption = None,
    n_key: NKeyOption = None,
    e_key: EKeyOption = None,
    extra: ExtraOption = None,
    param: ParamOption = None,
    dtype: DtypeOption = None,
    block_shape: BlockShapeOption = None,
    triton: TritonOption = None,
    where: WhereOption = None,
    device: DeviceOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    store: StoreOption = None,
) -> None:
    """Write files for vLLM's fused MoE kernel.

    Writes one file for each E and N, where N is w2.shape[2]. Without --out they go to
    $VLLM_TUNED_CONFIG_FOLDER, where vLLM finds them, or to the current directory.
    """
    from whet.interop import vllm

    layout = _layout(
        {"M": m_key, "N": n_key, "E": e_key}, extra, param, dtype, block_shape, triton=triton
    )
    folder = out or os.environ.get(vllm.FOLDER_VARIABLE) or "."
    _export(vllm.moe_files, layout, name, device, where, folder, force, store)


def vllm_fp8(
    name: KernelArgument,
    m_key: MKeyOption = None,
    n_key: NKeyOption = None,
    k_key: KKeyOption = None,
    extra: ExtraOption = None,
    param: ParamOption = None,
    block_shape: BlockShapeOption = None,
    where: WhereOption = None,
    device: DeviceOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    store: StoreOption = None,
) -> None:
    """Write files for vLLM's block fp8 GEMM.

    Writes one file for each N and K to --out or the current directory; vLLM reads them from its
    own quantization/utils/configs. The block shape is 128,128 unless given.
    """
    from whet.interop import vllm

    layout = _layout({"M": m_key, "N": n_key, "K": k_key}, extra, param, None, block_shape)
    _export(vllm.fp8_files, layout, name, device, where, out or ".", force, store)


def sglang_moe(
    name: KernelArgument,
    m_key: MKeyOption = None,
    n_key: NKeyOption = None,
    e_key: EKeyOption = None,
    extra: ExtraOption = None,
    param: ParamOption = None,
    dtype: DtypeOption = None,
    block_shape: BlockShapeOption = None,
    per_channel_quant: Annotated[
        bool, typer.Option("--per-channel-quant", help="For weights quantised per channel.")
    ] = False,
    down: Annotated[
        bool, typer.Option("--down", help="For the second (down) product, which has its own file.")
    ] = False,
    triton: TritonOption = None,
    where: WhereOption = None,
    device: DeviceOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    store: StoreOption = None,
) -> None:
    """Write files for SGLang's fused MoE kernel.

    They go to configs/triton_VERSION under --out, or under $SGLANG_MOE_CONFIG_DIR, where SGLang
    finds them, or under the current directory.
    """
    from whet.interop import sglang

    layout = _layout(
        {"M": m_key, "N": n_key, "E": e_key},
        extra,
        param,
        dtype,
        block_shape,
        triton=triton,
        per_channel_quant=per_channel_quant,
        down=down,
    )
    folder = out or os.environ.get(sglang.FOLDER_VARIABLE) or "."
    _export(sglang.moe_files, layout, name, device, where, folder, force, store)


def _export(
    files: Callable[[Sequence[Pick], Layout], list[OutFile]],
    layout: Layout,
    name: str,
    device: Sequence[str] | None,
    where: Sequence[str] | None,
    folder: str,
    force: bool,
    store: str | None,
) -> None:
    from whet.cli.arguments.reading import open_known

    with open_known(store) as opened:
        selection = selected(opened, name, device, where)
    write_all(files(selection.picks, layout), Path(folder), force)


def _layout(
    keys: dict[str, str | None],
    extra: Sequence[str] | None,
    param: Sequence[str] | None,
    dtype: str | None,
    block_shape: str | None,
    **more: Any,
) -> Layout:
    from whet.core.frozen import FrozenMap
    from whet.interop.serving import PARAMETERS, Layout

    fixed, parameters = pairs(extra, "--extra"), pairs(param, "--param")
    for typed, option, valid in (
        (fixed, "--extra", (*_SIZES, *PARAMETERS)),
        (parameters, "--param", PARAMETERS),
    ):
        for one in typed:
            if one not in valid:
                raise UsageError(f"{option} '{one}' is unknown{did_you_mean(one, valid)}")
    return Layout(
        keys=FrozenMap({size: name for size, name in keys.items() if name is not None}),
        fixed=FrozenMap(fixed),
        parameters=FrozenMap({theirs: str(yours) for theirs, yours in parameters.items()}),
        dtype=dtype,
        block_shape=None if block_shape is None else _shape(block_shape),
        **more,
    )


def _shape(text: str) -> tuple[int, int]:
    parts = [part.strip() for part in text.strip("[]").split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--block-shape '{text}' is not valid; use N,K, such as 128,128")
    return int(parts[0]), int(parts[1])
