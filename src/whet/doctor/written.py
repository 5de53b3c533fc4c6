"""What a file and the environment say about torch.compile before anything runs."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from whet.core.errors import did_you_mean
from whet.doctor import dynamo
from whet.doctor.finding import Finding, Line, Remedy

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
