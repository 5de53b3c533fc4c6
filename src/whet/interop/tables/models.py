"""A model's `config.json`: what serving engines look up tuned tables for.

Every publisher has names of its own for the same few numbers; the first that is there counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.core.errors import UsageError
from whet.interop.files import FormatError, read_object

_INSIDE = ("text_config", "language_config", "llm_config", "thinker_config")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_TOP_K = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_top_k",
    "moe_topk",
    "moe_k",
    "top_k_experts",
)
_EXPERT_SIZE = ("moe_intermediate_size", "expert_hidden_dim")
_SIZE = ("intermediate_size", "ffn_hidden_size")
_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")

# Weights of which neither engine's Triton kernel takes a table by default.
PACKED = ("int4_w4a16", "mxfp4", "nvfp4", "mxfp8")


@dataclass(frozen=True)
class Quantisation:
    """`dtype` as engines write it in a name (empty for bf16), or one of `PACKED`."""

    dtype: str = ""
    block_shape: tuple[int, int] | None = None
    per_channel: bool = False
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Linear:
    """The weight of a product outside the experts, N by K. `split` is the side that tensor
    parallelism divides: `n`, `k`, or neither."""

    name: str
    n: int
    k: int
    split: str = ""


@dataclass(frozen=True)
class Model:
    """`experts` is 0 for a dense model. `shared_size` is the intermediate size of all shared
    experts together. `notes` say what could not be derived."""

    name: str
    architecture: str
    hidden: int
    experts: int
    top_k: int
    expert_size: int
    shared_experts: int
    shared_size: int
    quantisation: Quantisation
    linears: tuple[Linear, ...] = ()
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    notes: tuple[str, ...] = ()


class _Config:
    """The members of one `config.json`, those of the language model first."""

    def __init__(self, path: Path, data: Mapping[str, Any]) -> None:
        self.path = path
        self.levels = [data]
        while inner := next(
            (one for name in _INSIDE if isinstance(one := self.levels[0].get(name), dict)), None
        ):
            self.levels.insert(0, inner)

    def get(self, *names: str) -> Any:
        """Of the innermost level that has any of them."""
        for level in self.levels:
            inside = [level, *(level[one] for one in ("ffn_config",) if one in level)]
            for name in names:
                for place in inside:
                    if isinstance(place, dict) and place.get(name) is not None:
                        return place[name]
        return None

    def number(self, *names: str, default: int | None = None) -> int:
        value = self.get(*names)
        if isinstance(value, list) and value and all(one == value[0] for one in value):
            value = value[0]  # one number for each layer
        if value is None and default is not None:
            return default
        if value is None:
            raise FormatError(f"{self.path} has no {names[0]}")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 40:
            raise FormatError(f"{self.path} has {names[0]} = {value!r}, not a number"[:200])
        return value


def read_model(
    path: Path, dtype: str | None = None, block_shape: tuple[int, int] | None = None
) -> Model:
    """From a `config.json` or the folder that it is in.

    `dtype` and `block_shape` are for weights that are quantised when they are loaded.
    """
    path = path / "config.json" if path.is_dir() else path
    config = _Config(path, read_object(path))
    architectures = config.levels[-1].get("architectures") or config.get("architectures")
    listed = isinstance(architectures, list) and architectures
    architecture = str(architectures[0]) if listed else str(config.get("model_type") or "")
    hidden = config.number("hidden_size", "d_model")
    # NemotronH's experts work in a smaller space.
    width = config.number("moe_latent_size", default=0) or hidden
    experts = config.number(*_EXPERTS, default=0)
    experts = experts if experts > 1 else 0
    size = config.number(*_EXPERT_SIZE, default=0) or config.number(*_SIZE, default=0)
    if experts and not size:
        raise FormatError(f"{path} has no {_EXPERT_SIZE[0]}")
    shared, shared_size = _shared(config, size) if experts else (0, 0)
    found = _quantisation(config)
    if dtype is not None or block_shape is not None:
        dtype = found.dtype if dtype is None else dtype
        found = Quantisation(dtype, block_shape, skipped=found.skipped)
    if found.block_shape and min(found.block_shape) < 0:
        raise FormatError(f"{path} has a negative block shape")
    heads = config.number("num_attention_heads", "n_heads", default=0)
    linears, notes = _linears(config, hidden, heads, experts, shared_size)
    return Model(
        name=path.resolve().parent.name if path.name == "config.json" else path.stem,
        architecture=architecture,
        hidden=width if experts else hidden,
        experts=experts,
        top_k=config.number(*_TOP_K) if experts else 0,
        expert_size=size if experts else 0,
        shared_experts=shared,
        shared_size=shared_size,
        quantisation=found,
        linears=linears,
        heads=heads,
        kv_heads=config.number("num_key_value_heads", "multi_query_group_num", default=heads),
        head_dim=_head_dim(config, hidden, heads),
        notes=notes,
    )


def _shared(config: _Config, size: int) -> tuple[int, int]:
    if own := config.number("shared_expert_intermediate_size", default=0):
        return 1, own
    if config.get("model_type") in ("llama4_text", "llama4"):
        return 1, size
    count = config.number(*_SHARED, default=0)
    own = config.number("moe_shared_expert_intermediate_size", default=0) or size
    return count, count * own


def _head_dim(config: _Config, hidden: int, heads: int) -> int:
    return config.number("head_dim", default=0) or (hidden // heads if heads else 0)


def _quantisation(config: _Config) -> Quantisation:
    said = config.get("quantization_config", "compression_config")
    if not isinstance(said, dict):
        return Quantisation()
    names = next(
        (
            value
            for name in ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
            if isinstance(value := said.get(name), list)
        ),
        [],
    )
    skipped = tuple(str(one) for one in names)
    method = str(said.get("quant_method") or said.get("quant_algo") or "").lower()
    if "config_groups" in said:
        return _of_groups(said["config_groups"], skipped)
    if method in ("fp8", "fbgemm_fp8") or str(said.get("quant_algo", "")).upper() == "FP8":
        return Quantisation(
            "fp8_w8a8",
            _pair(said.get("weight_block_size")),
            per_channel=method == "fbgemm_fp8",
            skipped=skipped,
        )
    if method in ("experts_int8", "w8a8_int8", "blockwise_int8"):
        dtype = "int8_w8a16" if method == "experts_int8" else "int8_w8a8"
        return Quantisation(
            dtype, _pair(said.get("weight_block_size")), method == "w8a8_int8", skipped=skipped
        )
    if method in ("mxfp4", "mxfp8", "quark"):
        return Quantisation("mxfp8" if method == "mxfp8" else "mxfp4", skipped=skipped)
    if method.startswith("modelopt") or "nvfp4" in str(said.get("quant_algo", "")).lower():
        return Quantisation("nvfp4", skipped=skipped)
    if method in ("gptq", "awq", "auto-round", "compressed-tensors", "bitsandbytes"):
        return Quantisation("int4_w4a16", skipped=skipped)
    raise UsageError(
        f"{config.path} is quantised by '{method}', which whet does not know; say what the "
        "engine makes of it with --dtype, and --block-shape N,K"
    )


def _of_groups(groups: Any, skipped: tuple[str, ...]) -> Quantisation:
    """compressed-tensors: what its first group says of weights and activations."""
    first: Any = next(iter(groups.values()), {}) if isinstance(groups, dict) else {}
    weights = first.get("weights") if isinstance(first, dict) else None
    weights = weights if isinstance(weights, dict) else {}
    inputs = first.get("input_activations") if isinstance(first, dict) else None
    bits, kind, strategy = (weights.get(one) for one in ("num_bits", "type", "strategy"))
    if bits == 8 and kind == "float" and inputs:
        block = _pair(weights.get("block_structure")) if strategy == "block" else None
        return Quantisation("fp8_w8a8", block, strategy == "channel", skipped)
    if bits == 8 and kind == "int":
        dtype = "int8_w8a8" if inputs else "int8_w8a16"
        return Quantisation(dtype, None, strategy == "channel", skipped)
    return Quantisation("nvfp4" if kind == "float" else "int4_w4a16", skipped=skipped)


def _pair(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    if (
        not isinstance(value, Sequence)
        or len(value) != 2
        or not all(type(one) is int and 0 < one <= 1 << 20 for one in value)
    ):
        raise FormatError(f"a block shape of {value!r} is not two positive whole numbers"[:200])
    return (value[0], value[1])


def _linears(
    config: _Config, hidden: int, heads: int, experts: int, shared_size: int
) -> tuple[tuple[Linear, ...], tuple[str, ...]]:
    """The products that both engines make of a layer; the attention's queries, keys and values of
    heads that share keys are `qkv_proj`, which depends on how many ranks there are."""
    linears: list[Linear] = []
    notes: list[str] = []
    latent = config.number("kv_lora_rank", default=0)
    gated = config.get("linear_num_value_heads") or config.get("attn_output_gate")
    if gated or config.get("linear_attn_config"):
        notes.append("the products of its attention are not derived (linear or gated attention)")
    elif latent:
        linears += _latent_attention(config, hidden, heads, latent)
    elif heads:
        dim = _head_dim(config, hidden, heads)
        linears += [
            Linear("qkv_proj", 0, hidden, "n"),
            Linear("o_proj", hidden, heads * dim, "k"),
        ]
    dense = config.number("intermediate_size_mlp", default=0) or config.number(*_SIZE, default=0)
    sparse_step = config.number("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    some_dense = (
        not experts
        or config.number("first_k_dense_replace", default=0)
        or config.get("mlp_only_layers")
        or sparse_step > 1
    )
    if some_dense and dense:
        linears += _gated_product("mlp", hidden, dense)
    if shared_size:
        linears += _gated_product("shared_experts", hidden, shared_size)
    return tuple(linears), tuple(notes)


def _latent_attention(config: _Config, hidden: int, heads: int, latent: int) -> list[Linear]:
    rope = config.number("qk_rope_head_dim")
    nope, value = config.number("qk_nope_head_dim"), config.number("v_head_dim")
    if queries := config.number("q_lora_rank", default=0):
        first = [
            Linear("fused_qkv_a_proj", queries + latent + rope, hidden),
            Linear("q_b_proj", heads * (nope + rope), queries, "n"),
        ]
    else:
        first = [
            Linear("q_proj", heads * (nope + rope), hidden, "n"),
            Linear("kv_a_proj_with_mqa", latent + rope, hidden),
        ]
    indexed = config.number("index_n_heads", default=0) * config.number("index_head_dim", default=0)
    return [
        *first,
        Linear("kv_b_proj", heads * (nope + value), latent, "n"),
        Linear("o_proj", hidden, heads * value, "k"),
        *([Linear("indexer.wq_b", indexed, queries)] if indexed and queries else []),
    ]


def _gated_product(name: str, hidden: int, size: int) -> list[Linear]:
    return [
        Linear(f"{name}.gate_up_proj", 2 * size, hidden, "n"),
        Linear(f"{name}.down_proj", hidden, size, "k"),
    ]
