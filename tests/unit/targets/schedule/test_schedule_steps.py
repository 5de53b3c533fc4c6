"""The IR between any two steps of a script."""

from pathlib import Path

import pytest

import whet
from whet.core.config import Config
from whet.core.errors import TuningFailedError, UsageError
from whet.store.memory import MemoryStore
from whet.targets.schedule.payloads import matmul, matmul_bias_relu
from whet.targets.schedule.target import diff_of, step_at

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install '.[mlir]'")
pytestmark = pytest.mark.medium

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
