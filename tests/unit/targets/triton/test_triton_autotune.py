"""What is behind `whet.autotune`: correctness, the store, threads, spaces, the interpreter."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import importlib.util
import json
import linecache
import os
import subprocess
import sys
import threading

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.testing.fake_triton import FakeTensor, fake_driver, told

pytestmark = pytest.mark.usefixtures("warm_binaries")

N = 4


def configs(*blocks, **options):
    return [triton.Config({"BLOCK": block}, **options) for block in blocks]


def small_is_quick():
    return told(lambda config: 1000.0 + config.kwargs["BLOCK"])


def tuned_double(*blocks, **options):
    """A new kernel each time, as a new process has one."""

    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    options.setdefault("configs", configs(*(blocks or (128, 256))))
    kernel = whet.autotune(key=["n"], **options)(double)
    kernel.whet_timer = small_is_quick()
    return kernel


def tuned_increment(**options):
    @triton.jit
    def increment(x, y, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(x + offsets, value + 1, mask=offsets < n)

    kernel = whet.autotune(configs=configs(128, 256), key=["n"], **options)(increment)
    kernel.whet_timer = small_is_quick()
    return kernel


def pair():
    return FakeTensor([0.0] * N), FakeTensor([1.0, 2.0, 3.0, 4.0], address=8192)


@pytest.fixture
def driver():
    with fake_driver() as fake:
        yield fake


def doubles(name, arguments):
    """What the device would do."""
    out, x, *_ = arguments
    out.values = [2 * value for value in x.values]


def doubles_but_not_in(*blocks):
    def launch(name, arguments):
        doubles(name, arguments)
        if arguments[-1] in blocks:
            arguments[0].values[2] += 1

    return launch


def increments(name, arguments):
    x = arguments[0]
    x.values = [value + 1 for value in x.values]


# Correctness


@pytest.mark.medium
def test_a_config_that_differs_from_the_reference_cannot_win(driver, cold):
    driver.on_launch = doubles_but_not_in(128)

    def reference(arguments):
        return {"out": FakeTensor([2 * value for value in arguments["x"].values])}

    kernel = tuned_double(128, 256, 512, check=reference)
    out, x = pair()
    kernel[(1,)](out, x, N)
    assert cold.statuses()[128] == "wrong_result"
    assert cold.measured() == {256, 512}
    assert kernel.best_config.kwargs == {"BLOCK": 256}
    assert out.values == [2.0, 4.0, 6.0, 8.0]
    (wrong,) = [trial for trial in cold.trials() if trial.config["BLOCK"] == 128]
    assert "output 'out': 1 of 4" in wrong.error
    assert "at 2: got 7, expected 6" in wrong.error


@pytest.mark.medium
def test_configs_that_disagree_with_the_first_that_ran_cannot_win(driver, cold):
    driver.on_launch = doubles_but_not_in(128)
    kernel = tuned_double(128, 256, check="agree")
    kernel[(1,)](*pair(), N)
    assert sorted(cold.statuses().values()) == ["ok", "wrong_result"]
    assert cold.statuses()[kernel.best_config.kwargs["BLOCK"]] == "ok"


@pytest.mark.medium
def test_configs_that_agree_are_all_right(driver, cold):
    driver.on_launch = doubles
    tuned_double(check="agree")[(1,)](*pair(), N)
    assert cold.measured() == {128, 256}


@pytest.mark.medium
def test_an_undeclared_update_in_place_happens_once(driver, cold):
    driver.on_launch = increments
    x, y = FakeTensor([1.0] * N), FakeTensor([5.0] * N)
    tuned_increment()[(1,)](x, y, N)
    assert cold.measured() == {128, 256}
    assert x.values == [2.0] * N
    assert y.values == [5.0] * N


@pytest.mark.medium
@pytest.mark.parametrize("benchmark", [None, lambda call, quantiles: [call() or 1.0]])
def test_a_value_declared_to_be_restored_is_updated_once(driver, benchmark):
    driver.on_launch = increments
    x = FakeTensor([1.0] * N)
    tuned_increment(restore_value=["x"], do_bench=benchmark)[(1,)](x, FakeTensor([5.0]), N)
    assert x.values == [2.0] * N


@pytest.mark.medium
def test_the_copy_of_a_declared_value_is_allocated_once_for_all_launches(driver):
    clones = []

    class Counted(FakeTensor):
        def clone(self):
            clones.append(self)
            return super().clone()

    driver.on_launch = increments
    x = Counted([1.0] * N)
    tuned_increment(restore_value=["x"])[(1,)](x, FakeTensor([5.0]), N)
    assert len(driver.launches) > 2
    assert len(clones) == 1
    assert x.values == [2.0] * N


@pytest.mark.medium
@pytest.mark.parametrize("benchmark", [None, lambda call, quantiles: [call() or 1.0]])
def test_a_value_declared_to_be_reset_starts_from_zero(driver, benchmark):
    driver.on_launch = increments
    x = FakeTensor([7.0] * N)
    tuned_increment(reset_to_zero=["x"], do_bench=benchmark)[(1,)](x, FakeTensor([5.0]), N)
    assert x.values == [1.0] * N


@pytest.mark.medium
def test_an_update_in_place_is_restored_though_a_config_fails_half_way(driver, cold):
    def launch(name, arguments):
        increments(name, arguments)
        if arguments[-1] == 256:
            raise RuntimeError("device lost")

    driver.on_launch = launch
    x = FakeTensor([1.0] * N)
    kernel = tuned_increment()
    kernel[(1,)](x, FakeTensor([5.0]), N)
    assert cold.statuses()[256] not in ("ok", "outraced")
    assert kernel.best_config.kwargs == {"BLOCK": 128}
    assert x.values == [2.0] * N


@pytest.mark.medium
def test_where_every_config_fails_the_launch_says_why(driver):
    def launch(name, arguments):
        raise RuntimeError("device lost")

    driver.on_launch = launch
    with pytest.raises(RuntimeError, match="device lost"):
        tuned_double()[(1,)](*pair(), N)


@pytest.mark.medium
def test_a_tensor_there_is_no_memory_to_save_is_said(driver):
    class Huge(FakeTensor):
        def clone(self):
            raise MemoryError("out of memory")

    with pytest.warns(
        RuntimeWarning, match="not enough memory to save 'x' .*declare it in restore_value"
    ):
        tuned_increment()[(1,)](Huge([1.0] * N), FakeTensor([5.0]), N)


# Spaces


@pytest.mark.medium
def test_a_space_with_constraints_stands_for_a_list_of_configs(driver, cold):
    space = whet.Space(
        {"BLOCK": [128, 256, 512], "num_warps": [4, 8]}, constraints=["BLOCK >= 64 * num_warps"]
    )
    kernel = tuned_double(configs=None, space=space)
    assert [(c.kwargs, c.num_warps) for c in kernel.configs] == [
        ({"BLOCK": 256}, 4),
        ({"BLOCK": 512}, 4),
        ({"BLOCK": 512}, 8),
    ]
    kernel[(1,)](*pair(), N)
    assert kernel.best_config.kwargs == {"BLOCK": 256}
    assert {(t.config["BLOCK"], t.config["num_warps"]) for t in cold.trials()} == {
        (256, 4),
        (512, 4),
        (512, 8),
    }


# The store


@pytest.mark.medium
def test_a_second_autotuner_with_the_same_store_tunes_nothing(driver, cold, compiled):
    first = tuned_double()
    first[(1,)](*pair(), N)
    known = cold.trials(superseded=True)
    compiled.clear()
    driver.launches.clear()
    second = tuned_double()
    second[(1,)](*pair(), N)
    assert second.best_config.kwargs == first.best_config.kwargs
    assert compiled == [("double", True)]
    assert len(driver.launches) == 1
    assert cold.trials(superseded=True) == known
    assert cold.measuring_runs() == [1]
    assert list(second.configs_timings.values()) == list(first.configs_timings.values())


@pytest.mark.slow
def test_adding_one_config_builds_one(driver, cold, monkeypatch, tmp_path):
    tuned_double(128, 256, 512)[(1,)](*pair(), N)
    before = cold.trials(superseded=True)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "empty"))
    tuned_double(128, 256, 512, 1024)[(1,)](*pair(), N)
    after = cold.trials(superseded=True)
    new = {trial.config["BLOCK"] for trial in after[len(before) :]}
    # The stored best may be measured again, beside the newcomer; nobody else.
    assert 1024 in new
    assert new <= {1024, 128}
    assert len(list((tmp_path / "empty").rglob("*.cubin"))) == 2


@pytest.mark.slow
def test_another_key_and_another_dtype_are_other_workloads(driver, cold):
    kernel = tuned_double()
    kernel[(1,)](*pair(), N)
    kernel[(1,)](*pair(), 2 * N)
    half = FakeTensor([0.0], "float16")
    kernel[(1,)](half, half, N)
    assert len(cold.workloads()) == 3


CELL = """
import triton
import triton.language as tl

