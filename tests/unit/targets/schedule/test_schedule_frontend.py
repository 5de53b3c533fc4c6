"""Scripts written in Python, parameters and payloads in a file, what is legal, and the IR between
any two steps."""

import re
from pathlib import Path

import pytest

import whet
from whet.core.config import Config
from whet.core.errors import TuningFailedError, UsageError
from whet.core.status import Status
from whet.store import MemoryStore
from whet.targets.schedule.analysis import dependences_of, rounding_of
from whet.targets.schedule.frontend import ScheduleBuilder
from whet.targets.schedule.payload_file import payload_file
from whet.targets.schedule.payloads import elementwise_chain, matmul, matmul_bias_relu, softmax
from whet.targets.schedule.target import diff_of, step_at

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install '.[mlir]'")
pytestmark = pytest.mark.medium


def fused() -> ScheduleBuilder:
    s = ScheduleBuilder(constraints=["bi % ti == 0"])
    ti, bi, u = s.knob("ti", [8]), s.knob("bi", [32]), s.knob("u", [2])
    last, product = s.match("linalg.generic"), s.match("linalg.matmul")
    fill = s.match("linalg.fill")
    block = s.parallelize(last, [bi, 32])
    inner = s.fuse(product, into=block.loops[0])
    s.fuse(fill, into=inner.loops[0])
    tile = s.tile(inner.op, [ti, 16], interchange=[1, 0])
    (part,) = s.choose(
        "k", {"whole": lambda: tile.op, "split": lambda: s.tile(tile.op, [0, 0, 16])}
    )
    step = s.tile(part, [0, 0, 4])
    s.choose("unroll", {"yes": lambda: s.unroll(step.loops[0], u), "no": lambda: None})
    s.choose("vectorize", {"yes": s.vectorize, "no": lambda: None})
    s.bufferize()
    s.lower()
    return s


def packed() -> ScheduleBuilder:
    s = ScheduleBuilder()
    t = s.knob("t", [8, 16])
    s.tile(s.pack(s.match("linalg.matmul"), [t, 16, 0]), [1, 1])
    s.bufferize()
    return s


def padded() -> ScheduleBuilder:
    s = ScheduleBuilder()
    t = s.knob("t", [8, 16])
    s.pad(s.tile(s.match("linalg.matmul"), [t, 16, 4]).op, [8, 16, 4])
    s.vectorize()
    s.bufferize()
    s.lower()
    return s


def interchanged() -> ScheduleBuilder:
    s = ScheduleBuilder()
    t = s.knob("t", [8, 4])
    s.tile(s.interchange(s.match(name="scale"), [1, 0]), [t])
    s.bufferize()
    return s


@pytest.mark.slow
@pytest.mark.parametrize(
    ("payload", "builder", "names"),
    [
        (matmul_bias_relu(64, 64, 32), fused, {"ti", "bi", "u", "k", "unroll", "vectorize"}),
        (matmul(32, 32, 32), packed, {"t"}),
        (matmul(20, 33, 10), padded, {"t"}),
        (elementwise_chain(8, 16), interchanged, {"t"}),
    ],
    ids=["fused", "packed", "padded", "interchanged"],
)
def test_every_config_of_a_script_from_python_is_right(payload, builder, names):
    target = whet.schedule(payload, builder())
    result = whet.tune(target, store=MemoryStore(), jobs=2)
    assert {*target.space.names} == names
    assert all(trial.status.measured for trial in result.trials), [t.error for t in result.trials]


def test_a_padded_tile_that_nothing_divides_is_vectorized():
    steps = whet.schedule(matmul(20, 33, 10), padded()).steps()
    assert "vector.fma" in steps[-1].ir


def test_each_way_returns_as_much():
    s = ScheduleBuilder()
    found = s.match("linalg.matmul")
    with pytest.raises(UsageError, match=r"'k': every way has to return as many .* \(a 1, b 0\)"):
        s.choose("k", {"a": lambda: found, "b": lambda: None})


