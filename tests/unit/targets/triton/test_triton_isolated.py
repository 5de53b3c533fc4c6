"""`whet.autotune(…, isolate=True)`: configs run in another process, which may die."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import os
import warnings

import isolated_parts as parts
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import torch
import triton
import triton.language as tl

import whet
from whet.core.status import Status
from whet.engine import log
from whet.testing.fake_triton import fake_driver
from whet.workers import session

N = 8
GOOD = (512, 1024)

pytestmark = [pytest.mark.medium, pytest.mark.usefixtures("warm_binaries")]


@pytest.fixture(autouse=True)
def diary(monkeypatch, tmp_path):
    monkeypatch.setenv("ISOLATED_DIARY", str(tmp_path / "diary"))
    monkeypatch.setenv("ISOLATED_HERE", str(os.getpid()))
    monkeypatch.setattr(log, "_said", set())


@pytest.fixture
def fresh_driver(fresh_workers):
    """The other process is a new interpreter, as it is for users."""
    with fake_driver() as fake:
        fake.on_launch = lambda name, args: parts.launched(fake, name, args)
        yield fake


@pytest.fixture
def driver(fresh_driver, forked_workers):
    """The other process has torch and Triton imported, which is what takes long."""
    return fresh_driver


def configs(*blocks, **options):
    return [triton.Config({"BLOCK": block}, **options) for block in blocks]


def tuned_copy(*blocks, timer=parts.by_block, hook=None, **options):
    """Defined in a closure, so that no other process can import it."""

    @triton.jit
    def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

    options.setdefault("isolate", True)
    listed = options.pop("configs", None) or configs(*(blocks or GOOD), pre_hook=hook)
    kernel = whet.autotune(configs=listed, key=["n"], **options)(copy)
    kernel.whet_timer = timer
    return kernel


def called(kernel, x=None, y=None, grid=lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]), 3)):
    x = torch.arange(float(N)) if x is None else x
    y = torch.zeros(N) if y is None else y
    kernel[grid](x, y, N)
    return x, y


def others():
    """What other processes have launched."""
    return [entry for entry in parts.entries() if entry["pid"] != os.getpid() and "grid" in entry]


def here():
    return [entry for entry in parts.entries() if entry["pid"] == os.getpid() and "grid" in entry]


@pytest.mark.whole
def test_configs_run_in_another_process_and_only_the_best_in_this_one(fresh_driver, cold):
    kernel = tuned_copy()
    x, y = called(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 1024}
    assert {entry["block"] for entry in others()} == {512, 1024}
    assert {entry["block"] for entry in here()} == {1024}
    assert torch.equal(x, y)
    assert cold.measured() == {512, 1024}


def test_the_other_process_gets_the_grid_the_numbers_and_every_binary(driver, cold):
    called(tuned_copy(), grid=lambda meta: (meta["BLOCK"] // 512, 7))
    seen = {(e["name"], e["block"], tuple(e["grid"]), e["n"]) for e in others()}
    assert seen == {("copy", 512, (1, 7, 1), N), ("copy", 1024, (2, 7, 1), N)}
    assert {trial.facts["registers"] for trial in cold.trials()} == {32}


def test_aliases_stay_aliases(driver):
    x = torch.arange(float(2 * N))
    called(tuned_copy(), x[N:], x[:N])
    assert {entry["aliased"] for entry in others()} == {True}


@pytest.mark.slow
def test_the_arguments_here_are_not_touched_by_a_config(driver):
    x, y = called(tuned_copy(parts.WRONG, *GOOD, check=parts.copied))
    assert torch.equal(x, torch.arange(float(N)))
    assert torch.equal(x, y)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("poison", "status"),
    [
        (parts.ILLEGAL, Status.RUN_ERROR),
        (parts.CRASH, Status.RUN_ERROR),
        (parts.MEMORY, Status.RESOURCES),
        (parts.WRONG, Status.WRONG_RESULT),
    ],
)
@pytest.mark.parametrize("timer", [parts.by_block, parts.in_groups])
def test_a_poisoned_config_fails_alone(driver, cold, poison, status, timer):
    kernel = tuned_copy(GOOD[0], poison, GOOD[1], timer=timer, check=parts.copied)
    called(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 1024}
    assert cold.statuses()[poison] == status.value
    assert cold.measured() == set(GOOD)


@pytest.mark.slow
def test_an_endless_config_is_killed_at_its_limit(driver, cold, monkeypatch):
    monkeypatch.setenv("WHET_RUN_LIMIT", "3s")
    kernel = tuned_copy(GOOD[0], parts.ENDLESS, GOOD[1])
    called(kernel)
    assert cold.statuses()[parts.ENDLESS] == Status.RUN_TIMEOUT.value
    assert cold.measured() == set(GOOD)


def test_what_is_out_of_memory_leaves_the_process_in_use(driver):
    called(tuned_copy(GOOD[0], parts.MEMORY, GOOD[1]))
    assert len({entry["pid"] for entry in others()}) == 1


def one_after_the_other(cold, monkeypatch):
    """What is compiled already would be measured before what is not."""
    monkeypatch.setenv("WHET_JOBS", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cold.triton))


@pytest.mark.slow
def test_a_process_that_takes_anothers_place_agrees_with_the_same_config(driver, cold, monkeypatch):
    """The wrong config is the first that the second process is asked for."""
    one_after_the_other(cold, monkeypatch)
    blocks = (GOOD[0], parts.ILLEGAL, parts.WRONG, GOOD[1])
    called(tuned_copy(*blocks, check="agree", search="grid"))
    assert list(dict.fromkeys(entry["block"] for entry in others())) == list(blocks)
    assert cold.statuses()[parts.WRONG] == Status.WRONG_RESULT.value
    assert cold.measured() == set(GOOD)


@pytest.mark.slow
def test_bits_are_compared_across_processes(fresh_driver, cold, monkeypatch):
    """A crash in between costs the process in which the reference ran."""
    one_after_the_other(cold, monkeypatch)
    monkeypatch.setattr(session, "KEPT", 1)
    blocks = (GOOD[0], parts.CRASH, parts.WRONG, GOOD[1])
    called(tuned_copy(*blocks, check="bitwise", search="grid"))
    assert cold.statuses()[parts.WRONG] == Status.WRONG_RESULT.value
    assert cold.measured() == set(GOOD)
    assert {entry["pid"] for entry in others()}.isdisjoint({os.getpid()})


@pytest.mark.slow
def test_a_check_function_is_asked_once_and_here(driver):
    called(tuned_copy(GOOD[0], parts.CRASH, GOOD[1], check=parts.copied))
    asked = [entry for entry in parts.entries() if "expected" in entry]
    assert [entry["pid"] for entry in asked] == [os.getpid()]


def test_hooks_of_a_module_run_where_the_config_runs(driver):
    called(tuned_copy(hook=parts.shift))
    hooked = [entry for entry in parts.entries() if "hook" in entry]
    assert {entry["hook"] for entry in hooked if entry["pid"] != os.getpid()} == set(GOOD)
    assert {entry["hook"] for entry in hooked if entry["pid"] == os.getpid()} == {1024}


def test_a_hook_that_cannot_be_sent_is_named_and_nothing_is_isolated(driver, cold):
    kernel = tuned_copy(hook=lambda arguments: None)
    with pytest.warns(RuntimeWarning, match=r"copy is measured in this process.*<lambda>.*module"):
        called(kernel)
    assert others() == []
    assert cold.measured() == set(GOOD)


def test_an_argument_that_cannot_be_copied_is_named(driver):
    class Addressed:
        dtype = torch.float32

        def data_ptr(self):
            return 4096

    kernel = tuned_copy(timer=parts.by_block)
    driver.on_launch = None
    with pytest.warns(RuntimeWarning, match="not isolated: an argument of type .*Addressed"):
        kernel[(1,)](Addressed(), torch.zeros(N), N)


def test_a_kernel_that_follows_addresses_is_measured_here(driver):
    @triton.jit
    def follow(table_ptr, out_ptr, n, BLOCK: tl.constexpr):
        there = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
        tl.store(out_ptr, tl.load(there) + n + BLOCK)

    kernel = whet.autotune(configs=configs(1, 2), key=["n"], isolate=True)(follow)
    kernel.whet_timer = parts.by_block
    driver.on_launch = None
    with pytest.warns(RuntimeWarning, match="dereferences addresses"):
        kernel[(1,)](torch.zeros(1, dtype=torch.int64), torch.zeros(N), 3)
    assert others() == []


def test_where_no_other_process_can_be_set_up_that_is_said(driver, cold):
    with pytest.warns(RuntimeWarning, match=r"copy is measured in this process.*no room on the"):
        called(tuned_copy(timer=parts.only_here))
    assert others() == []
    assert cold.measured() == set(GOOD)


def test_memory_that_is_not_shared_goes_through_the_host(driver, cold):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        called(tuned_copy(timer=parts.not_shared_at_first))
    assert {entry["block"] for entry in others()} == set(GOOD)


def test_a_grid_that_fails_for_one_config_fails_that_one(driver, cold):
    def grid(meta):
        return (10 // (meta["BLOCK"] - 512),)

    called(tuned_copy(512, 1024, 2048), grid=grid)
    assert cold.measured() == {1024, 2048}
    assert cold.statuses()[512] == Status.RUN_ERROR.value


def test_what_heuristics_add_is_in_the_launch_and_in_the_grid(driver, cold):
    @triton.heuristics({"HALF": lambda arguments: arguments["BLOCK"] // 2})
    @triton.jit
    def copy(x_ptr, y_ptr, n, HALF: tl.constexpr, BLOCK: tl.constexpr, EXTRA: tl.constexpr = 3):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) + 0 * HALF
        tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

    kernel = whet.autotune(configs=configs(512, 1024), key=["n"], isolate=True)(copy)
    kernel.whet_timer = parts.just_written_down
    driver.on_launch = None
    kernel[lambda meta: (meta["HALF"], meta["EXTRA"])](torch.zeros(N), torch.zeros(N), N)
    seen = {(tuple(entry["grid"]), *entry["values"]) for entry in others()}
    assert seen == {((256, 3, 1), 256, 512, 3), ((512, 3, 1), 512, 1024, 3)}


def test_the_setting_asks_for_it_and_the_decorator_outranks_it(driver, monkeypatch):
    monkeypatch.setenv("WHET_ISOLATE", "yes")
    called(tuned_copy(isolate=False))
    assert others() == []
    called(tuned_copy(256, 512, isolate=None))
    assert others() != []


def test_declared_tensors_are_reset_and_restored_in_the_other_process_and_nothing_is_said(driver):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for declared in ({"reset_to_zero": ["y_ptr"]}, {"restore_value": ["y_ptr"]}):
            called(tuned_copy(**declared), y=torch.full((N,), 5.0))
    assert {entry["block"] for entry in others()} == set(GOOD)
