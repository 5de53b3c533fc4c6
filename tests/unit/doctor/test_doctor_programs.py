"""Programs of the shapes that people bring: recurrent layers, loops over experts, training steps
with an optimizer, complex numbers, modes that come to the same code."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")

from whet.core.errors import UsageError  # noqa: E402
from whet.doctor.budget import DoctorBudget, over_budget  # noqa: E402
from whet.doctor.dynamo import place_in  # noqa: E402
from whet.doctor.examine import examine  # noqa: E402
from whet.doctor.finding import Diagnosis, Finding  # noqa: E402
from whet.doctor.modes.loaded import (  # noqa: E402
    errors_of,
    keep_program,
    program_in,
    same_program,
    set_caches,
)
from whet.doctor.subject import subject_of  # noqa: E402


def found_in(model: Any, inputs: Any, training: bool = False) -> tuple[Finding, ...]:
    return examine(subject_of(model, inputs, training=training)).findings


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + at for at, line in enumerate(lines) if text in line)


class Recurrent(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.nn.LSTM(8, 8, batch_first=True)
        self.out = torch.nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        states, _ = self.cells(x)
        return self.out(states.mean(1))


@pytest.mark.medium
def test_a_function_that_is_left_to_eager_is_told_with_its_line_and_torchs_own_remedy() -> None:
    """It is not within a budget without breaks either."""
    looked = examine(subject_of(Recurrent(), torch.ones(2, 3, 8)))
    [one] = looked.findings
    assert (one.name, one.place.line) == ("not-compiled", line_of(Recurrent.forward, "self.cells("))
    [remedy] = one.remedies
    assert "torch._dynamo.config.allow_rnn = True" in remedy.text
    assert "1 → 0" in remedy.tried
    done = Diagnosis("Recurrent", "", "2", looked)
    [over] = over_budget(done, DoctorBudget(graph_breaks=0))
    assert "breaks: 1, at most 0" in over


class Experts(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(8, 2)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: Any) -> Any:
        chosen, out = self.gate(x).argmax(-1), torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            rows = torch.where(chosen == at)[0]
            if rows.numel() == 0:
                continue
            out[rows] = expert(x[rows])
        return out


@pytest.mark.medium
def test_a_hint_whose_setting_was_tried_in_vain_is_not_given() -> None:
    """A break in a loop leaves the whole function to eager."""
    [one] = found_in(Experts(), torch.ones(4, 8))
    assert one.place.line == line_of(Experts.forward, "torch.where(")
    [remedy] = one.remedies
    assert "torch._dynamo" not in remedy.text


class TrainingStep:
    def __init__(self, detached: bool) -> None:
        self.model = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.detached = detached

    def __call__(self, x: Any) -> Any:
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach() if self.detached else loss


@pytest.mark.slow
def test_a_step_with_an_optimizer_of_its_own_is_examined() -> None:
    found = found_in(TrainingStep(detached=True), torch.ones(4, 8), training=True)
    [one] = [one for one in found if "backward" in one.evidence]
    assert one.place.line == line_of(TrainingStep.__call__, "loss.backward()")


@pytest.mark.parametrize(
    ("training", "remedy"), [(False, "--training"), (True, "return loss.detach()")]
)
def test_a_step_that_cannot_run_as_it_is_says_what_to_change(training: bool, remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy):
        found_in(TrainingStep(detached=False), torch.ones(4, 8), training=training)


class Careful(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        logging.getLogger("careful").warning("called")
        y = x * 2
        assert not torch.isnan(y).any(), "nan"
        return y + 1


@pytest.mark.slow
def test_an_assertion_is_checked_on_the_device_and_what_a_model_logs_is_not_printed(
    capfd: Any,
) -> None:
    [one] = [
        one for one in found_in(Careful(), torch.ones(4, 8)) if one.place.code.startswith("assert")
    ]
    assert one.place.line == line_of(Careful.forward, "assert not")
    assert one.evidence.startswith("Data-dependent branching: The branch taken depends")
    [remedy] = one.remedies
    assert "torch._assert_async(condition, message)" in remedy.text
    assert "called" not in "".join(capfd.readouterr())


def test_a_line_of_pythons_library_is_not_the_users() -> None:
    stack = f"""\
  File "/home/me/model.py", line 12, in forward
    logging.getLogger(__name__).info("called")
  File "{logging.__file__}", line 2087, in getLogger
    if not name:
"""
    place = place_in(stack)
    assert (place.file, place.line) == ("/home/me/model.py", 12)
    assert place.code == 'logging.getLogger(__name__).info("called")'


class Scaled(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(before, after)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        torch._dynamo.graph_break()
        return y.relu() * 2


@pytest.mark.slow
def test_code_that_layers_share_is_compiled_for_each_and_that_is_no_recompilation() -> None:
    model = torch.nn.Sequential(Scaled(8, 4), Scaled(4, 6), Scaled(6, 8))
    assert {one.name for one in found_in(model, torch.ones(4, 8))} == {"graph-break"}


@pytest.mark.medium
def test_a_model_that_was_scripted_is_to_be_compiled_as_it_was_before() -> None:
    scripted = torch.jit.script(torch.nn.Linear(8, 8))
    [one] = found_in(scripted, torch.ones(4, 8))
    assert one.name in ("compile-error", "not-compiled")  # as torch's version has it
    assert "before torch.jit.script" in one.remedies[0].text


class Spectral(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((5,), 1 + 1j, dtype=torch.complex64))

    def forward(self, x: Any) -> Any:
        return torch.fft.rfft(x) * self.weight


def test_imaginary_parts_are_compared_as_well() -> None:
    subject = subject_of(Spectral(), torch.arange(8.0).reshape(1, 8))
    exact = errors_of(subject.model, subject)
    assert exact["close_to_eager"] is True
    off = errors_of(lambda x: subject.model(x) + 1j, subject)
    assert isinstance(off["error"], float)
    assert off["error"] > 0.01
    assert off["digest"] != exact["digest"]


GENERATED = """\
# AOT ID: ['0_inference']
def call(args):
{checks}    extern_kernels.addmm({weight})
"""


def generated(folder: Path, mode: str, weight: str, checks: str = "") -> str:
    caches = folder / mode
    (caches / "inductor" / "ab").mkdir(parents=True)
    text = GENERATED.format(weight=weight, checks=checks)
    (caches / "inductor" / "ab" / "cab.py").write_text(text)
    return str(caches)


def test_modes_with_the_same_code_but_for_checks_of_inputs_are_the_same_program(
    tmp_path: Path,
) -> None:
    check = "    assert_size_stride(arg0_1, (8, 8), (8, 1), 'input')\n"
    first = generated(tmp_path, "default", "arg0_1", check)
    same = generated(tmp_path, "max-autotune", "arg0_1")
    other = generated(tmp_path, "freezing", "constant0")
    keep_program(first, program_in(first), {"error": 1e-7, "warm_first_call_s": 3.0})
    assert same_program(same, program_in(same)) == {"error": 1e-7, "same_as": "default"}
    assert same_program(other, program_in(other)) == {}
    assert same_program(str(tmp_path / "eager"), "") == {}


@pytest.mark.medium
def test_precompiled_headers_are_among_the_caches_of_a_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though torch chose their folder before, when it was imported."""
    codecache = pytest.importorskip("torch._inductor.codecache")
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "before")
    for name in ("_HEADER_DIR", "_HEADER_LOCK_DIR"):
        monkeypatch.setattr(codecache, name, "before")
    set_caches(str(tmp_path))
    assert Path(codecache._HEADER_DIR).is_relative_to(tmp_path)
    assert Path(codecache._HEADER_LOCK_DIR).is_relative_to(codecache._HEADER_DIR)