@pytest.mark.slow
def test_the_script_of_the_page_can_be_applied():
    page = (Path(__file__).parents[4] / "docs" / "schedules.md").read_text()
    [code] = [
        one for one in re.findall(r"```python\n(.*?)```", page, re.S) if "ScheduleBuilder(" in one
    ]
    made = {"whet": whet, "matmul_bias_relu": matmul_bias_relu}
    exec(code, made)
    target = made["target"]
    for k in ("whole", "blocks"):
        assert not target.steps(target.space.first.replace(k=k))[-1].problem


FIXED = """\
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %found = transform.structured.match ops{["linalg.matmul"]} in %root
      : (!transform.any_op) -> !transform.any_op
    %tile, %i, %j = transform.structured.tile_using_for %found tile_sizes [4, 4]
      : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %whole = transform.bufferization.one_shot_bufferize %root
      {bufferize_function_boundaries = true} : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""
PARAMETERS = """\
constraints = ["ti <= tj"]
[parameters]
ti = [8, 2]
tj = [2, 8]
[[set]]
operation = "transform.structured.tile_using_for"
attribute = "static_sizes"
values = ["ti", "tj"]
"""


def beside(tmp_path, parameters: str):
    (tmp_path / "fixed.mlir").write_text(FIXED)
    (tmp_path / "fixed.toml").write_text(parameters)
    return whet.schedule(matmul(16, 16, 16), tmp_path / "fixed.mlir")


@pytest.mark.slow
def test_a_fixed_script_has_its_parameters_in_a_file_beside_it(tmp_path):
    target = beside(tmp_path, PARAMETERS)
    assert {*target.space} == {Config(ti=8, tj=8), Config(ti=2, tj=2), Config(ti=2, tj=8)}
    assert "tensor<2x8xf32>" in target.steps(Config(ti=2, tj=8))[2].ir
    assert whet.tune(target, store=MemoryStore(), jobs=1).best.status is Status.OK


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            ("values", "vales"),
            r"fixed\.toml: \[\[set\]\]: unknown key 'vales'; did you mean 'values'",
        ),
        (('["ti", "tj"]', '["ti", "tk"]'), r"fixed\.mlir:5:21: whet\.set: no knob is called 'tk'"),
        (("static_sizes", "sizes"), r"fixed\.mlir:5:21: whet\.set: there is no attribute 'sizes'"),
        (("tile_using_for", "tile_using_forall"), r"has 0 of .*tile_using_forall, so there is no"),
        (("[parameters]", "[parameters"), r"^fixed\.toml: "),
    ],
)
def test_a_parameter_file_that_does_not_fit_is_refused(tmp_path, wrong, message):
    with pytest.raises(UsageError, match=message):
        beside(tmp_path, PARAMETERS.replace(*wrong))


def test_a_loop_that_adds_to_the_same_elements_is_not_to_be_parallel():
    found = {one.label: one for one in dependences_of(softmax(4, 8).text)}
    assert [one.carried for one in found["sum"].loops] == [False, True]
    assert found["divide"].parallel == (0, 1)
    assert found["divide"].producers == ("exp", "sum")
    assert [one.extent for one in found["max"].loops] == [4, 8]


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
    assert payload.name == "product"
    assert {payload.dtype(name).name for name in payload.shapes} == {"float64"}
    assert dict(payload.shapes) == {"a": (8, 16), "b": (16, 4), "c": (8, 4)}
    assert best(payload, SCRIPT.replace("OP", "linalg.matmul")).status is Status.OK


@pytest.mark.slow
def test_a_function_on_memrefs_is_taken_as_it_is(tmp_path):
    path = tmp_path / "twice.mlir"
    path.write_text(MEMREFS)
    payload = payload_file(path, lambda a0, out: 2 * a0)
    script = re.sub(r"    %whole = .*?\n.*?\n", "", SCRIPT.replace("OP", "linalg.add"))
    assert best(payload, script).status is Status.OK


MIXED = """#same = affine_map<(i, j) -> (i, j)>
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


