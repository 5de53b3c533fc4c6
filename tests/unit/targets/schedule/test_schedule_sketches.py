"""Sketches are derived from loops and maps; what they offer compiles, and is right."""

import math
from pathlib import Path

import numpy as np
import pytest

import whet
from whet.core.errors import UsageError
from whet.targets.native.loader import NativeLoader
from whet.targets.schedule.compile import compile_schedule
from whet.targets.schedule.payload_file import payload_file
from whet.targets.schedule.payloads import (
    batch_matmul,
    elementwise_chain,
    layernorm,
    matmul,
    matmul_bias_relu,
    softmax,
)
from whet.targets.schedule.sketches import sketch

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install '.[mlir]'")
pytestmark = pytest.mark.medium

FILLED = """\
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<{to}xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<{to}xf32>) -> tensor<{to}xf32>
"""
PRODUCT = """\
func.func @f(%a: tensor<32x16xf32>, %b: tensor<16x32xf32>) -> tensor<32x32xf32> {{
{filled}
  %r = {operation} ins(%a, %b : tensor<32x16xf32>, tensor<16x32xf32>)
    outs(%init : tensor<32x32xf32>) {body} -> tensor<32x32xf32>
  return %r : tensor<32x32xf32>
}}
"""
SUM_OF_PRODUCTS = """{
  ^bb0(%x: f32, %y: f32, %so_far: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %so_far, %p : f32
    linalg.yield %s : f32
  }"""
GENERIC = (
    "linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, "
    "affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>], "
    'iterator_types = ["parallel", "parallel", "reduction"]}'
)
CONVOLUTION = """\
func.func @conv(%x: tensor<{x}xf32>, %k: tensor<{k}xf32>) -> tensor<{to}xf32> {{
{filled}
  %r = linalg.{operation} {{strides = dense<{stride}> : tensor<2xi64>}}
    ins(%x, %k : tensor<{x}xf32>, tensor<{k}xf32>) outs(%init : tensor<{to}xf32>)
    -> tensor<{to}xf32>
  return %r : tensor<{to}xf32>
}}
"""
# softmax(q k^T) v, with the rows' maxima left out: the sums of powers stay small.
ATTENTION = """\
#i = affine_map<(b, i, j, k) -> (b, i, k)>
#j = affine_map<(b, i, j, k) -> (b, j, k)>
#k = affine_map<(b, i, j, k) -> (b, k, j)>
#to = affine_map<(b, i, j, k) -> (b, i, j)>
#all = affine_map<(b, i, j) -> (b, i, j)>
#row = affine_map<(b, i, j) -> (b, i)>
func.func @attention(%q: tensor<2x32x16xf32>, %k: tensor<2x32x16xf32>, %v: tensor<2x32x16xf32>)
    -> tensor<2x32x16xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<2x32x32xf32>
  %none = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x32x32xf32>) -> tensor<2x32x32xf32>
  %s = linalg.generic {indexing_maps = [#i, #j, #to],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x32x16xf32>, tensor<2x32x16xf32>) outs(%none : tensor<2x32x32xf32>) {
  ^bb0(%x: f32, %y: f32, %so_far: f32):
    %p = arith.mulf %x, %y : f32
    %t = arith.addf %so_far, %p : f32
    linalg.yield %t : f32
  } -> tensor<2x32x32xf32>
  %e = linalg.exp ins(%s : tensor<2x32x32xf32>) outs(%empty : tensor<2x32x32xf32>)
    -> tensor<2x32x32xf32>
  %rows = tensor.empty() : tensor<2x32xf32>
  %no_sum = linalg.fill ins(%zero : f32) outs(%rows : tensor<2x32xf32>) -> tensor<2x32xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%e : tensor<2x32x32xf32>) outs(%no_sum : tensor<2x32xf32>) {
  ^bb0(%x: f32, %so_far: f32):
    %t = arith.addf %x, %so_far : f32
    linalg.yield %t : f32
  } -> tensor<2x32xf32>
  %p = linalg.generic {indexing_maps = [#all, #row, #all],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%e, %sum : tensor<2x32x32xf32>, tensor<2x32xf32>) outs(%empty : tensor<2x32x32xf32>) {
  ^bb0(%x: f32, %y: f32, %unused: f32):
    %t = arith.divf %x, %y : f32
    linalg.yield %t : f32
  } -> tensor<2x32x32xf32>
  %out = tensor.empty() : tensor<2x32x16xf32>
  %init = linalg.fill ins(%zero : f32) outs(%out : tensor<2x32x16xf32>) -> tensor<2x32x16xf32>
  %r = linalg.batch_matmul ins(%p, %v : tensor<2x32x32xf32>, tensor<2x32x16xf32>)
    outs(%init : tensor<2x32x16xf32>) -> tensor<2x32x16xf32>
  return %r : tensor<2x32x16xf32>
}
"""


