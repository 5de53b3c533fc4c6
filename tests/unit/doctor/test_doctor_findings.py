"""What the doctor finds in models with a disease, and that it finds nothing in healthy ones."""

from __future__ import annotations

import re
import sys
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from whet.core.errors import UsageError

torch = pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")
sys.path.insert(0, str(Path(__file__).parent))

import doctor_models as models  # noqa: E402

from whet.doctor import dynamo  # noqa: E402
from whet.doctor.examine import (  # noqa: E402
    environment_findings,
    examine,
    written_findings,
)
from whet.doctor.finding import NAMES, Finding  # noqa: E402
from whet.doctor.subject import subject_of  # noqa: E402

pytestmark = pytest.mark.medium

FILE = Path(models.__file__)
MARK = re.compile(r"# finds: (\S+)")
OTHERS = {models.HasItsOwnFunction: models.LoudClamp}


def marked(model: type) -> list[tuple[str, int]]:
    """The findings that the model's own source asks for, with their lines."""
    lines = FILE.read_text().splitlines()
    start = next(n for n, text in enumerate(lines) if text.startswith(f"class {model.__name__}("))
    found = []
    for number in range(start, len(lines)):
        if number > start and re.match(r"\S", lines[number]):
            break
        if mark := MARK.search(lines[number]):
            found.append((mark[1], number + 1))
    return found


@dataclass(frozen=True)
class Examined:
    model: Any
    inputs: Any
    findings: tuple[Finding, ...]


@cache
def examined(kind: type) -> Examined:
    """A sick model, which is examined once for all tests."""
    model, inputs = kind(), deepcopy(models.SICK[kind])
    return Examined(model, inputs, found_in(model, inputs))


def findings_of(kind: type) -> tuple[Finding, ...]:
    return examined(kind).findings


def found_in(model: Any, inputs: Any) -> tuple[Finding, ...]:
    looked = examine(subject_of(model, inputs))
    assert looked.left_out == ()
    return looked.findings


@pytest.mark.slow
@pytest.mark.parametrize("model", models.SICK, ids=lambda model: model.__name__)
def test_each_disease_is_found_at_its_line_and_nothing_else(model: type) -> None:
    findings = findings_of(model)
    assert [(one.name, one.place.line) for one in findings] == marked(OTHERS.get(model, model))
    for one in findings:
        assert one.name in NAMES
        assert one.place.file == str(FILE)
        assert one.remedies


@pytest.mark.slow
@pytest.mark.parametrize("make", models.HEALTHY, ids=lambda make: make.__name__)
def test_a_healthy_model_has_no_finding(make: Any) -> None:
    assert found_in(make(), models.HEALTHY[make]) == ()


def tried(findings: tuple[Finding, ...]) -> dict[str, str]:
    [finding] = findings
    return {one.text: one.tried for one in finding.remedies if one.works}


def test_a_setting_that_removes_a_break_was_tried_on_the_model() -> None:
    [(text, outcome)] = tried(findings_of(models.TakesItem)).items()
    assert "capture_scalar_outputs = True" in text
    assert "1 → 0" in outcome


@pytest.mark.slow
def test_a_setting_that_does_not_remove_a_break_is_not_recommended() -> None:
    """Printing a shape breaks the graph whatever printing functions torch may reorder."""
    assert tried(findings_of(models.Prints)) == {}
    assert any("reorderable" in text for text in tried(findings_of(models.HasItsOwnFunction)))


