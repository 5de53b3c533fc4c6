"""Modes that fail on a model: which part of it, which part of the compiler, and how to see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from whet.cli.commands.doctor import report_lines
from whet.doctor.finding import Diagnosis, Examination, Line
from whet.doctor.modes.verdict import ModeTrial, TrialOfModes
from whet.doctor.symptoms import failure_findings

torch = pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")

from whet.doctor.modes.second import smallest_failure  # noqa: E402
from whet.doctor.subject import subject_of  # noqa: E402

HERE = Line("model.py", 7, "def forward(self, x):")
EAGER = ModeTrial("eager", "ok", 1e6)


def failed(mode: str, problem: str, status: str = "run_error") -> ModeTrial:
    return ModeTrial(mode, status, problem=problem)


class Wave(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x.sin()


class Stack(torch.nn.Module):  # type: ignore[misc]
    """Its layers are in a list, which is not called itself."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [torch.nn.Sequential(torch.nn.Linear(8, 8), last) for last in (Wave(), Wave())]
        blocks[0][1] = torch.nn.ReLU()
        self.blocks = torch.nn.ModuleList(blocks)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def without(*names: str) -> Callable[[Any], Callable[..., Any]]:
    """A compiler that cannot do some operations."""

    def backend(graph: Any, inputs: Any) -> Any:
        if any(name in str(node.target) for node in graph.graph.nodes for name in names):
            raise NotImplementedError(", ".join(names))
        return graph.forward

    return lambda model: torch.compile(model, backend=backend)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_the_smallest_layer_that_fails_alone_is_found() -> None:
    subject = subject_of(Stack(), torch.ones(4, 8))
    told = smallest_failure(subject, "default", without("sin"))
    assert told["layer"] == "blocks.1.1"
    assert told["code"] == "def forward(self, x: Any) -> Any:"
    assert told["without"] is True
    assert "early_end" not in told


@pytest.mark.slow
def test_a_model_is_its_own_smallest_part_where_no_layer_fails_alone() -> None:
    class Own(Stack):
        def forward(self, x: Any) -> Any:
            return super().forward(x).cos()

    subject = subject_of(Own(), torch.ones(4, 8))
    told = smallest_failure(subject, "default", without("cos"))
    assert told["layer"] == ""
    assert "without" not in told


@pytest.mark.medium
def test_a_compiler_that_can_do_nothing_is_not_the_models_fault() -> None:
    subject = subject_of(Stack(), torch.ones(4, 8))
    assert smallest_failure(subject, "default", without("")) == {"everywhere": True}
    assert smallest_failure(subject, "default", without("cos")) == {}


def test_modes_that_fail_alike_are_one_finding_with_what_shows_it() -> None:
    trial = TrialOfModes(
        (EAGER, failed("default", "Bad: x (in a.py, line 1)"), failed("max-autotune", "Bad: x")),
        None,
    )
    told = {
        "layer": "1.odd",
        "file": "odd.py",
        "line": 3,
        "code": "def forward(self, x):",
        "repro": "torch.compile(model.get_submodule('1.odd'), mode='default')(torch.randn([4]))",
        "without": True,
    }
    [finding] = failure_findings(trial, HERE, lambda mode: told)
    assert finding.name == "failing-mode"
    assert "default and max-autotune fail: Bad: x" in finding.evidence
    assert "'1.odd'" in finding.evidence
    assert "in Inductor" in finding.evidence
    assert finding.place == Line("odd.py", 3, "def forward(self, x):")
    [remedy] = finding.remedies
    assert remedy.works is True
    done = Diagnosis("m", "m.py", "2.13", Examination((finding,)), trial)
    assert f"       {told['repro']}" in report_lines(done)
    assert done.to_json()["findings"][0]["repro"] == told["repro"]


def test_a_mode_that_ends_at_a_limit_is_a_finding_without_a_smallest_part() -> None:
    def never(mode: str) -> Any:
        raise AssertionError(mode)

    trial = TrialOfModes((EAGER, failed("default", "took over 20 min", "run_timeout")), None)
    [finding] = failure_findings(trial, HERE, never)
    assert finding.evidence.endswith(": took over 20 min")
    assert finding.place == HERE


@torch.library.custom_op("whet_tests::column_major", mutates_args=())  # type: ignore[misc]
def column_major(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t()


@column_major.register_fake  # type: ignore[misc]
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class ColumnMajor(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return column_major(x)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_is_given_to_show_a_failure_of_inductor_fails_in_the_same_way() -> None:
    import torch._inductor.config as config

    model = torch.nn.Sequential(torch.nn.ReLU(), ColumnMajor())
    with config.patch({"cpp_cache_precompile_headers": False}):
        told = smallest_failure(subject_of(model, torch.ones(4, 8)), "default", torch.compile)
    assert told["layer"] == "1"
    assert told["repro"] == (
        "torch.compile(model.get_submodule('1'), mode='default')(torch.randn([4, 8]))"
    )
