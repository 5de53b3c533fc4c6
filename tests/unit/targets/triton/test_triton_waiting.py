"""A kernel's call while another process tunes the same key."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import contextlib
import logging

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.engine import log, turns
from whet.engine.fallback import calls
from whet.engine.turns import Turn, file_lock
from whet.testing.fake_triton import FakeTensor, fake_driver, told


def quick_when_small(**options):
    """Anew each time, as a new process has it."""

    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    listed = [triton.Config({"BLOCK": block}) for block in (256, 128)]
    kernel = whet.autotune(configs=listed, key=["n"], **options)(double)
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    return kernel


def call(kernel):
    kernel[(1,)](FakeTensor([0.0] * 4), FakeTensor([1.0] * 4, address=8192), 4)
    return kernel.best_config.kwargs["BLOCK"]


@pytest.fixture
def driver(monkeypatch):
    monkeypatch.setattr(calls, "LOOK_AGAIN_S", 0.0)
    with fake_driver() as fake:
        yield fake


@pytest.fixture
def elsewhere(driver, cold, tmp_path, monkeypatch):
    """Has the turn on the kernel's workload, in a store that knows nothing of it, until closed."""
    call(quick_when_small())
    (workload,) = cold.workloads()
    place = tmp_path / "shared.db"
    monkeypatch.setenv("WHET_STORE", str(place))
    monkeypatch.setattr(log, "_said", set())
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(whet.open_store(place))
        assert stack.enter_context(Turn(store, workload.id)).take()
        yield stack


@pytest.mark.medium
def test_a_budget_spent_waiting_leaves_the_first_config_for_now(elsewhere, caplog):
    kernel = quick_when_small(budget="1s")
    with caplog.at_level(logging.WARNING, "whet"), pytest.warns(match="budget spent waiting"):
        assert call(kernel) == 256
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "event=waiting kernel=double" in caplog.text
    assert dict(kernel.cache) == {}


@pytest.mark.medium
def test_only_one_call_waits_in_vain(elsewhere, caplog):
    kernel = quick_when_small(budget="1s")
    with caplog.at_level(logging.WARNING, "whet"), pytest.warns(match="budget spent waiting"):
        assert [call(kernel), call(kernel)] == [256, 256]
    assert caplog.text.count("event=waiting") == 1


@pytest.mark.medium
def test_without_a_budget_the_setting_ends_the_wait(elsewhere, monkeypatch):
    monkeypatch.setenv("WHET_AGREE_WAIT", "0.05")
    with pytest.warns(match="agree_wait"):
        assert call(quick_when_small()) == 256


@pytest.mark.medium
def test_a_call_after_the_other_has_ended_tunes(elsewhere, monkeypatch):
    kernel = quick_when_small()
    monkeypatch.setenv("WHET_AGREE_WAIT", "0.05")
    with pytest.warns(match="agree_wait"):
        assert call(kernel) == 256
    elsewhere.close()
    assert call(kernel) == 128
    assert len(kernel.cache) == 1


@pytest.mark.medium
def test_a_gpu_that_another_process_measures_on_is_waited_for_as_the_setting_says(
    driver, cold, monkeypatch
):
    waits = []

    def noted(path, wait_s):
        waits.append((path, wait_s))
        return file_lock(path, wait_s)

    monkeypatch.setattr(turns, "file_lock", noted)
    call(quick_when_small())
    gpu = waits[0][0]
    waits.clear()
    monkeypatch.setenv("WHET_STORE", str(cold.store.with_name("another.db")))
    monkeypatch.setenv("WHET_AGREE_WAIT", "0.01")
    with file_lock(gpu, 0.0) as held:
        assert held
        assert call(quick_when_small()) == 128
    assert set(waits) == {(gpu, 0.01)}
