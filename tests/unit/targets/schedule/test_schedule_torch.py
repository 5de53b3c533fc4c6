"""Payloads from torch modules, with torch as the reference."""

import sys

import numpy as np
import pytest

import whet
from whet.core.errors import TuningFailedError, UsageError
from whet.core.status import Status
from whet.store import MemoryStore
from whet.targets.schedule.from_torch import torch_payload

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir.fx", reason="schedules need torch-mlir: pip install '.[mlir]'")
pytestmark = pytest.mark.slow

PLAIN = """module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    transform.yield
  }
}
"""


class Mlp(torch.nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
        self.register_buffer("shift", torch.randn(4))
        self.register_buffer("unused", torch.randn(4))
        self.scale = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x):
        hidden = torch.relu(self.up(x))
        return torch.softmax(self.down(hidden) * self.scale + self.shift, -1), hidden


def integers(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def status(module, inputs, **options):
    target = whet.schedule(module, inputs, script=PLAIN, **options)
    return whet.tune(target, store=MemoryStore(), jobs=1).best.status


def test_weights_and_constants_are_arguments_and_every_result_is_compared():
    target = whet.schedule(Mlp(), torch.randn(6, 8), script=PLAIN)
    weights = ["up_weight", "up_bias", "down_weight", "down_bias", "shift", "scale"]
    assert list(target.args) == [*weights, "x", "out0", "out1"]
    assert list(target.expected) == ["out0", "out1"]
    assert "dense_resource" not in target.payload.text
    assert "i64" not in target.payload.text  # the places of the softmax's maxima
    assert set(target.workload().key) == {"x", "out0", "out1"}
    assert whet.tune(target, store=MemoryStore(), jobs=1).best.status is Status.OK
    wrong = whet.schedule(Mlp(), torch.randn(6, 8), script=PLAIN)
    wrong.expected["out1"][0, 0] += 1
    with pytest.raises(TuningFailedError, match="output 'out1': 1 of 96 elements differ"):
        whet.tune(wrong, store=MemoryStore(), jobs=1)


def test_a_workload_is_the_program_whatever_its_weights_hold():
    ids = [
        whet.schedule(module, torch.randn(6, 8), script=PLAIN).workload().id
        for module in (Mlp(0), Mlp(1), torch.nn.Linear(8, 4), torch.nn.Linear(8, 5))
    ]
    assert ids[0] == ids[1]
    assert len({*ids}) == 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_come_as_torch_has_them(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    kind = getattr(torch, dtype)
    linear = torch.nn.Linear(32, 8, dtype=kind)
    payload = torch_payload(linear, torch.randn(4, 32, dtype=kind))
    assert {payload.dtype(name).name for name in payload.shapes} == {dtype}
    assert status(linear, torch.randn(4, 32, dtype=kind)) is Status.OK


def test_int8_products_are_exact_in_int32():
    inputs = integers(32, 64), integers(64, 32)
    payload = torch_payload(torch._int_mm, inputs)
    assert [payload.dtype(name).name for name in payload.shapes] == ["int8", "int8", "int32"]
    arrays = payload.arguments()
    a, b = (arrays[name].astype(np.int64) for name in list(arrays)[:2])
    assert (payload.answered(payload.reference(**arrays))["out"] == a @ b).all()
    assert status(torch._int_mm, inputs) is Status.OK


def test_a_function_is_called_like_its_parameters_and_numbers_are_constants():
    def scaled(image, *, by=2):
        return torch.tanh(image) * by

    payload = torch_payload(scaled, (torch.randn(4, 4),))
    assert (payload.name, list(payload.shapes)) == ("scaled", ["image", "out"])
    assert list(torch_payload(lambda x, n: x * n, (torch.randn(4), 3)).shapes) == ["x", "out"]
    # A C library has a function of this name too, which the payload's must not replace.
    assert status(torch.exp, torch.randn(4, 4)) is Status.OK


def test_truth_values_are_bytes_as_arrays_have_them():
    def masked(mask, x):
        return torch.where(mask, x, 0.0), ~mask

    inputs = torch.rand(4, 12) > 0.5, torch.randn(4, 12)
    payload = torch_payload(masked, inputs)
    assert [payload.dtype(name).name for name in payload.shapes] == [
        "bool", "float32", "float32", "bool",
    ]  # fmt: skip
    assert "memref<4x12xi1>" not in payload.text
    assert status(masked, inputs) is Status.OK


def test_asserts_that_torch_does_not_make_are_dropped():
    norm = torch.nn.BatchNorm2d(3).eval()
    assert "cf.assert" not in torch_payload(norm, torch.randn(1, 3, 4, 4)).text


@pytest.mark.parametrize(
    ("module", "inputs", "message"),
    [
        (Mlp(), None, r"Mlp needs example inputs: whet\.schedule\(Mlp, \(tensor, …\)\)"),
        (3, torch.ones(2), "a payload, or a torch module or function .*; int is neither"),
        (
            torch.nn.BatchNorm2d(3),
            torch.ones(1, 3, 4, 4),
            r"changes its own running_mean as it runs; call \.eval\(\) on it first",
        ),
        (lambda x: torch.topk(x, 2), torch.ones(4), "tm_tensor.sort, which is no linalg"),
        (lambda x: x[x > 0], torch.ones(4), "lambda"),
        (lambda x: x if x.sum() > 0 else -x, torch.ones(4), "torch cannot export lambda: "),
    ],
)
def test_what_cannot_be_scheduled_is_said_in_a_sentence(module, inputs, message):
    with pytest.raises(UsageError, match=message) as raised:
        whet.schedule(module, inputs, script=PLAIN)
    assert "\n" not in str(raised.value)


def test_a_missing_torch_is_said_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"len needs torch, .*: pip install torch, and pip"):
        torch_payload(len, np.ones(3))