class Noisy(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        print("before", x.shape)
        x = x.relu()
        print("between", x.shape)
        x = x * 2
        print("after", x.shape)
        return x


class HasANoisyLayer(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.noisy = Noisy()

    def forward(self, x: Any) -> Any:
        return self.linear(self.noisy(self.linear(x)))


@pytest.mark.slow
def test_leaving_a_layer_out_that_breaks_the_graph_often_was_tried() -> None:
    findings = found_in(HasANoisyLayer(), torch.ones(2, 4))
    assert len(findings) == 3
    for one in findings:
        assert one.remedies[-1].text.startswith("leave the layer 'noisy' out")
        assert one.remedies[-1].works is True
    [finding] = findings_of(models.Prints)
    assert not any("leave the layer" in one.text for one in finding.remedies)


def test_symbolic_sizes_were_tried_against_recompilations() -> None:
    found = tried(findings_of(models.SeesManySizes))
    assert len(found) == 2
    assert any("torch.compile(model, dynamic=True)" in text for text in found)
    assert any("torch._dynamo.mark_dynamic(x, 0)" in text for text in found)
    assert all("1 → 0" in outcome for outcome in found.values())


@pytest.mark.slow
def test_what_torch_hints_at_was_tried_against_recompilations() -> None:
    [text] = tried(findings_of(models.Counts))
    assert "allow_unspec_int_on_nn_module" in text


def test_the_last_call_that_was_compiled_again_is_known() -> None:
    [finding] = findings_of(models.SeesManySizes)
    assert finding.call == 2  # the second size is compiled with a symbolic one
    [finding] = findings_of(models.Counts)
    assert finding.call == 4


def test_a_cast_to_the_host_by_name_is_a_copy() -> None:
    [finding] = found_in(models.MovesToTheHost(), models.batch())
    assert (finding.name, finding.place.line) == marked(models.MovesToTheHost)[0]


@pytest.mark.parametrize(("device", "copied"), [("cuda", True), ("cpu", False)])
def test_on_a_gpu_only_what_is_there_is_copied_to_the_host(device: str, copied: bool) -> None:
    from whet.doctor.traced import _leaves_the_gpu

    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    value.meta["example_value"] = SimpleNamespace(
        dtype=torch.float32, shape=(2,), device=torch.device(device)
    )
    assert _leaves_the_gpu(graph.call_method("to", (value, torch.device("cpu")))) is copied
    assert _leaves_the_gpu(graph.call_method("item", (value,))) is copied
    assert not _leaves_the_gpu(graph.call_method("to", (value, torch.device("cuda"))))


def test_a_cast_was_tried_against_an_upcast() -> None:
    [text] = tried(findings_of(models.Upcasts))
    assert "model.to(torch.float32)" in text


def test_a_break_has_its_number_in_torchs_registry() -> None:
    [finding] = findings_of(models.Branches)
    assert re.fullmatch(r"GB\d{4}", finding.code)
    assert any("torch.where" in one.text for one in finding.remedies)


def test_a_probe_leaves_model_and_inputs_as_they_were() -> None:
    assert examined(models.Counts).model.calls == 0
    written_to = examined(models.WritesToAView).inputs
    assert torch.equal(written_to, models.SICK[models.WritesToAView])


def test_a_model_that_fails_without_a_compiler_is_the_callers() -> None:
    with pytest.raises(UsageError, match="Mlp fails on its inputs without any compiler"):
        examine(subject_of(models.Mlp(), torch.ones(2, 7)))


def refuses(x: Any) -> Any:
    if torch.compiler.is_compiling():
        raise RuntimeError("not under a compiler")
    return x * 2


def test_a_model_of_which_nothing_is_compiled_is_found() -> None:
    [finding] = found_in(refuses, torch.ones(2, 2))
    assert finding.name == "not-compiled"
    assert finding.place.code == 'raise RuntimeError("not under a compiler")'
    assert "to eager" in finding.evidence


def test_a_missing_interface_costs_one_finding_and_is_said(monkeypatch: Any) -> None:
    monkeypatch.delattr("torch._dynamo.utils.get_compilation_metrics")
    looked = examine(subject_of(models.TakesItem(), models.batch()))
    assert [one.name for one in looked.findings] == ["graph-break"]
    [line] = looked.left_out
    assert line.startswith("not looked for: recompilations (")
    assert "get_compilation_metrics" in line


@pytest.mark.slow
def test_without_explain_the_rest_is_still_looked_for(monkeypatch: Any) -> None:
    monkeypatch.delattr("torch._dynamo.explain")
    sizes = models.SICK[models.SeesManySizes]
    looked = examine(subject_of(models.SeesManySizes(), sizes))
    assert [one.name for one in looked.findings] == ["recompilation"]
    [line] = looked.left_out
    assert line.startswith("not looked for: graph breaks (")


def test_ctrl_c_keeps_what_was_found_and_says_what_was_not_looked_for(monkeypatch: Any) -> None:
    def interrupted(subject: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("whet.doctor.examine.recompile_findings", interrupted)
    looked = examine(subject_of(models.TakesItem(), models.batch()))
    assert looked.interrupted
    assert [one.name for one in looked.findings] == ["graph-break"]
    first, second = looked.left_out
    assert "recompilations (interrupted)" in first
    assert "(interrupted)" in second


CALLS = """\
import torch

model = torch.nn.Linear(4, 4)
misspelt = torch.compile(model, mode="max_autotune")
both = torch.compile(
    model, mode="max-autotune", options={"trace.enabled": True})
fine = torch.compile(model, mode="reduce-overhead")
torch._dynamo.config.log_level = 10
fine.explain(torch.ones(1, 4))
torch.compile(model, options={"max_autotun": True})
torch.compile(model, options={"freezing": True, "triton.cudagraphs": True, "max-autotune": True})
torch._dynamo.explain(model)(torch.ones(1, 4))
"""


@pytest.mark.slow
def test_calls_that_torch_refuses_are_found_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    found = written_findings(str(file))
    found.sort(key=lambda one: one.place.line)
    assert {one.name for one in found} == {"compile-call"}
    assert [one.place.line for one in found] == [4, 5, 8, 9, 10, 11]
    misspelt, both, gone, explain, option, too_late = found
    assert [one.text for one in misspelt.remedies] == ["mode='max-autotune'"]
    assert '"max_autotune": True' in both.remedies[0].text
    assert "TORCH_LOGS" in gone.remedies[0].text
    assert "torch._dynamo.explain(model)(x)" in explain.remedies[0].text
    assert "'max_autotune'?" in option.evidence
    assert "torch._inductor.config.freezing = True" in too_late.remedies[0].text


def test_options_that_freeze_come_too_late() -> None:
    """The weights are still arguments of the compiled graph, and no longer with the setting."""
    from torch._inductor import config

    def arguments(**given: Any) -> int:
        seen: list[int] = []

        def count(graph: Any, inputs: Any) -> Any:
            seen.append(len(inputs))
            return graph.forward

        torch._dynamo.reset()
        with torch.no_grad(), config.patch(**given):
            torch.compile(models.Mlp(), backend=count)(torch.ones(8, 32))
        return seen[0]

    assert arguments() == 5
    assert arguments(freezing=True) == 1


def test_every_mode_that_is_tried_is_one_of_torchs() -> None:
    from whet.doctor.modes.variants import MODES

    assert {*MODES} - {"eager"} <= {*dynamo.mode_names()}


@pytest.mark.slow
def test_what_a_mode_silently_leaves_out_is_said() -> None:
    """Without being a finding: nothing is wrong with the model."""
    looked = examine(subject_of(models.Mlp(), torch.ones(8, 32)))
    [line] = looked.conditions
    assert line.startswith("max-autotune ")
    with torch._inductor.config.patch(freezing=True):
        assert examine(subject_of(models.Mlp(), torch.ones(8, 32))).conditions == ()


def test_switches_that_turn_the_compiler_off_are_found_and_a_misspelt_one() -> None:
    [found] = environment_findings({"TORCHDYNAMO_DISABLE": "1"})
    assert (found.name, found.remedies[0].text) == ("disabled", "unset TORCHDYNAMO_DISABLE")
    assert environment_findings({"TORCH_COMPILE_DISABLE": "0"}) == []
    [found] = environment_findings({"TORCH_LOG": "perf_hints"})
    assert found.name == "variable"
    assert "TORCH_LOGS" in found.remedies[0].text
