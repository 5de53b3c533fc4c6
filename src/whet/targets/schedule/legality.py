"""Steps that the interpreter would let pass: each is preceded or followed by one that fails."""

from __future__ import annotations

from typing import Any

from whet.targets.schedule.bindings import Bindings
from whet.targets.schedule.script import operations

_MATCH = "transform.structured.match"
_FORALL = "transform.structured.tile_using_forall"
_COPIES = tuple(
    f'!transform.op<"{name}">' for name in ("linalg.pack", "linalg.unpack", "tensor.pad")
)
_SIZES = ("static_num_threads", "static_tile_sizes")

_REASONS = {
    "expected a Linalg op": (
        "this is no linalg operation, so whether its loops may be parallel is not known; if it "
        'packs or pads, give its handle that type: !transform.op<"linalg.pack">'
    ),
    "expected parameter to be greater than or equal to 1, got 0": "the match finds no operation",
    "expects dimension #": (
        "parallel loops over a dimension that is a reduction would race; tile it with "
        "tile_using_for"
    ),
}


def guard(mlir: Bindings, module: Any) -> None:
    """Makes a script fail where a match finds nothing, since every later step would silently do
    nothing, and where a reduction is made parallel, of which the interpreter merely warns."""
    for operation in operations(mlir, module):
        if operation.name == _MATCH:
            _guard_match(mlir, operation)
        elif operation.name == _FORALL or "use_forall" in operation.attributes:
            _guard_parallel(mlir, operation)


def reason(said: str) -> str:
    """What MLIR said, in the words of the step where one of the guards has failed."""
    for words, plain in _REASONS.items():
        if words in said:
            return said[: said.index(words)] + plain
    return said


def _guard_match(mlir: Bindings, operation: Any) -> None:
    ir, transform = mlir.ir, mlir.transform
    number, one = ir.Type.parse("!transform.param<i64>"), ir.Attribute.parse("1 : i64")
    with ir.InsertionPoint.after(operation), operation.location:
        count = transform.NumAssociationsOp(number, operation.results[0])
        least = transform.ParamConstantOp(number, one)
        at_least = transform.MatchCmpIPredicate.ge
        transform.MatchParamCmpIOp(count.result, least.result, at_least)


def _guard_parallel(mlir: Bindings, operation: Any) -> None:
    """A size that the script computes counts as one that is not 0. What is known not to be a linalg
    operation (copies, for packing) has no reductions."""
    ir, target = mlir.ir, operation.operands[0]
    if str(target.type) in _COPIES:
        return
    lists = [list(operation.attributes[n]) for n in _SIZES if n in operation.attributes]
    axes = sorted({at for sizes in lists for at, size in enumerate(sizes) if size != 0})
    if not axes:
        return
    with ir.InsertionPoint(operation), operation.location:
        each = ir.Operation.create("transform.foreach", operands=[target], regions=1)
        block = each.regions[0].blocks.append(target.type)
        with ir.InsertionPoint(block):
            structured = ir.Operation.create(
                "transform.match.structured",
                operands=[block.arguments[0]],
                attributes={"failure_propagation_mode": ir.Attribute.parse("1 : i32")},
                regions=1,
            )
            ir.Operation.create("transform.yield")
        inner = structured.regions[0].blocks.append(target.type)
        with ir.InsertionPoint(inner):
            ir.Operation.create(
                "transform.match.structured.dim",
                operands=[inner.arguments[0]],
                attributes={
                    "raw_dim_list": ir.DenseI64ArrayAttr.get(axes),
                    "parallel": ir.UnitAttr.get(),
                },
            )
            ir.Operation.create("transform.match.structured.yield")
