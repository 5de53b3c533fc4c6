"""Schedules are applied, compiled, checked against NumPy and timed."""

import re

import numpy as np
import pytest

import whet
from schedule_copies import in_copies
from whet.core.errors import TuningFailedError
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.store import MemoryStore
from whet.targets.schedule.analysis import insight
from whet.targets.schedule.bindings import bindings
from whet.targets.schedule.payloads import (
    Payload,
    batch_matmul,
    elementwise_chain,
    layernorm,
    matmul,
    matmul_bias_relu,
    softmax,
)

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install '.[mlir]'")
pytestmark = pytest.mark.medium

SCRIPT = """\
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %t = transform.tune.knob<"t"> options = [8] -> !transform.param<i64>
    %found = transform.structured.match ops{["linalg.matmul"]} in %root
      : (!transform.any_op) -> !transform.any_op
    %tile, %i = transform.structured.tile_using_for %found tile_sizes [%t]
      : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
    %whole = transform.bufferization.one_shot_bufferize %root
      {bufferize_function_boundaries = true} : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""


@pytest.fixture(autouse=True)
def _copies(request, monkeypatch):
    if request.function is not test_sides_that_are_not_square_keep_their_places:
        in_copies(monkeypatch)


def tune(target, **more):
    return whet.tune(target, store=MemoryStore(), jobs=2, **more)


PRODUCT = ["ti == 4", "tj == 16", "tk == 4", "bi == 64", "bj == 64", "bk in (128, 256)"]
ROWS = ["bi == 4", "ti == 2", "lanes == 16"]
STARTS = [
    (matmul(128, 128, 128), PRODUCT, {"pack": 3, "k": 2, "order": 2, "vectorize": 2}),
    (matmul_bias_relu(128, 128, 128), PRODUCT, {"pack": 3, "k": 2, "order": 2, "vectorize": 2}),
    (
        batch_matmul(3, 64, 64, 32),
        ["ti == 4", "tj == 16", "tk == 4", "bi == 32", "bj == 64"],
        {"order": 2, "vectorize": 2},
    ),
    (softmax(16, 64), ROWS, {"fuse": 2, "vectorize": 2}),
    (layernorm(16, 64), ROWS, {"fuse": 2, "vectorize": 2}),
    (elementwise_chain(16, 64), ROWS, {"fuse": 2, "vectorize": 2}),
]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("start", range(len(STARTS)))
def test_every_structure_of_a_starting_script_computes_the_right_thing(start, threads):
    """Not all in each case: of a product every pair of choices in a case and every structure in
    one of the four, of the others every structure with one thread or with two."""
    payload, few, structures = STARTS[start]
    by_start, by_threads = ("==" if one % 2 else "!=" for one in (start, threads))
    if "pack" in structures:
        some = [
            f"((k == 'whole') == (order == 'rows')) {by_start} (pack == 'b')",
            f"((k == 'whole') == (vectorize == 'yes')) {by_threads} (pack == 'both')",
        ]
    else:
        first = next(iter(structures))
        some = [f"({first} == 'rows') {by_threads} (vectorize == 'yes')"]
    result = tune(whet.schedule(payload, constraints=[*few, *some], threads=threads))
    assert {name: len({t.config[name] for t in result.trials}) for name in structures} == structures
    assert all(trial.status.measured for trial in result.trials), [t.error for t in result.trials]


@pytest.mark.parametrize(
    "payload",
    [
        matmul_bias_relu(17, 33, 9),
        batch_matmul(3, 17, 33, 9),
        softmax(5, 100),
        layernorm(7, 33),
        elementwise_chain(6, 50),
    ],
    ids=lambda payload: payload.name,
)
def test_sizes_that_nothing_divides_are_computed_too(payload):
    first = whet.schedule(payload).space.first
    only = [f"{name} == {value!r}" for name, value in first.items()]
    assert tune(whet.schedule(payload, constraints=only)).best.status is Status.OK


@pytest.mark.slow
def test_sides_that_are_not_square_keep_their_places():
    """In processes that start from nothing, as for users."""
    result = tune(whet.schedule(matmul(32, 64, 16), SCRIPT))
    assert result.best.status is Status.OK


UNBUFFERED = SCRIPT.replace(
    SCRIPT[SCRIPT.index("    %whole") : SCRIPT.index("    transform.y")], ""
)


@pytest.mark.parametrize("payload", [matmul(32, 32, 32), matmul_bias_relu(32, 32, 32)])
@pytest.mark.parametrize("tiling", ["tile_using_for", "tile_using_forall"])
def test_a_script_that_only_tiles_is_enough(payload, tiling):
    script = UNBUFFERED.replace("tile_using_for", tiling)
    result = tune(whet.schedule(payload, script))
    assert {trial.status for trial in result.trials} <= {Status.OK, Status.OUTRACED}


@pytest.mark.slow
def test_a_script_that_does_nothing_is_enough():
    steps = UNBUFFERED[UNBUFFERED.index("    %t =") : UNBUFFERED.index("    transform.y")]
    result = tune(whet.schedule(softmax(16, 64), UNBUFFERED.replace(steps, "")))
    assert result.best.status is Status.OK


def test_buffers_that_are_made_after_the_script_count_in_its_insight():
    mlir = bindings()
    with mlir.context(), mlir.ir.Location.unknown():
        payload = mlir.ir.Module.parse(matmul_bias_relu(512, 512, 512).text)
        assert insight(mlir, payload).endswith("; 1.00 MiB of buffers between operations")


def test_a_pack_that_the_script_leaves_is_named_with_the_step_that_is_missing():
    script = re.sub(
        r"    %t = .*?(?=    %found)|    %tile.*?(?=    transform.y)",
        "",
        UNBUFFERED,
        flags=re.DOTALL,
    ).replace(
        "    transform.y",
        "    %packed = transform.structured.pack %found packed_sizes = [8, 8, 8]\n"
        '      : (!transform.any_op) -> !transform.op<"linalg.generic">\n    transform.y',
    )
    with pytest.raises(TuningFailedError, match=r"linalg.pack .* with transform.*lower_pack"):
        tune(whet.schedule(matmul(32, 32, 32), script))


def test_a_schedule_that_computes_something_else_is_a_wrong_result():
    right = matmul_bias_relu(16, 16, 16)
    wrong = Payload(right.name, right.text, right.shapes, lambda a, b, bias, c: a @ b + bias + 1)
    with pytest.raises(TuningFailedError, match=r"wrong_result.*256 of 256 elements differ"):
        tune(whet.schedule(wrong, SCRIPT))


def test_a_step_that_cannot_be_applied_is_named_with_its_place():
    text = (
        SCRIPT.replace("tile_sizes [%t]", "tile_sizes [%t, 8, 8, 8]")
        .replace(
            "-> (!transform.any_op, !transform.any_op)",
            "-> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op,"
            " !transform.any_op)",
        )
        .replace("%tile, %i =", "%tile, %i, %j, %k, %l =")
    )
    with pytest.raises(TuningFailedError, match=r"script:6:\d+: too many tiles provided"):
        tune(whet.schedule(matmul(16, 16, 16), text))


def test_a_match_that_finds_nothing_is_refused():
    text = SCRIPT.replace("linalg.matmul", "linalg.conv_2d")
    with pytest.raises(TuningFailedError, match=r"script:4:\d+: the match finds no operation"):
        tune(whet.schedule(matmul(16, 16, 16), text))


@pytest.mark.parametrize(
    ("sizes", "races"),
    [("[%t, 8]", False), ("[0, 0, %t]", True), ("[%t, 0, 4]", True)],
)
def test_parallel_loops_over_a_reduction_are_refused(sizes, races):
    text = SCRIPT.replace(
        "tile_using_for %found tile_sizes [%t]", f"tile_using_forall %found tile_sizes {sizes}"
    )
    target = whet.schedule(matmul(16, 16, 16), text)
    if not races:
        assert tune(target).best.status is Status.OK
        return
    with pytest.raises(TuningFailedError, match=r"script:6:\d+: parallel loops over a dimension"):
        tune(target)


def test_vectors_beyond_the_limit_are_refused_at_the_step_that_makes_them():
    text = SCRIPT.replace(
        "    %whole = ",
        """    %all = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    %vectors = transform.structured.vectorize_children_and_apply_patterns %all
      : (!transform.any_op) -> !transform.any_op
    %whole = """,
    )
    message = r"script:10:\d+: vector<\S+> has more than 4,096 elements; tile before vectorizing"
    with pytest.raises(TuningFailedError, match=message):
        tune(whet.schedule(matmul(128, 128, 128), text))


def test_exponentials_are_exact_to_rounding_and_keep_what_is_special():
    text = """\
