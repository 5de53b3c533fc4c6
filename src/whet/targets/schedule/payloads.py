"""What a schedule is applied to: a linalg program on arrays of fixed shapes."""

from __future__ import annotations

import math
import os
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap

_AXES = re.compile(r"<([a-z]+)>")


@dataclass(frozen=True)
class Payload:
    """`text` is a module with a function `symbol`, or `name`, which takes a memref for each array
    of `shapes`, in that order, and writes the last `results` of them. `reference` computes these
    from the others: one array, or a tuple. `pattern` is the text without its sizes, the same for
    every problem; empty where there is none such. `dtypes` are those that are not float32, `given`
    are arrays to use instead of random ones, and `weights` those that belong to the program: the
    text has their shapes, and the problem is what the others have."""

    name: str
    text: str
    shapes: FrozenMap[tuple[int, ...]]
    reference: Callable[..., Any] | None = field(default=None, compare=False)
    pattern: str = ""
    dtypes: FrozenMap[str] = field(default_factory=FrozenMap)
    sizes: FrozenMap[int] = field(default_factory=FrozenMap)
    results: int = 1
    symbol: str = ""
    given: Mapping[str, Any] = field(default_factory=dict, compare=False)
    weights: frozenset[str] = frozenset()

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.shapes)[-self.results :]

    def dtype(self, name: str) -> np.dtype[Any]:
        return numpy_dtype(self.dtypes.get(name, "float32"))

    def arguments(self, seed: int = 0) -> dict[str, Any]:
        """What is given, else random inputs, and outputs full of NaN, or of the least whole number,
        so that what is never written is seen."""
        self._check_memory()
        rng = np.random.default_rng(seed)
        made: dict[str, Any] = {}
        for name, shape in self.shapes.items():
            kind = self.dtype(name)
            if name in self.given:
                made[name] = self.given[name]
            elif name in self.outputs:
                made[name] = np.full(
                    shape, np.iinfo(kind).min if kind.kind == "i" else np.nan, kind
                )
            else:
                made[name] = _random(rng, shape, kind)
        return made

    def answered(self, answer: Any) -> dict[str, Any]:
        """What a reference returned, by name and in the types of the outputs."""
        values = answer if isinstance(answer, tuple | list) else (answer,)
        if len(values) != self.results:
            raise UsageError(
                f"the reference of '{self.name}' returns {len(values)} arrays for "
                f"{self.results} results"
            )
        with np.errstate(over="ignore"):
            return {
                name: np.asarray(value).astype(self.dtype(name), copy=False)
                for name, value in zip(self.outputs, values, strict=True)
            }

    def _check_memory(self) -> None:
        needed = sum(
            math.prod(shape) * self.dtype(name).itemsize for name, shape in self.shapes.items()
        )
        if needed > (there := os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
            raise UsageError(
                f"the arrays of '{self.name}' take {needed / 2**30:,.0f} GiB, more than the "
                f"{there / 2**30:,.0f} GiB of this machine"
            )


def numpy_dtype(name: str) -> np.dtype[Any]:
    if name != "bfloat16":
        return np.dtype(name)
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise UsageError("bfloat16 arrays need ml_dtypes: pip install ml-dtypes") from None
    kind: np.dtype[Any] = np.dtype(bfloat16)
    return kind


def _random(rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype[Any]) -> Any:
    if kind.kind in "ib":
        least, most = (0, 1) if kind.kind == "b" else (-100, 100)
        return np.asarray(rng.integers(least, most, shape, endpoint=True)).astype(kind)
    return np.asarray(rng.standard_normal(shape)).astype(kind)


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


# The linalg of the payloads. `tensor<mn>` stands for m by n numbers, `$n` for that size as a
# number; `%result` is what the function writes. `whet.name` is what a schedule matches by.
_PRODUCT = """
    %zero = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<mn>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<mn>) -> tensor<mn>
    %RESULT = linalg.matmul ins(%a, %b : tensor<mk>, tensor<kn>)
      outs(%init : tensor<mn>) -> tensor<mn>
"""
_BIAS_RELU = """
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
_BATCH = """
    %zero = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<bmn>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<bmn>) -> tensor<bmn>
    %result = linalg.batch_matmul ins(%x, %y : tensor<bmk>, tensor<bkn>)
      outs(%init : tensor<bmn>) -> tensor<bmn>
