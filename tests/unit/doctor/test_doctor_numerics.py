"""How far results are off: per output, where it begins, and what is said of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from whet.doctor.finding import Line
from whet.doctor.modes.loaded import (
    OutputError,
    errors_of,
    first_far_layer,
    first_far_part,
    read_outputs,
)
from whet.doctor.modes.verdict import ModeTrial, TrialOfModes
from whet.doctor.symptoms import numeric_findings, numeric_notes

torch = pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")
sys.path.insert(0, str(Path(__file__).parent))

from whet.doctor.subject import subject_of  # noqa: E402


class TwoOutputs(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(8, 8)
        self.second = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        hidden = self.first(x)
        return hidden, self.second(hidden).relu()


def damaged(model: Any) -> Callable[..., Any]:
    """The model as a faulty compiler would run it: its second layer is off by a thousandth."""
    model.second.register_forward_hook(lambda layer, given, out: out * 1.001, prepend=True)
    run: Callable[..., Any] = model
    return run


def errors(run: Callable[..., Any], **more: Any) -> dict[str, OutputError]:
    said = errors_of(run, subject_of(TwoOutputs(), torch.ones(4, 8), **more))
    return {one.name: one for one in read_outputs(said)}


def test_each_output_is_compared_with_eager_and_with_float64() -> None:
    model = TwoOutputs()
    said = errors(model)
    assert {*said} == {"output 0", "output 1"}
    assert all(one.close and 0 < one.error < 1e-6 for one in said.values())
    off = errors(damaged(TwoOutputs()))
    assert off["output 0"].close
    assert not off["output 1"].close
    assert off["output 1"].far
    assert off["output 1"].error == pytest.approx(1e-3, rel=0.01)


def test_gradients_are_compared_when_training() -> None:
    model = TwoOutputs()
    said = errors_of(model, subject_of(model, torch.ones(4, 8), training=True))
    names = [one.name for one in read_outputs(said)]
    assert {"gradient of first.weight", "gradient of second.bias"} <= {*names}
    assert said["close_to_eager"] is True
    assert model.first.weight.grad is None


def test_the_same_results_have_the_same_digest() -> None:
    model, x = TwoOutputs(), torch.ones(4, 8)
    one, two = (errors_of(model, subject_of(model, x))["digest"] for _ in range(2))
    assert one == two
    assert errors_of(damaged(TwoOutputs()), subject_of(model, x))["digest"] != one


@pytest.mark.slow
def test_the_layer_where_a_difference_begins_is_found() -> None:
    subject = subject_of(TwoOutputs(), torch.ones(4, 8))
    assert first_far_layer(damaged, subject) == "second"
    assert first_far_layer(lambda model: model, subject) == ""  # type: ignore[no-any-return]


@pytest.mark.medium
def test_layers_of_a_compiled_model_can_be_looked_at() -> None:
    subject = subject_of(TwoOutputs(), torch.ones(4, 8))
    compiled = first_far_layer(lambda model: torch.compile(model, backend="aot_eager"), subject)
    assert compiled == ""


class Changed(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x * 1.01 if torch.compiler.is_compiling() else x


def with_eager_backend(model: Any) -> Callable[..., Any]:
    run: Callable[..., Any] = torch.compile(model, backend="eager")
    return run


@pytest.mark.medium
def test_the_layer_is_found_though_the_model_was_compiled_before_without_looking() -> None:
    """Dynamo does not guard on hooks."""
    torch._dynamo.reset()
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), Changed()), torch.ones(4, 8)
    subject = subject_of(model, x)
    assert any(one.far for one in read_outputs(errors_of(with_eager_backend(model), subject)))
    assert first_far_layer(with_eager_backend, subject) == "1"


@pytest.mark.medium
def test_code_that_does_something_else_under_the_compiler_is_not_blamed_on_fusing() -> None:
    subject = subject_of(torch.nn.Sequential(torch.nn.Linear(8, 8), Changed()), torch.ones(4, 8))
    assert first_far_part(with_eager_backend, subject) == "eager"


@pytest.mark.slow
def test_fusing_is_blamed_only_where_the_difference_is_gone_without_it() -> None:
    import torch._inductor.config as config

    def fused(model: Any) -> Callable[..., Any]:
        return damaged(deepcopy(model)) if config.max_fusion_size > 1 else model

    subject = subject_of(TwoOutputs(), torch.ones(4, 8))
    assert first_far_part(fused, subject) == "fusion"
    assert first_far_part(lambda model: damaged(deepcopy(model)), subject) == "inductor"


def test_a_random_model_is_not_compared() -> None:
    model = torch.nn.Dropout()
    assert errors_of(model, subject_of(model, torch.ones(64))) == {}


def trial(*outputs: OutputError, **more: Any) -> TrialOfModes:
    mode = ModeTrial("default", "ok", 1.0, outputs=outputs, digest="a", **more)
    return TrialOfModes((mode,), None)


def test_a_result_that_rounding_does_not_explain_is_a_finding_with_its_layer() -> None:
    done = trial(OutputError("output 0", "float16", 0.1, 1e-3, False), far_from="block.norm")
    [finding] = numeric_findings(done, Line("m.py", 3))
    assert finding.name == "numerics"
    assert "default is 1e-01" in finding.evidence
    assert "eager's 1e-03" in finding.evidence
    assert "'block.norm'" in finding.evidence
    assert any("emulate_precision_casts" in one.text for one in finding.remedies)
    assert numeric_notes(done) == []


def test_the_part_of_the_compiler_is_named_only_where_it_is_known() -> None:
    off = OutputError("output 0", "float32", 0.1, 1e-7, False)
    [unknown] = numeric_findings(trial(off), Line())
    assert "fusing" not in unknown.evidence
    [traced] = numeric_findings(trial(off, far_from="gate", far_part="eager"), Line())
    assert "Dynamo traces" in traced.evidence
    assert "is_compiling" in traced.remedies[0].text
    assert "'gate'" in traced.remedies[0].text
    [fused] = numeric_findings(trial(off, far_part="fusion"), Line())
    assert "fusing" in fused.evidence


def test_a_difference_that_rounding_explains_is_a_note_with_its_cause() -> None:
    better = trial(OutputError("output 0", "bfloat16", 1e-3, 3e-3, False))
    assert numeric_findings(better, Line()) == []
    assert "in float32" in numeric_notes(better)[0]
    equal = trial(OutputError("output 0", "float32", 1e-6, 1e-6, False))
    assert "order of additions" in numeric_notes(equal)[0]
    assert numeric_notes(trial(OutputError("output 0", "float32", 1e-6, 1e-6, True))) == []


def test_whether_reduce_overhead_is_less_exact_than_default_is_checked() -> None:
    def two(second: str) -> TrialOfModes:
        modes = (("default", "a"), ("reduce-overhead", second))
        return TrialOfModes(
            tuple(ModeTrial(name, "ok", 1.0, error=1e-6, digest=bits) for name, bits in modes), None
        )

    [same] = numeric_notes(two("a"))
    assert "last bit" in same
    [apart] = numeric_notes(two("b"))
    assert "default is 1e-06" in apart
    assert "reduce-overhead 1e-06" in apart
