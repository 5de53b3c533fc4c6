"""A transform-dialect script: what it leaves open is a `Space`, and a config closes it.

`transform.tune.knob<"ti"> options = [8, 16]` is a parameter with these values.
`transform.tune.alternatives<"fuse"> {…}, {…}` is one whose values say which region is taken: by
number, or by name where the operation has `attributes {whet.names = ["fused", "apart"]}`. What the
script itself has selected stays so and is no parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.core.config import Value
from whet.core.errors import UsageError
from whet.core.space import Categorical, Parameter, Space
from whet.core.space.parameter import infer
from whet.targets.schedule.bindings import Bindings, bindings, located

ENTRY = "__transform_main"
_KNOB, _ALTERNATIVES = "transform.tune.knob", "transform.tune.alternatives"
_NAMES = "whet.names"


@dataclass(frozen=True)
class ScheduleScript:
    """`label` is its file, for messages. `canonical` is the text without comments and layout."""

    text: str
    label: str
    canonical: str
    parameters: tuple[Parameter, ...]

    def space(self, constraints: Sequence[Any] = ()) -> Space:
        return Space(self.parameters, constraints=constraints)


def read_script(text: str, label: str) -> ScheduleScript:
    """Raises `UsageError` with the location of what is wrong."""
    mlir = bindings()
    found: dict[str, tuple[Parameter, str]] = {}
    with mlir.context(), mlir.ir.Location.unknown():
        module = parsed(mlir, text, label)
        entry(module, label)
        for operation in operations(mlir, module):
            parameter = _parameter(mlir, operation, label)
            if parameter is None:
                continue
            place = place_in(operation, label)
            before = found.setdefault(parameter.name, (parameter, place))
            if before[0].identity != parameter.identity:
                raise UsageError(
                    f"{place}: '{parameter.name}' has other values here than at {before[1]}; "
                    "give both the same, or different names"
                )
        canonical = str(module)
    if not found:
        raise UsageError(
            f"{label}: the script leaves nothing open; "
            'add a transform.tune.knob<"name"> or transform.tune.alternatives<"name">'
        )
    return ScheduleScript(text, label, canonical, tuple(one for one, _ in found.values()))


def parsed(mlir: Bindings, text: str, label: str) -> Any:
    try:
        return mlir.ir.Module.parse(text)
    except mlir.ir.MLIRError as error:
        raise UsageError(located(error, label)) from None


def entry(module: Any, label: str) -> Any:
    """The sequence that is applied."""
    names = []
    for operation in module.body.operations:
        if operation.operation.name == "transform.named_sequence":
            names.append(operation.attributes["sym_name"].value)
            if names[-1] == ENTRY:
                return operation
    has = f"it has {', '.join(f'@{name}' for name in names)}" if names else "it has no sequence"
    raise UsageError(f"{label}: no transform.named_sequence @{ENTRY}; {has}")


def bind(mlir: Bindings, module: Any, config: Mapping[str, Value]) -> None:
    """Selects what the config says, in place."""
    for operation in operations(mlir, module):
        name = _name(operation)
        if name is None or _is_selected(operation):
            continue
        value = config[name]
        if operation.name == _KNOB:
            options = list(operation.attributes["options"])
            values = [_plain(mlir, option) for option in options]
            operation.attributes["selected"] = options[values.index(value)]
        else:
            region = _region_names(operation).index(value)
            number = mlir.ir.IntegerAttr.get(mlir.ir.IntegerType.get_signless(32), region)
            operation.attributes["selected_region_attr"] = number


def operations(mlir: Bindings, module: Any) -> list[Any]:
    """All of them, outer before inner and in the order of the text."""
    found: list[Any] = []

    def note(operation: Any) -> Any:
        found.append(operation)
        return mlir.ir.WalkResult.ADVANCE

    visit: Callable[..., Any] = module.operation.walk
    visit(note, mlir.ir.WalkOrder.PRE_ORDER)
    return found


def _name(operation: Any) -> str | None:
    if operation.name not in (_KNOB, _ALTERNATIVES):
        return None
    return str(operation.attributes["name"].value)


def _is_selected(operation: Any) -> bool:
    """By the script itself: with a value, or with a parameter that is computed."""
    closed = "selected" if operation.name == _KNOB else "selected_region_attr"
    return closed in operation.attributes or len(operation.operands) > 0


def _parameter(mlir: Bindings, operation: Any, label: str) -> Parameter | None:
    name = _name(operation)
    if name is None or _is_selected(operation):
        return None
    try:
        if operation.name == _ALTERNATIVES:
            return Categorical(name, tuple(_region_names(operation)))
        if not isinstance(operation.attributes["options"], mlir.ir.ArrayAttr):
            raise UsageError("its options are not a list; write options = [8, 16, 32]")
        return infer(name, [_plain(mlir, one) for one in operation.attributes["options"]])
    except UsageError as error:
        raise UsageError(f"{place_in(operation, label)}: '{name}': {error}") from None


def _region_names(operation: Any) -> list[Value]:
    count = len(operation.regions)
    if _NAMES not in operation.attributes:
        return list(range(count))
    names: list[Value] = [str(one.value) for one in operation.attributes[_NAMES]]
    if len(names) != count:
        raise UsageError(f"{_NAMES} has {len(names)} names for {count} regions")
    return names


def _plain(mlir: Bindings, attribute: Any) -> Value:
    if isinstance(attribute, mlir.ir.ArrayAttr):
        return tuple(_plain(mlir, one) for one in attribute)
    value = getattr(attribute, "value", None)
    if not isinstance(value, bool | int | float | str):
        raise UsageError(f"{attribute} is not a number, a truth value or a text")
    return value


def place_in(operation: Any, label: str) -> str:
    """`schedule.mlir:6:37`."""
    at = operation.location
    return f"{label}:{at.start_line}:{at.start_col}"
