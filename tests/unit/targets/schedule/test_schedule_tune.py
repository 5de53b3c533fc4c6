"""Schedules are applied, compiled, checked against NumPy and timed."""

import pytest

import whet
from whet.core.errors import TuningFailedError
from whet.core.status import Status
from whet.store.memory import MemoryStore
from whet.targets.schedule.payloads import Payload, matmul, matmul_bias_relu

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install 'whet[mlir]'")
pytestmark = pytest.mark.slow

SCRIPT = """\
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %t = transform.tune.knob<"t"> options = [16, 8] -> !transform.param<i64>
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


def tune(target, **more):
    return whet.tune(target, store=MemoryStore(), jobs=2, **more)


@pytest.mark.parametrize(
    ("payload", "few", "structures"),
    [
        (matmul, ["tj == 32", "bk == 128"], {"k", "order", "vectorize"}),
        (matmul_bias_relu, ["tj in (16, 32)"], {"fuse", "vectorize"}),
    ],
)
def test_a_matmul_is_tuned_with_its_starting_script(payload, few, structures):
    target = whet.schedule(payload(128, 128, 128), constraints=["ti == 8", "tk == 4", *few])
    result = tune(target)
    assert len(result.trials) == 8
    for name in structures:
        assert len({trial.config[name] for trial in result.trials}) == 2
    assert all(trial.status.measured for trial in result.trials), [t.error for t in result.trials]


def test_sides_that_are_not_square_keep_their_places():
    result = tune(whet.schedule(matmul(32, 64, 16), SCRIPT))
    assert result.best.status is Status.OK


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


def test_what_is_left_scalar_is_measured_once():
    """A tile that does not divide is not vectorized, so asking for it changes nothing."""
    target = whet.schedule(
        matmul(24, 32, 32),
        constraints=[
            "ti == 16",
            "tj == 32",
            "tk == 4",
            "bk == 256",
            "k == 'whole'",
            "order == 'rows'",
        ],
    )
    trials = tune(target).trials
    assert {trial.config["vectorize"] for trial in trials} == {"yes", "no"}
    assert len({trial.facts["sha256"] for trial in trials}) == 1
    assert sum("the same binary as" in trial.error for trial in trials) == 1
