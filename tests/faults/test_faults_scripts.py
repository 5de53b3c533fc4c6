"""Scripts with random mistakes are refused where they are wrong, or compute the right thing."""

import random

import pytest
from faults_scripts import fate, mutate_script

import whet
from whet.targets.schedule.payloads import layernorm, matmul, matmul_bias_relu, softmax

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install '.[mlir]'")
pytestmark = [pytest.mark.medium, pytest.mark.timeout(600)]

HANDFUL = 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "payload",
    [matmul(32, 32, 16), matmul_bias_relu(32, 32, 16), softmax(16, 64), layernorm(16, 64)],
    ids=lambda payload: payload.name,
)
def test_every_mutant_is_refused_with_its_place_or_right(payload):
    text = whet.schedule(payload).script.text
    rng = random.Random(7)
    fates = {one: fate(payload, one) for one in (mutate_script(text, rng) for _ in range(HANDFUL))}
    assert {*fates.values()} <= {"refused", "right"}, [
        (one, said) for one, said in fates.items() if said not in ("refused", "right")
    ]


@pytest.mark.slow
def test_a_script_without_a_mistake_is_right():
    payload = matmul(32, 32, 16)
    assert fate(payload, whet.schedule(payload).script.text) == "right"