func.func @powers(%x: memref<512xf32>, %y: memref<512xf32>) {
  linalg.exp ins(%x : memref<512xf32>) outs(%y : memref<512xf32>)
  return
}
"""
    values = np.linspace(-110, 95, 512, dtype=np.float32)
    values[:4] = [np.nan, np.inf, -np.inf, 0]
    payload = Payload("powers", text, FrozenMap({"x": (512,), "y": (512,)}), lambda x, y: np.exp(x))
    script = SCRIPT.replace("linalg.matmul", "linalg.exp")
    script = re.sub(r"    %whole = .*?\n.*?\n", "", script)
    args = {"x": values, "y": np.zeros(512, np.float32)}
    with np.errstate(over="ignore"):
        best = tune(whet.schedule(payload, script, args=args, rtol=3e-7, atol=0)).best
    assert best.status is Status.OK


@pytest.mark.slow
def test_what_is_left_scalar_is_measured_once():
    """A tile that does not divide is not vectorized, so asking for it changes nothing."""
    target = whet.schedule(
        matmul(24, 32, 32),
        constraints=[
            "ti == 16",
            "tj == 32",
            "tk == 4",
            "bi == 16",
            "bj == 32",
            "pack == 'none'",
            "k == 'whole'",
            "order == 'rows'",
        ],
    )
    trials = tune(target).trials
    assert {trial.config["vectorize"] for trial in trials} == {"yes", "no"}
    assert len({trial.facts["sha256"] for trial in trials}) == 1
    assert sum("same binary" in trial.error for trial in trials) == 1
