"""What the timed modes show beyond their times."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fork_server import ForkServer
from whet.core.errors import UsageError
from whet.doctor.checkup import checked_modes
from whet.doctor.finding import NAMES, Line
from whet.doctor.modes.compiler import TunedOp
from whet.doctor.modes.variants import KNOBS, MODES, knobs_for, knobs_without_effect, variant
from whet.doctor.modes.verdict import (
    ModeTrial,
    ModeVerdict,
    StepProfile,
    TrialOfModes,
    WarmStart,
    warm_break_even,
)
from whet.doctor.symptoms import notes, symptoms, unheard

HERE = Line("model.py", 7)


def timed(name: str, ms: float, **more: Any) -> ModeTrial:
    return ModeTrial(name, "ok", ms * 1e6, (0.99 * ms * 1e6, 1.01 * ms * 1e6), 5.0, 0.0, **more)


def trial(*modes: ModeTrial, chosen: str = "eager") -> TrialOfModes:
    return TrialOfModes(modes, ModeVerdict(chosen, (), None, None, True, ""))


def found(*modes: ModeTrial, chosen: str = "eager", gpu: bool = True) -> list[tuple[str, str]]:
    findings = symptoms(trial(*modes, chosen=chosen), HERE, gpu)
    assert all(one.place == HERE and one.remedies and one.name in NAMES for one in findings)
    return [(one.name, one.evidence) for one in findings]


def test_modes_without_a_symptom_have_no_finding() -> None:
    busy = StepProfile((), 3, 3, 0.9e6, 0.1e6)
    warm = WarmStart(2.0, hits=1)
    assert found(timed("eager", 1, step=busy), timed("default", 1, step=busy, warm=warm)) == []


def test_graphs_that_are_recorded_again_are_found_with_a_mode_without_them() -> None:
    modes = [timed("reduce-overhead", 3, recorded_again=8), timed("max-autotune-no-cudagraphs", 1)]
    [finding] = symptoms(trial(*modes), HERE, gpu=True)
    assert finding.name == "graph-recording"
    assert "reduce-overhead (8 in 8" in finding.evidence
    assert "3 → 1 ms" in finding.remedies[1].tried
    assert finding.remedies[1].works is True
    assert found(*modes, gpu=False) == []
    assert found(timed("reduce-overhead", 3, recorded_again=0)) == []


def test_a_mode_without_graphs_that_is_no_faster_is_not_advised() -> None:
    modes = [timed("reduce-overhead", 1, recorded_again=8), timed("max-autotune-no-cudagraphs", 3)]
    [finding] = symptoms(trial(*modes), HERE, gpu=True)
    assert not any("mode=" in remedy.text for remedy in finding.remedies)


def test_a_device_that_waits_for_many_short_kernels_is_launch_overhead() -> None:
    waits = StepProfile((), launches=20, device_kernels=20, device_ns=0.06e6, host_ns=0.4e6)
    [(name, said)] = found(timed("eager", 0.4, step=waits), timed("reduce-overhead", 0.1))
    assert name == "launch-overhead"
    assert "0.06 of the 0.4 ms" in said
    assert "20 launches, of 3.0 µs" in said
    few = StepProfile((), launches=1, device_kernels=2, device_ns=0.06e6)
    [(name, _)] = found(timed("eager", 0.4, step=few))
    assert name == "host-bound"


def test_only_a_mode_that_was_faster_is_a_remedy_for_a_waiting_device() -> None:
    waits = StepProfile((), launches=20, device_kernels=20, device_ns=0.06e6)
    modes = [timed("eager", 0.4, step=waits), timed("reduce-overhead", 0.5)]
    [finding] = symptoms(trial(*modes), HERE, gpu=True)
    assert [one.tried for one in finding.remedies] == [""]


def table(**careful: float) -> TunedOp:
    choices = (("triton_mm_1 BLOCK=64", 0.5), ("addmm", 0.6), ("triton_mm_2 BLOCK=32", 2.0))
    return TunedOp("addmm", "8x8 × 8x8", choices, careful)


def test_a_pick_that_a_careful_timer_contradicts_is_found_once() -> None:
    tuned = table(**{"triton_mm_1 BLOCK=64": 2.47, "addmm": 0.54})
    modes = [
        timed("max-autotune", 1, autotune=(tuned,)),
        timed("gemm-triton", 1, autotune=(tuned,)),
    ]
    [finding] = symptoms(trial(*modes), HERE, gpu=False)
    assert finding.name == "autotune-pick"
    assert "2.47 ms" in finding.evidence
    assert "addmm takes 0.54" in finding.evidence
    assert '"ATEN"' in finding.remedies[0].text
    close = table(**{"triton_mm_1 BLOCK=64": 0.55, "addmm": 0.54})
    assert found(timed("max-autotune", 1, autotune=(close,))) == []


def test_two_assemblers_are_found_where_something_was_tuned(monkeypatch) -> None:
    versions = ("13.0", "12.8", "/torch/bin/ptxas")
    monkeypatch.setattr("whet.doctor.symptoms.two_versions", lambda: versions)
    [finding] = symptoms(trial(timed("max-autotune", 1, autotune=(table(),))), HERE, gpu=True)
    assert finding.name == "two-assemblers"
    assert "ptxas 13.0" in finding.evidence
    assert "its 3 choices again" in finding.evidence
    assert "TRITON_PTXAS_PATH=/torch/bin/ptxas" in finding.remedies[0].text
    assert symptoms(trial(timed("default", 1)), HERE, gpu=True) == []


def test_the_runner_up_of_each_table_is_a_note() -> None:
    [line] = notes(trial(timed("max-autotune", 1, autotune=(table(),))))
    assert "triton_mm_1" in line
    assert "addmm, is 20 % slower" in line


def test_generated_products_that_lose_beyond_the_noise_are_found() -> None:
    tuned = timed("max-autotune-no-cudagraphs", 1.2)
    [(name, _)] = found(tuned, timed("gemm-aten", 1.0))
    assert name == "vendor-library"
    assert found(tuned, timed("gemm-aten", 1.19)) == []


def test_a_second_process_that_compiles_or_tunes_again_is_found_with_the_reason() -> None:
    frozen = WarmStart(50.0, bypasses=1, tuned=2, why="Cannot cache a graph with freezing enabled")
    [finding] = symptoms(trial(timed("freezing", 1, warm=frozen)), HERE, gpu=False)
    assert finding.name == "cold-start"
    assert "1 not looked up" in finding.evidence
    assert "2 tuned again (Cannot cache" in finding.evidence
    assert "freezing 50.0 s" in finding.evidence
    assert "without freezing" in finding.remedies[0].text


def test_what_torch_would_not_tell_is_said_once() -> None:
    modes = [timed(name, 1, not_heard="autotune tables (ImportError)") for name in ("a", "b")]
    [line] = unheard(trial(*modes))
    assert "a, b: autotune tables (ImportError)" in line


def test_breaking_even_with_warm_caches_counts_the_second_process() -> None:
    eager = timed("eager", 3)
    assert warm_break_even(eager, timed("default", 1, warm=WarmStart(7.0))) == 1000
    assert warm_break_even(eager, timed("default", 1)) is None


def test_knobs_are_those_that_may_change_anything_here() -> None:
    assert "gemm-triton" in knobs_for(gpu=True, training=False)
    assert "gemm-triton" not in knobs_for(gpu=False, training=False)
    assert "gemm-cpp" in knobs_for(gpu=False, training=False)
    assert "freezing" not in knobs_for(gpu=True, training=True)


WITH_WHET = """
import os, torch
from whet.doctor.modes.variants import compiled
from whet.targets.inductor import taking

