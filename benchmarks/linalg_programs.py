"""Programs of linalg for which nobody has written a schedule, and the same in torch.

Each is made by a function of this file without arguments; `CASES` has them by name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whet.targets.schedule import payloads
from whet.targets.schedule.payload_file import payload_file
from whet.targets.schedule.payloads import Payload


@dataclass(frozen=True)
class Case:
    """`call` computes the result in torch from the arrays by name."""

    payload: Payload
    arguments: Mapping[str, Any]
    call: Callable[[Any, Mapping[str, Any]], Any]


def case(text: str, call: Callable[[Any, Mapping[str, Any]], Any], *, scale: int = 1) -> Case:
    """Of a function on tensors. Arrays of two dimensions and more, but the first, are divided by
    the root of `scale`, so that sums of many products stay near 1."""

    def reference(**given: Any) -> Any:
        return on_tensors(call, given)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.mlir"
        path.write_text(text)
        payload = payload_file(path, reference)
    return made(payload, call, scale)


def made(payload: Payload, call: Callable[..., Any], scale: int = 1) -> Case:
    arguments = payload.arguments()
    for name, array in arguments.items():
        if array.ndim > 1 and name not in ("a0", *payload.outputs):
            array /= np.float32(scale**0.5)
    return Case(payload, arguments, call)


def on_tensors(call: Callable[[Any, Mapping[str, Any]], Any], given: Mapping[str, Any]) -> Any:
    import torch

    made = {name: torch.from_numpy(np.array(array)) for name, array in given.items()}
    return call(torch, made).contiguous().numpy()


def product(n: int) -> Case:
    payload = payloads.matmul_bias_relu(n, n, n)
    return made(payload, lambda t, a: t.relu(t.addmm(a["bias"], a["a"], a["b"])))


def batch_product() -> Case:
    return made(payloads.batch_matmul(16, 128, 128, 128), lambda t, a: t.bmm(a["x"], a["y"]))


def softmax() -> Case:
    return made(payloads.softmax(1024, 1024), lambda t, a: t.softmax(a["x"], 1))


def layernorm() -> Case:
    return made(
        payloads.layernorm(1024, 1024),
        lambda t, a: t.nn.functional.layer_norm(a["x"], (1024,), a["gamma"], a["beta"]),
    )


def filled(to: str, name: str = "init") -> str:
    return f"""
  %{name}_zero = arith.constant 0.0 : f32
  %{name}_empty = tensor.empty() : tensor<{to}xf32>
  %{name} = linalg.fill ins(%{name}_zero : f32) outs(%{name}_empty : tensor<{to}xf32>)
    -> tensor<{to}xf32>
"""


def convolution(layout: str) -> Case:
    if layout == "nhwc":
        x, k, to, name = "1x58x58x64", "3x3x64x64", "1x56x56x64", "conv_2d_nhwc_hwcf"
    else:
        x, k, to, name = "1x64x58x58", "64x64x3x3", "1x64x56x56", "conv_2d_nchw_fchw"
    text = f"""
func.func @convolution(%x: tensor<{x}xf32>, %k: tensor<{k}xf32>) -> tensor<{to}xf32> {{
{filled(to)}
  %r = linalg.{name} ins(%x, %k : tensor<{x}xf32>, tensor<{k}xf32>)
    outs(%init : tensor<{to}xf32>) -> tensor<{to}xf32>
  return %r : tensor<{to}xf32>
}}"""

    def call(t: Any, a: Mapping[str, Any]) -> Any:
        """In torch's own layout, of which these are views."""
        if layout == "nchw":
            return t.nn.functional.conv2d(a["a0"], a["a1"])
        x, k = a["a0"].permute(0, 3, 1, 2), a["a1"].permute(3, 2, 0, 1)
        return t.nn.functional.conv2d(x, k).permute(0, 2, 3, 1)

    return case(text, call, scale=576)


def each(result: str, inputs: str, types: str, maps: str, body: str, to: str) -> str:
    """An elementwise operation; `%r` is its number, and `; ` ends a step."""
    count = types.count("tensor")
    lines = body.replace("; ", "\n    ")
    numbers = ", ".join(f"%x{at}: f32" for at in range(count))
    loops = len(to.split("x"))
    parallel = ", ".join(['"parallel"'] * loops)
    return f"""
  %{result}_to = tensor.empty() : tensor<{to}xf32>
  %{result} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{parallel}]}}
      ins({inputs} : {types}) outs(%{result}_to : tensor<{to}xf32>) {{
  ^bb0({numbers}, %unused: f32):
    {lines}
    linalg.yield %r : f32
  }} -> tensor<{to}xf32>
"""