@pytest.mark.slow
def test_arrays_of_several_types_give_several_results(tmp_path):
    path = tmp_path / "two.mlir"
    path.write_text(MIXED)
    seen = {}

    def reference(a0, a1, a2, **outs):
        seen.update({one.dtype.name: one for one in (a0, a1, a2)})
        return a0 @ a1, a2.sum(axis=1)

    payload = payload_file(path, reference)
    assert payload.outputs == ("out0", "out1")
    target = whet.schedule(payload, SCRIPT.replace("OP", "linalg.matmul"))
    assert [one.dtype.name for one in target.expected.values()] == ["float32", "int32"]
    assert {*seen} == {"float32", "int32"}  # a sum of int8 would overflow
    assert whet.tune(target, store=MemoryStore(), jobs=1).best.status is Status.OK


def test_what_sums_may_round_depends_on_their_type_and_length(tmp_path):
    eps = {"f32": 2**-23, "f16": 2**-10}
    for kind, terms in (("f32", 64), ("f32", 4096), ("f16", 64)):
        text = matmul(4, 4, terms).text.replace("f32", kind)
        fill_and_product = 1 + terms**0.5
        assert rounding_of(text) == pytest.approx(4 * eps[kind] * fill_and_product)
    whole = whet.schedule(matmul(4, 4, 64))
    assert whole.rtol == 1e-4  # as little as a C kernel's
    assert whole.atol < 1e-3
    assert whet.schedule(matmul(4, 4, 64), rtol=0.1, atol=0.2).atol == 0.2


def test_threads_are_refused_where_every_loop_adds_to_the_same(tmp_path):
    path = tmp_path / "p.mlir"
    path.write_text(
        """func.func @all(%x: memref<8xf32>, %y: memref<8xf32>, %sum: memref<f32>) {
  linalg.dot ins(%x, %y : memref<8xf32>, memref<8xf32>) outs(%sum : memref<f32>)
  return
}
"""
    )
    with pytest.raises(UsageError, match=r"every loop of linalg\.dot adds to the same elements"):
        whet.schedule(payload_file(path), "", threads=2)


UNWRITTEN = """func.func @f(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %e = tensor.empty() : tensor<4x4xf32>
  %c = linalg.matmul ins(%a, %a : tensor<4x4xf32>, tensor<4x4xf32>)
    outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %c : tensor<4x4xf32>
}
"""
AFFINE = """func.func @f(%a: memref<8xf32>, %b: memref<8xf32>) {
  LOOP
    %v = memref.load %a[%i] : memref<8xf32>
    memref.store %v, %b[%i] : memref<8xf32>
  }
  return
}
"""
SCF = AFFINE.replace(
    "LOOP",
    "%n = arith.constant 8 : index\n  %z = arith.constant 0 : index\n"
    "  %o = arith.constant 1 : index\n  scf.for %i = %z to %n step %o {",
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TENSORS.replace("8x16", "?x16"), r"p\.mlir:1:1: .* whose shape is not fixed"),
        ("func.func @f(%x: index) { return }", "'f' takes index; only tensors or memrefs"),
        (
            MEMREFS + MEMREFS.replace("@twice", "@other"),
            r"^p\.mlir:\d+:1: there are several functions; say function= \('twice', 'other'\)",
        ),
        (
            TENSORS.replace("tensor.empty() :", "linalg.init_tensor [8, 4] :"),
            r"^p\.mlir:3:12: linalg\.init_tensor is outdated; write tensor\.empty\(\)",
        ),
        (
            AFFINE.replace("LOOP", "affine.for %i = 0 to 8 {"),
            r"^p\.mlir:2:3: affine\.for is a loop already, .* such as linalg\.generic",
        ),
        (SCF, r"^p\.mlir:5:3: scf\.for is a loop already"),
        ("module { }", r"^p\.mlir:1:1: there is no func\.func with a body"),
        (
            re.sub(r"memref<\w+>", "memref<6x8xf64, strided<[16, 1]>>", MEMREFS),
            r"^p\.mlir:1:1: .* arrays are contiguous, so write memref<6x8xf64>",
        ),
        ("  foo.bar", r"^p\.mlir:1:3: the dialect of this operation is unknown"),
        ('"foo.bar"() : () -> ()', r"^p\.mlir:1:\d+: the dialect of this operation is unknown"),
        (
            "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }",
            r"^p\.mlir:1:1: 'f' has no linalg operation, so there is nothing to schedule",
        ),
        (
            UNWRITTEN.replace("outs(%e", "outs(%a").replace("return %c", "return %a"),
            r"^p\.mlir:1:1: no result of 'f' comes from what it computes",
        ),
        (
            UNWRITTEN,
            r"^p\.mlir:3:8: linalg\.matmul reads a tensor\.empty, which nothing has written",
        ),
    ],
)
def test_what_cannot_be_given_arrays_is_refused(tmp_path, text, message):
    (tmp_path / "p.mlir").write_text(text)
    with pytest.raises(UsageError, match=message):
        payload_file(tmp_path / "p.mlir")


