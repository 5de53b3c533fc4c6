"""SGLang's tuned configs of its fused MoE kernel, in a folder for each version of Triton."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from whet.core.errors import UsageError
from whet.core.workload import Workload
from whet.interop.files import OutFile, ReadOptions
from whet.interop.findings import Finding
from whet.interop.serving import (
    Layout,
    Pick,
    body,
    by_name,
    checked_part,
    findings_of,
    matched,
    quantised,
)

MOE_KERNEL = "fused_moe_kernel"
FP8_KERNEL = "_w8a8_block_fp8_matmul"
FOLDER_VARIABLE = "SGLANG_MOE_CONFIG_DIR"

EXTRAS = ("waves_per_eu", "matrix_instr_nonkdim", "kpack", "num_ctas", "USE_TMA")
NAME = re.compile(
    r"E=(?P<E>\d{1,12}),N=(?P<N>\d{1,12}),device_name=(?P<device>[^,]+?)"
    r"(?:,dtype=(?P<dtype>[^,]+?))?"
    r"(?:,block_shape=\[(?P<block_n>\d{1,9}), (?P<block_k>\d{1,9})\])?"
    r"(?P<per_channel_quant>,per_channel_quant=True)?(?P<down>_down)?\.json"
)
FP8_NAME = re.compile(
    r"N=(?P<N>\d{1,12}),K=(?P<K>\d{1,12}),device_name=(?P<device>[^,]+?),dtype=(?P<dtype>[^,]+?),"
    r"block_shape=\[(?P<block_n>\d{1,9}), (?P<block_k>\d{1,9})\]\.json"
)
_VERSION_FOLDER = re.compile(r"triton_([0-9A-Za-z_.+-]+)")


def device_part(device: str) -> str:
    """A space is an underscore. So is a slash, which no file's name can hold."""
    return checked_part(device.replace(" ", "_").replace("/", "_"), "the device's name")


def moe_name(
    experts: int,
    n: int,
    device: str,
    dtype: str = "",
    block_shape: tuple[int, int] | None = None,
    per_channel_quant: bool = False,
    down: bool = False,
) -> str:
    """With a space in the block's shape, unlike vLLM."""
    kind = f",dtype={dtype}" if dtype else ""
    shape = f",block_shape=[{block_shape[0]}, {block_shape[1]}]" if block_shape else ""
    channel = ",per_channel_quant=True" if per_channel_quant else ""
    end = "_down" if down else ""
    return f"E={experts},N={n},device_name={device_part(device)}{kind}{shape}{channel}{end}.json"


def version_folder(triton: str) -> str:
    """`"3.5.1"` is `triton_3_5_1`.

    SGLang sorts all such folders by their numbers, and raises for every shape where one has none.
    """
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})*", triton):
        plain = re.match(r"\d+(\.\d+)+", triton)
        raise UsageError(
            f"SGLang cannot parse a folder for Triton {triton!r}, and would then fail for every "
            f"shape; give --triton {plain[0] if plain else '3.5.1'}"
        )
    return f"triton_{triton.replace('.', '_')}"


def fp8_name(
    n: int, k: int, device: str, block_shape: tuple[int, int], dtype: str = "fp8_w8a8"
) -> str:
    """Of the block-scaled GEMM, in a folder without versions of Triton."""
    block = f"[{block_shape[0]}, {block_shape[1]}]"
    return f"N={n},K={k},device_name={device_part(device)},dtype={dtype},block_shape={block}.json"


def moe_files(picks: Sequence[Pick], layout: Layout) -> list[OutFile]:
    """The folder that holds `configs` is `SGLANG_MOE_CONFIG_DIR`."""

    def name(workload: Workload) -> str:
        version = layout.triton_of(workload)
        if version is None:
            raise UsageError(
                f"the Triton version that {workload} was tuned with is unknown, and SGLang has "
                "one directory per version; give --triton 3.5.1"
            )
        file = moe_name(
            layout.size(workload, "E"),
            layout.size(workload, "N"),
            workload.device.name,
            layout.dtype_of(workload),
            layout.block_shape_of(workload),
            layout.flag(workload, "per_channel_quant"),
            layout.flag(workload, "down"),
        )
        return f"configs/{version_folder(version)}/{file}"

    return [
        OutFile(PurePosixPath(file), body(entries))
        for file, entries in by_name(picks, name, layout, EXTRAS).items()
    ]


def read_fp8(path: Path, options: ReadOptions) -> list[Finding]:
    example = "N=4096,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
    found = matched(path, FP8_NAME, example)
    key = {"N": int(found["N"]), "K": int(found["K"]), **quantised(found)}
    return findings_of(path, key, found["device"], "sglang-fp8", FP8_KERNEL, options)


def read_moe(path: Path, options: ReadOptions) -> list[Finding]:
    """The version of Triton is the folder's, where the file is still in one."""
    found = matched(path, NAME, "E=8,N=4096,device_name=NVIDIA_H200.json")
    key = {"E": int(found["E"]), "N": int(found["N"]), **quantised(found)}
    folder = _VERSION_FOLDER.fullmatch(path.absolute().parent.name)
    version = None if folder is None else folder[1].replace("_", ".")
    return findings_of(path, key, found["device"], "sglang-moe", MOE_KERNEL, options, version)
