"""What the check of a choice takes for right and for wrong; `benchmarks/choice_checks.py` asks more
often."""

import sys
import time
from pathlib import Path

import pytest

import whet
from whet.core.config import Config

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))

from choice_cases import RIGHT, WRONG  # noqa: E402
from choice_checks import verdict  # noqa: E402


@pytest.fixture(autouse=True)
def store(monkeypatch):
    monkeypatch.setenv("WHET_STORE", ":memory:")


def said_of(other, chosen, *args):
    """By the check that comes before an implementation is timed."""
    target = chosen.target(*args)
    return target.load(Config({"implementation": other}), None).check().message


@pytest.mark.medium
@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_a_right_implementation_is_not_rejected_in_training(case):
    assert {dtype: verdict(case, dtype, 0, True) for dtype in case.dtypes} == dict.fromkeys(
        case.dtypes, ""
    )


@pytest.mark.medium
@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_a_subtly_wrong_implementation_is_found_in_training(case):
    assert all(verdict(case, dtype, 0, True) for dtype in case.dtypes)


def test_gradients_are_compared_on_upstream_gradients_that_vary_along_a_row():
    """Of a softmax, nearly constant ones cancel."""
    x = torch.randn(8, 64, requires_grad=True)
    state = whet.choice({"sm": lambda x: x.softmax(-1), "b": abs}, name="sm").target(x).state
    _, [gradient] = state.run(lambda x: x.softmax(-1))
    _, [upstream] = state.run(lambda x: x * 1)
    assert upstream.std(-1).min() > 0.5
    assert gradient.abs().sum(-1).min() > 0.3
    assert torch.equal(state.run(lambda x: x * 1)[1][0], upstream), "the same for all"


def test_the_random_numbers_of_the_caller_are_not_used_up_by_the_check():
    chosen = whet.choice({"a": lambda x: x * 2, "b": lambda x: x * 2.01}, name="random")
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    assert said_of("b", chosen, torch.ones(4, requires_grad=True))
    assert torch.equal(torch.rand(4), expected)


def test_an_output_without_gradient_is_wrong_and_does_not_spoil_the_others():
    def both(x):
        return x * 2, x * 3

    def half(x):
        return x * 2, (x * 3).detach()

    x = torch.randn(4, requires_grad=True)
    chosen = whet.choice({"half": half, "also": both}, name="halves", reference=both)
    target = chosen.target(x)
    wrong, right = (
        target.load(Config({"implementation": name}), None) for name in ("half", "also")
    )
    wrong.first_call()
    right.first_call()
    assert "gradient 0" in wrong.check().message
    assert right.check().ok


@pytest.mark.medium
def test_under_autocast_float32_results_may_be_as_coarse_as_its_dtype():
    def by_torch(x, w):
        return torch.nn.functional.linear(x, w).float().softmax(-1)

    def by_hand(x, w):
        e = (x.bfloat16() @ w.bfloat16().T).exp()
        return (e / e.sum(-1, keepdim=True)).float()

    chosen = whet.choice(
        {"torch": by_torch, "by_hand": by_hand, "off": lambda x, w: by_torch(x, w * 1.2)},
        name="mixed",
    )
    torch.manual_seed(0)
    x, w = torch.randn(16, 64, requires_grad=True), torch.randn(32, 64).div(8).requires_grad_()
    assert said_of("by_hand", chosen, x, w)
    with torch.autocast("cpu", torch.bfloat16):
        assert not said_of("by_hand", chosen, x, w)
        assert said_of("off", chosen, x, w)


def test_integers_must_be_equal():
    chosen = whet.choice({"a": lambda x: x.int(), "b": lambda x: x.int() + (x > 2)}, name="whole")
    assert "1 of 4 elements" in said_of("b", chosen, torch.arange(4.0))


def test_where_an_infinity_is_expected_a_large_number_is_wrong():
    hidden = torch.tensor([0.0, -torch.inf])
    chosen = whet.choice(
        {"a": lambda x: x + hidden, "b": lambda x: x + hidden.clamp(min=-1e9)}, name="hidden"
    )
    assert "expected -inf" in said_of("b", chosen, torch.ones(2))


@pytest.mark.medium
def test_arguments_are_left_alone_where_rounding_is_tried():
    seen = []

    def add(x, out):
        seen.append(x.clone())
        out += x.softmax(-1)

    def add_wrongly(x, out):
        out += x.softmax(-1) * 1.5

    x, out = torch.randn(4, 8), torch.zeros(4, 8)
    before = x.clone()
    chosen = whet.choice({"add": add, "wrongly": add_wrongly}, name="added")
    target = chosen.target(x, out)
    loaded = target.load(Config({"implementation": "wrongly"}), None)
    assert "argument 'out'" in loaded.check().message
    target.let_go()
    assert any(not torch.equal(one, before) for one in seen), "other numbers were tried"
    assert torch.equal(x, before)
    assert not out.any()


def test_where_only_these_numbers_can_be_used_results_are_compared_by_their_mean():
    weights = torch.tensor([1.0, -1.0])

    def picky(x):
        if not torch.equal(x, torch.ones(2)):
            raise ValueError("no other numbers")
        return x * weights

    chosen = whet.choice(
        {"picky": picky, "near": lambda x: x * weights + 1e-6, "off": lambda x: x * 2}, name="picky"
    )
    assert not said_of("near", chosen, torch.ones(2))
    assert "1 of 2" not in said_of("off", chosen, torch.ones(2))
    assert said_of("off", chosen, torch.ones(2))


def test_an_implementation_that_answers_at_random_is_not_excused_by_that():
    chance = torch.Generator().manual_seed(0)

    def noisy(x):
        return x * (1 + 0.5 * torch.rand(x.shape, generator=chance)).to(x.dtype)

    chosen = whet.choice({"double": lambda x: x * 1.25, "noisy": noisy}, name="noise")
    for dtype in (torch.float32, torch.bfloat16):
        assert said_of("noisy", chosen, torch.randn(64, 64).to(dtype))


@pytest.mark.medium
def test_softmax_by_hand_is_chosen_in_training_where_it_is_faster():
    def by_torch(x):
        time.sleep(0.004)
        return x.softmax(-1)

    def by_hand(x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    chosen = whet.choice({"torch": by_torch, "by_hand": by_hand}, name="sm")
    chosen(torch.randn(16, 128, requires_grad=True))
    assert list(chosen.picks.values()) == ["by_hand"]
