"""All findings of one model, in this process: nothing is timed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from whet.core.errors import UsageError
from whet.doctor import dynamo
from whet.doctor.breaks import break_findings
from whet.doctor.conditions import conditions
from whet.doctor.finding import Examination, Finding, Remedy
from whet.doctor.graphs import graph_findings
from whet.doctor.recompiles import recompile_findings
from whet.doctor.subject import Patient, step
from whet.doctor.written import environment_findings, written_findings

T = TypeVar("T")


def examine(subject: Patient, progress: Callable[[str], None] = lambda text: None) -> Examination:
    """A look that needs what this torch lacks is left out, and said so; so are those that Ctrl-C
    cuts short."""
    _check_eager(subject)
    looks = _Looks(progress)
    file = subject.file or subject.place.file
    looks.at("calls of torch.compile", lambda: written_findings(file))
    looks.at("switches", environment_findings)
    captured = looks.at("graph breaks", lambda: _captured(subject))
    first = captured[0] if captured else None
    traced = first if isinstance(first, dynamo.Captured) else None
    if traced is not None:
        looks.at("graphs", lambda: _nothing_captured(subject, traced, looks.findings))
        looks.at("settings that help", lambda: break_findings(subject, traced))
        looks.at(
            "wider types, copies and changed inputs",
            lambda: graph_findings(subject, traced.graphs),
        )
    if not isinstance(first, Finding):
        looks.at("recompilations", lambda: recompile_findings(subject))
    holding = looks.at(
        "conditions under which modes do less than their names say", lambda: conditions(subject)
    )
    return Examination(
        tuple(_once_a_line(looks.findings)),
        tuple(looks.left_out),
        None if traced is None else len(traced.graphs),
        None if traced is None else traced.operations,
        tuple(holding),
        interrupted=looks.interrupted,
    )


class _Looks:
    """What was found so far, and what could not be looked for."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self.findings: list[Finding] = []
        self.left_out: list[str] = []
        self.interrupted = False

    def at(self, what: str, step: Callable[[], list[T]]) -> list[T]:
        """Findings are kept; whatever else it answers is returned only."""
        if self.interrupted:
            self.left_out.append(f"not looked for: {what} (interrupted)")
            return []
        self._progress(f"looking for {what}")
        try:
            answer = step()
        except KeyboardInterrupt:
            self.interrupted = True
            self.left_out.append(f"not looked for: {what} (interrupted)")
            return []
        except dynamo.TorchLacksError as error:
            self.left_out.append(f"not looked for: {what} ({error} in torch {_version()})")
            return []
        except Exception as error:
            text = str(error).strip().splitlines()
            said = f"{type(error).__name__}: {text[0] if text else ''}"
            self.left_out.append(f"not looked for: {what} ({said})")
            return []
        self.findings += [one for one in answer if isinstance(one, Finding)]
        return answer


def _captured(subject: Patient) -> list[dynamo.Captured | Finding]:
    """One entry: what Dynamo made of the model, or that it could not."""
    try:
        return [dynamo.capture(subject, subject.calls[0])]
    except dynamo.TorchLacksError:
        raise
    except Exception as error:
        return [_cannot_compile(subject, error)]


def _nothing_captured(
    subject: Patient, traced: dynamo.Captured, findings: list[Finding]
) -> list[Finding]:
    """Torch falls back to eager without a word where a frame fails while it is traced. Where it
    told why, `break_findings` has that, with the line."""
    if traced.graphs or traced.breaks or any(one.name == "disabled" for one in findings):
        return []
    remedy = _for_scripted(subject) or Remedy(
        "run with TORCH_LOGS=graph_breaks,dynamo to see where torch gave up"
    )
    return [Finding("not-compiled", "torch captured no graph", subject.place, (remedy,))]


def _once_a_line(findings: list[Finding]) -> list[Finding]:
    """A copy to the host that breaks the graph is told as the break."""
    broken = {one.place for one in findings if one.name == "graph-break"}
    return [one for one in findings if one.name != "host-copy" or one.place not in broken]


def _for_scripted(subject: Patient) -> Remedy | None:
    """Torch refuses to compile such a model (2.13), or leaves it as it is without a word (2.11)."""
    import torch

    if not isinstance(subject.model, torch.jit.ScriptModule):
        return None
    return Remedy("compile the model as it was before torch.jit.script")


def _cannot_compile(subject: Patient, error: Exception) -> Finding:
    text = str(error).strip().splitlines()
    place = dynamo.place_in(str(error))
    remedy = _for_scripted(subject) or Remedy(
        "run that part without the compiler: @torch.compiler.disable"
    )
    return Finding(
        "compile-error",
        f"{type(error).__name__}: {text[0] if text else ''}",
        place if place.file else subject.place,
        (remedy,),
    )


def _check_eager(subject: Patient) -> None:
    model, call = dynamo.fresh(subject, subject.calls[0])
    try:
        with dynamo.quiet(), subject.gradients():
            step(model, call, subject.training)
    except Exception as error:
        raise UsageError(
            f"{subject.name} fails on its inputs without any compiler: {type(error).__name__}: "
            f"{error}{_remedy_for(str(error), subject.training)}"
        ) from error


def _remedy_for(text: str, training: bool) -> str:
    """For models that compute gradients themselves, such as a step with its optimizer."""
    if not training and "does not require grad" in text:
        return "; gradients are off unless --training (training=True) asks for them"
    if training and "backward through the graph a second time" in text:
        return "; a model with a backward pass of its own has to return loss.detach()"
    return ""


def _version() -> str:
    import torch

    return str(torch.__version__).partition("+")[0]
