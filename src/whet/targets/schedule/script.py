"""A transform-dialect script: what it leaves open is a `Space`, and a config closes it.

`transform.tune.knob<"ti"> options = [8, 16]` is a parameter with these values.
`transform.tune.alternatives<"fuse"> {…}, {…}` is one whose values say which region is taken: by
number, or by name where the operation has `attributes {whet.names = ["fused", "apart"]}`. What the
script itself has selected stays so and is no parameter.

Where an operation takes no parameter but an attribute, it names the knobs in a dictionary:
`packed_sizes = [8, 32, 0] {whet.set = {static_packed_sizes = ["ti", "tj", 0]}}`. The module may say
which configs make sense: `attributes {whet.constraints = ["bi % ti == 0", "{m} % bi == 0"]}`, in
which `{m}` is a size of the payload. A script that leaves nothing open has one config,
`script=fixed`, to be looked at or compared.

A script that is fixed may have its parameters in a file beside it, `schedule.toml` beside
`schedule.mlir`. It stays as it is, and other tools run it with the numbers it has:

    constraints = ["ti <= tj"]

    [parameters]
    ti = [8, 16]
    tj = [16, 32]

    [[set]]
    operation = "transform.structured.tile_using_for"
    number = 1                  # the first of them in the script, which is the default
    attribute = "static_sizes"
    values = ["ti", "tj", 0]
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.core.config import Value
from whet.core.errors import SpaceError, UsageError, did_you_mean
from whet.core.space import Categorical, Parameter, Space, infer
from whet.core.toml import parse_toml
from whet.targets.schedule.bindings import Bindings, bindings, located

ENTRY = "__transform_main"
_KNOB, _ALTERNATIVES = "transform.tune.knob", "transform.tune.alternatives"
_NOTHING_OPEN = Categorical("script", ("fixed",))
_NAMES, _SET, _CONSTRAINTS = "whet.names", "whet.set", "whet.constraints"


@dataclass(frozen=True)
class ScheduleScript:
    """`label` is its file, for messages. `canonical` is the text without comments and layout."""

    text: str
    label: str
    canonical: str
    parameters: tuple[Parameter, ...]
    constraints: tuple[str, ...] = ()
    rules: tuple[SetRule, ...] = ()

    def space(
        self, constraints: Sequence[Any] = (), sizes: Mapping[str, int] | None = None
    ) -> Space:
        own = self._sized(sizes or {})
        try:
            Space(self.parameters, constraints=own)
        except SpaceError as error:
            raise UsageError(f"{self.label}: {_CONSTRAINTS}: {error}") from None
        return Space(self.parameters, constraints=[*own, *constraints])

    def _sized(self, sizes: Mapping[str, int]) -> list[str]:
        try:
            return [one.format_map(sizes) for one in self.constraints]
        except (KeyError, IndexError, ValueError) as error:
            known = f"its sizes are {', '.join(sizes)}" if sizes else "it has none"
            raise UsageError(
                f"{self.label}: {_CONSTRAINTS}: {error} is no size of the payload; {known}"
            ) from None


def read_script(text: str, label: str, beside: ParameterFile | None = None) -> ScheduleScript:
    """Raises `UsageError` with the location of what is wrong. `beside` is the parameter file of a
    script that is fixed."""
    mlir = bindings()
    beside = beside or ParameterFile()
    found = {one.name: (one, "the parameter file") for one in beside.parameters}
    with mlir.context(), mlir.ir.Location.unknown():
        module = parsed(mlir, text, label)
        try:
            entry(module, label)
        except UsageError as error:
            raise UsageError(old_names(text, label) or str(error)) from None
        apply_rules(mlir, module, beside.rules, label)
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
        for operation in operations(mlir, module):
            _check_place(operation, label)
            _check_set(mlir, operation, {*found}, label)
        canonical, constraints = str(module), _constraints(mlir, module, label)
    parameters = tuple(one for one, _ in found.values()) or (_NOTHING_OPEN,)
    limits = (*constraints, *beside.constraints)
    return ScheduleScript(text, label, canonical, parameters, limits, beside.rules)


def parsed(mlir: Bindings, text: str, label: str) -> Any:
    try:
        return mlir.ir.Module.parse(mlir.adapted(text))
    except mlir.ir.MLIRError as error:
        raise UsageError(old_names(text, label) or located(error, label)) from None


def payload_module(mlir: Bindings, text: str, path: Path | None = None) -> Any:
    """Without its assertions: they keep loops from being vectorized, and nothing would be told of
    one that fails but that the process died. From the file, if there is one."""
    module = mlir.ir.Module.parseFile(str(path)) if path else mlir.ir.Module.parse(text)
    for operation in operations(mlir, module):
        if operation.name == "cf.assert":
            operation.erase()
    return module


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


def prefix(number: int) -> Callable[[Any], None]:
    """Cuts a sequence down to its first steps."""

    def cut(sequence: Any) -> None:
        for operation in reversed(list(sequence.body.operations)[number:-1]):
            operation.operation.erase()

    return cut


def apply_rules(mlir: Bindings, module: Any, rules: Sequence[SetRule], label: str) -> None:
    """Gives operations the `whet.set` that a parameter file has for them."""
    for rule in rules:
        same = [one for one in operations(mlir, module) if one.name == rule.operation]
        if not 1 <= rule.number <= len(same):
            raise UsageError(
                f"{label} has {len(same)} of {rule.operation}, so there is no number {rule.number}"
            )
        same[rule.number - 1].attributes[_SET] = mlir.ir.Attribute.parse(rule.setting)


def bind(mlir: Bindings, module: Any, config: Mapping[str, Value]) -> None:
    """Selects what the config says, in place."""
    for operation in operations(mlir, module):
        if _SET in operation.attributes:
            for one in operation.attributes[_SET]:
                _set(mlir, operation, one, config)
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


def _set(mlir: Bindings, operation: Any, named: Any, config: Mapping[str, Value]) -> None:
    """Writes an attribute again with the values of the knobs that `whet.set` names."""
    before = operation.attributes[named.name]
    if not isinstance(named.attr, mlir.ir.ArrayAttr):
        after = type(before).get(before.type, _value(named.attr, config))
    else:
        values = [_value(one, config) for one in named.attr]
        if isinstance(before, mlir.ir.ArrayAttr):
            wide = mlir.ir.IntegerType.get_signless(64)
            values = [mlir.ir.IntegerAttr.get(wide, value) for value in values]
        after = type(before).get(values)
    operation.attributes[named.name] = after


def _value(attribute: Any, config: Mapping[str, Value]) -> Any:
    value = attribute.value
    return config[value] if isinstance(value, str) else value


def _check_set(mlir: Bindings, operation: Any, known: Collection[str], label: str) -> None:
    if _SET not in operation.attributes:
        return
    for named in operation.attributes[_SET]:
        listed = isinstance(named.attr, mlir.ir.ArrayAttr)
        words = [one.value for one in (named.attr if listed else [named.attr])]
        unknown = [word for word in words if isinstance(word, str) and word not in known]
        problem = ""
        if named.name not in operation.attributes:
            valid = [name for name in attribute_names(operation) if not name.startswith("whet.")]
            problem = f"there is no attribute '{named.name}'{did_you_mean(named.name, valid)}"
        elif unknown:
            problem = f"no knob is called '{unknown[0]}'{did_you_mean(unknown[0], known)}"
        if problem:
            raise UsageError(f"{place_in(operation, label)}: {_SET}: {problem}")


def _check_place(operation: Any, label: str) -> None:
    """Refuses what is no step where a step is expected: MLIR would crash on it."""
    name = operation.name
    for holder in ("transform.apply_patterns", "transform.apply_conversion_patterns"):
        if name.startswith(f"{holder}.") and _parent_name(operation) != holder:
            raise UsageError(
                f"{place_in(operation, label)}: {name} is no step of its own; "
                f"write it between the braces of {holder}"
            )
    if _parent_name(operation) == _ALTERNATIVES and not name.startswith("transform."):
        raise UsageError(f"{place_in(operation, label)}: {name} is no step of a schedule")


def _parent_name(operation: Any) -> str:
    above = operation.parent
    return "" if above is None else str(getattr(above, "operation", above).name)


def _constraints(mlir: Bindings, module: Any, label: str) -> tuple[str, ...]:
    attributes = module.operation.attributes
    if _CONSTRAINTS not in attributes:
        return ()
    listed = attributes[_CONSTRAINTS]
    if not isinstance(listed, mlir.ir.ArrayAttr):
        raise UsageError(f'{label}: {_CONSTRAINTS} is no list; write ["ti <= tj"]')
    return tuple(str(one.value) for one in listed)


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


def attribute_names(operation: Any) -> list[str]:
    """Some releases go through names, others through attributes with their names."""
    return [one if isinstance(one, str) else one.name for one in operation.attributes]


def place_in(operation: Any, label: str) -> str:
    """`schedule.mlir:6:37`."""
    at = operation.location
    return f"{label}:{at.start_line}:{at.start_col}"


# Names that MLIR has dropped or replaced, which articles and older scripts still use.
_SEQUENCE = (
    "transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) "
    "{ … transform.yield } in a module with attributes {transform.with_named_sequence}"
)
_ELEMENTWISE = (
    "linalg.elementwise kind=#linalg.elementwise_kind<…>, or a linalg.generic "
    "(for relu, one with arith.maximumf)"
)
_MODERN = {
    "transform.sequence": _SEQUENCE,
    "transform.with_pdl_patterns": _SEQUENCE,
    "transform.structured.tile": "transform.structured.tile_using_for",
    "transform.structured.tile_to_scf_for": "transform.structured.tile_using_for",
    "transform.structured.tile_to_forall_op": "transform.structured.tile_using_forall",
    "transform.structured.tile_to_foreach_thread_op": "transform.structured.tile_using_forall",
    "transform.structured.masked_vectorize": "transform.structured.vectorize … vector_sizes […]",
    "transform.structured.fuse_into_containing": "transform.structured.fuse_into_containing_op",
    "transform.loop.get_parent_for": 'transform.get_parent_op %x {op_name = "scf.for"}',
    "transform.vector.lower_vectors": "transform.apply_patterns { … .vector.lower_… }",
    "!pdl.operation": "!transform.any_op",
    "linalg.init_tensor": "tensor.empty() : tensor<…>",
    "linalg.elemwise_unary": _ELEMENTWISE,
    "linalg.elemwise_binary": _ELEMENTWISE,
    "tensor.pack": "linalg.pack",
    "tensor.unpack": "linalg.unpack",
    "bufferization.to_memref": "bufferization.to_buffer",
    "scf.foreach_thread": "scf.forall",
}
_OLD = re.compile(
    r"(?<![\w.])(?:"
    + "|".join(sorted(map(re.escape, _MODERN), key=len, reverse=True))
    + r")(?![\w.])"
)


def old_names(text: str, label: str) -> str:
    """`s.mlir:2:3: transform.sequence is outdated; write …`, for each that is there."""
    said: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        for found in _OLD.finditer(line.split("//")[0]):
            name, column = found.group(), found.start() + 1
            said.setdefault(
                name,
                f"{label}:{number}:{column}: {name} is outdated; write {_MODERN[name]}",
            )
    return "; ".join(said.values())


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
