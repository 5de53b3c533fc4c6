"""The tables that a model makes an engine look up, their names, and which configs to try."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from whet.core.errors import UsageError
from whet.core.space import Space
from whet.interop import sglang, vllm
from whet.interop.tables.models import PACKED, Linear, Model

ENGINES = ("vllm", "sglang")

# The batch sizes of the engines' own tuners, and the values that these try.
BATCH_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
VALUES = {
    "BLOCK_SIZE_M": (16, 32, 64, 128, 256),
    "BLOCK_SIZE_N": (32, 64, 128, 256),
    "BLOCK_SIZE_K": (64, 128, 256),
    "GROUP_SIZE_M": (1, 16, 32, 64),
    "num_warps": (4, 8),
    "num_stages": (2, 3, 4, 5),
}

# What a block may have, in bytes, of the GPUs whose limit is known.
SHARED_MEMORY = {
    "sm_80": 163 << 10,
    "sm_89": 99 << 10,
    "sm_90": 227 << 10,
    "sm_100": 227 << 10,
    "sm_120": 99 << 10,
}
_ARCHITECTURES = (
    (r"H100|H200|H800|H20|GH200", "sm_90"),
    (r"B200|B300|GB200|GB300", "sm_100"),
    (r"A100|A800", "sm_80"),
    (r"L4|L20|L40|L40S|RTX_?40\d\d|4090D?", "sm_89"),
    (r"RTX_?50\d\d|5090D?|6000_Blackwell\w*", "sm_120"),
    (r"MI3\d\dX?(?:_VF)?|MI\d\d\dX?", "rocm"),
)


@dataclass(frozen=True)
class Shape:
    """One table. `kind` is `moe` (E, N, K and top-k are those of the experts on one rank) or `gemm`
    (a block-scaled product; E and top-k are 0). `of` says what in the model it is."""

    kind: str
    experts: int
    n: int
    k: int
    top_k: int
    dtype: str = ""
    block_shape: tuple[int, int] | None = None
    per_channel: bool = False
    of: str = ""

    def __str__(self) -> str:
        sizes = f"E={self.experts},N={self.n}" if self.kind == "moe" else f"N={self.n},K={self.k}"
        dtype = f",{self.dtype}" if self.dtype else ""
        block = ",block={}x{}".format(*self.block_shape) if self.block_shape else ""
        return sizes + dtype + block


def architecture_of(device: str) -> str | None:
    """`NVIDIA_H200` and `NVIDIA H100 80GB HBM3` are sm_90; None for what whet does not know."""
    name = re.sub(r"[\s/]+", "_", device)
    for pattern, architecture in _ARCHITECTURES:
        if re.search(rf"(?:^|_)(?:{pattern})(?=_|-|$)", name):
            return architecture
    return None


def fused_shared_experts(model: Model, engine: str, ep: int) -> int:
    """How many shared experts an engine adds to the routed ones, by default and on NVIDIA GPUs."""
    if engine != "sglang" or ep > 1 or not model.shared_experts:
        return 0
    quant, routed = model.quantisation.dtype, model.experts
    if quant in PACKED:
        return 0
    if model.architecture == "DeepseekV3ForCausalLM":
        return int(routed == 256 and model.shared_experts == 1)
    if model.architecture in ("Glm4MoeForCausalLM", "MiniMaxM3SparseForCausalLM"):
        return model.shared_experts
    if model.architecture == "Qwen3NextForCausalLM":
        return int(model.shared_size == model.expert_size)
    return 0


def shapes(model: Model, engine: str, tp: int = 1, ep: int = 1) -> tuple[Shape, ...]:
    """What one rank looks up. Of `tp` ranks, `ep` share the experts out among themselves, and
    `tp / ep` divide each expert; vLLM does only the one or the other."""
    if tp < 1 or ep < 1:
        raise UsageError("--tp and --ep are at least 1")
    if engine == "vllm" and ep not in (1, tp):
        raise UsageError(f"vLLM shares experts out among all ranks; use --ep {tp}, or --ep 1")
    if tp % ep:
        raise UsageError(f"--tp {tp} is not a multiple of --ep {ep}")
    found = [_moe(model, engine, tp // ep, ep)] if model.experts else []
    quant = model.quantisation
    if quant.dtype == "fp8_w8a8" and quant.block_shape:
        fused = fused_shared_experts(model, engine, ep)
        gemms: dict[tuple[int, int], list[str]] = {}
        for linear in model.linears:
            if fused and linear.name.startswith("shared_experts"):
                continue
            if not _skipped(linear.name, quant.skipped):
                gemms.setdefault(_per_rank(linear, model, tp), []).append(linear.name)
        found += [
            Shape("gemm", 0, n, k, 0, quant.dtype, quant.block_shape, of=", ".join(names))
            for (n, k), names in gemms.items()
        ]
    return tuple(found)


def _moe(model: Model, engine: str, tp: int, ep: int) -> Shape:
    quant = model.quantisation
    n = _divided(model.expert_size, tp, "the experts' intermediate size")
    if quant.block_shape and n % quant.block_shape[0]:
        raise UsageError(
            f"{model.expert_size} / {tp} = {n} is not a multiple of the block's "
            f"{quant.block_shape[0]}, which engines refuse to load; use another --tp, or --ep"
        )
    fused = fused_shared_experts(model, engine, ep)
    dtype = quant.dtype
    if engine == "vllm" and dtype == "int8_w8a8":
        dtype = ""  # vLLM names no such file: it reads that of bf16
    return Shape(
        "moe",
        _divided(model.experts, ep, "the number of experts") + fused,
        n,
        model.hidden,
        model.top_k + fused,
        dtype,
        quant.block_shape,
        quant.per_channel and engine == "sglang",
        "experts" + (f" with {fused} shared" if fused else ""),
    )


def _per_rank(linear: Linear, model: Model, tp: int) -> tuple[int, int]:
    if linear.name == "qkv_proj":
        # Fewer heads of keys than ranks: each rank has one.
        heads = _divided(model.heads, tp, "the number of heads") + 2 * max(1, model.kv_heads // tp)
        return heads * model.head_dim, linear.k
    if linear.split == "n":
        return _divided(linear.n, tp, linear.name), linear.k
    return linear.n, _divided(linear.k, tp, linear.name) if linear.split else linear.k


def _divided(value: int, by: int, what: str) -> int:
    if value % by:
        raise UsageError(f"{what}, {value}, cannot be divided among {by} ranks")
    return value // by


def _skipped(name: str, patterns: Sequence[str]) -> bool:
    """Whether all layers leave it as it was: a pattern with a layer's number says less."""
    parts = {part for one in name.split(".") for part in (one, one.replace("gate_up", "gate"))}
    if not name.startswith(("mlp", "shared")):
        parts |= {"self_attn", "attention"}
        parts |= {"q_proj", "k_proj", "v_proj"} if name == "qkv_proj" else set()
    ends = {
        words[-1]
        for pattern in patterns
        if not re.search(r"\d", pattern) and (words := re.findall(r"[a-z_]+", pattern.lower()))
    }
    return bool(parts & ends)


