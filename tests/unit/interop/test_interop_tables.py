"""Which tuned tables a model makes vLLM and SGLang look up, and what is to be said of a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from whet.core.errors import UsageError
from whet.interop.files import FormatError
from whet.interop.tables.checking import MODELS, check, sharers, table_of
from whet.interop.tables.engines import find_package, need, reading
from whet.interop.tables.models import read_model
from whet.interop.tables.shapes import (
    BATCH_SIZES,
    ENGINES,
    Shape,
    architecture_of,
    shapes,
    space,
    table_name,
    table_path,
)

BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
LATENT = {
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    **LATENT,
    "quantization_config": BLOCKS,
}
QWEN3 = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
}
GLM = {
    "architectures": ["Glm4MoeForCausalLM"],
    "hidden_size": 5120,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "n_routed_experts": 160,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {
                "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                "input_activations": {"num_bits": 8, "type": "float", "dynamic": True},
            }
        },
        "ignore": ["lm_head"],
    },
}
NEXT = {
    "architectures": ["Qwen3NextForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "linear_num_value_heads": 32,
}
# Each kind of config.json that has names of its own: ranks, what one of them looks up, and K and
# top-k. The expected names are those of files that the engines ship, where they ship any.
KINDS: list[tuple[str, dict[str, Any], str, int, str, int, int]] = [
    (
        "mixtral",
        {
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        "vllm",
        2,
        "E=8,N=7168,device_name=NVIDIA_H200.json",
        4096,
        2,
    ),
    (
        "qwen2-moe",
        {
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "moe_intermediate_size": 2560,
            "shared_expert_intermediate_size": 20480,
            "num_experts": 64,
            "num_experts_per_tok": 8,
        },
        "vllm",
        4,
        "E=64,N=640,device_name=NVIDIA_H200.json",
        3584,
        8,
    ),
    ("qwen3-moe", QWEN3, "vllm", 2, "E=128,N=384,device_name=NVIDIA_H200.json", 2048, 8),
    (
        "deepseek-v2",
        {
            "hidden_size": 5120,
            "intermediate_size": 12288,
            "moe_intermediate_size": 1536,
            "n_routed_experts": 160,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "quantization_config": {"quant_method": "fp8"},
        },
        "vllm",
        8,
        "E=160,N=192,device_name=NVIDIA_H200,dtype=fp8_w8a8.json",
        5120,
        6,
    ),
    (
        "deepseek-v3",
        DEEPSEEK_V3,
        "vllm",
        8,
        "E=256,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json",
        7168,
        8,
    ),
    (
        "deepseek-v3 with its shared expert",
        DEEPSEEK_V3,
        "sglang",
        8,
        "E=257,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json",
        7168,
        9,
    ),
    (
        "llama-4",
        {
            "architectures": ["Llama4ForConditionalGeneration"],
            "text_config": {
                "model_type": "llama4_text",
                "hidden_size": 5120,
                "intermediate_size": 8192,
                "intermediate_size_mlp": 16384,
                "num_local_experts": 16,
                "num_experts_per_tok": 1,
            },
            "vision_config": {"hidden_size": 1408, "intermediate_size": 5632},
        },
        "vllm",
        8,
        "E=16,N=1024,device_name=NVIDIA_H200.json",
        5120,
        1,
    ),
    (
        "glm-4.5",
        GLM,
        "sglang",
        8,
        "E=161,N=192,device_name=NVIDIA_H200,dtype=fp8_w8a8,per_channel_quant=True.json",
        5120,
        9,
    ),
    (
        "kimi-k2",
        {**DEEPSEEK_V3, "n_routed_experts": 384, "num_attention_heads": 64},
        "sglang",
        16,
        "E=384,N=128,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json",
        7168,
        8,
    ),
    (
        "minimax-m2",
        {
            "hidden_size": 3072,
            "intermediate_size": 1536,
            "num_local_experts": 256,
            "num_experts_per_tok": 8,
            "quantization_config": {**BLOCKS, "modules_to_not_convert": ["gate", "lm_head"]},
        },
        "vllm",
        4,
        "E=256,N=384,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json",
        3072,
        8,
    ),
    (
        "phi-3.5-moe",
        {
            "hidden_size": 4096,
            "intermediate_size": 6400,
            "num_local_experts": 16,
            "num_experts_per_tok": 2,
        },
        "vllm",
        2,
        "E=16,N=3200,device_name=NVIDIA_H200.json",
        4096,
        2,
    ),
    (
        "dbrx",
        {
            "d_model": 6144,
            "n_heads": 48,
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        "vllm",
        8,
        "E=16,N=1344,device_name=NVIDIA_H200.json",
        6144,
        4,
    ),
    ("qwen3-next", NEXT, "vllm", 1, "E=512,N=512,device_name=NVIDIA_H200.json", 2048, 10),
    (
        "hunyuan, a number for each layer",
        {
            "hidden_size": 4096,
            "intermediate_size": 3072,
            "moe_intermediate_size": [3072, 3072],
            "moe_topk": [8, 8],
            "num_experts": 64,
        },
        "vllm",
        2,
        "E=64,N=1536,device_name=NVIDIA_H200.json",
        4096,
        8,
    ),
]


def written(folder: Path, config: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def tile(**values: int) -> dict[str, int]:
    return {
        "BLOCK_SIZE_M": 64,
        "BLOCK_SIZE_N": 128,
        "BLOCK_SIZE_K": 64,
        "GROUP_SIZE_M": 1,
        "num_warps": 4,
        "num_stages": 3,
        **values,
    }


def a_table(folder: Path, name: str, **values: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps({str(m): tile(**values) for m in BATCH_SIZES}))
    return path


def said(path: Path, level: str = "error") -> list[str]:
    return [one.text for one in check(path, table_of(path)) if one.level == level]


@pytest.mark.parametrize(
    ("config", "engine", "tp", "name", "k", "top_k"),
    [one[1:] for one in KINDS],
    ids=[one[0] for one in KINDS],
)
def test_a_model_asks_for_the_table_of_its_experts(
    tmp_path: Path, config: dict[str, Any], engine: str, tp: int, name: str, k: int, top_k: int
) -> None:
    moe = shapes(read_model(written(tmp_path, config)), engine, tp)[0]
    assert table_name(engine, moe, "NVIDIA H200") == name
    assert (moe.k, moe.top_k) == (k, top_k)


def test_weights_with_kernels_of_their_own_have_no_table(tmp_path: Path) -> None:
    oss = {
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_local_experts": 32,
        "experts_per_token": 4,
        "quantization_config": {"quant_method": "mxfp4"},
    }
    (moe,) = shapes(read_model(written(tmp_path, oss)), "vllm")
    assert (moe.experts, moe.n, moe.top_k) == (32, 2880, 4)
    assert reading("vllm", moe, "NVIDIA_H200").answer == "no"
    with pytest.raises(UsageError, match="neither engine reads a table for mxfp4"):
        table_name("vllm", moe, "NVIDIA_H200")


def test_deepseek_v3_asks_for_the_products_that_vllm_ships_tables_of(tmp_path: Path) -> None:
    _, *gemms = shapes(read_model(written(tmp_path, DEEPSEEK_V3)), "vllm", tp=8)
    assert [(one.n, one.k) for one in gemms] == [
        (2112, 7168),
        (3072, 1536),
        (4096, 512),
        (7168, 2048),
        (4608, 7168),
        (7168, 2304),
        (512, 7168),
        (7168, 256),
    ]


def test_ranks_without_a_head_of_keys_of_their_own_repeat_one(tmp_path: Path) -> None:
    model = read_model(written(tmp_path, {**QWEN3, "quantization_config": BLOCKS}))
    few, many = shapes(model, "vllm", tp=2), shapes(model, "vllm", tp=8, ep=8)
    assert [(one.n, one.k) for one in few[1:]] == [((16 + 2 * 2) * 128, 2048), (2048, 2048)]
    assert [(one.n, one.k) for one in many[1:]] == [((4 + 2 * 1) * 128, 2048), (2048, 512)]


def test_products_that_stay_as_they_were_have_no_table(tmp_path: Path) -> None:
    left = {**BLOCKS, "modules_to_not_convert": ["lm_head", "model.layers.0.self_attn", "o_proj"]}
    model = read_model(written(tmp_path, {**QWEN3, "quantization_config": left}))
    assert [one.of for one in shapes(model, "vllm")] == ["experts", "qkv_proj"]
    left = {**BLOCKS, "ignore": ["re:.*mlp.gate$", "re:.*self_attn.*", "re:.*shared_experts.*"]}
    model = read_model(written(tmp_path, {**DEEPSEEK_V3, "quantization_config": left}))
    found = [one.of for one in shapes(model, "vllm", tp=8)]
    assert found == ["experts", "mlp.gate_up_proj", "mlp.down_proj"]


def test_experts_are_divided_or_shared_out(tmp_path: Path) -> None:
    model = read_model(written(tmp_path, DEEPSEEK_V3))
    assert [str(shapes(model, "sglang", 8, ep)[0]) for ep in (1, 2, 8)] == [
        "E=257,N=256,fp8_w8a8,block=128x128",
        "E=128,N=512,fp8_w8a8,block=128x128",
        "E=32,N=2048,fp8_w8a8,block=128x128",
    ]
    with pytest.raises(UsageError, match="among all ranks; use --ep 8"):
        shapes(model, "vllm", 8, 2)


def test_a_share_that_blocks_do_not_divide_is_refused(tmp_path: Path) -> None:
    model = read_model(written(tmp_path, {**QWEN3, "quantization_config": BLOCKS}))
    with pytest.raises(UsageError, match="768 / 4 = 192 is not a multiple of the block's 128"):
        shapes(model, "vllm", tp=4)


def test_quantised_when_loaded(tmp_path: Path) -> None:
    model = read_model(written(tmp_path, QWEN3), "int8_w8a8")
    assert [shapes(model, engine)[0].dtype for engine in ("vllm", "sglang")] == ["", "int8_w8a8"]


@pytest.mark.parametrize("broken", [{"hidden_size": "4096"}, {"hidden_size": -1}, {}, []])
def test_what_is_no_model_is_refused(tmp_path: Path, broken: Any) -> None:
    with pytest.raises(FormatError):
        read_model(written(tmp_path, broken))


def test_sglang_has_a_folder_for_each_triton_that_it_can_parse() -> None:
    moe = Shape("moe", 8, 7168, 4096, 2)
    assert str(table_path("sglang", moe, "NVIDIA_H200", "3.5.1", down=True)) == (
        "triton_3_5_1/E=8,N=7168,device_name=NVIDIA_H200_down.json"
    )
    with pytest.raises(UsageError, match=r"fail for every shape; give --triton 3\.6\.0"):
        table_path("sglang", moe, "NVIDIA_H200", "3.6.0+git1")


def test_the_space_is_the_engines_own() -> None:
    assert space(Shape("moe", 8, 7168, 4096, 2)).count == 1920
    assert space(Shape("gemm", 0, 7168, 2048, 0, "fp8_w8a8", (128, 128))).count == 1280


def test_the_space_leaves_out_what_is_another_configs_binary() -> None:
    assert space(Shape("moe", 128, 384, 4096, 8, "fp8_w8a8", (128, 128))).count == 1280


def test_the_space_leaves_out_what_does_not_fit() -> None:
    whole = Shape("moe", 8, 7168, 4096, 2)
    on_hopper = space(whole, "NVIDIA_H200")
    assert on_hopper.count == 1304
    # What Triton 3.9 asks for when it compiles vLLM's kernel for sm_90: 196,608 bytes and 245,760.
    assert tile(BLOCK_SIZE_M=256, BLOCK_SIZE_N=256, num_warps=8) in on_hopper
    assert tile(BLOCK_SIZE_M=256, BLOCK_SIZE_N=128, num_stages=5) not in on_hopper
    assert space(whole, "a GPU that nobody knows").count == 1920


def test_devices_are_known_by_their_names() -> None:
    names = ("NVIDIA H100 80GB HBM3", "NVIDIA_H20-3e", "NVIDIA L20", "AMD_Instinct_MI300X", "TPU")
    assert [architecture_of(one) for one in names] == ["sm_90", "sm_90", "sm_89", "rocm", None]


def test_models_that_share_a_name() -> None:
    assert sharers(Shape("moe", 128, 384, 0, 0)) == [
        "Qwen3-30B-A3B on 2 (K 2048, top-k 8)",
        "Qwen3-235B-A22B on 4 (K 4096, top-k 8)",
    ]
    assert all(one[0] > one[3] for one in MODELS.values())


def test_what_an_engine_ships_is_found_in_its_checkout(tmp_path: Path) -> None:
    moe = Shape("moe", 8, 7168, 4096, 2)
    folder = tmp_path / "python/sglang/srt/layers/moe/moe_runner/triton_utils/configs"
    name = "E=8,N=7168,device_name=NVIDIA_H200.json"
    for version in ("triton_3_9_0", "triton_3_10_0"):
        a_table(folder / version, name)
    package = find_package("sglang", tmp_path)

    def found(triton: str | None, down: bool = False) -> tuple[str, str | None]:
        one = need("sglang", moe, "NVIDIA_H200", triton, down=down, package=package)
        return one.status, one.found and one.found.parent.name

    assert found("3.9.0") == ("shipped", "triton_3_9_0")
    assert found("3.8.0") == ("other version", "triton_3_10_0")
    assert found(None) == ("shipped", "triton_3_10_0")
    assert found("3.9.0", down=True) == ("optional", None)
    assert need("sglang", moe, "NVIDIA_H20", "3.9.0", package=package).status == "missing"
    with pytest.raises(UsageError, match="not a checkout or package of vLLM"):
        find_package("vllm", tmp_path)


def test_a_table_that_is_not_read_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "model_executor/layers/fused_moe/configs").mkdir(parents=True)
    gemm = Shape("gemm", 0, 7168, 2048, 0, "fp8_w8a8", (128, 128))
    package = find_package("vllm", tmp_path)
    assert need("vllm", gemm, "NVIDIA_H200", package=package).status == "unread"
    assert need("vllm", gemm, "AMD_Instinct_MI300X", package=package).status == "missing"


VLLM = "E=128,N=384,device_name=NVIDIA_H200.json"
BLOCKED = "E=128,N=384,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
GEMM = "N=7168,K=2048,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"


@pytest.mark.parametrize(
    ("name", "values", "error"),
    [
        (VLLM, {}, None),
        (VLLM, {"BLOCK_SIZE_N": 96}, "BLOCK_SIZE_N = 96 is not a power of two"),
        (VLLM, {"BLOCK_K": 64}, "the kernel does not take BLOCK_K"),
        (
            VLLM,
            {"BLOCK_SIZE_M": 256, "num_stages": 5, "BLOCK_SIZE_K": 128},
            "needs 491,520 bytes of shared memory; a block has 232,448",
        ),
        (BLOCKED, {"BLOCK_SIZE_K": 256}, None),
        (GEMM.replace("K=2048", "K=128"), {"BLOCK_SIZE_K": 256}, None),
        (GEMM, {"BLOCK_SIZE_K": 256}, "BLOCK_SIZE_K = 256 is above the block's 128: wrong results"),
    ],
)
def test_an_entry_that_cannot_run_is_an_error(
    tmp_path: Path, name: str, values: dict[str, int], error: str | None
) -> None:
    found = said(a_table(tmp_path, name, **values))
    assert found == ([f"{error} (M = {', '.join(map(str, BATCH_SIZES))})"] if error else [])


def test_a_lowered_block_and_a_value_outside_the_space_are_said(tmp_path: Path) -> None:
    path = tmp_path / BLOCKED
    path.write_text(json.dumps({"1": tile(BLOCK_SIZE_M=8), "2": tile(BLOCK_SIZE_K=256)}))
    notes = said(path, "note")
    assert "BLOCK_SIZE_M = 8 is not among those that tuners try (M = 1)" in notes
    assert "BLOCK_SIZE_K = 256 is lowered to the block's 128 (M = 2)" in notes


def test_missing_batch_sizes_are_said(tmp_path: Path) -> None:
    path = tmp_path / VLLM
    path.write_text(json.dumps({"1": tile(), "4096": tile()}))
    assert "no entry for M = 2, 4, 8, 16, 24, 32" in said(path, "warning")[0]


@pytest.mark.parametrize(("name", "grave"), [(VLLM, False), (GEMM, True)])
def test_the_version_of_triton_is_only_for_vllms_moe_loader(
    tmp_path: Path, name: str, grave: bool
) -> None:
    path = a_table(tmp_path, name)
    path.write_text(json.dumps({"triton_version": "3.5.1", **json.loads(path.read_text())}))
    assert any("triton_version" in one for one in said(path)) == grave


def test_sglangs_folder_must_be_one_that_it_can_parse(tmp_path: Path) -> None:
    assert said(a_table(tmp_path / "triton_3_5_1", VLLM)) == []
    (error,) = said(a_table(tmp_path / "triton_3_6_0+git1", VLLM))
    assert "cannot parse the folder 'triton_3_6_0+git1', and fails for every shape" in error


def test_the_second_product_shares_the_first_ones_rows(tmp_path: Path) -> None:
    folder = tmp_path / "triton_3_5_1"
    down = a_table(folder, VLLM.replace(".json", "_down.json"), BLOCK_SIZE_M=16)
    assert "is not beside it" in said(down)[0]
    a_table(folder, VLLM)
    assert "BLOCK_SIZE_M is not the first product's" in said(down, "warning")[0]


def test_a_name_that_nobody_looks_for(tmp_path: Path) -> None:
    odd = VLLM.replace(".json", ",dtype=float8.json")
    assert "never looks for dtype=float8" in said(a_table(tmp_path, odd), "warning")[0]
    with pytest.raises(FormatError, match="does not have a name that vLLM looks for"):
        table_of(tmp_path / "E=8.json")
    with pytest.raises(FormatError, match="has a size of 0 in its name"):
        table_of(tmp_path / "E=8,N=0,device_name=NVIDIA_H200.json")


@pytest.mark.parametrize("engine", ENGINES)
def test_shipped_tables_have_these_names_and_no_errors(engine: str) -> None:
    """`VLLM_CHECKOUT=~/vllm SGLANG_CHECKOUT=~/sglang pytest …`, of August 2026."""
    checkout = os.environ.get(f"{engine.upper()}_CHECKOUT")
    if not checkout:
        pytest.skip(f"needs {engine.upper()}_CHECKOUT")
    package = find_package(engine, Path(checkout))
    paths = [path for kind in ("moe", "gemm") for path in package.folder(kind).rglob("[EN]=*.json")]
    of_others = ("backend=", "channelwise", "device_name=,", "int4_w4a16")
    paths = [path for path in paths if not any(one in path.name for one in of_others)]
    assert len(paths) > 500
    for path in paths:
        table = table_of(path, engine)
        assert table_name(engine, table.shape, table.device, table.down) == path.name
        assert said(path) == []
