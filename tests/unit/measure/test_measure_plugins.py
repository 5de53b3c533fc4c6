"""Timers of other packages, by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import whet
from plugin_package import install
from whet.core.errors import UsageError
from whet.core.plugins import PluginError
from whet.measure.timers import CpuTimer, timer_maker

MODULE = """
from whet.measure.timers import CpuTimer

class Patient(CpuTimer):
    name = "patient"

    def __init__(self):
        super().__init__(min_sample_ns=400_000)

class Blunt:
    name = "blunt"
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"patient": "patient_timer:Patient", "blunt": "patient_timer:Blunt"}
    folder = install(tmp_path, {"whet.timers": points}, {"patient_timer": MODULE})
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def work(n: int) -> int:
    return sum(range(n))


@pytest.mark.medium
@pytest.mark.parametrize("isolate", [True, False])
def test_a_function_is_timed_by_it(isolate: bool) -> None:
    target = whet.function(work, {"n": [200, 100]}, timer="patient", isolate=isolate)
    result = whet.tune(target, store=":memory:")
    assert result.best.timing is not None
    assert result.best.timing.timer == "patient"


@pytest.mark.slow
def test_a_c_function_is_timed_by_it_in_another_process() -> None:
    x = np.zeros(64, dtype=np.float32)
    target = whet.native(
        "void fill(float *x, int n) { for (int i = 0; i < n; i += STEP) x[i] = 1; }",
        {"STEP": [1, 2]},
        function="fill",
        args={"x": x, "n": x.size},
        timer="patient",
    )
    result = whet.tune(target, store=":memory:")
    assert result.best.timing is not None
    assert result.best.timing.timer == "patient"


@pytest.mark.medium
def test_what_another_timer_measured_is_not_known(tmp_path: Path) -> None:
    space, store = {"n": [200, 100]}, tmp_path / "store.db"
    whet.tune(whet.function(work, space), store=store)
    again = whet.tune(whet.function(work, space, timer="patient"), store=store)
    assert again.source == "tuned"
    assert len(again.trials) == 2


def test_a_class_is_taken_as_it_is() -> None:
    assert timer_maker(CpuTimer) is timer_maker("cpu") is CpuTimer


def test_a_name_that_is_nearly_one_is_corrected() -> None:
    with pytest.raises(UsageError, match="unknown timer 'patent'; did you mean 'patient'"):
        whet.function(work, {"n": [1]}, timer="patent")


def test_what_is_no_timer_is_refused() -> None:
    with pytest.raises(PluginError) as caught:
        timer_maker("blunt")
    assert "'blunt' of package some-parts: " in str(caught.value)
    assert "name, warm and measure" in str(caught.value)
    with pytest.raises(
        UsageError, match="give a class of timers or one of cpu, once, blunt, patient"
    ):
        whet.function(work, {"n": [1]}, timer=dict)
