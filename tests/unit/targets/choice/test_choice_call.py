"""A choice as its caller sees it: which implementation runs, and what is left behind."""

import time
import warnings

import pytest

import whet
from whet.core.errors import BudgetError, NotTunedError, UsageError

torch = pytest.importorskip("torch")

from whet.targets.choice.target import ChoiceTarget  # noqa: E402

# So much slower that no noise turns it round.
SLOW_S = 0.004


@pytest.fixture(autouse=True)
def store(monkeypatch, tmp_path):
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    return tmp_path / "store.db"


def slow(x):
    time.sleep(SLOW_S)
    return x * 2


def fast(x):
    return x + x


def picks(chooser):
    return list(chooser.picks.values())


def trials(store, kernel):
    with whet.open_store(store, read_only=True) as opened:
        return {
            str(trial.config["implementation"]): trial
            for known in opened.workloads(kernel)
            for trial in opened.trials(known.workload.id)
        }


@pytest.mark.medium
def test_the_fastest_is_called_and_stored(store):
    double = whet.choice({"slow": slow, "fast": fast}, name="double")
    x = torch.randn(8)
    assert torch.equal(double(x), x * 2)
    assert picks(double) == ["fast"]
    again = whet.choice({"slow": slow, "fast": fast}, name="double")
    with whet.mode("require"):
        again(x)
    assert picks(again) == ["fast"]


@pytest.mark.medium
def test_a_decorated_function_is_the_first_implementation():
    @whet.choice(against={"fast": fast})
    def twice(x):
        """Doubles."""
        time.sleep(SLOW_S)
        return x * 2

    assert list(twice.implementations) == ["twice", "fast"]
    assert twice.__doc__ == "Doubles."
    twice(torch.randn(3))
    assert picks(twice) == ["fast"]


@pytest.mark.medium
def test_a_method_can_be_a_choice():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4))

        @whet.choice(against={"quick": lambda self, x: x * self.weight})
        def forward(self, x):
            time.sleep(SLOW_S)
            return self.weight * x

    layer, x = Layer(), torch.randn(4)
    layer(x).sum().backward()
    assert torch.equal(layer.weight.grad, x)
    [known] = Layer.forward.picks
    assert Layer.forward.picks[known] == "quick"
    assert "grad=True" in known, "the parameters of a module require gradients"


@pytest.mark.medium
def test_an_implementation_registered_later_is_considered():
    double = whet.choice({"slow": slow}, name="double")
    x = torch.randn(4)
    double(x)

    @double.register("fast")
    def added(x):
        return x + x

    double(x)
    assert picks(double) == ["fast"]
    with pytest.raises(UsageError, match="already has an implementation 'fast'"):
        double.register("fast")


@pytest.mark.medium
def test_a_choice_inside_a_choice_is_tuned_before_it_is_timed(store):
    inner = whet.choice({"slow": slow, "fast": fast}, name="inner")
    outer = whet.choice(
        {"slow": slow, "nested": lambda x: inner(x)},
        name="outer",
    )
    outer(torch.randn(4))
    assert picks(inner) == ["fast"]
    assert picks(outer) == ["nested"]
    trial = trials(store, "outer")["nested"]
    assert trial.timing.median_ns < SLOW_S * 1e9
    assert trial.cost.work["first_call"] > SLOW_S, "the inner choice was tuned there"


@pytest.mark.medium
def test_an_implementation_that_fails_is_recorded_and_not_used(store):
    def missing(x):
        raise RuntimeError("this GPU has no such instruction")

    double = whet.choice({"slow": slow, "missing": missing, "fast": fast}, name="double")
    double(torch.randn(4))
    assert picks(double) == ["fast"]
    failed = trials(store, "double")["missing"]
    assert failed.status.value == "run_error"
    assert "no such instruction" in failed.error


def test_where_all_fail_the_first_says_why():
    def broken(x):
        raise ValueError("not today")

    both = whet.choice({"broken": broken, "other": lambda x: 1 / 0}, name="both")
    with (
        pytest.warns(RuntimeWarning, match="calling 'broken' anyway"),
        pytest.raises(ValueError, match="not today"),
    ):
        both(torch.randn(2))


@pytest.mark.medium
def test_a_wrong_result_is_never_used(store):
    double = whet.choice({"slow": slow, "wrong": lambda x: x * 2.5}, name="wrong_double")
    with pytest.warns(RuntimeWarning, match="its implementation 'wrong'"):
        double(torch.ones(4))
    assert picks(double) == ["slow"]
    assert "got 2.5, expected 2" in trials(store, "wrong_double")["wrong"].error


unnamed = whet.choice({"slow": slow, "wrong": lambda x: x * 2.5})