def table_name(engine: str, shape: Shape, device: str, down: bool = False) -> str:
    """The name of the file that the engine looks for. `down` is SGLang's second product."""
    if shape.dtype in PACKED:
        raise UsageError(f"neither engine reads a table for {shape.dtype} weights by default")
    if shape.kind == "gemm":
        if shape.block_shape is None:
            raise UsageError("only products of block-quantised weights have tables")
        named = vllm.fp8_name if engine == "vllm" else sglang.fp8_name
        return named(shape.n, shape.k, device, shape.block_shape, shape.dtype)
    common = (shape.experts, shape.n, device, shape.dtype, shape.block_shape)
    if engine == "vllm":
        return vllm.moe_name(*common)
    return sglang.moe_name(*common, shape.per_channel, down)


def table_path(
    engine: str, shape: Shape, device: str, triton: str | None = None, down: bool = False
) -> PurePosixPath:
    """Under the engine's folder of such tables."""
    name = table_name(engine, shape, device, down)
    if engine == "sglang" and shape.kind == "moe":
        if triton is None:
            raise UsageError(
                "SGLang has one folder for each version of Triton; give --triton 3.5.1"
            )
        return PurePosixPath(sglang.version_folder(triton), name)
    return PurePosixPath(name)


# Bytes of an element of activations and of weights, as both lie in shared memory.
_BYTES = {
    "": (2, 2),
    "fp8_w8a8": (1, 1),
    "int8_w8a8": (1, 1),
    "int8_w8a16": (2, 1),
    "fp8_w8a16": (2, 1),
    "float32": (4, 4),
}
DTYPES = (*_BYTES, "int4_w4a16")


def shared_bytes(config: Mapping[str, int], shape: Shape, architecture: str | None) -> int:
    """The least that the kernel's pipeline takes: a tile of both operands for each stage. It is one
    stage less where the tensor cores read registers: before Hopper, with less than 64 rows, and
    where weights are converted on the way."""
    a, b = _BYTES.get(shape.dtype, (0, 0))
    limit = min(shape.block_shape) if shape.block_shape else config["BLOCK_SIZE_K"]
    early = architecture != "sm_90" or a != b or config["BLOCK_SIZE_M"] < 64
    rows = config["BLOCK_SIZE_M"] * a + config["BLOCK_SIZE_N"] * b
    return (config["num_stages"] - early) * rows * min(config["BLOCK_SIZE_K"], limit)


def space(shape: Shape, device: str | None = None) -> Space:
    """The engines' own space without what is built in vain: the kernel lowers a BLOCK_SIZE_K above
    the block of the weights, so that it is another config's binary, and what does not fit into
    the shared memory of the device is refused by Triton."""
    values = dict(VALUES)
    if shape.block_shape:
        limit = min(shape.block_shape)
        values["BLOCK_SIZE_K"] = tuple(k for k in VALUES["BLOCK_SIZE_K"] if k <= limit) or (limit,)
    architecture = architecture_of(device) if device else None
    memory = SHARED_MEMORY.get(architecture or "")
    if memory is None:
        return Space(values)
    a, b = _BYTES.get(shape.dtype, (0, 0))
    early = "(BLOCK_SIZE_M < 64)" if architecture == "sm_90" and a == b else "1"
    tiles = f"(BLOCK_SIZE_M * {a} + BLOCK_SIZE_N * {b}) * BLOCK_SIZE_K"
    return Space(values, constraints=[f"(num_stages - {early}) * {tiles} <= {memory}"])
