"""`whet.autotune` on a real device. Every test has a store and a Triton cache of its own."""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# ruff: noqa: N803

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import whet

torch: Any = pytest.importorskip("torch")
triton: Any = pytest.importorskip("triton")
tl: Any = pytest.importorskip("triton.language")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

N = 4096
PRINTED = "Triton autotuning for function"


@dataclass(frozen=True)
class Cold:
    """Where one test's results go. Nothing is there when it starts."""

    store: Path
    triton: Path

    def workloads(self) -> list[Any]:
        if not self.store.exists():
            return []
        with whet.open_store(self.store, read_only=True) as store:
            return store.workloads()

    def trials(self, *, superseded: bool = False) -> list[whet.Trial]:
        """Of the only workload; none where nothing was tuned."""
        known = self.workloads()
        assert len(known) <= 1
        if not known:
            return []
        with whet.open_store(self.store, read_only=True) as store:
            return store.trials(known[0].workload.id, all=superseded)

    def measuring_runs(self) -> list[int]:
        """How many runs of each workload have measured anything."""
        with whet.open_store(self.store, read_only=True) as store:
            return [
                sum(run.trials > 0 for run in store.runs(known.workload.id))
                for known in store.workloads()
            ]

    def measured_blocks(self) -> set[Any]:
        return {trial.config["BLOCK"] for trial in self.trials() if trial.status.measured}

    def binaries(self, kernel: str) -> int:
        return len(list(self.triton.rglob(f"{kernel}.cubin")))


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cold:
    place = Cold(tmp_path / "store.db", tmp_path / "triton")
    monkeypatch.setenv("WHET_STORE", str(place.store))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(place.triton))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    return place


def configs(*blocks: int) -> list[Any]:
    return [triton.Config({"BLOCK": block}) for block in blocks]


def grid_over(n: int) -> Callable[[Any], tuple[int]]:
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def tuned_double(*blocks: int) -> Any:
    """A new kernel each time, so that no test finds what another one has compiled."""

    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    return whet.autotune(configs=configs(*(blocks or (256, 1024))), key=["n"])(double)


