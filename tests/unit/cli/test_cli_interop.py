"""`whet export` and `whet import`, as one types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runs import Whet, one_line, refused
from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.workload import Device, Workload
from whet.store import open_store
from whet.testing.samples import a_run, a_trial

NAME = "E=8,N=512,device_name=NVIDIA_H200.json"
TILE = {
    "BLOCK_SIZE_M": 16,
    "BLOCK_SIZE_N": 64,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 1,
    "num_warps": 4,
    "num_stages": 3,
}
KERNEL_TUNER = {
    "device_name": "NVIDIA A100",
    "kernel_name": "conv",
    "problem_size": [64, 64],
    "tune_params_keys": ["bx"],
    "tune_params": {"bx": [16, 32, 64]},
    "cache": {
        "16": {"bx": 16, "time": 0.5, "times": [0.4, 0.5, 0.7], "compile_time": 100.0},
        "32": {"bx": 32, "time": 0.25, "times": [0.25, 0.2, 0.3], "compile_time": 100.0},
        "64": {"bx": 64, "time": "RuntimeFailedConfig", "times": []},
    },
}
T4 = {
    "metadata": {"timeunit": "milliseconds"},
    "results": [
        {
            "configuration": {"bx": 16},
            "times": {"compilation": 1.0, "runtimes": [0.5, 0.6, 0.4]},
            "invalidity": "correct",
        }
    ],
    "schema_version": "1.0.0",
}


@pytest.fixture
def moe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A MoE kernel, tuned for two numbers of tokens and eight experts of which no key tells."""
    path = tmp_path / "store.db"
    monkeypatch.setenv("WHET_STORE", str(path))
    monkeypatch.delenv("VLLM_TUNED_CONFIG_FOLDER", raising=False)
    monkeypatch.delenv("SGLANG_MOE_CONFIG_DIR", raising=False)
    with open_store(path) as store:
        for tokens in (16, 2):
            workload = Workload(
                "moe",
                "abc",
                Device("NVIDIA H200", "nvidia", "sm_90"),
                FrozenMap({"tokens": tokens, "N": 512}),
                FrozenMap({"triton": "3.5.1"}),
            )
            run = a_run(workload, TILE)
            store.save_run(run)
            store.append([a_trial(workload, Config(TILE), 100.0, run_id=run.id)])
    return path


MOE = ("moe", "--m-key", "tokens", "--extra", "E=8")


@pytest.mark.medium
def test_vllm_files_are_written_where_vllm_looks(
    whet: Whet, moe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(tmp_path / "vllm"))
    ran = whet("export", "vllm-moe", *MOE)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.strip() == str(tmp_path / "vllm" / NAME)
    text = (tmp_path / "vllm" / NAME).read_text()
    assert list(json.loads(text)) == ["triton_version", "2", "16"]


def test_sglang_files_are_written_where_sglang_looks(
    whet: Whet, moe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(tmp_path / "sglang"))
    assert whet("export", "sglang-moe", *MOE, "--down", "--block-shape", "128,128").code == 0
    folder = tmp_path / "sglang" / "configs" / "triton_3_5_1"
    expected = "E=8,N=512,device_name=NVIDIA_H200,block_shape=[128, 128]_down.json"
    assert [path.name for path in folder.iterdir()] == [expected]


@pytest.mark.medium
def test_a_file_that_differs_is_kept_until_forced(whet: Whet, moe: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("export", "vllm-fp8", "moe", "--m-key", "tokens", "--extra", "K=64", "--out", "out")
    assert whet(*command).code == 0
    assert whet(*command).code == 0
    [file] = out.iterdir()
    written = file.read_text()
    file.write_text("{}")
    ran = whet(*command)
    assert ran.code == 2
    assert "--force" in ran.err
    assert file.read_text() == "{}"
    assert whet(*command, "--force").code == 0
    assert file.read_text() == written


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("export", "vllm-moe", "moe", "--extra", "E=8"), "has no M"),
        (("export", "vllm-moe", "moe", "--m-key", "tokens"), "--extra E=NUMBER"),
        (("export", "vllm-moe", "nothing"), "no results for kernel or workload 'nothing'"),
        (("export", "vllm-moe", *MOE, "--extra", "Q=8"), "--extra 'Q' is unknown"),
        (("export", "vllm-moe", *MOE, "--extra", "E"), "use NAME=VALUE"),
        (("export", "vllm-moe", *MOE, "--device", "H100"), "no results for device 'H100'"),
        (("export", "vllm-moe", *MOE, "--block-shape", "x"), "such as 128,128"),
        (("export", "python", "moe", "--style", "bush"), "use auto, table or tree"),
        (("export", "python", "moe", "--function", "no way"), "valid function name"),
        (("export", "triton", "nothing.py:k"), "no such file: nothing.py"),
        (("import", "vlm-moe", "x"), "did you mean 'vllm-moe'?"),
        (("import", "triton", "x", "--names", "M,M"), "each name once"),
        (("import", "vllm-moe", "x.json"), "does not have a name the engine uses"),
        (("import", "t4", "nowhere.json"), "no such table: 'nowhere.json'"),
    ],
)
def test_a_mistake_is_one_line_and_the_code_for_it(
    whet: Whet, moe: Path, arguments: tuple[str, ...], says: str
) -> None:
    assert says in one_line(whet(*arguments))


