"""`whet serving`, as one types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runs import Whet, refused

NAME = "E=128,N=384,device_name=NVIDIA_H200.json"
ENTRY = {
    "BLOCK_SIZE_M": 16,
    "BLOCK_SIZE_N": 64,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 1,
    "num_warps": 4,
    "num_stages": 3,
}
ON = ("--tp", "2", "--device", "NVIDIA_H200")


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "Qwen3-30B-A3B"
    folder.mkdir()
    config = {
        "hidden_size": 2048,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder.name


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("VLLM_TUNED_CONFIG_FOLDER", raising=False)
    monkeypatch.delenv("SGLANG_MOE_CONFIG_DIR", raising=False)
    (tmp_path / NAME).write_text(json.dumps({"1": ENTRY}))
    return NAME


@pytest.mark.medium
def test_shapes_are_shown_with_their_files(whet: Whet, model: str) -> None:
    ran = whet("serving", "shapes", model, *ON)
    assert f"E=128,N=384  K 2048, top-k 8, experts\n  {NAME}\n  1,304 to try; read" in ran.out
    found = json.loads(whet("serving", "shapes", model, *ON, "--json").out)["tables"]
    assert [(one["experts"], one["n"], one["file"]) for one in found] == [(128, 384, NAME)]


@pytest.mark.medium
def test_the_exit_code_says_that_a_table_is_missing(
    whet: Whet, model: str, table: str, tmp_path: Path
) -> None:
    shipped = tmp_path / "engine/vllm/model_executor/layers/fused_moe/configs"
    shipped.mkdir(parents=True)
    missing = ("serving", "shapes", model, *ON, "--missing", "--engine-path", "engine")
    ran = whet(*missing)
    assert (ran.code, f"{NAME}\n  missing; 1,304 to try" in ran.out) == (1, True)
    (shipped / table).write_text("{}")
    assert whet(*missing).code == 0
    assert "vLLM is not installed; give --engine-path" in refused(whet(*missing[:-2]))


@pytest.mark.medium
def test_check_reads_every_file_and_fails_for_errors(whet: Whet, table: str) -> None:
    assert whet("serving", "check", table).code == 0
    Path("E=1,N=1,device_name=x.json").write_text('{"1": {}}')
    ran = whet("serving", "check", table, "E=1,N=1,device_name=x.json")
    assert (ran.code, "2 files, 1 error" in ran.out) == (1, True)


@pytest.mark.medium
def test_tables_are_installed_where_the_engine_looks(
    whet: Whet, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "VLLM_TUNED_CONFIG_FOLDER" in refused(whet("serving", "install", table))
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", "mine")
    assert "come before those that vLLM ships" in whet("serving", "install", table).said
    assert Path("mine", table).read_text() == Path(table).read_text()
    origin = json.loads(Path("mine", table.replace(".json", ".provenance.json")).read_text())
    assert (origin["file"], origin["engine"]) == (table, "vllm")
    to_sglang = ("--engine", "sglang", "--triton", "3.5.1", "--out", "moe")
    assert whet("serving", "install", table, *to_sglang).code == 0
    assert Path("moe/configs/triton_3_5_1", table).exists()


@pytest.mark.medium
def test_an_installed_package_is_left_alone_without_install(
    whet: Whet, table: str, tmp_path: Path
) -> None:
    folder = tmp_path / "site/vllm/model_executor/layers/fused_moe/configs"
    folder.mkdir(parents=True)
    (tmp_path / "site/vllm/__init__.py").touch()
    assert "use --install" in refused(whet("serving", "install", table, "--out", str(folder)))
    assert not (folder / table).exists()
    into = ("--install", "--engine-path", "site")
    assert whet("serving", "install", table, *into).code == 0
    assert (folder / table).exists()
    Path(table).write_text(json.dumps({"1": {**ENTRY, "num_warps": 8}}))
    assert "use --force" in refused(whet("serving", "install", table, *into))


@pytest.mark.medium
def test_a_table_with_an_error_is_not_installed(whet: Whet, table: str) -> None:
    Path(table).write_text(json.dumps({"1": {**ENTRY, "BLOCK_SIZE_N": 96}}))
    said = refused(whet("serving", "install", table, "--out", "mine"))
    assert "BLOCK_SIZE_N = 96 is not a power of two" in said
    assert not Path("mine").exists()
