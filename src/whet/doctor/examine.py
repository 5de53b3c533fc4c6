"""All findings of one model, in this process: nothing is timed here."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from whet.core.errors import UsageError, did_you_mean
from whet.doctor import dynamo
from whet.doctor.finding import Examination, Finding, Line, Remedy
from whet.doctor.subject import ExaminedModel, device_of, step
from whet.doctor.traced import break_findings, graph_findings, recompile_findings

T = TypeVar("T")

_TENSOR_CORES_FOR_FLOAT32 = 8  # the major compute capability that brought TF32

_SWITCHED_OFF = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")

# Advice that is still passed around, and what replaced it.
_REPLACED = {
    "torch._dynamo.config.log_level": "set TORCH_LOGS=+dynamo, or call "
    "torch._logging.set_logs(dynamo=logging.DEBUG)",
    "torch._dynamo.config.verbose": "set TORCH_LOGS=+dynamo,graph_breaks,recompiles",
}

_EXPLAIN = "torch._dynamo.explain(model)(x), or TORCH_LOGS=graph_breaks"

# Options that torch.compile takes and Dynamo never sees: it reads the setting itself, earlier.
_TOO_LATE = ("freezing",)


def examine(
    subject: ExaminedModel, progress: Callable[[str], None] = lambda text: None
) -> Examination:
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


def _captured(subject: ExaminedModel) -> list[dynamo.Captured | Finding]:
    """One entry: what Dynamo made of the model, or that it could not."""
    try:
        return [dynamo.capture(subject, subject.calls[0])]
    except dynamo.TorchLacksError:
        raise
    except Exception as error:
        return [_cannot_compile(subject, error)]


def _nothing_captured(
    subject: ExaminedModel, traced: dynamo.Captured, findings: list[Finding]
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


def _for_scripted(subject: ExaminedModel) -> Remedy | None:
    """Torch refuses to compile such a model (2.13), or leaves it as it is without a word (2.11)."""
    import torch

    if not isinstance(subject.model, torch.jit.ScriptModule):
        return None
    return Remedy("compile the model as it was before torch.jit.script")


def _cannot_compile(subject: ExaminedModel, error: Exception) -> Finding:
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


def _check_eager(subject: ExaminedModel) -> None:
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


def conditions(subject: ExaminedModel) -> list[str]:
    """A line for each that holds here; nothing is wrong with the model."""
    gpu = device_of(subject)
    return _on_a_cpu() if gpu is None else [*_too_small(gpu), *_full_float32(subject, gpu)]


def _on_a_cpu() -> list[str]:
    import torch._inductor.config as config

    if getattr(config, "freezing", True):
        return []
    return [
        "max-autotune does not tune matrix products on a CPU unless "
        "torch._inductor.config.freezing is set"
    ]


def _too_small(gpu: int) -> list[str]:
    from torch._inductor import utils

    is_big_gpu: Any = getattr(utils, "is_big_gpu", None)
    if is_big_gpu is None or is_big_gpu(gpu):
        return []
    return [
        "max-autotune does not tune matrix products on this GPU: it has too few multiprocessors"
    ]


def _full_float32(subject: ExaminedModel, gpu: int) -> list[str]:
    import torch

    values = [*subject.calls[0].named.values(), *subject.parameters]
    has_float32 = any(getattr(value, "dtype", None) == torch.float32 for value in values)
    able = torch.cuda.get_device_capability(gpu)[0] >= _TENSOR_CORES_FOR_FLOAT32
    if not has_float32 or not able or torch.get_float32_matmul_precision() != "highest":
        return []
    return [
        "products of float32 matrices do not use tensor cores; where their precision is not needed "
        "use torch.set_float32_matmul_precision('high')"
    ]


def written_findings(file: str) -> list[Finding]:
    """Calls of `torch.compile` that torch refuses, and settings that it no longer has."""
    try:
        text = Path(file).read_text()
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return []
    lines = text.splitlines()

    def place(node: ast.expr) -> Line:
        return Line(file, node.lineno, lines[node.lineno - 1].strip())

    compiled = _names_of_compiled(tree)
    findings: list[Finding] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _dotted(node.func) == "torch.compile":
            findings += _call_findings(node, place(node))
        elif isinstance(node, ast.Attribute):
            findings += _gone(node, compiled, place(node))
    return findings


def _names_of_compiled(tree: ast.AST) -> set[str]:
    return {
        _dotted(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_compile(node.value)
        for target in node.targets
    }


def _is_compile(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _dotted(node.func) == "torch.compile"


def _gone(node: ast.Attribute, compiled: set[str], place: Line) -> list[Finding]:
    """Advice that is still passed around and no longer holds."""
    name = _dotted(node)
    if name in _REPLACED and not _there(name):
        remedy = Remedy(_REPLACED[name])
        return [Finding("compile-call", f"{name} no longer exists", place, (remedy,))]
    if node.attr == "explain" and (_is_compile(node.value) or _dotted(node.value) in compiled):
        evidence = "a compiled model has no 'explain'"
        return [Finding("compile-call", evidence, place, (Remedy(_EXPLAIN),))]
    return []


def _call_findings(node: ast.Call, place: Line) -> list[Finding]:
    given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    mode, options = _text(given.get("mode")), given.get("options")
    names = dynamo.mode_names()
    findings = []
    if mode is not None and mode not in names:
        known = did_you_mean(mode, names)
        remedy = _spelt(mode, names) or Remedy(known.lstrip("; "))
        evidence = f"torch.compile has no mode '{mode}'{known}"
        findings.append(Finding("compile-call", evidence, place, (remedy,)))
    if mode is not None and options is not None and not _is_none(options):
        findings.append(_both(mode if mode in names else "default", place))
    if isinstance(options, ast.Dict):
        findings += _option_findings(options, place)
    return findings


def _option_findings(options: ast.Dict, place: Line) -> list[Finding]:
    """Options that torch refuses, and those that it takes and that change nothing."""
    known = dynamo.inductor_settings()
    findings = []
    for key, value in zip(options.keys, options.values, strict=True):
        name = (_text(key) or "").replace("-", "_")
        if not name:
            continue
        if name not in known:
            evidence = f"torch.compile has no option '{_text(key)}'{did_you_mean(name, known)}"
            remedy = Remedy("torch._inductor.list_options() has the names")
            findings.append(Finding("compile-call", evidence, place, (remedy,)))
        elif name in _TOO_LATE and not _is_none(value):
            evidence = (
                f"options={{'{name}': …}} changes nothing: Dynamo reads the setting before the "
                "options count"
            )
            remedy = Remedy(f"set torch._inductor.config.{name} = True before compiling")
            findings.append(Finding("compile-call", evidence, place, (remedy,)))
    return findings


def _spelt(mode: str, names: Sequence[str]) -> Remedy | None:
    """The mode that differs in a hyphen: options are written with underscores."""
    near = mode.strip().lower().replace("_", "-")
    if near not in names:
        return None
    import torch

    torch.compile(lambda x: x, mode=near)
    return Remedy(f"mode='{near}'", f"tried: torch.compile takes mode='{near}'", works=True)


def _both(mode: str, place: Line) -> Finding:
    """`mode` is a set of options, so that both can be written as one `options=`."""
    inside = dynamo.mode_options(mode)
    listed = ", ".join(f'"{name}": {value}' for name, value in inside.items())
    text = "give options= alone" + (
        f", with those of the mode in it: {{{listed}}}" if listed else ""
    )
    return Finding(
        "compile-call",
        "torch.compile takes mode= or options=, not both",
        place,
        (Remedy(text),),
    )


def environment_findings(environment: Mapping[str, str] | None = None) -> list[Finding]:
    """Variables that switch the compiler off, or that it does not read."""
    variables = os.environ if environment is None else environment
    findings = [
        Finding(
            "disabled",
            f"{name}={variables[name]} is set: torch.compile does nothing",
            Line(),
            (Remedy(f"unset {name}"),),
        )
        for name in _SWITCHED_OFF
        if variables.get(name, "0") not in ("", "0")
    ]
    if "TORCH_LOG" in variables:
        remedy = Remedy("rename it to TORCH_LOGS, or unset it")
        evidence = "TORCH_LOG is set, which changes nothing; the variable is TORCH_LOGS"
        findings.append(Finding("variable", evidence, Line(), (remedy,)))
    return findings


def _dotted(node: ast.expr) -> str:
    """`torch.compile` of the expression that says so; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _there(name: str) -> bool:
    import torch._dynamo.config as config

    return hasattr(config, name.rpartition(".")[2])


def _text(node: ast.expr | None) -> str | None:
    constant = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return str(node.value) if constant and isinstance(node, ast.Constant) else None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