def attended(a0, a1, a2, out):
    powers = np.exp(a0 @ a1.transpose(0, 2, 1))
    return powers / powers.sum(axis=-1, keepdims=True) @ a2


def convolved(layout, stride):
    def reference(a0, a1, out):
        x, k = (
            (a0, a1) if layout == "nchw" else (a0.transpose(0, 3, 1, 2), a1.transpose(3, 2, 0, 1))
        )
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
        made = np.einsum("nchwij,fcij->nfhw", windows[:, :, ::stride, ::stride], k)
        return made if layout == "nchw" else made.transpose(0, 2, 3, 1)

    return reference


def convolution(layout, stride=1):
    to = 8 // stride
    if layout == "nhwc":
        names = {"x": "1x10x10x4", "k": "3x3x4x16", "to": f"1x{to}x{to}x16"}
        return {**names, "operation": "conv_2d_nhwc_hwcf", "stride": stride}
    names = {"x": "1x4x10x10", "k": "16x4x3x3", "to": f"1x16x{to}x{to}"}
    return {**names, "operation": "conv_2d_nchw_fchw", "stride": stride}


@pytest.fixture
def given(tmp_path):
    def payload(text, reference=None):
        (tmp_path / "payload.mlir").write_text(text)
        return payload_file(tmp_path / "payload.mlir", reference)

    return payload


def product(operation, body=""):
    filled = FILLED.format(to="32x32")
    return PRODUCT.format(operation=operation, body=body, filled=filled)


def verdict(target, config, folder, monkeypatch):
    """Built, run and compared; what is wrong with it, or nothing."""
    folder.mkdir()
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        built = compile_schedule(target.source, config)
        loader = NativeLoader(target.args, target.expected, target.rtol, target.atol)
        found = loader.load(config, built.artifact).check()
    return "" if found.ok else found.message


def each_value(space):
    """Configs in which every value of every parameter occurs, as far as constraints allow."""
    wanted = {(one.name, value) for one in space.parameters for value in one.values}
    for config in space.sample(np.random.default_rng(0), 200):
        if found := {*config.items()} & wanted:
            wanted -= found
            yield config


def test_a_product_is_recognised_by_its_maps_not_its_name(given):
    named, generic = product("linalg.matmul"), product(GENERIC, SUM_OF_PRODUCTS)
    assert sketch(given(named)) == sketch(given(generic))


def test_arrays_of_other_names_and_sizes_change_no_structure(given):
    other = product(GENERIC, SUM_OF_PRODUCTS).replace("%a", "%left").replace("k", "z")
    assert sketch(given(other)) == sketch(given(product("linalg.matmul")))


