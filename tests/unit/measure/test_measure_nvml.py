"""Who else has a device open."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from whet.measure.gpu.nvml import strangers
from whet.workers import reaper

STRANGER = 1 << 30


@pytest.fixture
def child() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


def test_a_process_its_parent_and_its_children_are_no_strangers(child: int) -> None:
    assert strangers([os.getppid(), os.getpid(), child, STRANGER]) == (STRANGER,)


def test_where_numbers_mean_nothing_one_of_them_is_this_process() -> None:
    assert strangers([STRANGER, STRANGER + 1]) == (STRANGER + 1,)


def test_and_in_a_measuring_process_another_is_its_tuner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(reaper.MARKER, "token")
    assert strangers([STRANGER, STRANGER + 1]) == ()