def tuned_increment(**options: Any) -> Any:
    @triton.jit
    def increment(x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(x + offsets, value + 1, mask=offsets < n)

    return whet.autotune(configs=configs(256, 1024), key=["n"], **options)(increment)


def vectors(n: int = N) -> tuple[Any, Any]:
    """Room for a result, and random numbers."""
    return torch.full((n,), math.nan, device="cuda"), torch.randn(n, device="cuda")


SCRIPT = """
import json, sys
import torch, triton, triton.language as tl
import whet

@whet.autotune(
    configs=[triton.Config({"BLOCK": int(block)}) for block in sys.argv[1:]], key=["n"]
)
@triton.jit
def double(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, value * 2, mask=offsets < n)

x = torch.randn(4096, device="cuda")
out = torch.empty_like(x)
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.readline()
double[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](out, x, x.numel())
right = torch.equal(out, x * 2)
print(json.dumps({"right": right, "pick": double.best_config.kwargs["BLOCK"]}))
"""


@dataclass(frozen=True)
class Told:
    output: str

    @property
    def answer(self) -> Any:
        return json.loads(self.output.splitlines()[-1])


def start(script: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> Told:
    try:
        output, _ = process.communicate("go\n", timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, output
    return Told(output)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_tuning_gives_right_numbers_and_fills_the_attributes_of_an_autotuner() -> None:
    kernel = tuned_double()
    out, x = vectors()
    kernel[grid_over(N)](out, x, N)
    assert isinstance(kernel, triton.runtime.autotuner.Autotuner)
    assert torch.equal(out, x * 2)
    assert list(kernel.cache.values()) == [kernel.best_config]
    assert kernel.best_config in kernel.configs
    assert set(kernel.configs_timings) == set(kernel.configs)
    assert all(0 < timing[0] < math.inf for timing in kernel.configs_timings.values())


def test_a_second_key_is_tuned_for_itself(cold: Cold) -> None:
    kernel = tuned_double()
    for n in (N, 2 * N, N):
        out, x = vectors(n)
        kernel[grid_over(n)](out, x, n)
        assert torch.equal(out, x * 2)
    assert len(kernel.cache) == 2
    assert cold.measuring_runs() == [1, 1]


def test_a_second_process_tunes_nothing(
    cold: Cold, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    first = finish(start(script, 256, 1024))
    known = cold.trials(superseded=True)
    second = finish(start(script, 256, 1024))
    assert PRINTED in first.output
    assert PRINTED not in second.output
    assert cold.trials(superseded=True) == known
    assert cold.measuring_runs() == [1]
    assert first.answer["right"]
    assert second.answer == first.answer


def test_what_the_store_knows_is_compiled_for_the_chosen_config_only(
    cold: Cold, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(start(script, 128, 256, 512, 1024))
    later = Cold(cold.store, tmp_path / "empty")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(later.triton))
    assert finish(start(script, 128, 256, 512, 1024)).answer["right"]
    assert cold.binaries("double") == 4
    assert later.binaries("double") == 1


def test_adding_one_config_builds_one(cold: Cold, script: Path) -> None:
    chosen = finish(start(script, 256, 1024)).answer["pick"]
    before = cold.trials(superseded=True)
    assert {trial.config["BLOCK"] for trial in before} == {256, 1024}
    assert finish(start(script, 256, 1024, 512)).answer["right"]
    after = cold.trials(superseded=True)
    new = {trial.config["BLOCK"] for trial in after[len(before) :]}
    assert after[: len(before)] == before
    assert 512 in new
    # The stored best may be measured again, beside the newcomer; nobody else.
    assert new <= {512, chosen}
    assert len(cold.trials()) == 3


def test_an_undeclared_update_in_place_happens_once() -> None:
    kernel = tuned_increment()
    x = torch.randn(N, device="cuda")
    expected = x + 1
    kernel[grid_over(N)](x, N)
    assert len(kernel.cache) == 1
    assert torch.equal(x, expected)


def test_an_undeclared_atomic_update_happens_once() -> None:
    @triton.jit
    def count(x, counter, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = tl.sum(tl.load(x + offsets, mask=offsets < n, other=0))
        tl.atomic_add(counter, total)

    kernel = whet.autotune(configs=configs(256, 1024), key=["n"])(count)
    x = torch.ones(N, device="cuda", dtype=torch.int32)
    counter = torch.full((1,), 5, device="cuda", dtype=torch.int32)
    kernel[grid_over(N)](x, counter, N)
    assert len(kernel.cache) == 1
    assert counter.item() == 5 + N


def test_reset_to_zero_clears_before_the_call_that_tuned_and_not_later() -> None:
    @triton.jit
    def accumulate(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(out + offsets, mask=offsets < n) + tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value, mask=offsets < n)

    kernel = whet.autotune(configs=configs(256, 1024), key=["n"], reset_to_zero=["out"])(accumulate)
    x = torch.randn(N, device="cuda")
    out = torch.full_like(x, 7)
    kernel[grid_over(N)](out, x, N)
    assert torch.equal(out, x)
    kernel[grid_over(N)](out, x, N)
    assert torch.equal(out, x * 2)


def test_restore_value_leaves_one_update() -> None:
    kernel = tuned_increment(restore_value=["x"])
    x = torch.zeros(N, device="cuda")
    for times in (1, 2):
        kernel[grid_over(N)](x=x, n=N)
        assert torch.equal(x, torch.full_like(x, times))


def test_an_oversized_config_is_refused_and_its_hooks_are_told_once(cold: Cold) -> None:
    @triton.jit
    def staged(out, x, n, STAGES: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        for _ in tl.range(tl.cdiv(n, BLOCK), num_stages=STAGES):
            value = tl.load(x + offsets, mask=offsets < n)
            tl.store(out + offsets, value * 2, mask=offsets < n)
            offsets += BLOCK

    oversized, small, smaller = (
        triton.Config({"BLOCK": block, "STAGES": stages})
        for block, stages in ((4096, 100), (512, 2), (256, 2))
    )
    begun: list[Any] = []
    ended: list[Any] = []

    def before(arguments: Any, reset_only: bool = False) -> None:
        if not reset_only:
            begun.append(arguments["BLOCK"])

    def after(arguments: Any, exception: Exception | None) -> None:
        ended.append((arguments["BLOCK"], exception))

    kernel = whet.autotune(
        configs=[oversized, small, smaller], key=["n"], pre_hook=before, post_hook=after
    )(staged)
    out, x = vectors()
    kernel[(1,)](out, x, N)
    assert torch.equal(out, x * 2)
    assert kernel.best_config in (small, smaller)
    assert list(kernel.configs_timings[oversized]) == [math.inf] * 3
    assert begun == [block for block, _ in ended]
    [(block, error)] = [(block, error) for block, error in ended if error is not None]
    assert block == 4096
    assert isinstance(error, triton.runtime.errors.OutOfResources)
    assert error.name == "shared memory"
    assert error.required > error.limit
    assert begun.count(4096) == 1
    statuses = {trial.config["BLOCK"]: trial.status for trial in cold.trials()}
    assert statuses[4096] is whet.Status.RESOURCES


def test_threads_share_a_kernel_tune_each_key_once_and_get_right_results(
    cold: Cold, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    threads, launches, keys = 8, 1250, (N, 2 * N)

    # Floats are not specialised on: every launch has a result of its own and all use one binary.
    @triton.jit
    def shifted(out, x, shift, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2 + shift, mask=offsets < n)

    kernel = whet.autotune(configs=configs(256, 1024), key=["n"])(shifted)
    together = threading.Barrier(threads)

    def work(thread: int) -> tuple[int, int]:
        arguments = {n: vectors(n) for n in keys}
        wrong = torch.zeros((), device="cuda", dtype=torch.int64)
        together.wait()
        for launch in range(launches):
            n = keys[(thread + launch) % len(keys)]
            out, x = arguments[n]
            kernel[grid_over(n)](out, x, float(launch), n)
            wrong += (out != x * 2 + launch).any()
        return launches, int(wrong.item())

    with ThreadPoolExecutor(threads) as pool:
        done = list(pool.map(work, range(threads)))
    assert [sum(column) for column in zip(*done, strict=True)] == [10_000, 0]
    assert len(kernel.cache) == len(keys)
    assert cold.measuring_runs() == [1, 1]
    assert capsys.readouterr().out.count(PRINTED) == len(keys)


def test_processes_started_together_tune_a_cold_key_once(cold: Cold, script: Path) -> None:
    processes = [start(script, 128, 256, 512, 1024) for _ in range(8)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [finish(process).answer for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(answer["right"] for answer in answers)
    assert cold.measuring_runs() == [1]
    with whet.open_store(cold.store, read_only=True) as store:
        best = store.best(cold.workloads()[0].workload.id)
    assert best is not None
    assert {answer["pick"] for answer in answers} == {best.config["BLOCK"]}


def test_a_call_under_graph_capture_uses_the_first_config_and_tunes_nothing(cold: Cold) -> None:
    kernel = tuned_double()
    out, x = vectors()
    # A capture forbids loading a binary, tuned or not: the first config's has to be there.
    kernel.fn[grid_over(N)](out, x, N, **kernel.configs[0].all_kwargs())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[grid_over(N)](out, x, N)
    for _ in range(2):
        x.normal_()
        graph.replay()
        assert torch.equal(out, x * 2)
    assert cold.trials() == []


def test_a_capture_that_may_load_binaries_needs_no_call_before_it(cold: Cold) -> None:
    kernel = tuned_double()
    out, x = vectors()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        kernel[grid_over(N)](out, x, N)
    graph.replay()
    assert torch.equal(out, x * 2)
    assert cold.trials() == []


def test_a_tuned_key_is_captured_with_its_best_config(cold: Cold) -> None:
    kernel = tuned_double()
    out, x = vectors()
    kernel[grid_over(N)](out, x, N)
    tuned = cold.trials(superseded=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[grid_over(N)](out, x, N)
    x.normal_()
    graph.replay()
    assert torch.equal(out, x * 2)
    assert list(kernel.cache.values()) == [kernel.best_config]
    assert cold.trials(superseded=True) == tuned


def test_a_capture_does_not_keep_the_key_from_being_tuned_later(cold: Cold) -> None:
    kernel = tuned_double()
    out, x = vectors()
    kernel.fn[grid_over(N)](out, x, N, **kernel.configs[0].all_kwargs())
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        kernel[grid_over(N)](out, x, N)
    kernel[grid_over(N)](out, x, N)
    assert torch.equal(out, x * 2)
    assert cold.measuring_runs() == [1]
    assert set(kernel.configs_timings) == set(kernel.configs)


def test_a_config_used_under_capture_is_no_choice_though_another_key_has_chosen_it(
    cold: Cold,
) -> None:
    # Blocks of 16 are far slower at these sizes: the first config is also the best one.
    kernel = tuned_double(1024, 16)
    tuned, captured = 2**22, 2**23
    kernel[grid_over(tuned)](*vectors(tuned), tuned)
    assert kernel.best_config == kernel.configs[0]
    out, x = vectors(captured)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        kernel[grid_over(captured)](out, x, captured)
    kernel[grid_over(captured)](out, x, captured)
    assert len(kernel.cache) == 2
    assert cold.measuring_runs() == [1, 1]


def test_install_makes_triton_autotune_ours_and_uninstall_puts_it_back(cold: Cold) -> None:
    stock = triton.autotune
    inner = triton.runtime.autotuner.autotune
    whet.install()
    try:
        assert triton.autotune is triton.runtime.autotune is not stock
        assert triton.runtime.autotuner.autotune is inner

        @triton.autotune(configs=configs(256, 1024), key=["n"])
        @triton.jit
        def double(out, x, n, BLOCK: tl.constexpr):
            offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            value = tl.load(x + offsets, mask=offsets < n)
            tl.store(out + offsets, value * 2, mask=offsets < n)

        out, x = vectors()
        double[grid_over(N)](out, x, N)
    finally:
        whet.uninstall()
    assert torch.equal(out, x * 2)
    assert cold.measuring_runs() == [1]
    assert triton.autotune is triton.runtime.autotune is stock


@pytest.mark.parametrize("above", [True, False], ids=["above", "below"])
@pytest.mark.parametrize("n", [N, N - 3])
def test_heuristics_work_on_either_side(above: bool, n: int, cold: Cold) -> None:
    @triton.jit
    def double(out, x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        if EVEN:
            tl.store(out + offsets, tl.load(x + offsets) * 2)
        else:
            value = tl.load(x + offsets, mask=offsets < n)
            tl.store(out + offsets, value * 2, mask=offsets < n)

    autotune = whet.autotune(configs=configs(256, 1024), key=["n"])
    if above:
        kernel = triton.heuristics({"EVEN": lambda a: a["n"] % 1024 == 0})(autotune(double))
    else:
        kernel = autotune(triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})(double))
    out, x = vectors(N)
    kernel[grid_over(n)](out, x, n)
    assert torch.equal(out[:n], x[:n] * 2)
    assert bool(out[n:].isnan().all())
    assert cold.measured_blocks() == {256, 1024}


def test_a_kernel_of_a_script_is_built_and_tuned(cold: Cold, script: Path) -> None:
    assert finish(start(script, 256, 1024)).answer["right"]
    assert cold.measured_blocks() == {256, 1024}


def test_a_kernel_of_a_closure_is_built_with_what_it_closes_over(cold: Cold) -> None:
    factor = tl.constexpr(3)

    @triton.jit
    def scaled(value):
        return value * factor

    @triton.jit
    def scale(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, scaled(value), mask=offsets < n)

    kernel = whet.autotune(configs=configs(256, 1024), key=["n"])(scale)
    out, x = vectors()
    kernel[grid_over(N)](out, x, N)
    assert torch.equal(out, x * 3)
    assert cold.measured_blocks() == {256, 1024}


COMPILED = """
import json, sys
import torch, triton, triton.language as tl
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
import whet

CONFIGS = [triton.Config({"BLOCK": block}) for block in (256, 1024)]

@whet.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def double(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, value * 2, mask=offsets < n)

@whet.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def square(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, value * value, mask=offsets < n)

def model(x):
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    doubled = torch.empty_like(x)
    double[grid](doubled, x + 1, n)
    squared = torch.empty_like(x)
    square[grid](squared, doubled, n)
    return squared - x

benchmarked = []
bench = CachingAutotuner.bench

def counting(self, *arguments, **keywords):
    benchmarked.append(self.fn.__name__)
    return bench(self, *arguments, **keywords)

CachingAutotuner.bench = counting
x = torch.randn(4096, device="cuda")
expected = (2 * (x + 1)) ** 2 - x
if sys.argv[1] == "tuned":
    torch.testing.assert_close(model(x), expected)
result = torch.compile(model, fullgraph=True)(x)
right = torch.allclose(result, expected, rtol=1e-5, atol=1e-5)
ours = [name for name in benchmarked if name.startswith(("double", "square"))]
print(json.dumps({"right": right, "benchmarked": ours}))
"""


@pytest.mark.parametrize("state", ["cold", "tuned"])
def test_two_kernels_in_a_compiled_function_give_right_numbers(state: str, tmp_path: Path) -> None:
    script = tmp_path / "compiled.py"
    script.write_text(COMPILED)
    assert finish(start(script, state)).answer["right"]


def test_inductor_benchmarks_nothing_for_keys_tuned_beforehand(tmp_path: Path) -> None:
    script = tmp_path / "compiled.py"
    script.write_text(COMPILED)
    assert finish(start(script, "tuned")).answer["benchmarked"] == []


LISTENED = """
import json, os, sys
import torch, triton, triton.language as tl, whet
from triton import knobs

hits = []
knobs.compilation.listener = lambda **told: hits.append(told["cache_hit"])

@whet.autotune(configs=[triton.Config({"BLOCK": b}) for b in (128, 256, 512, 1024)], key=["n"])
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

x = torch.randn(4096, device="cuda")
out = torch.empty_like(x)
double[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](x, out, 4096)
assert torch.equal(out, 2 * x)
print(json.dumps({"hits": hits}))
"""


def test_what_the_workers_compiled_is_loaded_without_compiling_again(tmp_path: Path) -> None:
    script = tmp_path / "listened.py"
    script.write_text(LISTENED)
    hits = finish(start(script)).answer["hits"]
    assert len(hits) >= 4
    assert all(hits)