def test_a_warning_names_the_choice_as_its_file_does_and_the_implementation():
    with pytest.warns(
        RuntimeWarning,
        match=r"the choice 'unnamed' \(stored as 'slow'\) does not use its implementation 'wrong', "
        "whose result is wrong: output: 4 of 4",
    ):
        unnamed(torch.ones(4))


@pytest.mark.medium
def test_tolerances_decide_what_is_wrong():
    near = {"slow": slow, "near": lambda x: x * 2.1}
    loose = whet.choice(near, name="loose", rtol=0.1)
    loose(torch.ones(4))
    assert picks(loose) == ["near"]
    unchecked = whet.choice({"slow": slow, "far": lambda x: x}, name="far", check=False)
    unchecked(torch.ones(4))
    assert picks(unchecked) == ["far"]


@pytest.mark.medium
def test_near_zero_a_relative_tolerance_is_of_the_mean():
    by = torch.tensor([1.0, 1.0, 1.0, 0.0])
    off = {"slow": lambda x: slow(x * by), "near": lambda x: x * by * 2 + 0.01}
    near = whet.choice(off, name="near_zero", rtol=0.1)
    near(torch.ones(4))
    assert picks(near) == ["near"]
    exact = whet.choice(off, name="at_zero", rtol=0.1, atol=0.0)
    with pytest.warns(RuntimeWarning, match="its implementation 'near'"):
        exact(torch.ones(4))
    assert picks(exact) == ["slow"]


def test_what_torch_says_of_an_implementation_that_cannot_run_is_not_shown(recwarn):
    def impossible(x):
        warnings.warn("backend not used because of its dtype", stacklevel=1)
        raise RuntimeError("no kernel")

    double = whet.choice({"slow": slow, "impossible": impossible}, name="quiet_double")
    double(torch.ones(4))
    assert not [one for one in recwarn if "backend" in str(one.message)]


def test_a_reference_may_overrule_the_first():
    double = whet.choice(
        {"wrong": lambda x: x * 3, "right": slow}, reference=lambda x: 2 * x, name="referred"
    )
    with pytest.warns(RuntimeWarning, match="its implementation 'wrong'"):
        assert torch.equal(double(torch.ones(3)), torch.full((3,), 2.0))


@pytest.mark.medium
def test_wrong_gradients_are_wrong():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    double = whet.choice({"slow": slow, "wrong": Wrong.apply}, name="gradients", key=lambda x: 0)
    x = torch.ones(4, requires_grad=True)
    with pytest.warns(RuntimeWarning, match="gradient 0"):
        double(x).sum().backward()
    assert torch.equal(x.grad, torch.full((4,), 2.0))


@pytest.mark.medium
def test_inference_and_training_are_different_keys():
    double = whet.choice({"slow": slow, "fast": fast}, name="double")
    double(torch.ones(4, requires_grad=True))
    with torch.no_grad():
        double(torch.ones(4, requires_grad=True))
    assert [known.rpartition("=")[2] for known in double.picks] == ["True", "False"]


@pytest.mark.medium
def test_arguments_that_are_written_are_put_back_and_compared():
    def first(x, out):
        time.sleep(SLOW_S)
        out.add_(x)

    def second(x, out):
        torch.add(x, out, out=out)

    accumulate = whet.choice({"first": first, "second": second}, name="accumulate")
    x, out = torch.ones(4), torch.zeros(4)
    accumulate(x, out)
    assert picks(accumulate) == ["second"]
    assert torch.equal(out, x), "one call, however often it was timed"


def test_an_implementation_must_not_change_what_the_first_leaves_alone():
    x = torch.ones(4)
    double = whet.choice({"slow": slow, "in_place": lambda x: x.mul_(2)}, name="in_place")
    with pytest.warns(RuntimeWarning, match="it changes the argument 'x'"):
        double(x)
    assert torch.equal(x, torch.ones(4))


@pytest.mark.medium
def test_random_numbers_are_the_same_for_all_and_for_the_caller():
    def noisy(x):
        time.sleep(SLOW_S)
        return x + torch.rand(4)

    noise = whet.choice({"slow": noisy, "quick": lambda x: torch.rand(4) + x}, name="noise")
    torch.manual_seed(7)
    expected = torch.rand(4)
    torch.manual_seed(7)
    assert torch.equal(noise(torch.zeros(4)), expected)
    assert picks(noise) == ["quick"]


@pytest.mark.medium
def test_arrays_of_numpy_need_no_torch():
    import numpy as np

    total = whet.choice(
        {"loop": lambda x: (time.sleep(SLOW_S), x.sum())[1], "sum": lambda x: np.sum(x)},
        name="total",
    )
    assert total(np.arange(10.0)) == 45.0
    assert picks(total) == ["sum"]


