"""Files for vLLM and SGLang: their names, their bytes, and reading them back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interop_samples import H200, a_key, moe_store, one_result, tile, tuned

from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap
from whet.interop import READERS, ReadOptions, keep, select, sglang, vllm
from whet.interop.files import FormatError, OutFile
from whet.interop.serving import Layout, Pick
from whet.store import MemoryStore, Store

Write = Callable[[Sequence[Pick], Layout], list[OutFile]]

MOE_BODY = """\
{
    "triton_version": "3.6.0",
    "8": {
        "BLOCK_SIZE_M": 16,
        "BLOCK_SIZE_N": 64,
        "BLOCK_SIZE_K": 128,
        "GROUP_SIZE_M": 1,
        "num_warps": 4,
        "num_stages": 3
    },
    "16": {
        "BLOCK_SIZE_M": 16,
        "BLOCK_SIZE_N": 64,
        "BLOCK_SIZE_K": 128,
        "GROUP_SIZE_M": 1,
        "num_warps": 4,
        "num_stages": 3
    },
    "128": {
        "BLOCK_SIZE_M": 64,
        "BLOCK_SIZE_N": 64,
        "BLOCK_SIZE_K": 128,
        "GROUP_SIZE_M": 1,
        "num_warps": 4,
        "num_stages": 3
    }
}
"""


def files(write: Write, store: Store, **layout: Any) -> dict[str, str]:
    frozen: dict[str, Any] = {
        name: FrozenMap(value) if isinstance(value, dict) else value
        for name, value in layout.items()
    }
    written = write(select(store.workloads()).picks, Layout(**frozen))
    return {str(file.path): file.text for file in written}


def test_a_vllm_moe_file_is_what_vllm_writes_itself() -> None:
    written = files(vllm.moe_files, moe_store(128, 8, 16))
    assert written == {"E=8,N=14336,device_name=NVIDIA_H200.json": MOE_BODY}


def test_an_fp8_file_has_nothing_but_numbers_for_names() -> None:
    [(name, text)] = files(vllm.fp8_files, moe_store(128, 8, 16, K=7168)).items()
    expected = "N=14336,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    assert name == expected
    assert text == MOE_BODY.replace('    "triton_version": "3.6.0",\n', "")
    assert [int(m) for m in json.loads(text)] == [8, 16, 128]


def test_an_sglang_file_is_in_the_folder_of_its_triton() -> None:
    written = files(sglang.moe_files, moe_store(128, 8, 16))
    path = "configs/triton_3_6_0/E=8,N=14336,device_name=NVIDIA_H200.json"
    assert written == {path: MOE_BODY.replace('    "triton_version": "3.6.0",\n', "")}


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA_H100_80GB_HBM3"),
        ("AMD Instinct  MI300X / OAM", "AMD_Instinct_MI300X_OAM"),
        ("NVIDIA H200 NVL", "NVIDIA_H200"),
        ("NVIDIA GH200 480GB", "NVIDIA_GH200_480GB"),
    ],
)
def test_vllm_names_of_devices(device: str, expected: str) -> None:
    assert vllm.moe_name(8, 512, device) == f"E=8,N=512,device_name={expected}.json"


def test_only_the_moe_files_take_every_h200_for_one() -> None:
    assert "device_name=NVIDIA_H200_NVL," in vllm.fp8_name(64, 64, "NVIDIA H200 NVL", (128, 128))


def test_a_block_shape_has_a_space_in_sglang_and_none_in_vllm() -> None:
    parts = (8, 512, "NVIDIA H20", "fp8_w8a8", (128, 128))
    start = "E=8,N=512,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape="
    assert vllm.moe_name(*parts) == f"{start}[128,128].json"
    assert sglang.moe_name(*parts) == f"{start}[128, 128].json"


def test_an_sglang_name_ends_with_the_channel_and_the_second_product() -> None:
    name = sglang.moe_name(8, 512, "NVIDIA H20", "fp8_w8a8", None, True, True)
    expected = "E=8,N=512,device_name=NVIDIA_H20,dtype=fp8_w8a8,per_channel_quant=True_down.json"
    assert name == expected


def test_use_tma_is_kept_for_sglang_and_refused_for_vllm() -> None:
    store = one_result(tile(USE_TMA=False))
    [text] = files(sglang.moe_files, store).values()
    assert list(json.loads(text)["1"])[-2:] == ["num_stages", "USE_TMA"]
    with pytest.raises(UsageError, match="USE_TMA"):
        files(vllm.moe_files, store)


def test_options_of_amd_follow_in_the_order_of_vllm() -> None:
    config = tile(kpack=2, waves_per_eu=0, matrix_instr_nonkdim=16)
    [text] = files(vllm.moe_files, one_result(config)).values()
    assert list(json.loads(text)["1"])[6:] == ["waves_per_eu", "matrix_instr_nonkdim", "kpack"]


def test_more_than_one_cta_is_said_and_one_is_not() -> None:
    [text] = files(vllm.moe_files, one_result(tile(num_ctas=2))).values()
    assert json.loads(text)["1"]["num_ctas"] == 2


def test_keys_and_parameters_may_have_other_names() -> None:
    store = MemoryStore()
    config = {"BM": 16, "TILE_N": 32, "BK": 64, "num_warps": 4, "num_stages": 2}
    tuned(store, a_key({"tokens": 32, "inter": 28672}), [(config, 10.0)])
    layout = {
        "keys": {"M": "tokens"},
        "fixed": {"E": 4, "N": 14336, "GROUP_SIZE_M": 1},
        "parameters": {"BLOCK_SIZE_N": "TILE_N"},
    }
    [(name, text)] = files(vllm.moe_files, store, **layout).items()
    assert name == "E=4,N=14336,device_name=NVIDIA_H200.json"
    assert list(json.loads(text)["32"].values()) == [16, 32, 64, 1, 4, 2]


def test_each_n_has_a_file_of_its_own() -> None:
    store = moe_store(8)
    tuned(store, a_key({"M": 8, "E": 8, "N": 512}), [(tile(), 10.0)])
    assert sorted(files(vllm.moe_files, store)) == [
        "E=8,N=14336,device_name=NVIDIA_H200.json",
        "E=8,N=512,device_name=NVIDIA_H200.json",
    ]


def test_a_plain_dtype_of_the_key_is_no_part_of_a_name() -> None:
    [plain] = files(vllm.moe_files, moe_store(8, dtype="f16"))
    [quantised] = files(vllm.moe_files, moe_store(8, dtype="int8_w8a16"))
    assert "dtype" not in plain
    assert quantised.endswith(",dtype=int8_w8a16.json")


def test_what_is_not_in_the_key_or_in_the_config_is_one_line_with_the_remedy() -> None:
    store = MemoryStore()
    tuned(store, a_key({"M": 1, "N": 64}), [(tile(), 10.0)])
    with pytest.raises(UsageError, match=r"has no E .*--e-key NAME or --extra E=NUMBER"):
        files(vllm.moe_files, store)
    lacking = {name: value for name, value in tile().items() if name != "GROUP_SIZE_M"}
    with pytest.raises(UsageError, match="has no GROUP_SIZE_M; give --param"):
        files(vllm.moe_files, one_result(lacking))


def test_two_workloads_for_one_entry_are_refused() -> None:
    store = moe_store(8, K=4096)
    tuned(store, a_key({"M": 8, "E": 8, "N": 14336, "K": 2048}), [(tile(), 10.0)])
    with pytest.raises(UsageError, match=r"both map to entry 8 of .* --where"):
        files(vllm.moe_files, store)


def test_sglang_needs_the_version_of_triton() -> None:
    store = one_result(toolchain={})
    with pytest.raises(UsageError, match=r"--triton 3.5.1"):
        files(sglang.moe_files, store)
    [path] = files(sglang.moe_files, store, triton="3.5.1")
    assert path.startswith("configs/triton_3_5_1/")


def test_a_device_cannot_lead_out_of_the_folder() -> None:
    store = one_result(device=replace(H200, name="../../etc\0/x"))
    for write in (vllm.moe_files, sglang.moe_files):
        with pytest.raises(UsageError, match="cannot be part of a file name"):
            files(write, store)
    with pytest.raises(UsageError, match="cannot be part of a file name"):
        files(sglang.moe_files, moe_store(8), triton="../up")


FORMATS: list[tuple[str, Write, dict[str, Any]]] = [
    ("vllm-moe", vllm.moe_files, {"dtype": "fp8_w8a8", "block_shape": (128, 64)}),
    ("vllm-fp8", vllm.fp8_files, {"K": 4096, "block_shape": (64, 128)}),
    ("sglang-moe", sglang.moe_files, {"dtype": "int8_w8a8", "per_channel_quant": True}),
    ("sglang-moe", sglang.moe_files, {"dtype": "fp8_w8a8", "down": True}),
    ("sglang-moe", sglang.moe_files, {"block_shape": (128, 128)}),
    (
        "sglang-fp8",
        partial(vllm.fp8_files, named=sglang.fp8_name),
        {"K": 4096, "block_shape": (128, 128)},
    ),
]


@pytest.mark.parametrize(("kind", "write", "key"), FORMATS)
def test_what_was_written_and_read_is_written_again_byte_for_byte(
    kind: str, write: Write, key: dict[str, Any], tmp_path: Path
) -> None:
    [file] = write(select(moe_store(1, 16, 4096, **key).workloads()).picks, Layout())
    path = tmp_path / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(file.text)
    store = MemoryStore()
    keep(store, READERS[kind](path, ReadOptions()).findings)
    assert write(select(store.workloads()).picks, Layout()) == [file]


def test_a_choice_without_a_time_is_the_best_of_its_workload(tmp_path: Path) -> None:
    path = tmp_path / "E=8,N=14336,device_name=NVIDIA_H200.json"
    path.write_text(MOE_BODY)
    store = MemoryStore()
    assert keep(store, READERS["vllm-moe"](path, ReadOptions()).findings) == (3, 3)
    assert keep(store, READERS["vllm-moe"](path, ReadOptions()).findings) == (3, 0)
    known = store.workloads("fused_moe_kernel")
    assert {one.workload.device.name for one in known} == {"NVIDIA H200"}
    assert {one.workload.toolchain["timer"] for one in known} == {"vllm-moe"}
    assert {one.best_config and one.best_config["BLOCK_SIZE_M"] for one in known} == {16, 64}
    assert all(one.median_ns is None for one in known)


GOOD_NAME = "E=8,N=64,device_name=NVIDIA_H200.json"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        MOE_BODY[:200],
        '{"8": []}',
        '{"8": {"BLOCK_SIZE_M": 16}}',
        '{"x": ' + json.dumps(tile()) + "}",
        '{"-8": ' + json.dumps(tile()) + "}",
        '{"08": ' + json.dumps(tile()) + "}",
        '{"8": ' + json.dumps(tile()) + ', "8": ' + json.dumps(tile()) + "}",
        '{"8": ' + json.dumps(tile(num_warps="4")) + "}",
        '{"8": ' + json.dumps(tile(kpack=float("nan"))) + "}",
        '{"8": ' + json.dumps(tile(kpack={})) + "}",
        '{"triton_version": 3, "8": ' + json.dumps(tile()) + "}",
        "[" * 100_000,
        "\ud800",
    ],
)
def test_what_is_no_such_file_is_refused_by_name_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / GOOD_NAME
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(FormatError, match="E=8,N=64") as refused:
        READERS["vllm-moe"](path, ReadOptions())
    assert "\n" not in str(refused.value)


def test_a_name_that_says_nothing_or_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("x.json", "E=8,N=64.json", "E=-1,N=64,device_name=X.json", GOOD_NAME + ".bak"):
        (tmp_path / name).write_text(MOE_BODY)
        with pytest.raises(FormatError, match="does not have a name the engine uses"):
            READERS["vllm-moe"](tmp_path / name, ReadOptions())
    with pytest.raises(FormatError, match="No such file"):
        READERS["vllm-moe"](tmp_path / GOOD_NAME, ReadOptions())


SIZES = st.integers(1, 10**6)
DEVICES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1)
BLOCKS = st.none() | st.tuples(st.integers(1, 512), st.integers(1, 512))
DTYPES = st.sampled_from(["", "fp8_w8a8", "int8_w8a16", "float32"])


@pytest.mark.medium
@given(SIZES, SIZES, DEVICES, DTYPES, BLOCKS)
def test_a_vllm_name_is_one_name_whatever_the_device(
    experts: int, n: int, device: str, dtype: str, block: tuple[int, int] | None
) -> None:
    if "\\" in device or device in (".", ".."):
        return
    name = vllm.moe_name(experts, n, device, dtype, block)
    assert "/" not in name
    assert " " not in name
    assert Path(name).name == name
    assert name == vllm.moe_name(experts, n, vllm.device_part(device), dtype, block)


@pytest.mark.medium
@given(
    SIZES,
    SIZES,
    st.text("ABCxyz019- ", min_size=1).map(str.strip).filter(bool),
    DTYPES,
    BLOCKS,
    st.booleans(),
    st.booleans(),
)
def test_an_sglang_name_says_what_it_was_made_of(
    experts: int,
    n: int,
    device: str,
    dtype: str,
    block: tuple[int, int] | None,
    channel: bool,
    down: bool,
) -> None:
    name = sglang.moe_name(experts, n, device, dtype, block, channel, down)
    found = sglang.NAME.fullmatch(name)
    assert found is not None
    assert (int(found["E"]), int(found["N"])) == (experts, n)
    assert found["device"] == device.replace(" ", "_")
    assert (found["dtype"] or "") == dtype
    assert (found["block_n"] is not None) == (block is not None)
    assert (bool(found["per_channel_quant"]), bool(found["down"])) == (channel, down)
