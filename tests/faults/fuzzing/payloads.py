"""Payloads of linalg, valid and broken: each is refused in a sentence, or computed right.

Right is what the program computes without a schedule; that, and the same program tiled, run in a
process of their own. A seed says which payload is made.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import resource
import signal
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.core.config import Config
from whet.core.errors import ConfigFailure, UsageError
from whet.measure.bench.protocol import compare
from whet.targets.schedule.analysis import rounding_of
from whet.targets.schedule.bindings import bindings
from whet.targets.schedule.compile import ScheduleSource, compile_schedule, schedule_shim
from whet.targets.schedule.payload_file import payload_file
from whet.targets.schedule.payloads import (
    Payload,
    batch_matmul,
    elementwise_chain,
    layernorm,
    matmul_bias_relu,
    softmax,
)

LONGEST_S = 5
_LARGEST = 3 << 30
_UNFINISHED = {"reading": "crashed", "building": "killed", "running": "stopped"}
_PLAIN = """module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    STEPS
    transform.yield
  }
}
"""
_TILED = """%ops = transform.structured.match interface{LinalgOp} in %root
      : (!transform.any_op) -> !transform.any_op
    %tiles, %loops = transform.structured.tile_using_for %ops tile_sizes [3]
      : (!transform.any_op) -> (!transform.any_op, !transform.any_op)"""

_TENSORS = """#same = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (i)>
func.func @two(%a: tensor<6x8xf16>, %b: tensor<8x4xf16>, %n: tensor<6x4xi8>)
    -> (tensor<6x4xf32>, tensor<6xi32>) {
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0 : i32
  %empty = tensor.empty() : tensor<6x4xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<6x4xf32>) -> tensor<6x4xf32>
  %product = linalg.matmul ins(%a, %b : tensor<6x8xf16>, tensor<8x4xf16>)
    outs(%init : tensor<6x4xf32>) -> tensor<6x4xf32>
  %column = tensor.empty() : tensor<6xi32>
  %start = linalg.fill ins(%none : i32) outs(%column : tensor<6xi32>) -> tensor<6xi32>
  %sum = linalg.generic {indexing_maps = [#same, #column],
      iterator_types = ["parallel", "reduction"]}
      ins(%n : tensor<6x4xi8>) outs(%start : tensor<6xi32>) {
  ^bb0(%v: i8, %so_far: i32):
    %wide = arith.extsi %v : i8 to i32
    %more = arith.addi %wide, %so_far : i32
    linalg.yield %more : i32
  } -> tensor<6xi32>
  return %product, %sum : tensor<6x4xf32>, tensor<6xi32>
}
"""
_MEMREFS = """func.func @twice(%a: memref<6x8xf64>, %b: memref<6x8xf64>) {
  linalg.add ins(%a, %a : memref<6x8xf64>, memref<6x8xf64>) outs(%b : memref<6x8xf64>)
  return
}
"""
_LOOPS = """func.func @f(%a: memref<8xf32>, %b: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    %v = affine.load %a[%i] : memref<8xf32>
    affine.store %v, %b[%i] : memref<8xf32>
  }
  return
}
"""
SEEDS = (
    matmul_bias_relu(6, 8, 4).text, batch_matmul(2, 4, 6, 3).text, softmax(6, 8).text,
    layernorm(6, 8).text, elementwise_chain(6, 8).text, _TENSORS, _MEMREFS, _LOOPS,
)  # fmt: skip
HOSTILE = (
    "", "\0", "func.func", "module {}", "module { module { } }", "(" * 100_000, "[" * 5_000,
    "module {" * 3_000, "tensor<" * 4_000, "// nothing", '"\ud800"', "é" * 100,
    "func.func private @printf(!llvm.ptr)", "#m = affine_map<" + "(" * 4_000,
    '"foo.bar"() : () -> ()', "foo.bar", "func.func @f() { return }", "%0 = arith.constant 1 : i32",
    "func.func @f(%x: i32) -> i32 { return %x : i32 }", "affine_map<(i) -> (i " + "+ i " * 30_000,
    _MEMREFS.replace("6x8", "99999999x99999999"), _MEMREFS.replace("6x8", "0x8"),
    _MEMREFS.replace("6x8", "?x8"), _MEMREFS.replace("6x8xf64", "6x8xf64, strided<[16, 1]>"),
    _MEMREFS.replace("6x8xf64", "6x8xf64, 3"), _MEMREFS.replace("6x8xf64", "6x8xcomplex<f64>"),
    _MEMREFS.replace("6x8xf64", "*xf64"), _MEMREFS.replace("@twice", "@malloc"),
    _MEMREFS.replace("@twice", '@"a b\\22; system(1)"'), _MEMREFS.replace("@twice", "@main"),
    _MEMREFS + _MEMREFS.replace("twice", "other"), _MEMREFS + _MEMREFS,
    _MEMREFS.replace("  return", "  func.call @twice(%a, %b) : "
                     "(memref<6x8xf64>, memref<6x8xf64>) -> ()\n  return"),
    _MEMREFS.replace("  return", "  cf.br ^on\n^on:\n  cf.br ^on"),
    _MEMREFS.replace("  return", '  %p = "tosa.const"() {values = dense<1.0> : tensor<1xf32>} '
                     ": () -> tensor<1xf32>\n  return"),
)  # fmt: skip
_TYPES = ("f16", "bf16", "f32", "f64", "i1", "i8", "i32", "index", "f80", "tf32", "complex<f32>")
_NUMBERS = ("0", "1", "-1", "2", "3", "7", "4096", "99999999999", "9223372036854775808", "?", "0x1")
_WORDS = (
    ("arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.maximumf", "math.exp"),
    ("linalg.fill", "linalg.matmul", "linalg.generic", "linalg.copy", "linalg.unknown"),
    ("parallel", "reduction", "window"), ("tensor", "memref", "vector"),
    ("%a", "%b", "%x", "%zero", "%init", "%empty", "%result", "%nothing"),
    ("#same", "#column", "#row", "#nowhere"), ("(i, j)", "(j, i)", "(i)", "(i + j)", "(0)", "()"),
    ("ins", "outs"), ("{", "}", "(", ")", "<", ">"),
)  # fmt: skip


def made(seed: int) -> str:
    """The hostile ones first, then valid ones with up to three changes."""
    if seed < len(HOSTILE):
        return HOSTILE[seed]
    rng = random.Random(seed)
    text = rng.choice(SEEDS)
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = _broken(text, rng)
    return text


def _broken(text: str, rng: random.Random) -> str:
    choice = rng.random()
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    if choice < 0.1:
        del lines[at]
    elif choice < 0.2:
        lines.insert(at, rng.choice(lines))
    elif choice < 0.25:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif choice < 0.3:
        return text[: rng.randrange(len(text) + 1)]
    elif choice < 0.45:
        return _one(text, r"\d+", rng.choice(_NUMBERS), rng)
    elif choice < 0.6:
        kind = rng.choice(_TYPES)
        if rng.random() < 0.5:
            return re.sub(r"\bf32\b", kind, text)
        return _one(text, r"\b(?:f16|f32|f64|i8|i32)\b", kind, rng)
    else:
        words = rng.choice(_WORDS)
        return _one(text, "|".join(map(re.escape, words)), rng.choice(words), rng)
    return "\n".join(lines)


def _one(text: str, pattern: str, new: str, rng: random.Random) -> str:
    found = list(re.finditer(pattern, text))
    if not found:
        return text
    place = rng.choice(found)
    return text[: place.start()] + new + text[place.end() :]


@dataclass(frozen=True)
class Outcome:
    """`kind` is refused, unbuilt, right, wrong, crashed (in reading), killed (in compiling), or
    stopped (in running, which whet does in a process of its own)."""

    kind: str
    said: str
    seconds: float


def attempt(text: str) -> Outcome:
    """In a forked process, whose processor time counts."""
    bindings()
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if not child:
            _answer(text, Path(folder))
        _, status, used = os.wait4(child, 0)
        parts = (Path(folder) / "answer").read_text().splitlines()
    spent = used.ru_utime + used.ru_stime
    kind, said = json.loads(parts[-1])
    if kind in _UNFINISHED:
        signalled = os.WIFSIGNALED(status)
        name = signal.Signals(os.WTERMSIG(status)).name if signalled else f"exit {status >> 8}"
        return Outcome(_UNFINISHED[kind], name, spent)
    return Outcome(kind, said, spent)


def _answer(text: str, folder: Path) -> None:
    """Does not return. Writes what is being done before it is done."""
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S))
    resource.setrlimit(resource.RLIMIT_AS, (_LARGEST, _LARGEST))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(folder)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)

    def note(kind: str, said: str = "") -> None:
        with (folder / "answer").open("a") as file:
            file.write(json.dumps([kind, said]) + "\n")

    try:
        note("reading")
        Path("p.mlir").write_text(text, errors="surrogatepass")
        payload = payload_file(folder / "p.mlir")
        arguments = payload.arguments()
        note("building")
        results = []
        for name, steps in (("plain", ""), ("tiled", _TILED)):
            library = _built(payload, steps, folder / name)
            note("running")
            results.append(_run(payload, arguments, library))
            note("building")
        rounding = rounding_of(payload.text)
        near = max(1e-4, rounding)
        verdict = compare(results[1], results[0], rtol=near, atol=near)
        note("right" if verdict.ok else "wrong", verdict.message)
    except UsageError as error:
        note("refused", str(error))
    except ConfigFailure as failure:
        note("unbuilt", failure.message)
    except BaseException:
        note("crashed", traceback.format_exc())
    os._exit(0)


def _built(payload: Payload, steps: str, folder: Path) -> str:
    folder.mkdir()
    os.chdir(folder)
    shim = schedule_shim(payload.symbol, payload.shapes)
    script = _PLAIN.replace("STEPS", steps)
    built = compile_schedule(ScheduleSource(payload.text, script, "s.mlir", shim, "cc"), Config())
    (folder / "kernel.so").write_bytes(built.artifact)
    os.chdir(folder.parent)
    return str(folder / "kernel.so")


def _run(payload: Payload, arguments: dict[str, Any], library: str) -> dict[str, Any]:
    arrays = {name: array.copy() for name, array in arguments.items()}
    call = ctypes.CDLL(library).whet_call
    call(*(ctypes.c_void_p(array.ctypes.data) for array in arrays.values()))
    return {name: arrays[name] for name in payload.outputs}