@pytest.mark.parametrize(
    ("mode", "used"), [("cached", "slow"), ("off", "slow"), ("record", "slow")]
)
def test_a_mode_that_does_not_tune_uses_the_first(mode, used, store):
    calls = []
    double = whet.choice(
        {"slow": lambda x: calls.append("slow"), "fast": lambda x: calls.append("fast")},
        name="double",
    )
    with whet.mode(mode):
        double(torch.ones(2))
        double(torch.ones(2))
    assert calls == [used] * 2
    assert double.picks == {}
    if mode == "record":
        with whet.open_store(store, read_only=True) as opened:
            [miss] = opened.missed()
        assert miss.workload.kernel == "double"


def test_require_raises_and_says_how_to_tune():
    double = whet.choice({"slow": slow, "fast": fast}, name="double", mode="require")
    with pytest.raises(NotTunedError) as told:
        double(torch.ones(2))
    assert str(told.value).endswith(
        "; call double(…) once with such arguments in mode 'tune' (WHET_MODE=tune), or run "
        "whet.tune(double.target(…))"
    )


@pytest.mark.medium
def test_once_tuned_the_other_modes_use_it_too():
    double = whet.choice({"slow": slow, "fast": fast}, name="double")
    x, calls = torch.ones(2), []
    with whet.mode("cached"):
        double(x)
    with whet.mode("tune"):
        double(x)
    double.implementations["fast"] = lambda x: calls.append("fast")
    double._tables.clear()
    with whet.mode("cached"):
        double(x)
    assert calls == ["fast"]


@pytest.mark.medium
def test_a_size_that_was_not_tuned_is_inherited():
    def by_size(x):
        time.sleep(SLOW_S)
        return x * 2

    double = whet.choice({"slow": by_size, "fast": fast}, name="double")
    for n in (64, 128):
        double(torch.ones(n))
    with whet.mode("cached"):
        double(torch.ones(96))
    assert list(double._decisions.stopgaps.values()) == ["fast"]


@pytest.mark.medium
def test_buckets_make_many_sizes_one_workload():
    double = whet.choice(
        {"slow": slow, "fast": fast},
        key=lambda x: {"n": x.shape[0]},
        buckets={"n": "pow2"},
        name="double",
    )
    for n in (33, 40, 64):
        double(torch.ones(n))
    assert list(double.picks) == ["n=64, cost=eager, grad=False"]


@pytest.mark.medium
def test_keys_may_name_arguments():
    calls = whet.choice(
        {"slow": lambda x, flag: slow(x), "fast": lambda x, flag: fast(x)}, key=["x"], name="named"
    )
    calls(torch.ones(2), True)
    calls(torch.ones(2), False)
    assert len(calls.picks) == 1
    with pytest.raises(UsageError, match="key names 'y'"):
        whet.choice({"slow": slow}, key=["y"])


@pytest.mark.medium
def test_sizes_dtypes_strides_and_values_tell_calls_apart():
    both = whet.choice({"slow": lambda x, n: slow(x), "fast": lambda x, n: fast(x)}, name="both")
    square = torch.ones(4, 4)
    tall = torch.ones(4, 8)[:, ::2]
    for x, n in [(square, 1), (square.double(), 1), (tall, 1), (square, 2), (square, True)]:
        both(x, n)
    assert len(both.picks) == 5


def listed(x, ids):
    return slow(x)


def quickly(x, ids):
    return fast(x)


@pytest.mark.medium
def test_a_list_counts_by_its_length_and_the_types_in_it(store):
    double = whet.choice({"slow": listed, "fast": quickly}, name="listed")
    x = torch.ones(4)
    for ids in ([1] * 1000, list(range(1000)), [0.5] * 1000, [1] * 999):
        double(x, ids)
    keys = [known.removeprefix("x.dtype=float32, x.0=4, ") for known in double.picks]
    assert [known.partition(", cost")[0] for known in keys] == [
        "ids.length=1000, ids.type=int",
        "ids.length=1000, ids.type=float",
        "ids.length=999, ids.type=int",
    ]


@pytest.mark.medium
def test_short_tuples_and_lists_of_tensors_count_by_what_they_hold():
    double = whet.choice({"slow": listed, "fast": quickly}, name="listed")
    x = torch.ones(4)
    for ids in ((1, 2), (2, 2), [torch.ones(3)], [torch.ones(5)], [torch.zeros(3)]):
        double(x, ids)
    assert len(double.picks) == 4