def row(result: str, source: str, operation: str, start: str, to: str, more: str) -> str:
    """A reduction of the last dimension, which has `more` numbers."""
    loops = len(to.split("x")) + 1
    axes = [f"d{at}" for at in range(loops)]
    parallel = ", ".join([*['"parallel"'] * (loops - 1), '"reduction"'])
    all_of, left = ", ".join(axes), ", ".join(axes[:-1])
    return f"""
  %{result}_start = arith.constant {start} : f32
  %{result}_empty = tensor.empty() : tensor<{to}xf32>
  %{result}_init = linalg.fill ins(%{result}_start : f32) outs(%{result}_empty : tensor<{to}xf32>)
    -> tensor<{to}xf32>
  %{result} = linalg.generic {{indexing_maps = [affine_map<({all_of}) -> ({all_of})>,
      affine_map<({all_of}) -> ({left})>], iterator_types = [{parallel}]}}
      ins({source} : tensor<{to}x{more}xf32>) outs(%{result}_init : tensor<{to}xf32>) {{
  ^bb0(%number: f32, %so_far: f32):
    %r = {operation} %number, %so_far : f32
    linalg.yield %r : f32
  }} -> tensor<{to}xf32>
"""


def attention(heads: int = 8, n: int = 512, d: int = 64) -> Case:
    q, s, m = f"{heads}x{n}x{d}", f"{heads}x{n}x{n}", f"{heads}x{n}"
    tq, ts, tm = (f"tensor<{one}xf32>" for one in (q, s, m))
    text = f"""
#q = affine_map<(b, i, j, k) -> (b, i, k)>
#k = affine_map<(b, i, j, k) -> (b, j, k)>
#s = affine_map<(b, i, j, k) -> (b, i, j)>
#all = affine_map<(b, i, j) -> (b, i, j)>
#row = affine_map<(b, i, j) -> (b, i)>
func.func @attention(%q: {tq}, %k: {tq}, %v: {tq}) -> {tq} {{
  %scale = arith.constant {d**-0.5!r} : f32
{filled(s, "no_s")}
  %s = linalg.generic {{indexing_maps = [#q, #k, #s],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}}
      ins(%q, %k : {tq}, {tq}) outs(%no_s : {ts}) {{
  ^bb0(%x: f32, %y: f32, %so_far: f32):
    %p = arith.mulf %x, %y : f32
    %t = arith.addf %so_far, %p : f32
    linalg.yield %t : f32
  }} -> {ts}
{each("scaled", "%s", ts, "#all, #all", "%r = arith.mulf %x0, %scale : f32", s)}
{row("max", "%scaled", "arith.maximumf", "0xFF800000", m, str(n))}
{
        each(
            "powers",
            "%scaled, %max",
            f"{ts}, {tm}",
            "#all, #row, #all",
            "%d = arith.subf %x0, %x1 : f32; %r = math.exp %d : f32",
            s,
        )
    }
{row("sum", "%powers", "arith.addf", "0.0", m, str(n))}
{
        each(
            "shares",
            "%powers, %sum",
            f"{ts}, {tm}",
            "#all, #row, #all",
            "%r = arith.divf %x0, %x1 : f32",
            s,
        )
    }
{filled(q, "no_r")}
  %r = linalg.batch_matmul ins(%shares, %v : {ts}, {tq}) outs(%no_r : {tq}) -> {tq}
  return %r : {tq}
}}"""

    def call(t: Any, a: Mapping[str, Any]) -> Any:
        return t.nn.functional.scaled_dot_product_attention(a["a0"], a["a1"], a["a2"])

    return case(text, call)