@triton.jit
def scale(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) * 2, mask=offsets < n)
"""


def call_of_cell(text):
    """A new kernel from source that a notebook would run."""
    name = f"<cell {len(text)} {hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), space)
    kernel = whet.autotune(configs=configs(128, 256), key=["n"])(space["scale"])
    kernel.whet_timer = small_is_quick()
    kernel[(1,)](*pair(), N)


@pytest.mark.medium
def test_an_edited_kernel_is_another_workload(driver, cold):
    call_of_cell(CELL)
    call_of_cell(CELL.replace("* 2", "* 3"))
    assert cold.measuring_runs() == [1, 1]


@pytest.mark.medium
def test_a_kernel_that_was_moved_or_commented_is_the_same_workload(driver, cold):
    call_of_cell(CELL)
    call_of_cell(
        "\n\n# elsewhere now\n" + CELL.replace("    tl.store", "    # stores\n    tl.store")
    )
    assert cold.measuring_runs() == [1]


@pytest.mark.medium
def test_a_refused_config_is_remembered_as_such(driver, cold):
    listed = [*configs(128, 256), *configs(512, num_warps=64)]
    for _ in range(2):
        kernel = tuned_double(configs=listed)
        kernel[(1,)](*pair(), N)
    assert cold.statuses()[512] == "resources"
    assert cold.measuring_runs() == [1]


@pytest.mark.medium
def test_a_store_that_cannot_be_used_does_not_stop_a_kernel(driver, monkeypatch, tmp_path):
    broken = tmp_path / "broken.db"
    broken.write_text("this is no store, but some text that is long enough to be looked at")
    monkeypatch.setenv("WHET_STORE", str(broken))
    kernel = tuned_double()
    with pytest.warns(RuntimeWarning, match="results will not be saved"):
        kernel[(1,)](*pair(), N)
    assert kernel.best_config.kwargs == {"BLOCK": 128}


# Threads


@pytest.mark.medium
def test_eight_threads_on_two_keys_tune_each_key_once(driver, cold):
    kernel = tuned_double()
    barrier = threading.Barrier(8)
    failures = []

    def calls(n):
        barrier.wait()
        try:
            for _ in range(5):
                kernel[(n,)](*pair(), n)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=calls, args=(N + i % 2,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(kernel.cache) == 2
    assert cold.measuring_runs() == [1, 1]


# The interpreter


INTERPRETED = """
import json
import torch, triton, triton.language as tl
import whet

def prune(configs, nargs, **_):
    return configs[1:]

@whet.autotune(
    configs=[triton.Config({"BLOCK": block}) for block in (32, 64, 128)],
    key=["n"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.jit
def double(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, value * 2, mask=offsets < n)

x = torch.arange(100, dtype=torch.float32)
out = torch.zeros(100)
for _ in range(2):
    out.zero_()
    double[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](out, x, 100)
    assert torch.equal(out, x * 2)
print(json.dumps({"best": double.best_config.kwargs["BLOCK"]}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="the interpreter needs torch")
def test_the_interpreter_runs_the_first_pruned_config_untimed(tmp_path, cold):
    script = tmp_path / "script.py"
    script.write_text(INTERPRETED)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"best": 64}
    assert cold.workloads() == []


# Keys that cannot be hashed


def test_a_key_argument_that_cannot_be_hashed_fails_as_in_triton(driver):
    with pytest.raises(TypeError, match="unhashable"):
        tuned_double()[(1,)](*pair(), [N])
