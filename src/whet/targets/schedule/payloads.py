"""What a schedule is applied to: a linalg program on arrays of fixed shapes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap


@dataclass(frozen=True)
class Payload:
    """`text` is a module with a function `name`, which takes a memref for each array of `shapes`,
    in that order, and writes the last one. `reference` computes that from the others. `pattern` is
    the text without its sizes, the same for every problem; empty where there is none such."""

    name: str
    text: str
    shapes: FrozenMap[tuple[int, ...]]
    reference: Callable[..., Any] | None = field(default=None, compare=False)
    pattern: str = ""
    dtype: str = "float32"

    @property
    def output(self) -> str:
        return list(self.shapes)[-1]

    def arguments(self, seed: int = 0) -> dict[str, Any]:
        """Random inputs, and an output full of NaN so that what is never written is seen."""
        rng = np.random.default_rng(seed)
        made = {
            name: rng.standard_normal(shape).astype(self.dtype)
            for name, shape in self.shapes.items()
        }
        made[self.output].fill(np.nan)
        return made


def matmul(m: int, n: int, k: int) -> Payload:
    """`c = a @ b` in float32."""
    return _payload("matmul", _MATMUL, {"m": m, "n": n, "k": k}, lambda a, b, c: a @ b)


def matmul_bias_relu(m: int, n: int, k: int) -> Payload:
    """`c = max(a @ b + bias, 0)` in float32."""

    def reference(a: Any, b: Any, bias: Any, c: Any) -> Any:
        return np.maximum(a @ b + bias, 0)

    return _payload("matmul_bias_relu", _MATMUL_BIAS_RELU, {"m": m, "n": n, "k": k}, reference)


_SHAPES = {
    "matmul": {"a": "mk", "b": "kn", "c": "mn"},
    "matmul_bias_relu": {"a": "mk", "b": "kn", "bias": "n", "c": "mn"},
}


def _payload(
    name: str, body: str, sizes: Mapping[str, int], reference: Callable[..., Any]
) -> Payload:
    for size, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{name}: {size} is {value!r}; give a positive whole number")
    arguments = _SHAPES[name]
    pattern = _module(name, arguments, body)
    text = pattern
    for axes in {*arguments.values()}:
        text = text.replace(f"<{axes}>", f"<{'x'.join(str(sizes[axis]) for axis in axes)}xf32>")
    shapes = {one: tuple(sizes[axis] for axis in axes) for one, axes in arguments.items()}
    return Payload(name, text, FrozenMap(shapes), reference, pattern)


def _module(name: str, arguments: Mapping[str, str], body: str) -> str:
    """Arrays come in as tensors and the result leaves into the last one: a schedule works on
    values, and bufferization finds that nothing need be copied."""
    parameters = ", ".join(f"%{one}_m: memref<{axes}>" for one, axes in arguments.items())
    *inputs, output = arguments
    tensors = [
        f"    %{one} = bufferization.to_tensor %{one}_m restrict"
        f" : memref<{arguments[one]}> to tensor<{arguments[one]}>"
        for one in inputs
    ]
    axes = arguments[output]
    return "\n".join(
        [
            "#same = affine_map<(i, j) -> (i, j)>",
            "#row = affine_map<(i, j) -> (j)>",
            "module {",
            f"  func.func @{name}({parameters}) {{",
            *tensors,
            textwrap.indent(textwrap.dedent(body).strip("\n"), "    "),
            f"    bufferization.materialize_in_destination %result in restrict writable %{output}_m"
            f" : (tensor<{axes}>, memref<{axes}>) -> ()",
            "    return",
            "  }",
            "}",
            "",
        ]
    )


_PRODUCT = """
    %zero = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<mn>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<mn>) -> tensor<mn>
    %RESULT = linalg.matmul ins(%a, %b : tensor<mk>, tensor<kn>)
      outs(%init : tensor<mn>) -> tensor<mn>
"""
_MATMUL = _PRODUCT.replace("RESULT", "result")
_MATMUL_BIAS_RELU = (
    _PRODUCT.replace("RESULT", "product")
    + """
    %other = tensor.empty() : tensor<mn>
    %result = linalg.generic
        {indexing_maps = [#same, #row, #same], iterator_types = ["parallel", "parallel"]}
        ins(%product, %bias : tensor<mn>, tensor<n>) outs(%other : tensor<mn>) {
    ^bb0(%x: f32, %y: f32, %unused: f32):
      %sum = arith.addf %x, %y : f32
      %positive = arith.maximumf %sum, %zero : f32
      linalg.yield %positive : f32
    } -> tensor<mn>
"""
)
