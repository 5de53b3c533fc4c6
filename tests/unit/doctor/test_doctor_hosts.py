"""Processes that run a mode: copies of one that has imported torch, where a GPU allows that."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from doctor_watched import MakeWatchedHost

from whet.core.config import Config
from whet.doctor.modes.host import HostedModes, ModeBench, ModeHost
from whet.doctor.modes.target import GpuModelTimer, ModesTarget
from whet.doctor.subject import MadeInFile, subject_in
from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Sampled, Visit

torch = pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")

MODEL = """\
import torch

def make_model():
    return torch.nn.Linear(8, 8), torch.ones(2, 8)
"""
EAGER = Config({"mode": "eager"})


@pytest.fixture
def source(tmp_path: Path) -> MadeInFile:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return MadeInFile(str(path), "make_model")


class OnGpu(ModesTarget):
    """As if its tensors were on one."""

    gpu = 0


def target(source: MadeInFile, kind: type[ModesTarget] = ModesTarget) -> ModesTarget:
    subject = subject_in(Path(source.path), source.name, training=False)
    return kind(subject, source, ("eager",))


@pytest.mark.medium
def test_a_copy_tells_whether_copies_reach_the_gpu(
    source: MadeInFile, tmp_path: Path, monkeypatch: Any
) -> None:
    host = ModeHost(source, str(tmp_path), GpuModelTimer)
    tried = tmp_path / "tried"

    def init() -> None:
        tried.write_text(str(os.getpid()))

    monkeypatch.setattr(torch.cuda, "init", init)
    assert host.copies_reach_gpu()
    assert int(tried.read_text()) != os.getpid()

    def refused() -> None:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    monkeypatch.setattr(torch.cuda, "init", refused)
    assert not host.copies_reach_gpu()


@pytest.mark.slow
def test_where_copies_do_not_reach_the_gpu_each_mode_starts_from_nothing(
    source: MadeInFile, monkeypatch: Any
) -> None:
    monkeypatch.setattr(HostedModes, "reaches_gpu", lambda self: False)
    with target(source, OnGpu).bench(BenchLimits()) as bench:
        assert isinstance(bench, ModeBench)
        [eager] = bench.measure(Visit(((EAGER, None),), 2, first=True))
    assert isinstance(eager, Sampled)
    assert "warm_first_call_s" in eager.facts


@pytest.mark.slow
def test_copies_that_reach_it_are_used_and_importing_for_them_does_not_wake_a_driver(
    source: MadeInFile, monkeypatch: Any
) -> None:
    """A module that asks whether there is a GPU must ask in the way that does not."""
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    monkeypatch.setattr("whet.doctor.modes.host.MakeModeHost", MakeWatchedHost)
    reaches, answers = HostedModes.reaches_gpu, []

    def asked_and_reached(self: HostedModes) -> bool:
        answers.append(reaches(self))
        return True

    monkeypatch.setattr(HostedModes, "reaches_gpu", asked_and_reached)
    with target(source, OnGpu).bench(BenchLimits()) as bench:
        assert isinstance(bench, HostedModes)
        asked, awake, variable = bench._host.call("importing").value
        [eager] = bench.measure(Visit(((EAGER, None),), 2, first=True))
    assert answers == [torch.cuda.is_available()]
    assert (asked <= {"1"}, awake, variable) == (True, False, None)
    assert isinstance(eager, Sampled)
    assert "warm_first_call_s" in eager.facts
