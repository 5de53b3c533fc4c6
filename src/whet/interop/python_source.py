"""A decision function in plain Python, for a library to commit in place of its list of configs.

    def pick(M, N, K) -> dict:
        return {**CONFIGS[_rule_0(M, N, K)]}

The file imports nothing but `math`, and is the same for the same results.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from whet._version import __version__
from whet.core.config import Config, freeze_value
from whet.core.errors import SpaceError, UsageError
from whet.core.frozen import FrozenMap
from whet.core.workload import Workload
from whet.interop.decision import Decision, Known, Node, SizeRule, Style, decide
from whet.interop.files import FormatError, ReadOptions, read_text, written_at
from whet.interop.findings import TIMER, Finding, Tried
from whet.interop.selecting import MeasuredWorkload

DEVICE = "device"
CONFIGS = 8

_WIDEST = 96

_NEAREST = '''

def _nearest(table, sizes):
    """The table's entry for these sizes, or for the nearest ones in doublings."""
    if sizes in table:
        return table[sizes]

    def distance(known):
        return sum(
            abs(math.log2(max(a, 1)) - math.log2(max(b, 1))) for a, b in zip(known, sizes)
        )

    return table[min(table, key=distance)]
'''

SOURCE = "python"

_LARGEST = 4 << 20


@dataclass(frozen=True)
class _Names:
    """Which parts of a key are numbers, which are not and differ, and which are always the same."""

    sizes: tuple[str, ...]
    parts: tuple[str, ...]
    fixed: Mapping[str, Any]


def python_source(
    measured: Sequence[MeasuredWorkload],
    *,
    max_configs: int | None = None,
    max_leaves: int = 32,
    style: Style = "auto",
    function: str = "pick",
) -> tuple[str, Decision]:
    """The text of the file, and the decision it states. `measured` is of one kernel.

    By default among eight configs; among all where there are no times to choose them by.
    """
    if not function.isidentifier() or keyword.iskeyword(function):
        raise UsageError(f"'{function}' is not a valid function name")
    names = _names(measured)
    known = [
        Known(
            tuple(one.workload.key[name] for name in names.sizes),
            tuple(str(_part(one.workload, name)) for name in names.parts),
            one.times(),
        )
        for one in measured
    ]
    timed = all(one.best.timing is not None for one in measured)
    decision = decide(
        known,
        max_configs=max_configs or (CONFIGS if timed else len(known)),
        max_leaves=max_leaves,
        style=style,
        timed=timed,
    )
    lines = [*_header(measured, names, decision), *_constants(measured, names, decision)]
    source = "\n".join(lines) + "\n"
    if any(rule.tree is None for rule in decision.rules):
        source += _NEAREST
    arguments = _arguments((*names.sizes, *names.parts))
    sizes = arguments[: len(names.sizes)]
    for number, rule in enumerate(decision.rules):
        source += _rule(number, rule, sizes)
    return source + _pick(function, sizes, arguments[len(sizes) :], decision), decision


def _names(measured: Sequence[MeasuredWorkload]) -> _Names:
    keys = [one.workload.key for one in measured]
    for key in keys:
        if set(key) != set(keys[0]):
            raise UsageError(
                f"the keys of {measured[0].workload.kernel} have different names "
                f"({', '.join(keys[0])} and {', '.join(key)}); select some with --where"
            )
    sizes = tuple(name for name in keys[0] if all(_is_number(key[name]) for key in keys))
    others = [name for name in keys[0] if name not in sizes]
    parts = [name for name in others if len({str(key[name]) for key in keys}) > 1]
    fixed = {name: keys[0][name] for name in others if name not in parts}
    if len({one.workload.device.name for one in measured}) > 1:
        if DEVICE in keys[0]:
            raise UsageError("the key already has a part named 'device'; select one --device")
        parts.append(DEVICE)
    return _Names(sizes, tuple(parts), fixed)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _part(workload: Workload, name: str) -> Any:
    return workload.key.get(name, workload.device.name)


def _header(measured: Sequence[MeasuredWorkload], names: _Names, decision: Decision) -> list[str]:
    workloads = [one.workload for one in measured]
    toolchain = (
        f"{'timed by' if name == TIMER else name} {version}"
        for one in workloads
        for name, version in one.toolchain.items()
    )
    moment = max(one.best.created for one in measured)
    ranges = [
        f"{name} {min(w.key[name] for w in workloads)} to {max(w.key[name] for w in workloads)}"
        for name in names.sizes
    ]
    tried = {trial.config for one in measured for trial in one.trials}
    fields = {
        "written by": f"whet {__version__}; regenerate it instead of editing",
        "device": _listed(f"{w.device.name} {w.device.architecture}".strip() for w in workloads),
        "built with": _listed(toolchain),
        "measured": f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d}" if moment else "",
        "keys": "; ".join([str(decision.keys), *([", ".join(ranges)] if ranges else [])]),
        "for": ", ".join(f"{name}={value}" for name, value in names.fixed.items()),
        "configs": f"{len(decision.configs)} of {decision.measured} that were measured"
        + (f"; {len(tried)} were tried" if len(tried) > decision.measured else ""),
        "score": _score(decision),
    }
    title = f"# Which config of {_one_line(workloads[0].kernel)} to launch, by the problem's size."
    body = [f"#   {name + ':':<12}{_one_line(text)}" for name, text in fields.items() if text]
    return [title, "#", *(line.rstrip() for line in body), ""]


def _score(decision: Decision) -> str:
    if decision.score is None or decision.worst is None or decision.limit is None:
        return "unknown: the results have no times"
    return (
        f"{decision.score:.2%} of the best known, geometric mean over the keys; worst "
        f"{decision.worst:.1%}; at most {decision.limit:.2%} is possible with these configs"
    )


def _constants(
    measured: Sequence[MeasuredWorkload], names: _Names, decision: Decision
) -> list[str]:
    devices = tuple(dict.fromkeys(one.workload.device.name for one in measured))
    values = {
        "KERNEL": measured[0].workload.kernel,
        "DEVICES": devices,
        "SIZES": names.sizes,
        "PARTS": names.parts,
        "FIXED": names.fixed,
        "KINDS": tuple(rule.rest for rule in decision.rules),
    }
    tables = any(rule.tree is None for rule in decision.rules)
    lines = ["import math", ""] if tables else []
    lines += [f"{name} = {_literal(value)}" for name, value in values.items()]
    lines += ["", "CONFIGS = ("]
    for config in decision.configs:
        text = f"    {_literal(dict(config))},"
        if len(text) > _WIDEST:
            items = [f"        {_literal(k)}: {_literal(v)}," for k, v in config.items()]
            text = "\n".join(["    {", *items, "    },"])
        lines.append(text)
    return [*lines, ")"]


def _rule(number: int, rule: SizeRule, sizes: Sequence[str]) -> str:
    head = f"def _rule_{number}({', '.join(sizes)}):"
    if rule.tree is not None:
        return "\n".join(["", "", head, *_branches(rule.tree, sizes, 1)]) + "\n"
    rows = [f"    {_literal(known)}: {at}," for known, at in rule.table]
    asked = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    table = ["", "", f"_TABLE_{number} = {{", *rows, "}"]
    body = ["", "", head, f"    return _nearest(_TABLE_{number}, {asked})"]
    return "\n".join([*table, *body]) + "\n"


def _branches(node: Node, sizes: Sequence[str], depth: int) -> list[str]:
    space = "    " * depth
    if isinstance(node, int):
        return [f"{space}return {node}"]
    return [
        f"{space}if {sizes[node.feature]} <= {_literal(node.at)}:",
        *_branches(node.low, sizes, depth + 1),
        *_branches(node.high, sizes, depth),
    ]


def _pick(function: str, sizes: Sequence[str], parts: Sequence[str], decision: Decision) -> str:
    default = decision.rules[0].rest
    given = [f"{name}={_literal(value)}" for name, value in zip(parts, default, strict=True)]
    asked = ", ".join(sizes)
    doc = "The config to launch with, also for sizes that were not measured."
    lines = ["", "", f"def {function}({', '.join([*sizes, *given])}) -> dict:"]
    if not parts:
        lines += [f'    """{doc}"""', f"    return {{**CONFIGS[_rule_0({asked})]}}"]
        return "\n".join(lines) + "\n"
    rules = ", ".join(f"_rule_{at}" for at in range(len(decision.rules)))
    kind = ", ".join(f"str({name})" for name in parts)
    lines[:0] = ["", "", f"_RULES = dict(zip(KINDS, ({rules},)))"]
    lines += [
        f'    """{doc}',
        "",
        f"    If {' or '.join(parts)} is not in KINDS, the rule for KINDS[0] is used.",
        '    """',
        f"    rule = _RULES.get(({kind},), _rule_0)",
        f"    return {{**CONFIGS[rule({asked})]}}",
    ]
    return "\n".join(lines) + "\n"


def _arguments(names: Sequence[str]) -> list[str]:
    """`["M", "a.dtype", "class"]` is `["M", "a_dtype", "class_"]`, each different."""
    taken: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        # A leading underscore or capitals alone could hide what the file itself calls by name.
        ours = plain.startswith("_") or plain in ("CONFIGS", "KINDS", "math", "rule")
        if keyword.iskeyword(plain) or hasattr(builtins, plain) or ours:
            plain = f"{plain.lstrip('_') or 'part'}_"
            plain = f"n{plain}" if plain[0].isdigit() else plain
        while plain in taken:
            plain += "_"
        taken.append(plain)
    return taken


def _literal(value: Any) -> str:
    """As Python reads it back; text between double quotes where that needs no escapes."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        inner = ", ".join(_literal(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    text = repr(value)
    return f'"{text[1:-1]}"' if text.startswith("'") and '"' not in text else text


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def _one_line(text: str) -> str:
    """What stands in a comment must not end it."""
    return "".join(c if c.isprintable() else "?" for c in text)


def read(path: Path, options: ReadOptions) -> list[Finding]:
    """Of a table only: a tree names no keys, so that no choice can be told."""
    text = read_text(path)
    if len(text) > _LARGEST:
        raise FormatError(f"{path} is too large for a table of choices")
    found = _literals(path, text)
    try:
        return _findings(path, found, options)
    except KeyError as error:
        raise FormatError(f"{path} was not written by 'whet export python': no {error}") from None
    except (SpaceError, AttributeError, TypeError, ValueError, LookupError) as error:
        raise FormatError(f"{path} is inconsistent: {error}"[:300]) from None


def _literals(path: Path, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                if name != "_RULES":
                    found[name] = ast.literal_eval(statement.value)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise FormatError(
            f"{path} was not written by 'whet export python', or is truncated"
        ) from None
    return found


def _findings(path: Path, found: Mapping[str, Any], options: ReadOptions) -> list[Finding]:
    configs = [Config(values) for values in found["CONFIGS"]]
    findings = []
    for number, rest in enumerate(found["KINDS"]):
        if f"_TABLE_{number}" not in found:
            raise FormatError(
                f"{path} contains a decision tree, which has no keys; export it with --style "
                "table, or merge the original store"
            )
        kind = dict(zip(found["PARTS"], rest, strict=True))
        several = len(found["DEVICES"]) > 1
        device = str(kind.pop(DEVICE) if several else found["DEVICES"][0])
        for sizes, at in found[f"_TABLE_{number}"].items():
            key = {**dict(zip(found["SIZES"], sizes, strict=True)), **found["FIXED"], **kind}
            findings.append(
                Finding(
                    kernel=options.kernel or str(found["KERNEL"]),
                    device=options.device or device,
                    key=FrozenMap({str(n): freeze_value(v, f"'{n}'") for n, v in key.items()}),
                    source=SOURCE,
                    tried=(Tried(configs[at]),),
                    best=configs[at],
                    created=written_at(path),
                )
            )
    return findings
