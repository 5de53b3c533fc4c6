"""Triton's own file of timings: stock reads what we write, and we read what stock wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

from interop_samples import a_key, tuned

from whet.cli import main
from whet.core.status import Status
from whet.interop import READERS, ReadOptions, keep
from whet.interop.files import FormatError
from whet.interop.triton_cache import quantiles
from whet.store import MemoryStore, open_store
from whet.testing.fake_triton import FakeTensor, fake_driver, told

KERNEL = """
import triton
import triton.language as tl
DECORATOR


CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 128) for w in (4, 8)]


@tune(configs=CONFIGS, key=["n", "m"]EXTRA)
@triton.jit
def double(out, x, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, 2 * tl.load(x + offsets, mask=offsets < n), mask=offsets < n)
"""
OURS = KERNEL.replace("DECORATOR", "from whet import autotune as tune").replace("EXTRA", "")
STOCK = KERNEL.replace("DECORATOR", "from triton import autotune as tune").replace(
    "EXTRA", ", cache_results=True"
)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    place = tmp_path / "triton"
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(place))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    for name in ("TRITON_INTERPRET", "TRITON_CACHE_AUTOTUNING"):
        monkeypatch.delenv(name, raising=False)
    return place


def load(path: Path, text: str) -> Any:
    """The file's kernel, as a process that imports the file has it."""
    from whet.targets.files import load_module

    path.write_text(text)
    return load_module(path).double


def launch(kernel: Any, n: int = 256, dtype: str = "float32") -> None:
    x = FakeTensor([1.0] * 4, dtype)
    kernel[(1,)](x, x, n, 1)


def no_benchmark(call: Callable[[], None], quantiles: Any) -> list[float]:
    raise AssertionError("stock Triton benchmarks what it should have read")


def tuned_by_us(folder: Path, *sizes: int, quick: tuple[int, int] = (128, 8)) -> Path:
    path = folder / "ours.py"
    kernel = load(path, OURS)
    kernel.whet_timer = told(
        lambda config: 1000.0 if (config.kwargs["BLOCK"], config.num_warps) == quick else 2000.0
    )
    for n in sizes:
        launch(kernel, n)
    return path


@pytest.mark.medium
def test_stock_reads_what_whet_found_and_benchmarks_nothing(tmp_path: Path, cache: Path) -> None:
    with fake_driver() as driver:
        ours = tuned_by_us(tmp_path, 256, 512)
    assert main(["export", "triton", f"{ours}:double"]) == 0
    assert len(list(cache.rglob("double.autotune.json"))) == 2
    with fake_driver() as driver:
        stock = load(tmp_path / "stock.py", STOCK)
        stock._do_bench = no_benchmark
        for n in (256, 512):
            launch(stock, n)
        assert (stock.best_config.kwargs["BLOCK"], stock.best_config.num_warps) == (128, 8)
        assert len(stock.configs_timings) == 4
        assert len(driver.launches) == 2


@pytest.mark.medium
def test_a_size_that_was_not_tuned_is_benchmarked_by_stock(tmp_path: Path) -> None:
    with fake_driver():
        ours = tuned_by_us(tmp_path, 256)
    assert main(["export", "triton", f"{ours}:double"]) == 0
    with fake_driver():
        stock = load(tmp_path / "stock.py", STOCK)
        stock._do_bench = no_benchmark
        with pytest.raises(AssertionError, match="should have read"):
            launch(stock, 1024)


@pytest.mark.medium
def test_stock_takes_the_pick_where_a_loser_reads_quicker(tmp_path: Path, cache: Path) -> None:
    with fake_driver():
        ours = tuned_by_us(tmp_path, 256)
    with open_store(tmp_path / "store.db") as store:
        [known] = store.workloads()
        [run] = store.runs(known.workload.id)
        slow = next(t for t in store.trials(known.workload.id) if t.config != run.best)
        store.append([slow.superseded_by(status=Status.OK)])
        store.save_run(replace(run, id="later", best=slow.config, started=run.started + 60))
    assert main(["export", "triton", f"{ours}:double"]) == 0
    with fake_driver():
        stock = load(tmp_path / "stock.py", STOCK)
        stock._do_bench = no_benchmark
        launch(stock, 256)
    assert stock.best_config.all_kwargs().items() >= dict(slow.config).items()
    assert len(stock.configs_timings) == 3


@pytest.mark.medium
def test_what_stock_wrote_is_kept_as_foreign(tmp_path: Path, cache: Path) -> None:
    times = iter([[0.4, 0.3, 0.5], [0.2, 0.1, 0.6], [math.inf] * 3, [0.3, 0.3, 0.3]])
    with fake_driver():
        stock = load(tmp_path / "stock.py", STOCK)
        stock._do_bench = lambda call, quantiles: next(times)
        launch(stock, 256)
    store = MemoryStore()
    options = ReadOptions(device="NVIDIA H200", names=("n", "m", "out.dtype", "x.dtype"))
    keep(store, READERS["triton"](cache, options).findings)
    [known] = store.workloads("double")
    assert dict(known.workload.key) == {
        "n": 256,
        "m": 1,
        "out.dtype": "torch.float32",
        "x.dtype": "torch.float32",
    }
    trials = store.trials(known.workload.id)
    assert [trial.median_ns for trial in trials] == [4e5, 2e5, None, 3e5]
    assert [str(trial.status) for trial in trials] == ["ok", "ok", "run_error", "ok"]
    best = known.best
    assert best is not None
    assert best.timing is not None
    assert best.timing.foreign is not None
    assert best.timing.interval_ns == (1e5, 6e5)
    assert dict(best.config) == {"BLOCK": 64, "num_warps": 8, "num_ctas": 1, "num_stages": 3}


