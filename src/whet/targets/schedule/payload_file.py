"""A payload from a module of linalg, such as a file has."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from whet.core.errors import UsageError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.targets.schedule.bindings import Bindings, bindings, located
from whet.targets.schedule.payloads import Payload
from whet.targets.schedule.script import old_names, operations, place_in

_TYPES = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "i1": "bool",
}  # fmt: skip
# What is lowered after a script, and what is already a schedule.
_DIALECTS = {
    *("affine", "arith", "bufferization", "builtin", "cf", "func", "index", "linalg", "math"),
    *("memref", "scf", "tensor", "ub", "vector"),
}
_LOOPS = ("affine.for", "affine.parallel", "scf.for", "scf.while", "scf.parallel", "scf.forall")
_FOREIGN = re.compile(
    r"operation being parsed with an unregistered dialect.*|Dialect `\w+' not found for custom op.*"
)
_UNKNOWN = "the dialect of this operation is unknown; a payload has linalg, tensor, arith and math"
# References compute in these, since sums of few bits lose what a kernel may keep.
_WIDER = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "int16": "int32"}


def payload_file(
    path: str | Path,
    reference: Callable[..., Any] | None = None,
    *,
    function: str | None = None,
    names: tuple[str, ...] = (),
    results: int = 1,
) -> Payload:
    """A function of a file, which is looked for beside the calling one.

    It takes arrays of fixed shapes: as memrefs, of which it writes the last `results`, or as
    tensors, and returns some. `reference` computes the results from the arrays by name, the outputs
    among them, one array or a tuple; arrays of 16 bits or less come to it as float32 or int32.
    `names` are those of the arrays, `a0`, `a1`, … and `out` (`out0`, `out1`, …) without them.
    `function` may be left out where there is only one."""
    path = Path(sys._getframe(1).f_code.co_filename).parent / path
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise UsageError(f"no such payload: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path.name} cannot be read: {error}") from None
    mlir = bindings()
    with mlir.context(), mlir.ir.Location.unknown():
        try:
            module = mlir.ir.Module.parse(text)
        except mlir.ir.MLIRError as error:
            said = _FOREIGN.sub(_UNKNOWN, located(error, path.name))
            raise UsageError(old_names(text, path.name) or said) from None
        chosen = _function(module, function, path.name)
        asked = reference and partial(_widened, reference)
        return payload_of(mlir, module, chosen, path.name, asked, names=names, results=results)


def _widened(reference: Callable[..., Any], **arrays: Any) -> Any:
    wide = {n: a.astype(_WIDER.get(a.dtype.name, a.dtype), copy=False) for n, a in arrays.items()}
    return reference(**wide)


def _function(module: Any, name: str | None, label: str) -> Any:
    found = {
        one.attributes["sym_name"].value: one
        for one in module.body.operations
        if one.operation.name == "func.func" and len(one.regions[0].blocks)
    }
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name in found:
        return found[name]
    if not found:
        first = next(iter(module.body.operations), None)
        has = f"; it begins with {first.operation.name}" if first else ": it is empty"
        raise UsageError(f"{label}:1:1: there is no func.func with a body{has}")
    if name is not None:
        raise UsageError(f"{label} has no function '{name}'{did_you_mean(name, found)}")
    second = place_in(list(found.values())[1], label)
    listed = ", ".join(f"'{one}'" for one in found)
    raise UsageError(f"{second}: there are several functions; say function= ({listed})")


def payload_of(
    mlir: Bindings,
    module: Any,
    function: Any,
    label: str,
    reference: Callable[..., Any] | None = None,
    *,
    names: Sequence[str] = (),
    results: int = 1,
    given: Mapping[str, Any] | None = None,
    weights: Iterable[str] = (),
) -> Payload:
    """Of a function of a module, which is changed. `label` is what messages call it."""
    name = function.attributes["sym_name"].value
    inputs, returned = list(function.type.inputs), list(function.type.results)
    where = f"{place_in(function, label)}: '{name}'"
    described = [_array(mlir, one, f"{where} takes") for one in inputs]
    described += [_array(mlir, one, f"{where} returns") for one in returned]
    memrefs = [isinstance(one, mlir.ir.MemRefType) for one in [*inputs, *returned]]
    if not described or (any(memrefs) and (returned or not all(memrefs))):
        raise UsageError(
            f"{where} must take memrefs and write the last of them, or take tensors and return some"
        )
    results = len(returned) or results
    # A memref alone may be read and written.
    if not 1 <= results <= len(described) or (any(memrefs) and results == len(described) > 1):
        raise UsageError(f"{where} takes {len(described)} memrefs; results={results} are not among")
    _check_operations(mlir, function, label)
    last = ["out"] if results == 1 else [f"out{at}" for at in range(results)]
    chosen = names or (*(f"a{at}" for at in range(len(described) - results)), *last)
    if len(chosen) != len(described) or len({*chosen}) != len(chosen):
        raise UsageError(
            f"names={tuple(chosen)} are not {len(described)} different ones for the arrays of "
            f"'{name}'"
        )
    arrays = dict(zip(chosen, described, strict=True))
    symbol = re.sub(r"\W", "_", name, flags=re.ASCII) + "_payload"  # else it may be one of C's
    return Payload(
        name,
        _on_memrefs(mlir, module, function, symbol, label),
        FrozenMap({one: shape for one, (shape, _) in arrays.items()}),
        reference,
        dtypes=FrozenMap({one: dtype for one, (_, dtype) in arrays.items() if dtype != "float32"}),
        results=results,
        symbol=symbol,
        given=given or {},
        weights=frozenset(weights),
    )


def _array(mlir: Bindings, kind: Any, where: str) -> tuple[tuple[int, ...], str]:
    ir = mlir.ir
    if not isinstance(kind, ir.MemRefType | ir.RankedTensorType):
        raise UsageError(f"{where} {kind}; only tensors or memrefs can be given")
    if not kind.has_static_shape:
        raise UsageError(f"{where} {kind}, whose shape is not fixed; write its sizes as numbers")
    dtype = _TYPES.get(str(kind.element_type))
    if dtype is None:
        raise UsageError(f"{where} {kind}; elements can be {', '.join(_TYPES)}")
    if not math.prod(kind.shape):
        raise UsageError(f"{where} {kind}, which has no elements")
    made = ir.MemRefType if isinstance(kind, ir.MemRefType) else ir.RankedTensorType
    if kind != made.get(kind.shape, kind.element_type):
        plain = made.get(kind.shape, kind.element_type)
        raise UsageError(f"{where} {kind}; arrays are contiguous, so write {plain}")
    return tuple(kind.shape), dtype


def _check_operations(mlir: Bindings, function: Any, label: str) -> None:
    """Refuses what no schedule could change, or no later pass compile."""
    found = operations(mlir, function)
    for one in found:
        dialect = one.name.partition(".")[0]
        if dialect not in _DIALECTS:
            remedy = "; run tosa-to-linalg over it first" if dialect == "tosa" else ""
            raise UsageError(
                f"{place_in(one, label)}: {one.name} cannot be compiled here; a payload has "
                f"linalg, tensor, arith and math{remedy}"
            )
        if one.name in ("cf.br", "cf.cond_br", "cf.switch"):
            raise UsageError(
                f"{place_in(one, label)}: {one.name} jumps; a payload is one sequence of operations"
            )
    computing = [one for one in found if one.name.startswith("linalg.") and len(one.regions)]
    for one in computing:
        _check_written(one, label)
    if computing:
        return
    for one in found:
        if one.name in _LOOPS:
            raise UsageError(
                f"{place_in(one, label)}: {one.name} is a loop already, and a schedule makes the "
                "loops; write what it computes as linalg on whole arrays, such as linalg.generic"
            )
    name = function.attributes["sym_name"].value
    raise UsageError(
        f"{place_in(function, label)}: '{name}' has no linalg operation, so there is nothing to "
        "schedule"
    )


def _check_written(operation: Any, label: str) -> None:
    """Refuses what would compute with whatever the memory of a tensor.empty happens to hold."""
    for operand, inside in zip(
        operation.operands, operation.regions[0].blocks[0].arguments, strict=False
    ):
        maker = operand.owner
        if getattr(maker, "name", "") == "tensor.empty" and list(inside.uses):
            raise UsageError(
                f"{place_in(operation, label)}: {operation.name} reads a tensor.empty, which "
                "nothing has written; linalg.fill it first"
            )


def _on_memrefs(mlir: Bindings, module: Any, function: Any, symbol: str, label: str) -> str:
    """The module with the function alone, on memrefs: where it is on tensors, a second one reads
    and writes memrefs and holds the first."""
    name, place = function.attributes["sym_name"].value, place_in(function, label)
    for one in module.body.operations:
        if one.operation.name == "func.func" and one.attributes["sym_name"].value != name:
            one.attributes["sym_visibility"] = mlir.ir.StringAttr.get("private")
    mlir.pass_manager.parse("builtin.module(symbol-dce)").run(module.operation)
    for one in operations(mlir, module):
        if one.name == "func.call" and one.attributes["callee"].value == name:
            raise UsageError(f"{place_in(one, label)}: '{name}' calls itself")
    function.attributes["sym_visibility"] = mlir.ir.StringAttr.get("private")
    inputs, returned = list(map(str, function.type.inputs)), list(map(str, function.type.results))
    if returned:
        inner = f"{symbol}_on_tensors"
        function.attributes["sym_name"] = mlir.ir.StringAttr.get(inner)
        wrapper = _wrapper(symbol, inner, inputs, returned)
        declared = f"func.func private @{inner}({', '.join(inputs)}) -> ({', '.join(returned)})\n"
        other = mlir.ir.Module.parse(declared + wrapper)
        module.body.append(list(other.body.operations)[-1].detach_from_parent())
    else:
        function.attributes["sym_name"] = mlir.ir.StringAttr.get(symbol)
        del function.attributes["sym_visibility"]
    try:
        mlir.pass_manager.parse("builtin.module(inline,symbol-dce)").run(module.operation)
    except mlir.ir.MLIRError as error:
        raise UsageError(located(error, label)) from None
    left = operations(mlir, module)
    for one in left:
        if one.name in ("func.call", "func.call_indirect"):
            raise UsageError(f"{place_in(one, label)}: this calls what has no linalg: {one}")
    if not any(one.name.startswith("linalg.") for one in left):
        raise UsageError(f"{place}: no result of '{name}' comes from what it computes")
    return str(module)


def _wrapper(symbol: str, inner: str, inputs: Sequence[str], returned: Sequence[str]) -> str:
    """Truth values come as bytes, which is what arrays have: a vector of them is a vector of bits,
    in memory too."""
    given = [_with(one, "i1", "i8") for one in (*inputs, *returned)]
    memrefs = [one.replace("tensor", "memref", 1) for one in given]
    count = len(inputs)
    lines = []
    for at, one in enumerate(inputs):
        came = f"%t{at}" if one == given[at] else f"%bytes{at}"
        lines.append(
            f"{came} = bufferization.to_tensor %m{at} restrict : {memrefs[at]} to {given[at]}"
        )
        if one != given[at]:
            lines += _each(came, given[at], f"%t{at}", one, "arith.trunci")
    lines.append(
        f"{', '.join(f'%r{at}' for at in range(len(returned)))} = func.call @{inner}"
        f"({', '.join(f'%t{at}' for at in range(count))})"
        f" : ({', '.join(inputs)}) -> ({', '.join(returned)})"
    )
    for at, one in enumerate(returned):
        leaves, kind, memref = f"%r{at}", given[count + at], memrefs[count + at]
        if one != kind:
            lines += _each(leaves, one, f"%out{at}", kind, "arith.extui")
            leaves = f"%out{at}"
        lines.append(
            f"bufferization.materialize_in_destination {leaves} in restrict writable"
            f" %m{count + at} : ({kind}, {memref}) -> ()"
        )
    parameters = ", ".join(f"%m{at}: {one}" for at, one in enumerate(memrefs))
    return "\n".join([f"func.func @{symbol}({parameters}) {{", *lines, "return", "}"])


def _with(tensor: str, element: str, other: str) -> str:
    """`tensor<4x8xi1>` with i8; any other type as it is."""
    return re.sub(rf"(?<=[<x]){element}>$", f"{other}>", tensor)


def _each(value: str, kind: str, result: str, wanted: str, operation: str) -> list[str]:
    axes = ", ".join(f"d{at}" for at in range(kind.count("x")))
    same = f"affine_map<({axes}) -> ({axes})>"
    parallel = ", ".join('"parallel"' for _ in range(kind.count("x")))
    old, new = (re.split("[<x]", one)[-1].rstrip(">") for one in (kind, wanted))
    return [
        f"{result}_empty = tensor.empty() : {wanted}",
        f"{result} = linalg.generic {{indexing_maps = [{same}, {same}],"
        f" iterator_types = [{parallel}]}}"
        f" ins({value} : {kind}) outs({result}_empty : {wanted}) {{",
        f"^bb0(%v: {old}, %unused: {new}):",
        f"%w = {operation} %v : {old} to {new}",
        f"linalg.yield %w : {new}",
        f"}} -> {wanted}",
    ]