@pytest.mark.medium
def test_python_goes_to_stdout_or_to_a_file(whet: Whet, moe: Path, tmp_path: Path) -> None:
    shown = whet("export", "python", "moe")
    assert "def pick(tokens, N) -> dict:" in shown.out
    ran = whet("export", "python", "moe", "--out", "picks.py")
    assert ran.out.strip() == "picks.py"
    assert ran.err.startswith("1 config for 2 keys, 100.0%")
    assert (tmp_path / "picks.py").read_text() == shown.out


@pytest.mark.medium
def test_what_was_imported_is_exported_again(whet: Whet, moe: Path, tmp_path: Path) -> None:
    assert whet("export", "vllm-moe", *MOE, "--out", "one").code == 0
    ran = whet("import", "vllm-moe", f"one/{NAME}", "--store", "other.db")
    assert "2 workloads, 2 trials new" in ran.out
    ran = whet("export", "vllm-moe", "fused_moe_kernel", "--store", "other.db", "--out", "two")
    assert ran.code == 0
    assert (tmp_path / "two" / NAME).read_bytes() == (tmp_path / "one" / NAME).read_bytes()


@pytest.mark.medium
def test_nothing_is_kept_where_one_file_is_bad(whet: Whet, moe: Path, tmp_path: Path) -> None:
    assert whet("export", "vllm-moe", *MOE, "--out", "one").code == 0
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / NAME).write_text("{")
    ran = whet("import", "vllm-moe", f"one/{NAME}", f"bad/{NAME}", "--store", "other.db")
    assert ran.code == 2
    assert not (tmp_path / "other.db").exists()


@pytest.mark.parametrize("cut", [False, True])
def test_a_kernel_tuner_cache_is_kept_as_foreign(whet: Whet, tmp_path: Path, cut: bool) -> None:
    text = json.dumps(KERNEL_TUNER)
    (tmp_path / "cache.json").write_text(text[:-2] if cut else text)
    ran = whet("import", "kernel-tuner", "cache.json", "--store", "s.db")
    assert ran.code == 0
    assert "1 workload, 3 trials new" in ran.out
    assert ("truncated" in ran.err) == cut
    with open_store("s.db", read_only=True) as store:
        [known] = store.workloads("conv")
        trials = store.trials(known.workload.id)
    assert known.workload.device.name == "NVIDIA A100"
    assert known.workload.key["problem_size"] == (64, 64)
    assert [str(trial.status) for trial in trials] == ["ok", "ok", "run_error"]
    assert known.best_config == Config(bx=32)
    best = known.best
    assert best is not None
    assert best.timing is not None
    assert best.timing.foreign is not None
    assert best.timing.interval_ns == (200_000.0, 300_000.0)
    assert best.median_ns == 250_000.0


def test_a_t4_file_is_named_by_its_file_or_by_hand(whet: Whet, tmp_path: Path) -> None:
    (tmp_path / "gemm-A100.json").write_text(json.dumps(T4))
    assert whet("import", "t4", "gemm-A100.json", "--store", "s.db").code == 0
    ran = whet(
        "import", "t4", "gemm-A100.json", "--kernel", "g", "--device", "X", "--store", "s.db"
    )
    assert ran.code == 0
    with open_store("s.db", read_only=True) as store:
        named = {(one.workload.kernel, one.workload.device.name) for one in store.workloads()}
    assert named == {("gemm", "A100"), ("g", "X")}


@pytest.mark.medium
def test_every_format_can_be_read_and_has_its_help(whet: Whet) -> None:
    shown = whet("import", "--help").out
    serving = ("vllm-moe", "vllm-fp8", "sglang-moe", "sglang-fp8")
    for name in (*serving, "triton", "python", "kernel-tuner", "t4"):
        assert name in shown
    shown = whet("export", "--help").out
    for name in (*serving, "triton", "python"):
        assert f"    {name} " in shown


def test_an_option_of_another_format_is_refused(whet: Whet) -> None:
    assert "--down is only for sglang-moe (see whet export --help)" in refused(
        whet("export", "vllm-fp8", "k", "--down")
    )
