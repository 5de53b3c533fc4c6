"""All findings of one model, in this process: nothing is timed here."""

from __future__ import annotations

from collections.abc import Callable

from whet.core.errors import UsageError
from whet.doctor import dynamo
from whet.doctor.breaks import break_findings
from whet.doctor.conditions import conditions
from whet.doctor.finding import Examination, Finding, Remedy
from whet.doctor.graphs import graph_findings
from whet.doctor.recompiles import recompile_findings
from whet.doctor.subject import Subject
from whet.doctor.written import environment_findings, written_findings


def examine(subject: Subject, progress: Callable[[str], None] = lambda text: None) -> Examination:
    """A look that needs what this torch lacks is left out, and said so."""
    _check_eager(subject)
    findings: list[Finding] = []
    left_out: list[str] = []

    def look(what: str, step: Callable[[], list[Finding]]) -> None:
        progress(f"looking for {what}")
        try:
            findings.extend(step())
        except dynamo.NotThereError as error:
            left_out.append(f"not looked for: {what} ({error} in torch {_version()})")
        except Exception as error:
            text = str(error).strip().splitlines()
            said = f"{type(error).__name__}: {text[0] if text else ''}"
            left_out.append(f"not looked for: {what} ({said})")

    file = subject.place.file or subject.file
    look("calls of torch.compile", lambda: written_findings(subject.file or file))
    look("switches", environment_findings)
    captured: list[dynamo.Captured] = []

    def graph_breaks() -> list[Finding]:
        try:
            captured.append(dynamo.capture(subject, subject.calls[0]))
        except dynamo.NotThereError:
            raise
        except Exception as error:
            return [_cannot_compile(subject, error)]
        return break_findings(subject, captured[0])

    look("graph breaks", graph_breaks)
    if captured:
        graphs = captured[0].graphs
        look("wider types, copies and changed inputs", lambda: graph_findings(subject, graphs))
    if not any(one.name == "compile-error" for one in findings):
        look("recompilations", lambda: recompile_findings(subject))
    holding: list[str] = []

    def silent_conditions() -> list[Finding]:
        holding.extend(conditions(subject))
        return []

    look("silent conditions", silent_conditions)
    return Examination(
        tuple(_once_a_line(findings)),
        tuple(left_out),
        len(captured[0].graphs) if captured else None,
        captured[0].operations if captured else None,
        tuple(holding),
    )


def _once_a_line(findings: list[Finding]) -> list[Finding]:
    """A copy to the host that breaks the graph is told as the break."""
    broken = {one.place for one in findings if one.name == "graph-break"}
    return [one for one in findings if one.name != "host-copy" or one.place not in broken]


def _cannot_compile(subject: Subject, error: Exception) -> Finding:
    text = str(error).strip().splitlines()
    place = dynamo.place_in(str(error))
    return Finding(
        "compile-error",
        f"{type(error).__name__}: {text[0] if text else ''}",
        place if place.file else subject.place,
        (Remedy("run that part without the compiler: @torch.compiler.disable"),),
    )


def _check_eager(subject: Subject) -> None:
    model, call = dynamo.fresh(subject, subject.calls[0])
    try:
        with dynamo.quiet(), subject.gradients():
            model(*call.args, **call.kwargs)
    except Exception as error:
        raise UsageError(
            f"{subject.name} fails on its inputs without any compiler: {type(error).__name__}: "
            f"{error}"
        ) from error


def _version() -> str:
    import torch

    return str(torch.__version__).partition("+")[0]
