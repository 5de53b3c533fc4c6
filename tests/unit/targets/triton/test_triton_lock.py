"""A Triton kernel with a lock file: what it launches, and what it does not open or compile."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.core.errors import NotTunedError
from whet.engine.fallback import calls
from whet.engine.lockfile.entries import read_lock, write_lock
from whet.engine.lockfile.in_force import forget_choices
from whet.engine.lockfile.updating import stored_choices
from whet.testing.fake_triton import FakeTensor, fake_driver, told

BLOCKS = (128, 256, 512)


def kernel(fastest=512, factor=2, **options):
    """A new one each time, as a new process has it."""

    @triton.jit
    def scaled(out, x, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * FACTOR, mask=offsets < n)

    configs = [triton.Config({"BLOCK": block}) for block in BLOCKS]
    made = whet.autotune(configs=configs, key=["n"], **options)(scaled)
    made.whet_timer = told(lambda config: 1.0 if config.kwargs["BLOCK"] == fastest else 1000.0)
    return made


def call(made, n=4, **options):
    made[(1,)](FakeTensor([0.0]), FakeTensor([1.0], address=8192), n, FACTOR=2, **options)
    return made.best_config.kwargs["BLOCK"]


@pytest.fixture(autouse=True)
def _choices():
    forget_choices()
    yield
    forget_choices()


@pytest.fixture
def driver():
    with fake_driver() as fake:
        yield fake


@pytest.fixture
def lock(driver, cold, tmp_path):
    """Of a kernel that was tuned at n=4, with block 512."""
    assert call(kernel()) == 512
    path = tmp_path / "whet.lock"
    with whet.open_store(cold.store) as store:
        write_lock(path, stored_choices(store, store.workloads()).by_id.values())
    assert len(read_lock(path).by_id) == 1
    return path


@pytest.fixture
def no_store(monkeypatch):
    def opened(*args, **options):
        raise AssertionError("a store was opened")

    monkeypatch.setattr(calls, "open_store", opened)
    monkeypatch.setattr(calls, "open_if_there", opened)
    monkeypatch.setattr(calls, "_last", None)


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["cached", "require"])
def test_a_locked_key_is_launched_without_a_store(lock, no_store, mode):
    made = kernel(lock=lock, mode=mode)
    assert [call(made), call(made)] == [512, 512]
    assert made.cache
    assert whet.unlocked() == ()


@pytest.mark.medium
def test_the_variable_does_the_same_for_every_kernel(lock, no_store, monkeypatch):
    monkeypatch.setenv("WHET_LOCK", str(lock))
    monkeypatch.setenv("WHET_MODE", "require")
    assert call(kernel()) == 512
    with pytest.raises(NotTunedError, match=r"scaled\(n=8.*not in lock file"):
        call(kernel(), n=8)


@pytest.mark.medium
def test_a_key_that_is_not_locked_is_inherited_and_listed(lock, no_store):
    made = kernel(lock=lock, mode="cached")
    assert call(made, n=8) == 512
    assert made.cache == {}
    assert [one.workload.key["n"] for one in whet.unlocked()] == [8]


@pytest.mark.slow
def test_what_was_tuned_in_this_process_does_not_count(lock, driver):
    made = kernel(fastest=128, lock=lock)
    with whet.mode("tune"):
        made.whet_lock = None
        # The store knows n=4 already, so that another key is tuned here.
        assert call(made, n=16) == 128
    made.whet_lock = str(lock)
    with whet.mode("cached"):
        assert call(made, n=16) == 512
        assert call(made, n=16) == 512
    with whet.mode("tune"):
        assert call(made, n=16) == 128


@pytest.mark.medium
def test_a_hooked_config_is_locked_too(lock, no_store):
    made = kernel(lock=lock, mode="cached")
    seen = []
    for config in made.configs:
        config.pre_hook = lambda args: seen.append(args["BLOCK"])
    made.configs = list(made.configs)
    assert call(made) in BLOCKS
    assert len(seen) == 1


@pytest.mark.medium
def test_another_source_uses_the_first_config(lock, no_store):
    @triton.jit
    def scaled(out, x, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
        tl.store(out, tl.load(x) * FACTOR)

    configs = [triton.Config({"BLOCK": block}) for block in BLOCKS]
    made = whet.autotune(configs=configs, key=["n"], lock=lock, mode="cached")(scaled)
    assert call(made) == 128
    assert "another source" in whet.unlocked()[0].reason


@pytest.mark.medium
def test_dynamo_is_shown_the_locked_config(lock, no_store):
    torch = pytest.importorskip("torch")
    made = kernel(lock=lock, mode="cached")
    named = {"out": torch.empty(1), "x": torch.empty(1), "n": 4}
    assert [c.kwargs["BLOCK"] for c in made.early_config_prune(made.configs, named)] == [512]


@pytest.mark.medium
def test_the_decorator_and_the_default_agree_on_a_digest(lock, no_store):
    call(kernel(lock=lock, mode="cached"))
    first = whet.digest()
    forget_choices()
    call(kernel(lock=lock, mode="require"))
    assert whet.digest() == first
