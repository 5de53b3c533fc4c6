"""The IR between any two steps of a script."""

import pytest

import whet
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.targets.schedule.payloads import matmul, matmul_bias_relu
from whet.targets.schedule.steps import diff_of, step_at

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install 'whet[mlir]'")
pytestmark = pytest.mark.slow


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


def test_a_config_decides_which_alternative_is_seen():
    target = whet.schedule(matmul(64, 64, 64))
    for vectorize, seen in (("yes", True), ("no", False)):
        steps = target.steps(target.space.first.replace(vectorize=vectorize))
        assert ("vector." in steps[-1].ir) is seen


def test_a_step_that_fails_is_the_last_and_says_why():
    text = whet.schedule(matmul(64, 64, 64)).script.text
    target = whet.schedule(matmul(64, 64, 64), text.replace("scf.for", "scf.while"))
    *before, last = target.steps()
    assert "the match finds no operation" in last.problem
    assert last.place in last.problem
    assert last.ir == before[-1].ir


def test_there_is_no_step_or_config_outside():
    target = whet.schedule(matmul(64, 64, 64))
    with pytest.raises(UsageError, match="there is no step 99; the script has steps 0 to"):
        step_at(target.steps(), 99)
    with pytest.raises(UsageError, match=r"not in the space: .*ti"):
        target.steps(Config({**target.space.first, "ti": 3}))
