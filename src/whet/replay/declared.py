"""`Declared`: a space of parameters and constraints, in a form that a file can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.core.errors import SpaceError
from whet.core.space import Categorical, Ordered, Parameter, Permutation, Space

_PLAIN: dict[str, type[Ordered] | type[Categorical]] = {
    kind.kind: kind for kind in (Ordered, Categorical)
}


@dataclass(frozen=True)
class Declared:
    """Constraints are expressions, never code: reading them runs nothing."""

    parameters: tuple[Parameter, ...]
    constraints: tuple[str, ...] = ()

    @classmethod
    def of(cls, space: Space) -> Declared | None:
        """None for what parameters and expressions do not say: a list, a Python predicate."""
        declared = cls(space.parameters, space.constraints)
        try:
            return declared if declared.space().id == space.id else None
        except SpaceError:
            return None

    def space(self) -> Space:
        return Space(self.parameters, self.constraints)

    def to_json(self) -> dict[str, Any]:
        return {
            "parameters": [_parameter_json(parameter) for parameter in self.parameters],
            "constraints": list(self.constraints),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Declared:
        parameters = tuple(_parameter(one) for one in data["parameters"])
        constraints = tuple(data["constraints"])
        if not all(isinstance(text, str) for text in constraints):
            raise ValueError("a constraint is not a string")
        declared = cls(parameters, constraints)
        declared.space()
        return declared


def _parameter_json(parameter: Parameter) -> dict[str, Any]:
    listed = parameter.items if isinstance(parameter, Permutation) else parameter.values
    return {"kind": parameter.kind, "name": parameter.name, "values": list(listed)}


def _parameter(data: Mapping[str, Any]) -> Parameter:
    kind, name, values = data["kind"], data["name"], data["values"]
    if kind == Permutation.kind:
        return Permutation(name, values)
    if kind not in _PLAIN:
        raise ValueError(f"parameter '{name}' has the unknown kind '{kind}'")
    return _PLAIN[kind](name, values)
