"""`math.exp` in arithmetic, so that vectors of it stay vectors: the C library has it for one number
at a time."""

from __future__ import annotations

import struct
from typing import Any

from whet.targets.schedule.bindings import Bindings
from whet.targets.schedule.script import operations

# exp(x) = 2^n p(r) with n = round(x / ln 2) and r = x - n ln 2, where ln 2 is the sum of two
# numbers of which the first has few digits. The polynomial is Cephes' (expf).
_LOWEST, _HIGHEST = -104.0, 89.0  # beyond them the result is 0 or infinite
_PER_LN2 = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_POLYNOMIAL = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)


def expand_exponentials(mlir: Bindings, module: Any) -> None:
    """Those of float32, in place; others are left to the C library."""
    for operation in operations(mlir, module):
        if operation.name != "math.exp":
            continue
        value = operation.operands[0]
        kind = str(value.type)
        if kind != "f32" and not (kind.startswith("vector<") and kind.endswith("xf32>")):
            continue
        with mlir.ir.InsertionPoint(operation), operation.location:
            operation.results[0].replace_all_uses_with(_Arithmetic(mlir, value.type).exp(value))
        operation.erase()


class _Arithmetic:
    """Writes operations on values of one type."""

    def __init__(self, mlir: Bindings, kind: Any) -> None:
        self._ir, self._kind = mlir.ir, kind
        self._whole = mlir.ir.Type.parse(str(kind).replace("f32", "i32"))

    def exp(self, value: Any) -> Any:
        number = self._number
        inside = self._do("arith.maxnumf", value, number(_LOWEST))
        inside = self._do("arith.minnumf", inside, number(_HIGHEST))
        n = self._do("math.roundeven", self._do("arith.mulf", inside, number(_PER_LN2)))
        # From the value itself, so that a NaN stays one.
        bounded = self._do("arith.maximumf", value, number(_LOWEST))
        bounded = self._do("arith.minimumf", bounded, number(_HIGHEST))
        r = self._do("math.fma", n, number(-_LN2_HIGH), bounded)
        r = self._do("math.fma", n, number(-_LN2_LOW), r)
        p = number(_POLYNOMIAL[0])
        for coefficient in _POLYNOMIAL[1:]:
            p = self._do("math.fma", p, r, number(coefficient))
        p = self._do("math.fma", p, self._do("arith.mulf", r, r), r)
        p = self._do("arith.addf", p, number(1.0))
        whole = self._do("arith.fptosi", n, to=self._whole)
        # In two factors, each of them a normal number.
        half = self._do("arith.shrsi", whole, self._integer(1), to=self._whole)
        rest = self._do("arith.subi", whole, half, to=self._whole)
        return self._do(
            "arith.mulf", self._do("arith.mulf", p, self._two_to(half)), self._two_to(rest)
        )

    def _two_to(self, exponent: Any) -> Any:
        biased = self._do("arith.addi", exponent, self._integer(127), to=self._whole)
        bits = self._do("arith.shli", biased, self._integer(23), to=self._whole)
        return self._do("arith.bitcast", bits)

    def _do(self, name: str, *operands: Any, to: Any = None) -> Any:
        results = [self._kind if to is None else to]
        return self._ir.Operation.create(name, results=results, operands=list(operands)).result

    def _number(self, value: float) -> Any:
        rounded = struct.unpack("f", struct.pack("f", value))[0]
        return self._constant(f"{rounded!r}", self._kind)

    def _integer(self, value: int) -> Any:
        return self._constant(str(value), self._whole)

    def _constant(self, text: str, kind: Any) -> Any:
        text = text if str(kind)[0] in "fi" else f"dense<{text}>"
        value = self._ir.Attribute.parse(f"{text} : {kind}")
        created = self._ir.Operation.create(
            "arith.constant", results=[kind], attributes={"value": value}
        )
        return created.result