@pytest.mark.medium
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([n / 7 for n in range(9)], "every value of 'ids', 8 so far"),
        ([[0] * n for n in range(9)], "every length of 'ids', 8 so far"),
    ],
)
def test_an_argument_that_keeps_changing_is_named_once(values, said, recwarn):
    double = whet.choice({"slow": listed, "fast": quickly}, name=f"changing {type(values[0])}")
    x = torch.ones(4)
    for one in values:
        double(x, one)
    [warned] = [str(one.message) for one in recwarn if "tuned anew" in str(one.message)]
    assert said in warned
    assert "key=['x']" in warned


@pytest.mark.medium
def test_sizes_that_change_are_not_warned_of(recwarn):
    double = whet.choice({"slow": slow, "fast": fast}, name="sizes")
    for n in range(1, 11):
        double(torch.ones(n))
    assert not [one for one in recwarn if "tuned anew" in str(one.message)]


@pytest.mark.medium
def test_keys_that_earlier_versions_stored_for_lists_are_left_alone(store):
    """They had one part for each number."""
    double = whet.choice({"slow": listed, "fast": quickly}, name="listed")
    call = double.target(torch.ones(4), [7] * 12)
    old = {"x.dtype": "float32", "x.0": 4, **{f"ids.{i}": 7 for i in range(12)}}
    whet.tune(ChoiceTarget(double, call.args, call.kwargs, old, call.cost, call.grad, call.gpu))
    with whet.mode("cached"):
        double(*call.args)
    double(*call.args)
    assert picks(double) == ["fast"]
    with whet.open_store(store, read_only=True) as opened:
        assert len(opened.workloads("listed")) == 2


@pytest.mark.medium
def test_a_known_call_is_not_looked_up_again(monkeypatch):
    double = whet.choice({"slow": slow, "fast": fast}, name="double")
    x = torch.ones(4)
    double(x)
    monkeypatch.setattr(double, "_found", None)
    assert torch.equal(double(x), x * 2)


@pytest.mark.medium
def test_known_calls_are_not_looked_up_again_though_their_arguments_have_other_types(monkeypatch):
    """A layer calls one function with a residual, without one, and with a number for it."""
    both = whet.choice(
        {"slow": lambda x, y: slow(x), "fast": lambda x, y: fast(x)}, name="with another"
    )
    x = torch.ones(4)
    others = (None, torch.ones(2), 3, None)
    for other in others:
        both(x, other)
    monkeypatch.setattr(both, "_found", None)
    for other in others:
        assert torch.equal(both(x, other), x * 2)


@pytest.mark.medium
def test_a_target_of_a_call_is_tuned_like_any_other():
    double = whet.choice({"slow": slow, "fast": fast}, name="double")
    result = whet.tune(double.target(torch.ones(4)))
    assert dict(result.config) == {"implementation": "fast"}
    assert result.speedup > 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: whet.choice({}), "at least one implementation"),
        (lambda: whet.choice({"a": 3}), "'a' is a int"),
        (lambda: whet.choice([slow]), "needs a dict"),
        (lambda: whet.choice({"a": slow}, cost="eagre"), "did you mean 'eager'"),
        (lambda: whet.choice({"a": slow}, reference=3), "reference= is a int"),
        (lambda: whet.choice({"a": slow}, against={"b": fast}), "for the decorator"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_a_budget_may_be_a_number_of_seconds():
    assert whet.choice({"slow": slow}, budget=2).budget == whet.Budget(seconds=2.0)
    with pytest.raises(BudgetError, match="give seconds above 0"):
        whet.choice({"slow": slow}, budget=[2])


@pytest.mark.medium
def test_what_cannot_be_stored_is_chosen_all_the_same(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("WHET_STORE", str(blocked / "store.db"))
    double = whet.choice({"slow": slow, "fast": fast}, name="double")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        double(torch.ones(2))
    assert picks(double) == ["fast"]


module_level = whet.choice({"slow": slow, "fast": fast}, name="module_level")


def test_copies_and_pickles_of_a_model_call_the_same_choice():
    import copy
    import pickle

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.double = module_level

    assert copy.deepcopy(Model()).double is module_level
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    with pytest.raises(TypeError, match="define it at the top of a file"):
        pickle.dumps(whet.choice({"slow": slow}, name="local"))


@pytest.mark.medium
def test_threads_that_come_at_once_tune_once(store):
    from concurrent.futures import ThreadPoolExecutor

    double, x = whet.choice({"slow": slow, "fast": fast}, name="double"), torch.ones(4)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: double(x), range(8)))
    assert all(torch.equal(one, x * 2) for one in results)
    with whet.open_store(store, read_only=True) as opened:
        [known] = opened.workloads("double")
        assert len(opened.runs(known.workload.id)) == 1
