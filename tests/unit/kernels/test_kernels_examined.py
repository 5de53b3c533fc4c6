"""Arguments of the kernels are checked once for calls of one kind, and every other kind is seen."""

# ruff: noqa: E402 - imports follow the skip

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from whet.kernels import attention, gated_mlp, rmsnorm_rope
from whet.kernels.checks import Examined, ShapeError


class Counting:
    def __init__(self):
        self.seen = 0

    def __call__(self, *given):
        self.seen += 1
        if given[-1] == "wrong":
            raise ShapeError("wrong")
        return self.seen


@pytest.fixture
def check():
    return Counting()


@pytest.fixture
def examined(check):
    return Examined(check, 2)


def tensor(*sizes, **options):
    return torch.empty(*sizes, **options)


def test_calls_of_one_kind_are_checked_once(examined, check):
    assert [examined(tensor(4, 3), tensor(3), "a") for _ in range(3)] == [1, 1, 1]
    assert check.seen == 1


OTHERS = {
    "sizes": (tensor(4, 5), tensor(3), "a"),
    "sizes of another": (tensor(4, 3), tensor(5), "a"),
    "dtype": (tensor(4, 3, dtype=torch.float16), tensor(3), "a"),
    "strides": (tensor(3, 4).t(), tensor(3), "a"),
    "device": (tensor(4, 3), tensor(3, device="meta"), "a"),
    "a parameter": (torch.nn.Parameter(tensor(4, 3)), tensor(3), "a"),
    "none": (tensor(4, 3), None, "a"),
    "no tensor": (tensor(4, 3), [1.0], "a"),
    "a value": (tensor(4, 3), tensor(3), "b"),
    "a type": (tensor(4, 3), tensor(3), None),
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_kind_is_checked(examined, check, name):
    examined(tensor(4, 3), tensor(3), "a")
    examined(*OTHERS[name])
    assert check.seen == 2


def test_one_is_not_true(examined, check):
    examined(tensor(2), tensor(3), 1)
    examined(tensor(2), tensor(3), True)
    assert check.seen == 2


def test_what_is_wrong_is_wrong_every_time(examined, check):
    for _ in range(3):
        with pytest.raises(ShapeError):
            examined(tensor(2), tensor(3), "wrong")
    assert check.seen == 3


def test_one_tensor_given_twice_is_checked_every_time(examined, check):
    one = tensor(3)
    assert [examined(one, one, "a") for _ in range(9)] == list(range(1, 10))
    assert sum(map(len, examined._kinds.values())) == 4


def test_kinds_do_not_gather_without_end(examined, check, monkeypatch):
    monkeypatch.setattr("whet.kernels.checks.MOST_KINDS", 10)
    for size in range(30):
        examined(tensor(size), tensor(3), "a")
    assert len(examined._kinds) <= 10


@pytest.mark.parametrize("call", [1, 2, 3])
def test_kernels_refuse_after_calls_that_were_right(call):
    q = torch.rand(1, 2, 8, 16)
    x, weight, angles = torch.rand(1, 4, 2, 8), torch.rand(8), torch.rand(4, 4)
    for _ in range(call):
        attention(q, q.clone(), q.clone())
        gated_mlp(torch.rand(3, 4), torch.rand(8, 4))
        rmsnorm_rope(x, weight, angles, angles.clone())
    with pytest.raises(ShapeError, match="k is"):
        attention(q, q[:, :1], q.clone())
    with pytest.raises(ShapeError, match="activation"):
        gated_mlp(torch.rand(3, 4), torch.rand(8, 4), activation="relu")
    with pytest.raises(ShapeError, match="cos is"):
        rmsnorm_rope(x, weight, angles[:3], angles.clone())
    with pytest.raises(ShapeError, match="give a tensor"):
        rmsnorm_rope(x, 3.0, angles, angles.clone())