@pytest.mark.medium
def test_foreign_results_of_a_kernel_do_not_stop_its_tuning(tmp_path: Path, cache: Path) -> None:
    with fake_driver():
        stock = load(tmp_path / "stock.py", STOCK)
        launch(stock, 256)
    assert main(["import", "triton", str(cache), "--names", "n,m,out.dtype,x.dtype"]) == 0
    with fake_driver():
        tuned_by_us(tmp_path, 256)
    with open_store(tmp_path / "store.db", read_only=True) as store:
        ours, theirs = sorted(
            store.workloads("double"), key=lambda one: not one.workload.fingerprint
        )
        assert ours.workload.id != theirs.workload.id
        for one in (ours, theirs):
            timings = [trial.timing for trial in store.trials(one.workload.id)]
            assert {t.foreign is not None for t in timings if t} == {one is theirs}


@pytest.mark.medium
def test_another_source_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_driver():
        ours = tuned_by_us(tmp_path, 256)
    changed = tmp_path / "changed.py"
    changed.write_text(ours.read_text().replace("2 * tl.load", "3 * tl.load"))
    assert main(["export", "triton", f"{changed}:double"]) == 2
    assert "source of double" in capsys.readouterr().err


@pytest.mark.medium
def test_pruning_by_arguments_needs_inputs(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prune = ', prune_configs_by={"early_config_prune": lambda cs, nargs, **kw: cs[:3]}'
    inputs = ", inputs=lambda n, m: ((1,), (TENSOR, TENSOR, n, m))"
    tensor = "from whet.testing.fake_triton import FakeTensor\nTENSOR = FakeTensor([1.0] * 4)\n"
    for extra, code in ((prune, 2), (prune + inputs, 0)):
        text = KERNEL.replace("DECORATOR", "from whet import autotune as tune\n" + tensor)
        ours = tmp_path / f"pruned{code}.py"
        with fake_driver():
            kernel = load(ours, text.replace("EXTRA", extra))
            kernel.whet_timer = told(lambda config: 1000.0 + config.num_warps)
            launch(kernel, 256)
        assert main(["export", "triton", f"{ours}:double"]) == code
    assert "whet.autotune(…, inputs=…)" in capsys.readouterr().err
    [file] = cache.rglob("double.autotune.json")
    assert len(json.loads(file.read_text())["configs_timings"]) == 3


def test_quantiles_are_in_milliseconds_with_the_median_first() -> None:
    store = MemoryStore()
    workload = a_key({"n": 1})
    tuned(store, workload, [({"BLOCK": 1}, 1e6)])
    [trial] = store.trials(workload.id)
    median, low, high = quantiles(trial)
    assert median == 1.0
    assert low < median < high
    assert quantiles(None) == [math.inf] * 3


GOOD: dict[str, Any] = {
    "key": [1],
    "configs_timings": [[{"kwargs": {"B": 1}, "num_warps": 4}, [1.0, 1.0, 1.0]]],
}


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {"key": [1]},
        {"key": 1, "configs_timings": GOOD["configs_timings"]},
        {"key": [1], "configs_timings": []},
        {"key": [1], "configs_timings": [[{}, [1.0]]]},
        {"key": [1], "configs_timings": [[{"kwargs": []}, [1.0]]]},
        {"key": [1], "configs_timings": [[{"kwargs": {"B": {}}}, [1.0]]]},
        {"key": [1], "configs_timings": [[{"kwargs": {"B": 1}}, []]]},
        {"key": [1], "configs_timings": [[{"kwargs": {"B": 1}}, ["1"]]]},
        {"key": [1], "configs_timings": [[{"kwargs": {"B": 1}}, [-1.0]]]},
        {"key": [1], "configs_timings": [[{"kwargs": {"B": 1}}]]},
        {"key": [1], "configs_timings": [7]},
        {"key": [{}], "configs_timings": GOOD["configs_timings"]},
        {"key": [1], "configs_timings": GOOD["configs_timings"] * 2},
    ],
)
def test_what_is_no_such_file_is_refused_in_one_line(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "double.autotune.json"
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError, match=r"double\.autotune\.json") as refused:
        READERS["triton"](path, ReadOptions())
    assert "\n" not in str(refused.value)


def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "double.autotune.json"
    text = json.dumps(GOOD)
    for end in range(len(text)):
        path.write_text(text[:end])
        with pytest.raises(FormatError):
            READERS["triton"](path, ReadOptions())
    path.write_text(text)
    [finding] = READERS["triton"](path, ReadOptions()).findings
    assert dict(finding.key) == {"key0": 1}


def test_names_must_be_as_many_as_the_key_has_parts(tmp_path: Path) -> None:
    path = tmp_path / "double.autotune.json"
    path.write_text(json.dumps(GOOD))
    with pytest.raises(FormatError, match="has a key of 1 parts"):
        READERS["triton"](path, ReadOptions(names=("M", "N")))


def test_a_folder_without_such_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cache_results"):
        READERS["triton"](tmp_path, ReadOptions())