"""
_SOFTMAX = """
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %lowest = arith.constant 0xFF800000 : f32
    %column = tensor.empty() : tensor<m>
    %whole = tensor.empty() : tensor<mn>
    %no_max = linalg.fill ins(%lowest : f32) outs(%column : tensor<m>) -> tensor<m>
    %no_sum = linalg.fill ins(%zero : f32) outs(%column : tensor<m>) -> tensor<m>
    %max = linalg.generic {whet.name = "max",
        indexing_maps = [#same, #column], iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<mn>) outs(%no_max : tensor<m>) {
    ^bb0(%v: f32, %so_far: f32):
      %more = arith.maxnumf %v, %so_far : f32
      linalg.yield %more : f32
    } -> tensor<m>
    %exp = linalg.generic {whet.name = "exp",
        indexing_maps = [#same, #column, #same], iterator_types = ["parallel", "parallel"]}
        ins(%x, %max : tensor<mn>, tensor<m>) outs(%whole : tensor<mn>) {
    ^bb0(%v: f32, %top: f32, %unused: f32):
      %below = arith.subf %v, %top : f32
      %power = math.exp %below : f32
      linalg.yield %power : f32
    } -> tensor<mn>
    %sum = linalg.generic {whet.name = "sum",
        indexing_maps = [#same, #column], iterator_types = ["parallel", "reduction"]}
        ins(%exp : tensor<mn>) outs(%no_sum : tensor<m>) {
    ^bb0(%v: f32, %so_far: f32):
      %more = arith.addf %v, %so_far : f32
      linalg.yield %more : f32
    } -> tensor<m>
    %result = linalg.generic {whet.name = "divide",
        indexing_maps = [#same, #column, #same], iterator_types = ["parallel", "parallel"]}
        ins(%exp, %sum : tensor<mn>, tensor<m>) outs(%whole : tensor<mn>) {
    ^bb0(%v: f32, %total: f32, %unused: f32):
      %share = arith.divf %one, %total : f32
      %scaled = arith.mulf %v, %share : f32
      linalg.yield %scaled : f32
    } -> tensor<mn>
"""
_LAYERNORM = """
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %count = arith.constant $n : f32
    %small = arith.constant 1.0e-5 : f32
    %column = tensor.empty() : tensor<m>
    %whole = tensor.empty() : tensor<mn>
    %no_sum = linalg.fill ins(%zero : f32) outs(%column : tensor<m>) -> tensor<m>
    %sum = linalg.generic {whet.name = "sum",
        indexing_maps = [#same, #column], iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<mn>) outs(%no_sum : tensor<m>) {
    ^bb0(%v: f32, %so_far: f32):
      %more = arith.addf %v, %so_far : f32
      linalg.yield %more : f32
    } -> tensor<m>
    %squares = linalg.generic {whet.name = "squares",
        indexing_maps = [#same, #column, #column], iterator_types = ["parallel", "reduction"]}
        ins(%x, %sum : tensor<mn>, tensor<m>) outs(%no_sum : tensor<m>) {
    ^bb0(%v: f32, %total: f32, %so_far: f32):
      %mean = arith.divf %total, %count : f32
      %centred = arith.subf %v, %mean : f32
      %square = arith.mulf %centred, %centred : f32
      %more = arith.addf %square, %so_far : f32
      linalg.yield %more : f32
    } -> tensor<m>
    %result = linalg.generic {whet.name = "normalize",
        indexing_maps = [#same, #column, #column, #row, #row, #same],
        iterator_types = ["parallel", "parallel"]}
        ins(%x, %sum, %squares, %gamma, %beta
          : tensor<mn>, tensor<m>, tensor<m>, tensor<n>, tensor<n>) outs(%whole : tensor<mn>) {
    ^bb0(%v: f32, %total: f32, %square: f32, %g: f32, %b: f32, %unused: f32):
      %mean = arith.divf %total, %count : f32
      %variance = arith.divf %square, %count : f32
      %safe = arith.addf %variance, %small : f32
      %root = math.sqrt %safe : f32
      %inverse = arith.divf %one, %root : f32
      %centred = arith.subf %v, %mean : f32
      %unit = arith.mulf %centred, %inverse : f32
      %scaled = arith.mulf %unit, %g : f32
      %shifted = arith.addf %scaled, %b : f32
      linalg.yield %shifted : f32
    } -> tensor<mn>
"""


def _each(name: str, maps: str, inputs: str, types: str, body: str, result: str) -> str:
    return f"""
    %{name}_to = tensor.empty() : tensor<mn>
    %{result} = linalg.generic {{whet.name = "{name}",
        indexing_maps = [{maps}, #same], iterator_types = ["parallel", "parallel"]}}
        ins({inputs} : {types}) outs(%{name}_to : tensor<mn>) {{
    {body}
      linalg.yield %w : f32
    }} -> tensor<mn>
"""


_TWO = "^bb0(%u: f32, %v: f32, %unused: f32):\n      %w = arith.{} %u, %v : f32"
_CHAIN = (
    "    %zero = arith.constant 0.0 : f32\n"
    + _each(
        "scale", "#same, #row", "%x, %scale", "tensor<mn>, tensor<n>", _TWO.format("mulf"), "scaled"
    )
    + _each(
        "shift",
        "#same, #row",
        "%scaled, %shift",
        "tensor<mn>, tensor<n>",
        _TWO.format("addf"),
        "shifted",
    )
    + _each(
        "relu",
        "#same",
        "%shifted",
        "tensor<mn>",
        "^bb0(%u: f32, %unused: f32):\n      %w = arith.maximumf %u, %zero : f32",
        "positive",
    )
    + _each(
        "add",
        "#same, #same",
        "%positive, %residual",
        "tensor<mn>, tensor<mn>",
        _TWO.format("addf"),
        "result",
    )
)

# The arrays by name with their axes, and the body.
BODIES: dict[str, tuple[dict[str, str], str]] = {
    "matmul": ({"a": "mk", "b": "kn", "c": "mn"}, _PRODUCT.replace("RESULT", "result")),
    "matmul_bias_relu": (
        {"a": "mk", "b": "kn", "bias": "n", "c": "mn"},
        _PRODUCT.replace("RESULT", "product") + _BIAS_RELU,
    ),
    "batch_matmul": ({"x": "bmk", "y": "bkn", "z": "bmn"}, _BATCH),
    "softmax": ({"x": "mn", "y": "mn"}, _SOFTMAX),
    "layernorm": ({"x": "mn", "gamma": "n", "beta": "n", "y": "mn"}, _LAYERNORM),
    "elementwise_chain": (
        {"x": "mn", "scale": "n", "shift": "n", "residual": "mn", "y": "mn"},
        _CHAIN,
    ),
}
