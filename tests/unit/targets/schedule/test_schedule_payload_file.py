"""Payloads from a file."""

import re

import pytest

import whet
from whet.core.errors import UsageError
from whet.core.status import Status
from whet.store.memory import MemoryStore
from whet.targets.schedule.payload_file import payload_file

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install '.[mlir]'")
pytestmark = pytest.mark.medium

TENSORS = """\
func.func @product(%a: tensor<8x16xf64>, %b: tensor<16x4xf64>) -> tensor<8x4xf64> {
  %zero = arith.constant 0.0 : f64
  %empty = tensor.empty() : tensor<8x4xf64>
  %init = linalg.fill ins(%zero : f64) outs(%empty : tensor<8x4xf64>) -> tensor<8x4xf64>
  %c = linalg.matmul ins(%a, %b : tensor<8x16xf64>, tensor<16x4xf64>)
    outs(%init : tensor<8x4xf64>) -> tensor<8x4xf64>
  return %c : tensor<8x4xf64>
}
"""
MEMREFS = """\
func.func @twice(%x: memref<6xf32>, %y: memref<6xf32>) {
  linalg.add ins(%x, %x : memref<6xf32>, memref<6xf32>) outs(%y : memref<6xf32>)
  return
}
"""
SCRIPT = """\
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %t = transform.tune.knob<"t"> options = [2] -> !transform.param<i64>
    %found = transform.structured.match ops{["OP"]} in %root
      : (!transform.any_op) -> !transform.any_op
    %tile, %i = transform.structured.tile_using_for %found tile_sizes [%t]
      : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
    %whole = transform.bufferization.one_shot_bufferize %root
      {bufferize_function_boundaries = true} : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""


def best(payload, script):
    return whet.tune(whet.schedule(payload, script), store=MemoryStore(), jobs=1).best


@pytest.mark.slow
def test_a_function_on_tensors_writes_its_result_into_one_array_more(tmp_path):
    path = tmp_path / "product.mlir"
    path.write_text(TENSORS)
    payload = payload_file(path, lambda a, b, c: a @ b, names=("a", "b", "c"))
    assert (payload.name, payload.dtype) == ("product", "float64")
    assert dict(payload.shapes) == {"a": (8, 16), "b": (16, 4), "c": (8, 4)}
    assert best(payload, SCRIPT.replace("OP", "linalg.matmul")).status is Status.OK


@pytest.mark.slow
def test_a_function_on_memrefs_is_taken_as_it_is(tmp_path):
    path = tmp_path / "twice.mlir"
    path.write_text(MEMREFS)
    payload = payload_file(path, lambda a0, out: 2 * a0)
    script = re.sub(r"    %whole = .*?\n.*?\n", "", SCRIPT.replace("OP", "linalg.add"))
    assert best(payload, script).status is Status.OK


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TENSORS.replace("8x16", "?x16"), "whose shape is not fixed"),
        ("func.func @f(%x: index) { return }", "'f' takes index; only tensors or memrefs"),
        (MEMREFS + MEMREFS.replace("@twice", "@other"), "has several functions; say function="),
        (
            TENSORS.replace("tensor.empty() :", "linalg.init_tensor [8, 4] :"),
            r"^p\.mlir:3:12: linalg\.init_tensor is outdated; write tensor\.empty\(\)",
        ),
    ],
)
def test_what_cannot_be_given_arrays_is_refused(tmp_path, text, message):
    (tmp_path / "p.mlir").write_text(text)
    with pytest.raises(UsageError, match=message):
        payload_file(tmp_path / "p.mlir")
