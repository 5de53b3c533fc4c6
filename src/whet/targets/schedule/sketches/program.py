"""What the rules read of a payload: its linalg operations by loops and maps, never by name.

A named operation and the `linalg.generic` that says the same are one operation here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from whet.core.errors import UsageError
from whet.targets.schedule.bindings import Bindings
from whet.targets.schedule.script import operations

# A dimension of an array as a sum of loops, each with its factor; None where it is no such sum.
Index = Mapping[int, int] | None

_MAP = re.compile(r"affine_map<\(([^)]*)\) -> \((.*)\)>")
_TERM = re.compile(r"d(\d+)(?: \* (\d+))?$")
_SUMS = {("arith.mulf", "arith.addf"), ("arith.muli", "arith.addi")}
_PUT_TOGETHER = {
    f"arith.{name}"
    for name in (
        *("addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf", "addi", "muli"),
        *("maxsi", "minsi", "maxui", "minui", "andi", "ori", "xori"),
    )
}
_WIDENING = ("arith.extf", "arith.extsi", "arith.extui", "arith.sitofp")


class Kind(Enum):
    FILL = "fill"
    PRODUCT = "product"  # adds up products of two arrays: contractions and convolutions
    REDUCTION = "reduction"
    ELEMENTWISE = "elementwise"


@dataclass(frozen=True)
class Operand:
    """`maker` is the number of the operation that makes it, `result` which of its results it is."""

    shape: tuple[int, ...]
    index: tuple[Index, ...]
    maker: int | None = None
    result: int = 0

    def plain(self, at: int) -> int | None:
        """The loop that walks this dimension alone, in steps of one."""
        found = self.index[at]
        if found is None or len(found) != 1:
            return None
        [(loop, factor)] = found.items()
        return loop if factor == 1 else None

    @property
    def loops(self) -> set[int]:
        return {loop for one in self.index if one is not None for loop in one}

    @property
    def simple(self) -> bool:
        """Whether a vector can be read from it: each dimension is one loop or a fixed place."""
        return all(
            one is not None and (not one or self.plain(at) is not None)
            for at, one in enumerate(self.index)
        )


@dataclass(frozen=True)
class Operation:
    """`number` counts the operations of the normalized payload. `splits` says that a
    reduction may be put together from partial results, `shared` that something other than a linalg
    operation uses a result, such as the function's return."""

    number: int
    kind: Kind
    extents: tuple[int, ...]
    reduced: frozenset[int]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    splits: bool
    shared: bool

    @property
    def name(self) -> str:
        return f"op{self.number}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (*self.inputs, *self.outputs)

    @property
    def windows(self) -> frozenset[int]:
        """Loops of a reduction that are added to another loop: those of a convolution's filter."""
        sums = [one for each in self.operands for one in each.index if one is None or len(one) > 1]
        return frozenset(loop for one in sums if one for loop in one if loop in self.reduced)

    @property
    def inner(self) -> int | None:
        """The loop along which the result is contiguous."""
        index = self.outputs[0].index
        return self.outputs[0].plain(len(index) - 1) if index else None

    @property
    def heavy(self) -> bool:
        return self.kind is Kind.PRODUCT

    @property
    def work(self) -> int:
        return math.prod(self.extents)


def read_program(mlir: Bindings, module: Any) -> tuple[Operation, ...]:
    """The linalg operations of a module, in their order."""
    found = [one for one in operations(mlir, module) if is_linalg(one)]
    for one in found:
        if not len(one.results):
            raise UsageError(
                f"{one.name} works on a memref, and scripts are derived for tensors alone: write "
                "the program on tensors, or give whet.schedule a script"
            )
    numbers = {one: number for number, one in enumerate(found)}
    copy = mlir.ir.Module.parse(str(module))
    mlir.pass_manager.parse("builtin.module(linalg-generalize-named-ops)").run(copy.operation)
    general = [one for one in operations(mlir, copy) if is_linalg(one)]
    if len(general) != len(found) or any("indexing_maps" not in o.attributes for o in general):
        return ()
    return tuple(
        _operation(mlir, one, named, numbers) for one, named in zip(general, found, strict=True)
    )


def is_linalg(operation: Any) -> bool:
    name = operation.name
    return bool(
        name.startswith("linalg.")
        and name not in ("linalg.yield", "linalg.pack", "linalg.unpack", "linalg.softmax")
        and len(operation.regions)
    )


def _operation(mlir: Bindings, one: Any, named: Any, numbers: Mapping[Any, int]) -> Operation:
    """`one` in its general form, `named` as it is in the program."""
    maps = [_indices(str(each)) for each in one.attributes["indexing_maps"]]
    count = len(one.operands) - len(one.results)
    operands = [_operand(v, index, numbers) for v, index in zip(named.operands, maps, strict=True)]
    types = [str(each) for each in one.attributes["iterator_types"]]
    reduced = frozenset(at for at, each in enumerate(types) if "parallel" not in each)
    users = [use.owner.operation for value in named.results for use in value.uses]
    return Operation(
        number=numbers[named],
        kind=_kind(one, operands[:count], reduced),
        extents=tuple(_extent(operands, loop) for loop in range(len(types))),
        reduced=reduced,
        inputs=tuple(operands[:count]),
        outputs=tuple(operands[count:]),
        splits=_splits(one),
        shared=not all(user in numbers for user in users),
    )


def _kind(one: Any, inputs: list[Operand], reduced: frozenset[int]) -> Kind:
    block = one.regions[0].blocks[0]
    names = [each.operation.name for each in block.operations][:-1]
    if not reduced:
        reads = any(each.shape for each in inputs) or any(
            True for argument in list(block.arguments)[len(inputs) :] for _ in argument.uses
        )
        return Kind.ELEMENTWISE if names or reads else Kind.FILL
    rest = tuple(name for name in names if name not in _WIDENING)
    if rest in _SUMS and len(inputs) == 2 and inputs[0].loops != inputs[1].loops:
        return Kind.PRODUCT
    return Kind.REDUCTION


def _splits(one: Any) -> bool:
    *_, last = one.regions[0].blocks[0].operations
    made = [getattr(each.owner, "name", "") for each in last.operands]
    return len(made) == 1 and made[0] in _PUT_TOGETHER


def _operand(value: Any, index: tuple[Index, ...], numbers: Mapping[Any, int]) -> Operand:
    shape = tuple(getattr(value.type, "shape", ()))
    maker = getattr(value.owner, "operation", value.owner)
    if maker not in numbers:
        return Operand(shape, index)
    result = next(at for at, one in enumerate(maker.results) if one == value)
    return Operand(shape, index, numbers[maker], result)


def _indices(text: str) -> tuple[Index, ...]:
    """`affine_map<(d0, d1) -> (d0 * 2 + d1, 0)>` is `({0: 2, 1: 1}, {})`."""
    found = _MAP.search(text)
    if found is None or not found.group(2):
        return ()
    return tuple(_index(one.strip()) for one in found.group(2).split(","))


def _index(text: str) -> Index:
    if text.isdigit():
        return {}
    terms = [_TERM.match(one) for one in text.split(" + ")]
    if not all(terms):
        return None
    return {int(one.group(1)): int(one.group(2) or 1) for one in terms if one}


def _extent(operands: list[Operand], loop: int) -> int:
    """1 where no array is as long as the loop: then nothing is known of it."""
    for one in operands:
        for at, size in enumerate(one.shape):
            if one.plain(at) == loop:
                return size
    return 1