def mlp(n: int = 256, d: int = 512, h: int = 2048) -> Case:
    """A transformer's: layer norm, product, GELU, product, and what came in added."""
    x, t, w1, w2 = f"{n}x{d}", f"{n}x{h}", f"{d}x{h}", f"{h}x{d}"
    tx, tt, tw1, tw2 = (f"tensor<{one}xf32>" for one in (x, t, w1, w2))
    tn, td, th = (f"tensor<{one}xf32>" for one in (n, d, h))
    text = f"""
#all = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
func.func @mlp(%x: {tx}, %gamma: {td}, %beta: {td}, %w1: {tw1}, %b1: {th}, %w2: {tw2}, %b2: {td})
    -> {tx} {{
  %one = arith.constant 1.0 : f32
  %half = arith.constant 0.5 : f32
  %root = arith.constant 0.70710678 : f32
  %small = arith.constant 1.0e-5 : f32
  %count = arith.constant {float(d)} : f32
{row("sum", "%x", "arith.addf", "0.0", str(n), str(d))}
{
        each(
            "centred",
            "%x, %sum",
            f"{tx}, {tn}",
            "#all, #row, #all",
            "%m = arith.divf %x1, %count : f32; %r = arith.subf %x0, %m : f32",
            x,
        )
    }
{each("square", "%centred", tx, "#all, #all", "%r = arith.mulf %x0, %x0 : f32", x)}
{row("squares", "%square", "arith.addf", "0.0", str(n), str(d))}
{
        each(
            "normed",
            "%centred, %squares, %gamma, %beta",
            f"{tx}, {tn}, {td}, {td}",
            "#all, #row, #column, #column, #all",
            '''%m = arith.divf %x1, %count : f32
    %safe = arith.addf %m, %small : f32
    %deviation = math.sqrt %safe : f32
    %inverse = arith.divf %one, %deviation : f32
    %unit = arith.mulf %x0, %inverse : f32
    %scaled = arith.mulf %unit, %x2 : f32
    %r = arith.addf %scaled, %x3 : f32''',
            x,
        )
    }
{filled(t, "no_t")}
  %t = linalg.matmul ins(%normed, %w1 : {tx}, {tw1}) outs(%no_t : {tt}) -> {tt}
{
        each(
            "gelu",
            "%t, %b1",
            f"{tt}, {th}",
            "#all, #column, #all",
            '''%s = arith.addf %x0, %x1 : f32
    %u = arith.mulf %s, %root : f32
    %e = math.erf %u : f32
    %v = arith.addf %e, %one : f32
    %w = arith.mulf %s, %half : f32
    %r = arith.mulf %w, %v : f32''',
            t,
        )
    }
{filled(x, "no_u")}
  %u = linalg.matmul ins(%gelu, %w2 : {tt}, {tw2}) outs(%no_u : {tx}) -> {tx}
{
        each(
            "out",
            "%u, %b2, %x",
            f"{tx}, {td}, {tx}",
            "#all, #column, #all, #all",
            "%s = arith.addf %x0, %x1 : f32; %r = arith.addf %s, %x2 : f32",
            x,
        )
    }
  return %out : {tx}
}}"""

    def call(t: Any, a: Mapping[str, Any]) -> Any:
        normed = t.nn.functional.layer_norm(a["a0"], (d,), a["a1"], a["a2"])
        inner = t.nn.functional.gelu(t.addmm(a["a4"], normed, a["a3"]))
        return t.addmm(a["a6"], inner, a["a5"]) + a["a0"]

    return case(text, call, scale=d)


def chain(n: int = 1024) -> Case:
    """Seven elementwise operations."""
    x, maps = f"{n}x{n}", "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>"
    bodies = (
        "arith.mulf %x0, %half : f32",
        "arith.addf %x0, %quarter : f32",
        "math.tanh %x0 : f32",
        "math.exp %x0 : f32",
        "arith.subf %x0, %quarter : f32",
        "arith.maximumf %x0, %zero : f32",
        "arith.mulf %x0, %x0 : f32",
    )
    steps = [
        each(f"y{at + 1}", f"%y{at}", f"tensor<{x}xf32>", maps, f"%r = {body}", x)
        for at, body in enumerate(bodies)
    ]
    text = f"""
func.func @chain(%y0: tensor<{x}xf32>) -> tensor<{x}xf32> {{
  %half = arith.constant 0.5 : f32
  %quarter = arith.constant 0.25 : f32
  %zero = arith.constant 0.0 : f32
{"".join(steps)}
  return %y7 : tensor<{x}xf32>
}}"""

    def call(t: Any, a: Mapping[str, Any]) -> Any:
        return t.square(t.relu(t.exp(t.tanh(a["a0"] * 0.5 + 0.25)) - 0.25))

    return case(text, call)


CASES: dict[str, Callable[[], Case]] = {
    "matmul+bias+relu 512³": lambda: product(512),
    "matmul+bias+relu 1024³": lambda: product(1024),
    "batch matmul 16×128³": batch_product,
    "convolution 3×3 NHWC": lambda: convolution("nhwc"),
    "convolution 3×3 NCHW": lambda: convolution("nchw"),
    "softmax 1024²": softmax,
    "layernorm 1024²": layernorm,
    "attention 8×512×64": attention,
    "transformer MLP 256×512×2048": mlp,
    "chain of seven, 1024²": chain,
}
