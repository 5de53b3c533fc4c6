"""What a schedule is applied to: a linalg program on arrays of fixed shapes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap
from whet.targets.schedule.bodies import BODIES

_AXES = re.compile(r"<([a-z]+)>")


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
    sizes: FrozenMap[int] = field(default_factory=FrozenMap)

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
    return _payload("matmul", {"m": m, "n": n, "k": k}, lambda a, b, c: a @ b)


def matmul_bias_relu(m: int, n: int, k: int) -> Payload:
    """`c = max(a @ b + bias, 0)` in float32."""

    def reference(a: Any, b: Any, bias: Any, c: Any) -> Any:
        return np.maximum(a @ b + bias, 0)

    return _payload("matmul_bias_relu", {"m": m, "n": n, "k": k}, reference)


def batch_matmul(b: int, m: int, n: int, k: int) -> Payload:
    """`z[i] = x[i] @ y[i]` for each i below `b`, in float32."""
    sizes = {"b": b, "m": m, "n": n, "k": k}
    return _payload("batch_matmul", sizes, lambda x, y, z: x @ y)


def softmax(m: int, n: int) -> Payload:
    """`y = exp(x - max(x)) / sum(exp(x - max(x)))` over each of `m` rows, in float32."""

    def reference(x: Any, y: Any) -> Any:
        powers = np.exp(x - x.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    return _payload("softmax", {"m": m, "n": n}, reference)


def layernorm(m: int, n: int) -> Payload:
    """`y = (x - mean(x)) / sqrt(var(x) + 1e-5) * gamma + beta` over each of `m` rows, in
    float32."""

    def reference(x: Any, gamma: Any, beta: Any, y: Any) -> Any:
        centred = x - x.mean(axis=1, keepdims=True)
        variance = np.square(centred).mean(axis=1, keepdims=True)
        return centred / np.sqrt(variance + np.float32(1e-5)) * gamma + beta

    return _payload("layernorm", {"m": m, "n": n}, reference)


def elementwise_chain(m: int, n: int) -> Payload:
    """`y = max(x * scale + shift, 0) + residual` as four operations over `m` by `n` numbers, with
    `scale` and `shift` for each column, in float32."""

    def reference(x: Any, scale: Any, shift: Any, residual: Any, y: Any) -> Any:
        return np.maximum(x * scale + shift, 0) + residual

    return _payload("elementwise_chain", {"m": m, "n": n}, reference)


def _payload(name: str, sizes: Mapping[str, int], reference: Callable[..., Any]) -> Payload:
    for size, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{name}: {size} is {value!r}; give a positive whole number")
    arguments, body = BODIES[name]
    pattern = _module(name, arguments, body)
    text = pattern
    for axes in sorted({*_AXES.findall(pattern)}):
        text = text.replace(f"<{axes}>", f"<{'x'.join(str(sizes[axis]) for axis in axes)}xf32>")
    for size, value in sizes.items():
        text = text.replace(f"${size}", f"{float(value):e}")
    shapes = {one: tuple(sizes[axis] for axis in axes) for one, axes in arguments.items()}
    return Payload(name, text, FrozenMap(shapes), reference, pattern, sizes=FrozenMap(sizes))


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
            "#column = affine_map<(i, j) -> (i)>",
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
