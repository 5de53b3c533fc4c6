"""The class API in modes that do not tune: nothing is run."""

from __future__ import annotations

from typing import Any

import pytest

import whet
from whet.autotuner import TritonAutoTuner
from whet.core.errors import NotTunedError
from whet.core.mode import Mode

SIZE: dict[str, Any] = {"problem_size": 64, "device": "cpu"}


def tuner(ran: list[int], mode: Mode | None = None) -> TritonAutoTuner:
    def kernel(block: int) -> None:
        ran.append(block)

    return TritonAutoTuner(kernel, {"block": [1, 2]}, mode=mode)


def test_the_cached_config_is_chosen_without_running_anything() -> None:
    ran: list[int] = []
    made = tuner(ran, "cached")
    assert made.choose(**SIZE) == {"block": 1}
    made.cache.set("kernel", 64, "cpu", {"block": 2})
    assert made.choose(**SIZE) == {"block": 2}
    with whet.mode("tune"):
        assert made.choose(**SIZE) == {"block": 2}
    assert ran == []


def test_off_takes_the_first_and_require_wants_a_cached_one() -> None:
    made = tuner([])
    with whet.mode("require"), pytest.raises(NotTunedError, match="kernel for 64 on cpu"):
        made.choose(**SIZE)
    made.cache.set("kernel", 64, "cpu", {"block": 2})
    with whet.mode("off"):
        assert made.choose(**SIZE) == {"block": 1}
    with whet.mode("require"):
        assert made.choose(**SIZE) == {"block": 2}


def test_tune_runs_nothing_where_it_may_not() -> None:
    ran: list[int] = []
    with whet.mode("cached"), pytest.raises(NotTunedError, match="does not allow running"):
        tuner(ran).tune()
    assert ran == []


@pytest.mark.medium
def test_its_own_mode_outranks_the_context() -> None:
    with whet.mode("off"):
        assert tuner([], "tune").tune().best_config
