"""Choices in a program that is warmed up: their kernels first, then the choices themselves."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

import whet  # noqa: E402
from whet.builds.builder import MEMORY  # noqa: E402
from whet.targets.triton.warming.active import active  # noqa: E402
from whet.testing.fake_triton import fake_driver, told  # noqa: E402

pytestmark = pytest.mark.medium

N = 64


@triton.jit
def double(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, value * 2, mask=offsets < n)


@triton.jit
def shift(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) + 1, mask=offsets < n)


@pytest.fixture
def driver(monkeypatch, tmp_path):
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    MEMORY.clear()
    with fake_driver() as fake:
        yield fake
    assert active() is None


def tuned(jit):
    configs = [triton.Config({"BLOCK": block}) for block in (16, 32, 64)]
    kernel = whet.autotune(configs=configs, key=["n"])(jit)
    kernel.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
    return kernel


def chosen_between(kernel, name):
    def slow(x):
        time.sleep(0.02)
        return x * 2

    def launched(x):
        out = torch.zeros_like(x)
        kernel[(1,)](out, x, x.numel())
        return out

    return whet.choice({"slow": slow, "triton": launched}, check=False, name=name)


@pytest.mark.whole
def test_the_kernels_of_all_implementations_are_tuned_and_then_the_choice(driver):
    kernels = tuned(double), tuned(shift)
    choices = [chosen_between(kernel, kernel.fn.__name__) for kernel in kernels]
    said = []

    def step():
        for choice in choices:
            choice(torch.ones(N))

    done = whet.warmup(step, progress=said.append)
    assert done.complete
    assert {one.kernel for one in done.kernels} == {"double", "shift"}
    assert all(kernel.best_config.kwargs["BLOCK"] == 64 for kernel in kernels)
    assert [list(choice.picks.values()) for choice in choices] == [["triton"], ["triton"]]
    assert sum(line.endswith(": triton") for line in said) == 2


def test_a_warm_choice_is_not_called_again(driver):
    kernel = tuned(double)
    choice = chosen_between(kernel, "double")
    whet.warmup(lambda: choice(torch.ones(N)))
    again = whet.warmup(lambda: choice(torch.ones(N)))
    assert (again.calls, again.kernels) == (1, ())


def test_an_implementation_that_fails_does_not_end_it(driver):
    kernel = tuned(double)

    def broken(x):
        raise RuntimeError("no such library")

    def launched(x):
        out = torch.zeros_like(x)
        kernel[(1,)](out, x, x.numel())
        return out

    choice = whet.choice(
        {"triton": launched, "library": broken}, check=False, name="with a broken one"
    )
    assert whet.warmup(lambda: choice(torch.ones(N))).complete
    assert list(choice.picks.values()) == ["triton"]
