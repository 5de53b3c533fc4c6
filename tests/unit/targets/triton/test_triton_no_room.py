"""A machine without room for a compiler: a call runs all the same, and says with what."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import errno
import os
import warnings

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.engine import log
from whet.testing.fake_triton import FakeTensor, fake_driver, told
from whet.workers.pool import open_pool

N = 4


class Forks:
    """Forks as long as there is `room` for them, and counts who asks."""

    def __init__(self):
        self.room = 0
        self.asked = 0
        self._fork = os.fork

    def __call__(self):
        self.asked += 1
        if self.room == 0:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self.room -= 1
        return self._fork()


@pytest.fixture
def forks(monkeypatch):
    found = Forks()
    with open_pool(1, "fork"):  # its reaper is there before there is no more room
        monkeypatch.setattr(os, "fork", found)
        yield found


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setenv("WHET_JOBS", "1")
    monkeypatch.setattr(log, "_said", set())

    @whet.autotune(
        configs=[triton.Config({"BLOCK": block}) for block in (64, 32, 16)],
        key=["n"],
        search="grid",
    )
    @triton.jit
    def copy(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)

    copy.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    return copy


def launch(kernel):
    with fake_driver():
        kernel[(1,)](FakeTensor([0.0] * N, address=8192), FakeTensor([1.0] * N), N)
    return kernel.best_config.kwargs["BLOCK"]


@pytest.mark.medium
def test_without_room_for_any_build_the_authors_first_config_is_used(forks, kernel):
    with pytest.warns(RuntimeWarning, match=r"ulimit -u.*BLOCK=64.* the author's first config"):
        assert launch(kernel) == 64


@pytest.mark.medium
def test_with_room_for_some_the_best_of_them_is_used(forks, kernel):
    forks.room = 2
    with pytest.warns(RuntimeWarning, match=r"ulimit -u.*BLOCK=32.* the best so far"):
        assert launch(kernel) == 32


@pytest.mark.medium
def test_later_calls_do_not_ask_the_machine_again(forks, kernel):
    with pytest.warns(RuntimeWarning, match="was not tuned"):
        launch(kernel)
    asked = forks.asked
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launch(kernel) == 64
    assert forks.asked == asked


@pytest.mark.medium
def test_the_next_process_tunes(forks, kernel):
    with pytest.warns(RuntimeWarning, match="was not tuned"):
        launch(kernel)
    kernel.cache.clear()  # a new process has none
    forks.room = 100
    assert launch(kernel) == 16
