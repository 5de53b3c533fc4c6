"""vLLM's tuned configs: the fused MoE kernel and the block-scaled fp8 GEMM."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

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
FP8_KERNEL = "_w8a8_triton_block_scaled_mm"
FOLDER_VARIABLE = "VLLM_TUNED_CONFIG_FOLDER"

EXTRAS = ("waves_per_eu", "matrix_instr_nonkdim", "kpack", "SPLIT_K", "num_ctas")
_BLOCK = (128, 128)
_SHAPE = r"block_shape=\[(?P<block_n>\d{1,9}),(?P<block_k>\d{1,9})\]"
MOE_NAME = re.compile(
    r"E=(?P<E>\d{1,12}),N=(?P<N>\d{1,12}),device_name=(?P<device>[^,]+?)"
    rf"(?:,dtype=(?P<dtype>[^,]+?))?(?:,{_SHAPE})?\.json"
)
FP8_NAME = re.compile(
    r"N=(?P<N>\d{1,12}),K=(?P<K>\d{1,12}),device_name=(?P<device>[^,]+?)"
    rf",dtype=(?P<dtype>[^,]+?),{_SHAPE}\.json"
)


def device_part(device: str) -> str:
    """`"AMD Instinct MI300X / OAM"` is `AMD_Instinct_MI300X_OAM`."""
    return checked_part(re.sub(r"[\s/]+", "_", device), "the device's name")


def moe_name(
    experts: int, n: int, device: str, dtype: str = "", block_shape: tuple[int, int] | None = None
) -> str:
    """`n` is `w2.shape[2]`, the size between the two products. vLLM takes every H200 for one."""
    name = device_part(device)
    name = "NVIDIA_H200" if "H200" in name.split("_") else name
    kind = f",dtype={dtype}" if dtype else ""
    shape = f",block_shape=[{block_shape[0]},{block_shape[1]}]" if block_shape else ""
    return f"E={experts},N={n},device_name={name}{kind}{shape}.json"


def fp8_name(
    n: int, k: int, device: str, block_shape: tuple[int, int], dtype: str = "fp8_w8a8"
) -> str:
    """The kernel's int8 sibling differs in the dtype alone."""
    block = f"[{block_shape[0]},{block_shape[1]}]"
    return f"N={n},K={k},device_name={device_part(device)},dtype={dtype},block_shape={block}.json"


def moe_files(picks: Sequence[Pick], layout: Layout) -> list[OutFile]:
    """One file for each number of experts and size; the folder is `VLLM_TUNED_CONFIG_FOLDER`."""

    def name(workload: Workload) -> str:
        return moe_name(
            layout.size(workload, "E"),
            layout.size(workload, "N"),
            workload.device.name,
            layout.dtype_of(workload),
            layout.block_shape_of(workload),
        )

    versions = {name(workload): layout.triton_of(workload) for workload, _ in picks}
    return [
        OutFile(
            PurePosixPath(file),
            body(entries, {"triton_version": version} if (version := versions[file]) else {}),
        )
        for file, entries in by_name(picks, name, layout, EXTRAS).items()
    ]


def fp8_files(
    picks: Sequence[Pick], layout: Layout, named: Callable[..., str] = fp8_name
) -> list[OutFile]:
    """Engines read every member's name as a number here, so that no version of Triton is said.
    SGLang's files differ in how they are `named` alone."""

    def name(workload: Workload) -> str:
        return named(
            layout.size(workload, "N"),
            layout.size(workload, "K"),
            workload.device.name,
            layout.block_shape_of(workload) or _BLOCK,
            "int8_w8a8" if layout.dtype_of(workload) == "int8_w8a8" else "fp8_w8a8",
        )

    return [
        OutFile(PurePosixPath(file), body(entries))
        for file, entries in by_name(picks, name, layout, EXTRAS).items()
    ]


def read_moe(path: Path, options: ReadOptions) -> list[Finding]:
    found = matched(path, MOE_NAME, "E=8,N=4096,device_name=NVIDIA_H200.json")
    key = {"E": int(found["E"]), "N": int(found["N"]), **quantised(found)}
    return findings_of(path, key, found["device"], "vllm-moe", MOE_KERNEL, options)


def read_fp8(path: Path, options: ReadOptions) -> list[Finding]:
    example = "N=4096,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    found = matched(path, FP8_NAME, example)
    key = {"N": int(found["N"]), "K": int(found["K"]), **quantised(found)}
    return findings_of(path, key, found["device"], "vllm-fp8", FP8_KERNEL, options)
