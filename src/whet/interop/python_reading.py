"""The choices in a file that `python_source.py` wrote. Literals are read; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.core.config import Config, freeze_value
from whet.core.errors import SpaceError
from whet.core.frozen import FrozenMap
from whet.interop.files import FormatError, read_text
from whet.interop.findings import Finding, Tried
from whet.interop.python_source import DEVICE
from whet.interop.reading import ReadOptions, written_at

SOURCE = "python"

_LARGEST = 4 << 20


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
