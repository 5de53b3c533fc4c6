"""`whet.autotune(…, idle=True)`: no call tunes, and later ones are better."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import logging
import time

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.engine.fallback.background import TimeBudget
from whet.targets.triton import background, device
from whet.targets.triton.offline.tuning import _afresh
from whet.testing.fake_triton import FakeTensor, fake_driver, told

pytestmark = pytest.mark.usefixtures("warm_binaries")

BLOCKS = (128, 256, 512)
PATIENCE_S = 60.0


class Seconds:
    """Calls take a second each, and nothing else takes any time."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def seconds(monkeypatch):
    clock = Seconds()
    monkeypatch.setattr(background, "_shared", TimeBudget(0.02, clock))
    return clock


@pytest.fixture(autouse=True)
def _no_refinement_outlives_its_test(monkeypatch):
    """Each may hold a builder, whose processes would be there until all tests have ended."""
    begun, begin = [], background.IdleAutotuner._begin

    def remembered(*arguments):
        begun.append(begin(*arguments))
        return begun[-1]

    monkeypatch.setattr(background.IdleAutotuner, "_begin", remembered)
    yield
    for refinement, _ in begun:
        refinement.close()


@pytest.fixture
def driver():
    with fake_driver() as fake:
        yield fake


def kernel(times=lambda block: 1000.0 - block, in_place=False, **options):
    """The largest block is the fastest."""

    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    @triton.jit
    def increase(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        before = tl.load(out + offsets, mask=offsets < n)
        tl.store(out + offsets, before + value, mask=offsets < n)

    configs = [triton.Config({"BLOCK": block}) for block in BLOCKS]
    options = {"idle": True, "configs": configs, "key": ["n"], **options}
    made = whet.autotune(**options)(increase if in_place else double)
    made.whet_timer = told(lambda config: times(config.kwargs["BLOCK"]))
    return made


def call(made, seconds, out=None, n=4, **keywords):
    seconds.now += 1.0
    out = FakeTensor([0.0]) if out is None else out
    made[(1,)](out, FakeTensor([1.0], address=8192), n, **keywords)
    return made.best_config.kwargs["BLOCK"]


def call_until_decided(made, seconds, **arguments):
    """Every block that a call used."""
    used, deadline = [], time.monotonic() + PATIENCE_S
    while made._refining or not used:
        used.append(call(made, seconds, **arguments))
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    return used


@pytest.mark.medium
def test_the_first_call_tunes_nothing(driver, seconds, compiled):
    assert call(kernel(), seconds) == 128
    assert len(driver.launches) == len(compiled) == 1


@pytest.mark.medium
def test_after_enough_calls_the_faster_config_is_used_and_stored(driver, seconds, cold):
    made = kernel()
    used = call_until_decided(made, seconds)
    assert set(used[:-1]) == {128}
    assert call(made, seconds) == 512
    assert [config.kwargs["BLOCK"] for config in made.cache.values()] == [512]
    assert cold.statuses()[512] == "ok"
    with whet.mode("require"):
        assert call(kernel(), seconds) == 512


@pytest.mark.medium
def test_a_stored_result_is_used_at_once_and_not_refined(driver, seconds):
    call(kernel(idle=False), seconds)
    made = kernel()
    driver.launches.clear()
    assert [call(made, seconds) for _ in range(500)] == [512] * 500
    assert len(driver.launches) == 500


@pytest.mark.medium
def test_an_inherited_config_is_the_one_to_begin_with(driver, seconds):
    call(kernel(idle=False), seconds)
    made = kernel(times=lambda block: 1000.0 + block)
    assert call(made, seconds, n=8) == 512
    call_until_decided(made, seconds, n=8)
    assert call(made, seconds, n=8) == 128


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["cached", "record", "off"])
def test_a_mode_that_does_not_tune_launches_nothing_of_its_own(driver, seconds, mode):
    made = kernel()
    with whet.mode(mode):
        for _ in range(1000):
            call(made, seconds)
    assert len(driver.launches) == 1000


@pytest.mark.medium
def test_a_refinement_rests_while_the_mode_does_not_tune(driver, seconds):
    made = kernel()
    call(made, seconds)
    driver.launches.clear()
    with whet.mode("cached"):
        for _ in range(1000):
            call(made, seconds)
    assert len(driver.launches) == 1000
    call_until_decided(made, seconds)
    assert call(made, seconds) == 512


@pytest.mark.medium
def test_what_a_kernel_updates_in_place_is_what_its_calls_made_of_it(driver, seconds):
    made, out = kernel(in_place=True), FakeTensor([0.0])

    def launched(name, arguments):
        out.values[0] += 1.0

    driver.on_launch = launched
    calls = len(call_until_decided(made, seconds, out=out))
    assert len(driver.launches) > calls
    assert out.values == [calls]


@pytest.mark.medium
@pytest.mark.parametrize("declared", ["reset_to_zero", "restore_value"])
def test_a_declared_tensor_keeps_what_it_has_gathered(driver, seconds, declared):
    made, out = kernel(**{declared: ["out"]}), FakeTensor([0.0])

    def launched(name, arguments):
        out.values[0] += 1.0

    driver.on_launch = launched
    calls = len(call_until_decided(made, seconds, out=out))
    assert len(driver.launches) > calls
    assert out.values == [calls]


