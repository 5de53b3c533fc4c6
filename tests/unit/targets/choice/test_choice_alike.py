"""A tuned call asks torch whether its tensors are like earlier ones, and picks as the key does."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whet
from whet.targets.choice import keys
from whet.targets.choice.keys import CallKeys, ChoicePlan

torch = pytest.importorskip("torch")


def first(a, b, scale=1.0):
    return a


def tensor(sizes, dtype, layout, grad):
    """All with few sizes, so that many have the same number of bytes."""
    made = torch.zeros(sizes, dtype=dtype)
    if layout == "transposed":
        made = torch.zeros(sizes[::-1], dtype=dtype).t()
    elif layout == "strided":
        made = torch.zeros((sizes[0] * 2, sizes[1]), dtype=dtype)[::2]
    elif layout == "parameter":
        made = torch.nn.Parameter(made, requires_grad=False)
    return made.requires_grad_(grad and dtype.is_floating_point)


TENSORS = st.builds(
    tensor,
    st.sampled_from([(2, 2), (2, 4), (4, 2), (1, 8), (8, 1)]),
    st.sampled_from([torch.float32, torch.int32, torch.float16]),
    st.sampled_from(["plain", "transposed", "strided", "parameter"]),
    st.booleans(),
)
CALLS = st.lists(
    st.tuples(TENSORS, TENSORS, st.sampled_from([1.0, 2.0, 1, True]), st.booleans()), max_size=20
)


class Table:
    """Every key has an implementation of its own, so that a mistaken one shows."""

    def __init__(self, args):
        self.plan = ChoicePlan(CallKeys(None, None, first), args, {}, own_cost=False)
        self.own = {}

    def expected(self, args):
        key = self.plan.key(*args)
        if key not in self.own:
            self.own[key] = self.plan.table[key] = lambda: key
            self.plan.learn(self.own[key], args)
        return self.own[key]

    def quick(self, args):
        """As a choice does it: what is not found quickly is looked up and learnt."""
        try:
            return self.plan.quick(*args)
        except (KeyError, AttributeError, TypeError, RuntimeError):
            found = self.plan.known(*args)
            self.plan.learn(found, args)
            return found


@pytest.mark.slow
@settings(max_examples=150)
@given(CALLS, st.booleans())
def test_the_quick_way_finds_what_the_whole_key_finds(calls, with_scale):
    table = None
    for turn in range(2):
        for a, b, scale, grad in calls:
            args = (a, b, scale) if with_scale else (a, b)
            with torch.set_grad_enabled(grad):
                table = table or Table(args)
                expected = table.expected(args)
                assert table.quick(args) is expected, turn
                assert table.quick(args) is expected, "it is learnt by now"


def test_a_call_like_an_earlier_one_reads_no_key():
    args = torch.zeros(2, 4), torch.zeros(4)
    table = Table(args)
    table.expected(args)
    table.plan.table.clear()
    assert table.plan.quick(torch.ones(2, 4), torch.ones(4)) is table.expected(args)


def test_training_and_inference_alternate_without_reading_the_key():
    x, weight = torch.zeros(2, 4), torch.zeros(4, requires_grad=True)
    table = Table((x, weight))
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            table.expected((x, weight))
    table.plan.table.clear()
    for grad in (True, False, True):
        with torch.set_grad_enabled(grad):
            assert table.plan.quick(x, weight) is table.expected((x, weight))


def test_a_gradient_that_comes_later_is_told_apart_by_the_grad_mode():
    plain = torch.zeros(2, 4), torch.zeros(4)
    table = Table(plain)
    table.expected(plain)
    later = torch.zeros(2, 4), torch.zeros(4, requires_grad=True)
    with torch.no_grad():
        without = table.expected(later)
        assert table.quick(later) is without
    assert table.expected(later) is not without
    assert table.quick(later) is table.expected(later)


def test_one_tensor_given_twice():
    x = torch.zeros(2, 2)
    table = Table((x, x))
    expected = table.expected((x, x))
    assert table.quick((x, x)) is expected
    assert table.plan.quick(x, x) is expected


def test_autocast_changes_nothing_but_what_torch_compares():
    args = torch.zeros(2, 2), torch.zeros(2, 2)
    table = Table(args)
    expected = table.expected(args)
    with torch.autocast("cpu"):
        assert [table.plan.quick(*args) for _ in range(3)] == [expected] * 3
    assert table.plan.quick(*args) is expected


def test_a_sparse_tensor_after_a_dense_one():
    chosen = whet.choice({"first": lambda x: x.shape}, name="shape")
    dense = torch.eye(3)
    for x in (dense, dense.to_sparse(), dense, dense.to_sparse()):
        assert chosen(x) == (3, 3)


def test_more_kinds_than_are_kept(monkeypatch):
    monkeypatch.setattr(keys, "MOST_ENTRIES", 3)
    every = [(torch.zeros(n), torch.zeros(1)) for n in range(1, 9)]
    table = Table(every[0])
    for _ in range(2):
        for args in every:
            expected = table.expected(args)
            assert table.quick(args) is expected
            assert len(table.plan._guarded.entries) <= 3


def test_without_torchs_guards_the_key_is_read(monkeypatch):
    monkeypatch.setattr(keys, "guards", lambda: None)
    args = torch.zeros(2, 2), torch.zeros(2, 2)
    table = Table(args)
    expected = table.expected(args)
    assert table.quick(args) is expected
    assert table.plan.quick(*args) is expected
    table.plan.table.clear()
    with pytest.raises(KeyError):
        table.plan.quick(*args)


def test_guards_that_compare_less_than_a_key_are_not_trusted(monkeypatch):
    class Careless:
        def __init__(self, *tensors, **_):
            self.sizes = [one.shape for one in tensors]

        def check(self, *tensors):
            return [one.shape for one in tensors] == self.sizes

    monkeypatch.setattr(torch._C._dynamo.guards, "TensorGuards", Careless)
    assert keys.guards.__wrapped__() is None


def test_this_torch_has_guards_that_can_be_trusted():
    assert keys.guards.__wrapped__() is not None


def test_threads_that_alternate_kinds_each_get_their_own():
    every = [(torch.zeros(2, 8), torch.zeros(n)) for n in range(1, 5)]
    table = Table(every[0])
    expected = [table.expected(args) for args in every]
    wrong = []

    def call(n):
        for turn in range(2000):
            place = (n + turn) % len(every)
            if table.quick(every[place]) is not expected[place]:
                wrong.append(place)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