EXAMPLES = Path(__file__).parents[4] / "examples"


def of_name(steps, name):
    return next(one for one in steps if one.operation == name)


def test_the_payload_comes_first_and_each_step_changes_what_it_says():
    steps = whet.schedule(matmul_bias_relu(64, 64, 64)).steps()
    assert [one.number for one in steps] == list(range(len(steps)))
    assert not [one.problem for one in steps if one.problem]
    assert "scf.for" not in steps[0].ir
    tiled = of_name(steps, "transform.structured.tile_using_for")
    before = steps[tiled.number - 1]
    assert any(line.startswith("+") and "scf.for" in line for line in diff_of(before, tiled))
    assert "tensor.empty" not in steps[-1].ir
    assert "vector." in steps[-1].ir


@pytest.mark.slow
def test_a_config_decides_which_alternative_is_seen():
    target = whet.schedule(matmul(64, 64, 64))
    for vectorize, seen in (("yes", True), ("no", False)):
        steps = target.steps(target.space.first.replace(vectorize=vectorize))
        assert ("vector." in steps[-1].ir) is seen


@pytest.mark.slow
def test_the_stages_of_a_gpu_pipeline_can_be_seen_where_they_cannot_run():
    target = whet.schedule(matmul_bias_relu(256, 256, 64), EXAMPLES / "schedule_gpu.mlir")
    steps = target.steps()
    assert not steps[-1].problem
    seen = [
        ("transform.structured.tile_using_forall", "scf.forall"),
        ("transform.structured.tile_using_for", "scf.for "),
        ("transform.structured.vectorize_children_and_apply_patterns", "vector.contract"),
        ("transform.bufferization.one_shot_bufferize", "memref.subview"),
        ("transform.gpu.map_forall_to_blocks", "gpu.launch"),
        ("transform.gpu.map_nested_forall_to_threads", "gpu.thread_id"),
    ]
    for name, text in seen:
        at = of_name(steps, name).number
        assert text in steps[at].ir
        assert text not in steps[at - 1].ir, name
    with pytest.raises(TuningFailedError, match=r"maps loops to a GPU, which can be shown"):
        whet.tune(target, store=MemoryStore(), jobs=1)


def test_a_step_that_fails_is_the_last_and_says_why():
    text = whet.schedule(matmul(64, 64, 64)).script.text
    target = whet.schedule(matmul(64, 64, 64), text.replace("scf.for", "scf.while"))
    *before, last = target.steps()
    assert "no operation" in last.problem
    assert last.place in last.problem
    assert last.ir == before[-1].ir


def test_there_is_no_step_or_config_outside():
    target = whet.schedule(matmul(64, 64, 64))
    with pytest.raises(UsageError, match="there is no step 99; the script has steps 0 to"):
        step_at(target.steps(), 99)
    with pytest.raises(UsageError, match=r"not in the space: .*ti"):
        target.steps(Config({**target.space.first, "ti": 3}))