compiled(torch.nn.Linear(64, 32), "max-autotune-whet")
print(os.environ["WHET_STORE"], taking.take_inductor() or "taken", taking._taken is not None)
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_max_autotune_with_whet_has_an_empty_store_of_its_own(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "WHET_STORE": "/nowhere/s.db"}
    command = [sys.executable, "-c", WITH_WHET]
    ran = fork_server.run(command, cwd=tmp_path, env={**os.environ, **caches})
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == [f"{tmp_path}/inductor.whet.db", "taken", "True"]


def test_max_autotune_with_whet_is_named_as_people_write_it() -> None:
    chosen = variant("max-autotune-whet")
    assert chosen.call == "whet.install(inductor=True) and mode='max-autotune'"
    assert chosen.looked_at_again
    assert "max-autotune-whet" in knobs_for(gpu=True, training=True)


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_a_knob_that_is_not_timed_is_named_with_the_reason(gpu: bool, training: bool) -> None:
    lines = knobs_without_effect(gpu, training)
    told = [name for line in lines for name in line.partition(": ")[2].split(", ")]
    assert sorted([*told, *knobs_for(gpu, training)]) == sorted(knob.name for knob in KNOBS)
    assert all("on a GPU:" in line or "on a CPU:" in line for line in lines[:1])
    assert ("gemm-aten" in told) is not gpu
    assert "gemm-aten" not in " ".join(knobs_without_effect(gpu, training, ["gemm-aten"]))
    assert checked_modes(["freezing", "default"]) == ("eager", "default", "freezing")
    with pytest.raises(UsageError, match="did you mean 'gemm-aten'"):
        checked_modes(["gemm-atn"])


