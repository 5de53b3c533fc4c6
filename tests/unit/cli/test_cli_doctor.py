"""`whet doctor`: what it prints, and when it exits with 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, one_line
from whet.core.errors import UsageError
from whet.doctor.budget import DoctorBudget, over_budget, read_budget
from whet.doctor.finding import Diagnosis, Examination, Finding, Line
from whet.doctor.modes.verdict import ModeTrial, ModeVerdict, TrialOfModes

MODEL = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        total = x.sum().item()
        return x * total

def make_model():
    print("making it")
    return Model(), torch.ones(4, 4)

def misspelt():
    return torch.compile(Model(), mode="max_autotune"), torch.ones(4, 4)

def nothing():
    return None
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL.replace('mode="max_autotune"', 'mode="default"'))
    Path("misspelt.py").write_text(MODEL)
    return "model.py:make_model"


@pytest.mark.slow
def test_findings_are_printed_on_a_page_and_progress_beside_them(whet: Whet, model: str) -> None:
    done = whet("doctor", model, "--findings")
    assert done.code == 0
    lines = done.out.splitlines()
    assert "1 finding" in lines
    assert "   model.py:5" in lines
    assert "       total = x.sum().item()" in lines
    assert max(map(len, lines)) <= 80
    assert "looking for" in done.err
    assert "making it" not in done.out


@pytest.mark.medium
def test_json_has_the_findings_with_their_remedies(whet: Whet, model: str) -> None:
    done = whet("doctor", model, "--findings", "--json", "-q")
    answer: dict[str, Any] = json.loads(done.out)
    [finding] = answer["findings"]
    assert finding["name"] == "graph-break"
    assert finding["place"]["line"] == 5
    assert finding["remedies"][0]["works"] is True
    assert answer["trial"] is None
    assert "looking for" not in done.err


@pytest.mark.medium
def test_a_refused_call_is_a_finding_though_there_is_no_model(whet: Whet, model: str) -> None:
    done = whet("doctor", "misspelt.py:misspelt", "-q")
    assert done.code == 1
    assert "→ mode='max-autotune' (tried: " in done.out


@pytest.mark.slow
def test_a_budget_that_is_exceeded_exits_with_1(whet: Whet, model: str) -> None:
    Path("budget.toml").write_text("graph_breaks = 0\n")
    done = whet("doctor", model, "--check", "budget.toml", "-q")
    assert done.code == 1
    assert "graph breaks: 1, at most 0" in done.out
    Path("budget.toml").write_text("graph_breaks = 1\nrecompilations = 0\n")
    done = whet("doctor", model, "--check", "budget.toml", "-q")
    assert done.code == 0


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("model.py:nothing",), "returned NoneType, not a model and inputs"),
        (("model.py:make_modle",), "did you mean 'make_model'?"),
        (("model.py",), "does not say what makes the model"),
        (("model.py:make_model", "--modes", "max"), "torch.compile has no mode 'max'"),
        (("model.py:make_model", "--check", "no.toml"), "cannot read no.toml"),
    ],
)
def test_a_mistake_is_one_line_with_its_remedy(
    whet: Whet, model: str, arguments: tuple[str, ...], message: str
) -> None:
    assert message in one_line(whet("doctor", *arguments, "-q"))


def timed(eager_ms: float, mode_ms: float) -> Diagnosis:
    def one(name: str, ms: float) -> ModeTrial:
        return ModeTrial(name, "ok", ms * 1e6, (0.99 * ms * 1e6, 1.01 * ms * 1e6), 5.0, 0.0)

    verdict = ModeVerdict("default", (), None, None, True, "")
    trial = TrialOfModes((one("eager", eager_ms), one("default", mode_ms)), verdict)
    return Diagnosis("m", "", "2", Examination(()), trial, device="a CPU")


def test_limits_on_time_are_of_the_mode_that_is_named_or_recommended() -> None:
    assert over_budget(timed(1, 2), DoctorBudget(latency_ms=2.0)) == []
    [said] = over_budget(timed(1, 2), DoctorBudget(latency_ms=1.5))
    assert "takes 2 ms" in said
    assert "at most 1.5" in said
    assert over_budget(timed(1, 2), DoctorBudget(mode="eager", latency_ms=1.5)) == []
    [said] = over_budget(timed(1, 2), DoctorBudget(slower_than_eager=0.05))
    assert "100 % slower" in said
    assert "at most 5 %" in said
    [said] = over_budget(timed(1, 2), DoctorBudget(mode="default", first_call_s=4))
    assert "takes 5 s" in said
    assert "at most 4" in said


def test_a_mode_may_be_slower_than_its_baseline_by_a_share_only(tmp_path: Path) -> None:
    (tmp_path / "then.json").write_text(json.dumps(timed(1, 2).to_json()))
    (tmp_path / "budget.toml").write_text('baseline = "then.json"\nslower_than_baseline = 0.1\n')
    limits = read_budget(tmp_path / "budget.toml")
    assert limits.needs_modes
    assert over_budget(timed(1, 2.2), limits) == []
    [said] = over_budget(timed(1, 3), limits)
    assert "50 % slower" in said
    assert "at most 10 %" in said


def test_a_baseline_of_another_device_does_not_pass(tmp_path: Path) -> None:
    then = tmp_path / "then.json"
    then.write_text(json.dumps({**timed(1, 2).to_json(), "device": "another CPU"}))
    [said] = over_budget(timed(1, 2), DoctorBudget(baseline=str(then)))
    assert "another CPU, not from a CPU" in said
    with pytest.raises(UsageError, match="cannot read the baseline"):
        over_budget(timed(1, 2), DoctorBudget(baseline=str(tmp_path / "none.json")))
    then.write_text("[]")
    with pytest.raises(UsageError, match="was not written by"):
        over_budget(timed(1, 2), DoctorBudget(baseline=str(then)))


def test_recompilations_may_be_allowed_until_a_call() -> None:
    late = Finding("recompilation", "", Line(), (), call=3)
    done = Diagnosis("m", "", "2", Examination((late,)))
    assert over_budget(done, DoctorBudget(last_recompile=3)) == []
    [said] = over_budget(done, DoctorBudget(last_recompile=2))
    assert "call 3, at most until call 2" in said


def test_a_limit_that_cannot_be_checked_does_not_pass() -> None:
    unseen = "not looked for: recompilations (torch lacks it)"
    blind = Diagnosis("m", "", "2", Examination((), (unseen,)))
    assert over_budget(blind, DoctorBudget(recompilations=0)) == [unseen]
    assert over_budget(blind, DoctorBudget(graph_breaks=0)) == []
    [said] = over_budget(blind, DoctorBudget(mode="default", latency_ms=1))
    assert "not timed" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph_break = 0", "did you mean 'graph_breaks'?"),
        ("graph_breaks = -1", "is not a number of 0 or more"),
        ("graph_breaks = true", "is not a number of 0 or more"),
        ("mode = 'fast'", "torch.compile has no mode 'fast'"),
        ("mode =", "is not valid TOML"),
        ("baseline = 1", "is not the name of a file"),
    ],
)
def test_a_budget_with_a_mistake_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "budget.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_budget(file)