@pytest.mark.parametrize(
    ("payload", "structure"),
    [
        (matmul_bias_relu(64, 64, 32), {"pack", "order"}),
        (matmul(48, 33, 7), {"order"}),  # 33 columns are packed by no tile
        (softmax(32, 64), set()),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_a_sketch_leaves_open(payload, structure):
    space = whet.schedule(payload, sketch(payload)).space
    decisions = {one.name for one in space.parameters if one.kind == "categorical"}
    assert structure <= decisions


def test_tiles_divide_blocks_and_blocks_divide_loops():
    space = whet.schedule(
        matmul_bias_relu(96, 192, 64), sketch(matmul_bias_relu(96, 192, 64))
    ).space
    for config in space.sample(np.random.default_rng(1), 100):
        assert 96 % config["bi"] == 0
        assert 192 % config["bj"] == 0
        assert config["bi"] % config["ti"] == 0
        assert config["bj"] % config["tj"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "payload",
    [
        matmul_bias_relu(32, 32, 16),
        batch_matmul(2, 16, 32, 16),
        softmax(16, 64),
        layernorm(16, 64),
        elementwise_chain(16, 64),
    ],
    ids=lambda payload: payload.name,
)
def test_every_value_of_a_sketch_is_right(payload, tmp_path, monkeypatch):
    target = whet.schedule(payload, sketch(payload))
    for number, config in enumerate(each_value(target.space)):
        assert not verdict(target, config, tmp_path / str(number), monkeypatch), config


@pytest.mark.parametrize(
    ("function", "expected"), [("tanh", np.tanh), ("erf", np.vectorize(math.erf))]
)
def test_functions_of_vectors_are_right(given, function, expected, tmp_path, monkeypatch):
    text = f"""
func.func @f(%a: tensor<64x64xf32>) -> tensor<64x64xf32> {{
  %to = tensor.empty() : tensor<64x64xf32>
  %r = linalg.{function} ins(%a : tensor<64x64xf32>) outs(%to : tensor<64x64xf32>)
    -> tensor<64x64xf32>
  return %r : tensor<64x64xf32>
}}
"""
    places = np.linspace(-9, 9, 4096, dtype=np.float32).reshape(64, 64)
    payload = given(text, lambda a0, out: expected(a0.astype(np.float64)).astype(np.float32))
    arrays = {"a0": places, "out": np.zeros_like(places)}
    target = whet.schedule(payload, args=arrays, rtol=1e-6, atol=1e-9)
    assert not verdict(target, target.space.first, tmp_path / "built", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_convolutions_are_right(given, layout, stride, tmp_path, monkeypatch):
    sizes = convolution(layout, stride)
    text = CONVOLUTION.format(filled=FILLED.format(**sizes), **sizes)
    target = whet.schedule(given(text, convolved(layout, stride)))
    for number, config in enumerate(target.space.sample(np.random.default_rng(0), 3)):
        assert not verdict(target, config, tmp_path / str(number), monkeypatch), config


@pytest.mark.slow
def test_attention_is_fused_or_apart_and_right(given, tmp_path, monkeypatch):
    target = whet.schedule(given(ATTENTION, attended))
    configs = [
        next(one for one in target.space.sample(np.random.default_rng(0), 50) if one["fuse"] == way)
        for way in ("together", "anchors")
    ]
    for number, config in enumerate(configs):
        assert not verdict(target, config, tmp_path / str(number), monkeypatch), config


def test_the_place_of_a_maximum_is_right(given, tmp_path, monkeypatch):
    text = """
func.func @f(%a: tensor<8x32xf32>) -> tensor<8xi32> {
  %lowest = arith.constant 0xFF800000 : f32
  %first = arith.constant 0 : i32
  %tops = tensor.empty() : tensor<8xf32>
  %places = tensor.empty() : tensor<8xi32>
  %top = linalg.fill ins(%lowest : f32) outs(%tops : tensor<8xf32>) -> tensor<8xf32>
  %place = linalg.fill ins(%first : i32) outs(%places : tensor<8xi32>) -> tensor<8xi32>
  %r:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
      affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<8x32xf32>) outs(%top, %place : tensor<8xf32>, tensor<8xi32>) {
  ^bb0(%x: f32, %best: f32, %at: i32):
    %j = linalg.index 1 : index
    %here = arith.index_cast %j : index to i32
    %more = arith.cmpf ogt, %x, %best : f32
    %value = arith.select %more, %x, %best : f32
    %found = arith.select %more, %here, %at : i32
    linalg.yield %value, %found : f32, i32
  } -> (tensor<8xf32>, tensor<8xi32>)
  return %r#1 : tensor<8xi32>
}
"""
    target = whet.schedule(given(text, lambda a0, out: a0.argmax(1).astype(np.int32)))
    assert not verdict(target, target.space.first, tmp_path / "built", monkeypatch)


def test_assertions_are_left_out(given, tmp_path, monkeypatch):
    text = """
func.func @f(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %to = tensor.empty() : tensor<4x8xf32>
  %r = linalg.map ins(%a : tensor<4x8xf32>) outs(%to : tensor<4x8xf32>) (%x: f32, %o: f32) {
    %positive = arith.cmpf ogt, %x, %zero : f32
    cf.assert %positive, "never of random numbers"
    %n = math.absf %x : f32
    linalg.yield %n : f32
  }
  return %r : tensor<4x8xf32>
}
"""
    target = whet.schedule(given(text, lambda a0, out: np.abs(a0)))
    assert not verdict(target, target.space.first, tmp_path / "built", monkeypatch)


def test_a_sketch_may_be_kept_and_given_back(given, tmp_path):
    payload = given(product("linalg.matmul"))
    (tmp_path / "kept.mlir").write_text(sketch(payload))
    kept = whet.schedule(payload, tmp_path / "kept.mlir")
    assert kept.space.id == whet.schedule(payload).space.id


def test_a_program_on_memrefs_is_told_what_to_do(tmp_path: Path) -> None:
    memref = "memref<8x8xf32>"
    text = f"""func.func @f(%a: {memref}, %b: {memref}, %c: {memref}) {{
      linalg.matmul ins(%a, %b : {memref}, {memref}) outs(%c : {memref})
      return
    }}"""
    (tmp_path / "f.mlir").write_text(text)
    payload = payload_file(tmp_path / "f.mlir", lambda a, b, c: a @ b + c)
    with pytest.raises(UsageError, match="works on a memref, and scripts are"):
        sketch(payload)
