"""The parameters of a script that is fixed, from a file beside it.

    constraints = ["ti <= tj"]

    [parameters]
    ti = [8, 16]
    tj = [16, 32]

    [[set]]
    operation = "transform.structured.tile_using_for"
    number = 1                  # the first of them in the script, which is the default
    attribute = "static_sizes"
    values = ["ti", "tj", 0]

`schedule.toml` belongs to `schedule.mlir`. The script itself stays as it is, and other tools run it
with the numbers it has.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.core.errors import SpaceError, UsageError, did_you_mean
from whet.core.space import Parameter, infer
from whet.core.toml import parse_toml

_KEYS = ("constraints", "parameters", "set")
_SET_KEYS = ("operation", "number", "attribute", "values")


@dataclass(frozen=True)
class SetRule:
    """`setting` is what the operation gets as its `whet.set`."""

    operation: str
    number: int
    setting: str


@dataclass(frozen=True)
class ParameterFile:
    parameters: tuple[Parameter, ...] = ()
    rules: tuple[SetRule, ...] = ()
    constraints: tuple[str, ...] = ()


def read_parameters(text: str, label: str) -> ParameterFile:
    try:
        found = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{label}: {error}") from None
    _known(found, _KEYS, label)
    try:
        parameters = tuple(infer(name, v) for name, v in found.get("parameters", {}).items())
    except SpaceError as error:
        raise UsageError(f"{label}: {error}") from None
    if not parameters:
        raise UsageError(f"{label}: no [parameters]; write ti = [8, 16] under it")
    rules = tuple(_rule(one, label) for one in found.get("set", ()))
    return ParameterFile(parameters, rules, tuple(found.get("constraints", ())))


def _rule(found: Mapping[str, Any], label: str) -> SetRule:
    _known(found, _SET_KEYS, f"{label}: [[set]]")
    missing = [name for name in ("operation", "attribute", "values") if name not in found]
    if missing:
        raise UsageError(f"{label}: [[set]] has no {missing[0]}")
    values = found["values"]
    if isinstance(values, list):
        written = f"[{', '.join(_written(one) for one in values)}]"
    else:
        written = _written(values)
    setting = f"{{{found['attribute']} = {written}}}"
    return SetRule(str(found["operation"]), int(found.get("number", 1)), setting)


def _written(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else f"{value} : i64"


def _known(found: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for name in found:
        if name not in keys:
            raise UsageError(f"{where}: unknown key '{name}'{did_you_mean(name, keys)}")
