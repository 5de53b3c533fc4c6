"""Scripts written in Python, parameters in a file, and what is legal."""

import re
from pathlib import Path

import pytest

import whet
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.status import Status
from whet.store.memory import MemoryStore
from whet.targets.schedule.analysis import dependences_of
from whet.targets.schedule.frontend import ScheduleBuilder
from whet.targets.schedule.payloads import elementwise_chain, matmul, matmul_bias_relu, softmax

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