@pytest.mark.medium
def test_what_a_hook_changes_is_put_back(driver, seconds):
    def spoil(named, reset_only=False):
        named["x"].values = [99.0]

    made, x = kernel(pre_hook=spoil), FakeTensor([1.0], address=8192)
    seen = []
    while made._refining or not seen:
        seconds.now += 1.0
        made[(1,)](FakeTensor([0.0]), x, 4)
        seen.append(x.values)
        time.sleep(0.0005)
    assert made.best_config.kwargs["BLOCK"] == 512
    assert all(values == [1.0] for values in seen)


@pytest.mark.medium
def test_nobodys_tensors_are_kept_between_steps(driver, seconds):
    made = kernel()
    looked_at = 0
    for _ in range(300):
        call(made, seconds)
        for _, target in made._refining.values():  # until it is done, which a slow machine decides
            if target is not None:
                looked_at += 1
                assert target.call.args == ()
                assert target.call.named == {}
    assert looked_at


@pytest.mark.slow
def test_a_call_for_which_triton_would_have_to_compile_is_left_alone(driver, seconds, compiled):
    """A number that is divisible by 16 is compiled in, here without being part of the key."""
    made = kernel(key=[])
    deadline = time.monotonic() + PATIENCE_S
    call(made, seconds, n=5)
    while made._refining:
        call(made, seconds, n=16)
        call(made, seconds, n=5)
        if made._refining:
            assert compiled.count(("double", False)) == 2
        assert time.monotonic() < deadline
    assert made.best_config.kwargs["BLOCK"] == 512


@pytest.mark.medium
def test_nothing_is_measured_while_a_graph_is_captured(driver, seconds, monkeypatch):
    made = kernel()
    call(made, seconds)
    monkeypatch.setattr(device, "capturing", lambda: True)
    for _ in range(1000):
        call(made, seconds)
    assert len(driver.launches) == 1001


@pytest.mark.medium
def test_a_config_that_fails_never_reaches_the_caller(driver, seconds, cold):
    def times(block):
        if block == 512:
            raise RuntimeError("illegal")
        return 1000.0 - block

    made = kernel(times)
    call_until_decided(made, seconds)
    assert call(made, seconds) == 256
    assert cold.statuses() == {128: "outraced", 256: "ok", 512: "run_error"}


@pytest.mark.medium
def test_what_cannot_be_saved_ends_it_before_a_launch(driver, seconds, monkeypatch, caplog):
    def no_memory(self):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(FakeTensor, "clone", no_memory)
    made = kernel(in_place=True)
    with caplog.at_level(logging.WARNING, "whet"):
        calls = len(call_until_decided(made, seconds))
    assert len(driver.launches) == calls
    assert [call(made, seconds) for _ in range(300)] == [128] * 300
    assert "out of memory" in caplog.text


@pytest.mark.medium
def test_with_a_check_the_first_call_tunes_as_ever(driver, seconds):
    made = kernel(check=lambda named: {})
    assert call(made, seconds) == 512


@pytest.mark.slow
def test_keys_that_take_turns_are_all_refined(driver, seconds):
    made = kernel()
    deadline = time.monotonic() + PATIENCE_S
    call(made, seconds, n=4)
    call(made, seconds, n=8)
    while made._refining:
        call(made, seconds, n=4)
        call(made, seconds, n=8)
        assert time.monotonic() < deadline
    assert [config.kwargs["BLOCK"] for config in made.cache.values()] == [512, 512]


@pytest.mark.medium
def test_a_key_that_is_no_longer_called_makes_room(driver, seconds, monkeypatch):
    monkeypatch.setattr(background, "MOST_AT_ONCE", 1)
    made = kernel()
    call(made, seconds, n=4)
    call_until_decided(made, seconds, n=8)
    assert len(made.cache) == 1
    call_until_decided(made, seconds, n=4)
    assert [config.kwargs["BLOCK"] for config in made.cache.values()] == [512, 512]


@pytest.mark.medium
def test_an_offline_tuning_tunes_as_ever(driver, seconds, cold):
    made = kernel()
    with _afresh(made, lambda event: None):
        assert call(made, seconds) == 512
    assert cold.measured() == set(BLOCKS)


@pytest.mark.medium
def test_calls_by_way_of_heuristics_are_refined_too(driver, seconds):
    made = kernel()
    outer = triton.heuristics({"n": lambda named: named["n"]})(made)
    deadline = time.monotonic() + PATIENCE_S
    while made._refining or not made.cache:
        seconds.now += 1.0
        outer[(1,)](FakeTensor([0.0]), FakeTensor([1.0], address=8192), n=4)
        assert time.monotonic() < deadline
    assert made.best_config.kwargs["BLOCK"] == 512


@pytest.mark.medium
def test_configs_with_hooks_are_refined_too(driver, seconds):
    seen = []
    configs = [
        triton.Config({"BLOCK": block}, pre_hook=lambda named: seen.append(named["BLOCK"]))
        for block in BLOCKS
    ]
    made = kernel(configs=configs)
    used = call_until_decided(made, seconds)
    assert call(made, seconds) == 512
    assert seen.count(128) > len(used) - 1
    assert {256, 512} <= set(seen)