def test_a_knob_says_what_to_write() -> None:
    assert variant("dynamic").call == "dynamic=True"
    assert variant("freezing").call == "torch._inductor.config.freezing = True"
    assert variant(MODES[1]).call == "mode='default'"
    assert "'max_autotune_gemm_backends': 'TRITON'" in variant("gemm-triton").call


MODEL = """\
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x):
        return self.linear(x).relu()

def make_model():
    return Model(), torch.ones(16, 64)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_freezing_is_compiled_again_by_a_second_process(tmp_path: Path, monkeypatch: Any) -> None:
    """All for real: the tuned table, its second look, the second process and its reason."""
    pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")
    from whet.doctor.checkup import doctor_file

    monkeypatch.setenv("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    done = doctor_file(file, "make_model", modes=["gemm-cpp"], store=":memory:")
    assert done.examination.left_out == ()
    assert done.trial is not None
    eager, frozen = done.trial.modes
    assert eager.warm is not None
    assert frozen.warm is not None
    assert (frozen.warm.hits, frozen.warm.bypasses) == (0, 1)
    assert "cold-start" in [one.name for one in done.examination.findings]
    [tuned] = frozen.autotune
    # Which of the two it is depends on what torch was built with.
    assert tuned.name in ("packed_linear", "linear_unary")
    assert {name for name, _ in tuned.choices} == {*tuned.careful_ms}
    assert any(tuned.name in line for line in done.examination.notes)
    assert eager.step is not None
    assert "aten::addmm" in [one.name for one in eager.step.kernels]
    layers = [where for where, _ in eager.step.layers]
    assert {*layers} == {"Linear_0 in forward, model.py:8", "forward, model.py:8"}


def test_each_table_of_the_report_stands_by_itself() -> None:
    from whet.cli.commands.doctor import report_lines
    from whet.doctor.finding import Diagnosis, Examination
    from whet.doctor.modes.compiler import KernelTime

    step = StepProfile((KernelTime("aten::mm", 2, 1e6),), layers=(("Linear_0 in forward", 1e6),))
    done = Diagnosis("m", "", "2", Examination(()), trial(timed("eager", 1, step=step)))
    lines = report_lines(done)
    for head in ("mode ", "kernels of eager", "layers, in eager"):
        at = next(n for n, line in enumerate(lines) if line.startswith(head))
        assert lines[at - 1] == ""
    assert lines[-1] == "no findings"
    assert lines[-2] == ""
