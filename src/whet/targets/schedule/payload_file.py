"""A payload from a file of linalg."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whet.core.errors import UsageError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.targets.schedule.bindings import Bindings, bindings, located
from whet.targets.schedule.payloads import Payload
from whet.targets.schedule.script import old_names

_TYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "i32": "int32", "i64": "int64"}


def payload_file(
    path: str | Path,
    reference: Callable[..., Any] | None = None,
    *,
    function: str | None = None,
    names: tuple[str, ...] = (),
) -> Payload:
    """A function of a file, which is looked for beside the calling one.

    It takes arrays of fixed shapes: as memrefs, of which it writes the last, or as tensors, of
    which it returns one. `reference` computes the result from the arrays by name, the output among
    them; `names` are theirs, `a0`, `a1`, … and `out` without them. `function` may be left out
    where there is only one."""
    path = Path(sys._getframe(1).f_code.co_filename).parent / path
    if not path.is_file():
        raise UsageError(f"no such payload: {path}")
    text = path.read_text()
    mlir = bindings()
    with mlir.context(), mlir.ir.Location.unknown():
        try:
            module = mlir.ir.Module.parse(text)
        except mlir.ir.MLIRError as error:
            raise UsageError(old_names(text, path.name) or located(error, path.name)) from None
        chosen = _function(module, function, path.name)
        return _read(mlir, module, chosen, names, reference, path.name)


def _function(module: Any, name: str | None, label: str) -> Any:
    found = {
        one.attributes["sym_name"].value: one
        for one in module.body.operations
        if one.operation.name == "func.func" and len(one.regions[0].blocks)
    }
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        wanted = "several functions; say function=" if name is None else f"no function '{name}'"
        raise UsageError(f"{label} has {wanted}{did_you_mean(name or '', found)}")
    return found[name]


def _read(
    mlir: Bindings,
    module: Any,
    function: Any,
    names: tuple[str, ...],
    reference: Callable[..., Any] | None,
    label: str,
) -> Payload:
    name = function.attributes["sym_name"].value
    inputs, results = list(function.type.inputs), list(function.type.results)
    arrays = [*inputs, *results]
    if not arrays or len(results) > 1:
        raise UsageError(f"{label}: '{name}' must take arrays and return at most one")
    described = [_array(mlir, one, f"{label}: '{name}'") for one in arrays]
    dtypes = {dtype for _, dtype in described}
    if len(dtypes) > 1:
        raise UsageError(f"{label}: '{name}' mixes {', '.join(sorted(dtypes))}; use one type")
    given = names or (*(f"a{at}" for at in range(len(arrays) - 1)), "out")
    if len(given) != len(arrays):
        raise UsageError(f"names= has {len(given)} names for the {len(arrays)} arrays of '{name}'")
    text = _on_memrefs(mlir, module, function, arrays) if results else str(module)
    shapes = {one: shape for one, (shape, _) in zip(given, described, strict=True)}
    [dtype] = dtypes
    return Payload(name, text, FrozenMap(shapes), reference, dtype=dtype)


def _array(mlir: Bindings, kind: Any, where: str) -> tuple[tuple[int, ...], str]:
    if not isinstance(kind, mlir.ir.MemRefType | mlir.ir.RankedTensorType):
        raise UsageError(f"{where} takes {kind}; only tensors or memrefs can be given")
    if not kind.has_static_shape:
        raise UsageError(f"{where} takes {kind}, whose shape is not fixed")
    dtype = _TYPES.get(str(kind.element_type))
    if dtype is None:
        raise UsageError(f"{where} takes {kind}; elements can be {', '.join(_TYPES)}")
    return tuple(kind.shape), dtype


def _on_memrefs(mlir: Bindings, module: Any, function: Any, arrays: list[Any]) -> str:
    """The module with a second function, which reads and writes memrefs and holds the first."""
    name = function.attributes["sym_name"].value
    inner = f"{name}_on_tensors"
    memrefs = [str(one).replace("tensor", "memref", 1) for one in arrays]
    parameters = ", ".join(f"%m{at}: {one}" for at, one in enumerate(memrefs))
    tensors = [
        f"%t{at} = bufferization.to_tensor %m{at} restrict : {memrefs[at]} to {arrays[at]}"
        for at in range(len(arrays) - 1)
    ]
    arguments = ", ".join(f"%t{at}" for at in range(len(arrays) - 1))
    types = ", ".join(str(one) for one in arrays[:-1])
    last = len(arrays) - 1
    lines = [
        f"func.func @{name}({parameters}) {{",
        *tensors,
        f"%result = func.call @{inner}({arguments}) : ({types}) -> {arrays[-1]}",
        f"bufferization.materialize_in_destination %result in restrict writable %m{last}"
        f" : ({arrays[-1]}, {memrefs[-1]}) -> ()",
        "return",
        "}",
    ]
    function.attributes["sym_name"] = mlir.ir.StringAttr.get(inner)
    function.attributes["sym_visibility"] = mlir.ir.StringAttr.get("private")
    other = mlir.ir.Module.parse("\n".join([_declared(function), *lines]))
    module.body.append(list(other.body.operations)[-1].detach_from_parent())
    mlir.pass_manager.parse("builtin.module(inline,symbol-dce)").run(module.operation)
    return str(module)


def _declared(function: Any) -> str:
    types = ", ".join(str(one) for one in function.type.inputs)
    name = function.attributes["sym_name"].value
    return f"func.func private @{name}({types}) -> {function.type.results[0]}"
