"""Direct launches: what is guarded, that each guard sends a call Triton's way, and that the device
gets what Triton alone would have given it."""
# ruff: noqa: E402, N803 - imports follow the skip; parameters of kernels are written in capitals by custom

import gc
import math
import os
import random
import threading
import weakref

import pytest

pytest.importorskip("triton")
torch = pytest.importorskip("torch")

import triton
import triton.language as tl
from direct_parts import (
    LAUNCHERS,
    VERSIONS,
    Launcher38,
    launching,
    made,
    numbers,
    tuned,
    used,
)
from triton import knobs
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

import whet

pytestmark = pytest.mark.usefixtures("warm_binaries")

SCALE = tl.constexpr(2.0)


@triton.jit
def mixed(x_ptr, y_ptr, n, m, scale, flag, KIND: tl.constexpr, BLOCK: tl.constexpr = 64):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = at.to(tl.float32)
    if x_ptr is not None:
        value = tl.load(x_ptr + at, mask=at < n).to(tl.float32) * scale * SCALE
    if KIND and m is not None:
        value += m
    tl.store(y_ptr + at, value, mask=(at < n) & (flag != 0))


@triton.jit
def scaled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * SCALE, mask=at < n)


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["x_ptr", "m"])
def unspecialized(x_ptr, y_ptr, n, m, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + m)


@triton.jit
def annotated(x_ptr, y_ptr, n: tl.int64, scale: tl.float32, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * scale)


@triton.jit
def twice(x):
    return x + x


@triton.jit
def thrice(x):
    return x + x + x


@triton.jit
def mapped(x_ptr, y_ptr, FN: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, FN(tl.load(x_ptr + at)).to(DTYPE))


def anew(kernel):
    """With nothing compiled yet."""
    return JITFunction(
        kernel.fn,
        do_not_specialize=kernel.do_not_specialize,
        do_not_specialize_on_alignment=kernel.do_not_specialize_on_alignment,
    )


class Subject:
    """A tuned kernel whose every launch is held against Triton's own."""

    def __init__(self, kernel=mixed, grid=(1,), warm=True, around=lambda jit: jit, **keywords):
        self.jit = anew(kernel)
        self.tuner = tuned(around(self.jit), **keywords)
        self.grid = grid
        self.args = [numbers(), numbers(), 64, 3, 0.5, True]
        self.kwargs = {"KIND": 1}
        if warm:
            self.warm()

    def warm(self):
        for _ in range(3):
            self.tuner[self.grid](*self.args, **self.kwargs)
        assert used(self.tuner)[-1] == "whet", self.tuner.whet_not_direct

    def launch(self, *places, **others):
        """By whom, for these arguments in place of the usual ones: `(0, value)`."""
        args, kwargs = list(self.args), {**self.kwargs, **others}
        for place, value in places:
            args[place] = value
        made.clear()
        kernel = self.tuner[self.grid](*args, **kwargs)
        keywords = self.tuner._launch_keywords(self.tuner.best_config)
        alone = self.tuner.fn.run(*args, grid=self.grid, warmup=False, **kwargs, **keywords)
        assert kernel is alone
        *_, ours, theirs = made
        assert ours == theirs
        return ours.by


@pytest.mark.parametrize("version", VERSIONS)
def test_from_the_third_call_of_a_kind_on_launches_are_direct(version):
    with launching(version):
        subject = Subject(warm=False)
        grid = lambda meta: (meta["n"] // meta["BLOCK"],)  # noqa: E731
        for _ in range(4):
            subject.tuner[grid](*subject.args, **subject.kwargs)
        assert used(subject.tuner)[-3:] == ["triton", "whet", "whet"]
        assert subject.launch() == "whet"


@pytest.fixture(scope="module")
def shared():
    with launching():
        yield Subject()


@pytest.fixture
def subject(shared, monkeypatch):
    monkeypatch.setenv("WHET_DIRECT", "yes")
    return shared


class Wrapped(torch.Tensor):
    pass


SAME = {
    "another tensor": (0, numbers()),
    "another length": (0, numbers(128)),
    "another multiple of 16": (2, 128),
    "zero": (2, 0),
    "a negative multiple of 16": (2, -16),
    "another odd number": (3, 7),
    "the largest": (3, 2**31 - 1),
    "another float": (4, math.inf),
    "another bool": (5, False),
}

OTHER = {
    "dtype": (0, numbers(dtype=torch.float16)),
    "dtype of one size": (0, numbers(dtype=torch.int32)),
    "alignment": (0, numbers(shift=1)),
    "alignment of another": (1, numbers(shift=3)),
    "a parameter": (0, torch.nn.Parameter(numbers())),
    "a subclass": (0, numbers().as_subclass(Wrapped)),
    "no tensor": (0, None),
    "divisibility": (2, 63),
    "indivisibility": (3, 32),
    "one": (3, 1),
    "no number": (3, None),
    "an integer for a float": (4, 2),
    "a number beyond 31 bits": (2, 2**31),
    "a number beyond 31 bits below zero": (2, -(2**31) - 16),
    "a number beyond 63 bits": (2, 2**63),
    "a bool for an integer": (3, True),
    "a float for an integer": (3, 3.0),
    "an integer for a bool": (5, 0),
}


@pytest.mark.parametrize("name", SAME)
def test_other_values_of_a_kind_are_launched_directly(subject, name):
    assert subject.launch(SAME[name]) == "whet"


@pytest.mark.parametrize("name", OTHER)
def test_values_of_another_kind_go_by_triton(subject, name):
    assert subject.launch(OTHER[name]) == "triton"
    assert subject.launch() == "whet"


@pytest.mark.parametrize(
    "kwargs", [{"KIND": 2}, {"KIND": True}, {"KIND": 1.0}, {"BLOCK": 32}, {"num_stages": 2}]
)
def test_other_constants_and_options_go_by_triton(subject, kwargs):
    assert subject.launch(**kwargs) == "triton"
    assert subject.launch() == "whet"


def test_an_option_that_the_caller_gives_is_compared():
    with launching():
        subject = Subject(warm=False)
        subject.kwargs["num_stages"] = 2
        subject.warm()
        assert subject.launch() == "whet"
        assert subject.launch(num_stages=4) == "triton"


@pytest.mark.parametrize(
    "value", [numbers, lambda: torch.zeros(()).numpy()], ids=["tensor", "numpy"]
)
def test_what_triton_refuses_is_refused(subject, value):
    with pytest.raises(Exception) as ours:  # noqa: PT011 - whatever Triton says
        subject.tuner[(1,)](*subject.args[:4], value(), True, KIND=1)
    with pytest.raises(type(ours.value)):
        mixed[(1,)](*subject.args[:4], value(), True, KIND=1)


def test_arguments_by_keyword_in_any_order():
    with launching():
        subject = Subject(warm=False)
        names = ["x_ptr", "y_ptr", "n", "m", "scale", "flag"]
        subject.kwargs |= dict(zip(names, subject.args, strict=True))
        subject.args = []
        subject.warm()
        subject.kwargs = dict(reversed(subject.kwargs.items()))
        assert subject.launch() == "whet"
        assert subject.launch(n=63) == "triton"
        with pytest.raises(TypeError):
            subject.tuner[(1,)](**{n: v for n, v in subject.kwargs.items() if n != "m"})


def test_more_or_fewer_arguments_by_place(subject):
    made.clear()
    for _ in range(2):
        subject.tuner[(1,)](*subject.args, 1)
    subject.tuner[(1,)](*subject.args[:-1], flag=True, KIND=1)
    subject.tuner[(1,)](*subject.args[:-1], KIND=1, flag=True)
    assert {one.by for one in made} == {"triton"}
    assert len({one.function for one in made}) == 1


def test_the_defaults_of_parameters_are_triton_s():
    with launching():
        subject = Subject()
        assert subject.launch(BLOCK=64) in ("whet", "triton")
        assert subject.launch() == "whet"


@pytest.mark.parametrize(
    ("place", "value", "by"),
    [
        (0, numbers(shift=1), "whet"),
        (2, 1, "whet"),
        (2, 17, "whet"),
        (2, 2**40, "triton"),
        (3, 16, "whet"),
        (3, 1, "triton"),
        (1, numbers(shift=1), "triton"),
    ],
)
def test_what_is_not_specialized_is_not_compared(place, value, by):
    with launching():
        subject = Subject(unspecialized, warm=False)
        subject.args, subject.kwargs = [numbers(), numbers(), 64, 7], {"BLOCK": 64}
        subject.warm()
        assert subject.launch((place, value)) == by


@pytest.mark.parametrize(
    ("place", "value", "by"), [(2, 2**40, "whet"), (2, 17, "triton"), (2, 1, "triton")]
)
def test_annotations_fix_the_type(place, value, by):
    with launching():
        subject = Subject(annotated, warm=False)
        subject.args, subject.kwargs = [numbers(), numbers(), 64, 0.5], {"BLOCK": 64}
        subject.warm()
        assert subject.launch((place, value)) == by


def test_functions_and_dtypes_among_the_constants():
    with launching():
        subject = Subject(mapped, warm=False)
        subject.args = [numbers(), numbers()]
        subject.kwargs = {"FN": twice, "DTYPE": tl.float32, "BLOCK": 64}
        subject.warm()
        assert subject.launch(FN=thrice) == "triton"
        assert subject.launch(DTYPE=tl.float16) == "triton"
        assert subject.launch() == "whet"
        before, twice.hash = twice.hash, None
        assert subject.launch() == "triton"
        twice.hash = before


# What surrounds a call. Each is undone, after which launches are direct again.


class Changed:
    def __init__(self, thing, name, value):
        self.thing, self.name, self.value = thing, name, value

    def __enter__(self):
        self.before = vars(self.thing).get(self.name, self)
        setattr(self.thing, self.name, self.value)

    def __exit__(self, *error):
        if self.before is self:
            delattr(self.thing, self.name)
        else:
            setattr(self.thing, self.name, self.before)


class Added:
    def __init__(self, chain, hook):
        self.chain, self.hook = chain, hook

    def __enter__(self):
        self.chain.append(self.hook)

    def __exit__(self, *error):
        self.chain.remove(self.hook)


class Variable:
    def __init__(self, name, value):
        self.name, self.value = name, value

    def __enter__(self):
        os.environ[self.name] = self.value

    def __exit__(self, *error):
        del os.environ[self.name]


def other_run(self, *args, **kwargs):
    return JITFunction.__dict__["run"](self, *args, **kwargs)


def nothing(*args, **kwargs):
    return None


SURROUNDINGS = {
    "a hook before launches": lambda s: Added(knobs.runtime.launch_enter_hook.calls, nothing),
    "a hook after launches": lambda s: Added(knobs.runtime.launch_exit_hook.calls, nothing),
    "another chain of hooks": lambda s: Changed(
        knobs.runtime, "launch_enter_hook", type(knobs.runtime.launch_enter_hook)()
    ),
    "another chain after": lambda s: Changed(
        knobs.runtime, "launch_exit_hook", type(knobs.runtime.launch_exit_hook)()
    ),
    "a hook of the kernel": lambda s: Added(s.jit.pre_run_hooks, nothing),
    "debug of the kernel": lambda s: Changed(s.jit, "debug", True),
    "debug of all": lambda s: Changed(knobs.runtime, "debug", True),
    "instrumentation": lambda s: Changed(knobs.compilation, "instrumentation_mode", "none"),
    "stages": lambda s: Changed(
        knobs.runtime, "add_stages_inspection_hook", lambda *a: ("", "seen")
    ),
    "casts by the environment": lambda s: Variable("TRITON_FPSAN_HOMOMORPHIC_CASTS", "1"),
    "a hash": lambda s: Changed(s.jit, "hash", "another"),
    "run of one kernel": lambda s: Changed(s.jit, "run", other_run.__get__(s.jit)),
    "a hook of the config": lambda s: Changed(s.tuner.best_config, "pre_hook", nothing),
    "what was used": lambda s: Changed(s.jit, "used_global_vals", dict(s.jit.used_global_vals)),
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_what_surrounds_a_call_is_compared(subject, name):
    with SURROUNDINGS[name](subject):
        assert subject.launch() == "triton"
    assert subject.launch() == "whet"


def test_hooks_set_later_are_called_at_once(subject):
    seen = []
    with Added(knobs.runtime.launch_enter_hook.calls, seen.append):
        subject.tuner[(1,)](*subject.args, **subject.kwargs)
    assert len(seen) == 1


def test_casts_by_the_knob(subject):
    knobs.compilation.fpsan_homomorphic_casts = True
    try:
        assert subject.launch() == "triton"
    finally:
        del knobs.compilation.fpsan_homomorphic_casts
        os.environ.pop("TRITON_FPSAN_HOMOMORPHIC_CASTS", None)
    assert subject.launch() == "whet"


def test_a_class_s_run_that_was_replaced_is_called(subject):
    own = JITFunction.run
    called = []
    JITFunction.run = lambda self, *args, **kwargs: called.append(1) or own(self, *args, **kwargs)
    try:
        subject.tuner[(1,)](*subject.args, **subject.kwargs)
    finally:
        JITFunction.run = own
    assert called
    assert subject.launch() == "whet"


def test_another_driver_and_another_device_go_by_triton():
    with launching() as first:
        subject = Subject()
        first.device = 0
        assert subject.launch() == "triton"
        first.device = -1
        assert subject.launch() == "whet"
        with launching() as second:
            assert driver.active is second
            assert subject.launch() == "triton"


def test_tensors_of_another_device_are_never_direct():
    with launching() as driver:
        driver.device = 0
        subject = Subject(warm=False)
        for _ in range(4):
            assert subject.launch() == "triton"
        assert subject.tuner.whet_not_direct == "'x_ptr' is not on the device of the launch"


def test_the_stream_is_the_present_one(subject):
    driver.active.get_current_stream = stream = lambda device: 17
    try:
        kernel = Subject()
        driver.active.get_current_stream = stream
        made.clear()
        kernel.tuner[(1,)](*kernel.args, **kernel.kwargs)
        assert (made[-1].by, made[-1].stream) == ("whet", 17)
    finally:
        del driver.active.get_current_stream


@pytest.mark.parametrize(
    "forget",
    [
        lambda tuner: tuner.cache.clear(),
        lambda tuner: setattr(tuner, "configs", tuner.configs),
        lambda tuner: setattr(tuner, "whet_mode", "tune"),
        lambda tuner: tuner.cache.update(dict.fromkeys(tuner.cache, tuner.configs[1])),
    ],
    ids=["cleared", "configs", "mode", "changed"],
)
def test_what_is_forgotten_is_no_longer_launched(forget):
    with launching():
        subject = Subject()
        forget(subject.tuner)
        assert subject.launch() == "triton"


def test_a_kernel_that_triton_forgot_is_built_anew():
    with launching():
        subject = Subject()
        subject.jit.device_caches.clear()
        assert subject.launch() == "triton"
        subject.warm()


def test_a_kernel_put_in_place_of_another_is_launched():
    with launching():
        subject = Subject()
        before, subject.tuner.fn = subject.tuner.fn, anew(mixed)
        assert subject.launch() == "triton"
        subject.tuner.fn = before
        assert subject.launch() == "whet"


def test_a_global_that_has_changed_is_refused(monkeypatch):
    with launching():
        subject = Subject()
        monkeypatch.setitem(globals(), "SCALE", tl.constexpr(3.0))
        with pytest.raises(RuntimeError, match="SCALE has changed"):
            subject.tuner[(1,)](*subject.args, **subject.kwargs)


def test_a_mode_of_the_context_has_its_own_launches():
    with launching():
        subject = Subject()
        with whet.mode("off"):
            assert subject.launch() == "triton"
        assert subject.launch() == "whet"


# Grids.


@pytest.mark.parametrize("grid", [(1,), (2, 3), (2, 3, 4), [5], (0,), torch.Size([3, 1])], ids=str)
def test_grids_of_all_lengths(subject, grid):
    subject.grid = grid
    assert subject.launch() == "whet"
    subject.grid = (1,)


def test_a_grid_function_gets_what_triton_gives_it(subject):
    seen = []

    def grid(meta):
        seen.append(dict(meta))
        return (meta["n"] // meta["BLOCK"],)

    subject.grid = grid
    try:
        assert subject.launch() == "whet"
    finally:
        subject.grid = (1,)
    ours, theirs = seen
    assert list(ours) == list(theirs)
    assert all(ours[name] is theirs[name] for name in ours)


@pytest.mark.parametrize("error", [KeyError, TypeError, AttributeError])
def test_an_error_of_a_grid_function_is_the_caller_s(subject, error):
    calls = []

    def grid(meta):
        calls.append(meta)
        raise error("of the grid")

    with pytest.raises(error, match="of the grid"):
        subject.tuner[grid](*subject.args, **subject.kwargs)
    assert len(calls) == 1


def test_a_grid_function_that_moves_a_tensor(subject):
    whole = numbers(64)

    def grid(meta):
        whole.set_(numbers(64, shift=1))
        return (1,)

    made.clear()
    subject.tuner[grid](whole, *subject.args[1:], **subject.kwargs)
    assert made[-1].by == "triton"
    assert made[-1].values[0] == whole.data_ptr()


def test_a_grid_function_that_moves_a_tensor_to_such_a_place(subject):
    whole, other = numbers(64), numbers(64)

    def grid(meta):
        whole.set_(other)
        return (1,)

    made.clear()
    subject.tuner[grid](whole, *subject.args[1:], **subject.kwargs)
    assert (made[-1].by, made[-1].values[0]) == ("whet", other.data_ptr())


def test_grid_functions_made_anew_do_not_stay(subject):
    kept = []
    for _ in range(20):
        grid = lambda meta: (1,)  # noqa: E731
        kept.append(weakref.ref(grid))
        subject.tuner[grid](*subject.args, **subject.kwargs)
    del grid
    gc.collect()
    assert not any(one() for one in kept)


def test_a_tensor_whose_memory_was_given_back_is_null_for_both(subject):
    gone = numbers()
    gone.untyped_storage().resize_(0)
    by = subject.launch((0, gone))  # a failed assertion would print what is gone
    assert by == "whet"


# Hooks of configs, heuristics, wrappers.


@pytest.mark.parametrize("moved", [False, True])
def test_a_config_s_hook_runs_once_before_each_launch(moved):
    calls, armed = [], []

    def hook(named):
        calls.append(named)
        if armed:
            named["x_ptr"].set_(numbers(shift=1))

    with launching():
        configs = [triton.Config({}, pre_hook=hook), triton.Config({}, num_warps=8)]
        subject = Subject(configs=configs, warm=False)
        for _ in range(3):
            subject.tuner[(1,)](*subject.args, **subject.kwargs)
        calls.clear()
        made.clear()
        armed += [True] * moved
        subject.tuner[(1,)](*subject.args, **subject.kwargs)
        assert made[-1].by == ("triton" if moved else "whet")
        assert len(calls) == 1
        assert calls[-1]["n"] == 64
        assert calls[-1]["grid"] == (1,)
        assert made[-1].values[0] == subject.args[0].data_ptr()


def even(args):
    return args["n"] % args["BLOCK"] == 0


def heuristic(kernel, **values):
    return triton.heuristics(values)(kernel)


@triton.jit
def evened(x_ptr, y_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    if EVEN:
        tl.store(y_ptr + at, tl.load(x_ptr + at))
    else:
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n))


@pytest.mark.parametrize("above", [False, True])
def test_heuristics_are_asked_at_every_call(above):
    with launching():
        evened.device_caches.clear()
        configs = [triton.Config({"BLOCK": size}) for size in (64, 128)]
        if above:
            tuner = tuned(evened, configs)
            kernel = heuristic(tuner, EVEN=lambda args: args["n"] % 64 == 0)
        else:
            kernel = tuner = tuned(heuristic(evened, EVEN=even), configs)
        x, y = numbers(), numbers()

        def call(n):
            made.clear()
            found = kernel[(1,)](x, y, n)
            keywords = {"EVEN": n % 64 == 0, "BLOCK": 64}
            assert evened[(1,)](x, y, n, **keywords) is found
            assert made[-2] == made[-1]
            return made[-2].by

        for _ in range(3):
            call(64)
        assert call(64) == "whet"
        assert call(48) == "triton"
        for _ in range(3):
            call(48)
        assert [call(48), call(64), call(128)] == ["whet"] * 3


def test_a_heuristic_put_in_place_of_another_is_asked():
    with launching():
        evened.device_caches.clear()
        inner = heuristic(evened, EVEN=even)
        tuner = tuned(inner, [triton.Config({"BLOCK": size}) for size in (64, 128)])
        x, y = numbers(), numbers()
        for _ in range(4):
            tuner[(1,)](x, y, 64)
        inner.values["EVEN"] = lambda args: False
        made.clear()
        tuner[(1,)](x, y, 64)
        assert used(tuner) == ["triton"]
        inner.values["EVEN"] = even
        inner.fn = anew(evened)
        tuner[(1,)](x, y, 64)
        assert used(tuner) == ["triton"]


def test_a_subclass_with_a_run_of_its_own():
    class Sub(triton.runtime.Autotuner):
        def run(self, *args, **kwargs):
            self.seen = getattr(self, "seen", 0) + 1
            return super().run(*args, **kwargs)

    with launching():
        evened.device_caches.clear()
        configs = [triton.Config({"BLOCK": size}) for size in (64, 128)]
        tuner = Sub(evened, evened.arg_names, configs, ["n"], None, None)
        whet.install()
        try:
            (one,) = [
                one for one in whet.installed() if one.kernel == "evened" and one.how == "subclass"
            ]
            tuner.whet_timer = lambda: None
            tuner.cache[(64, "torch.float32", "torch.float32")] = tuner.configs[0]
            for _ in range(4):
                tuner[(1,)](numbers(), numbers(), 64, EVEN=True)
            assert used(tuner)[-1] == "whet", tuner.whet_not_direct
            assert tuner.seen == 4
        finally:
            whet.uninstall()
        tuner[(1,)](numbers(), numbers(), 64, EVEN=True)
        assert used(tuner) == ["triton"]
        assert one.launch == "by Triton: no kind of call has come twice"


def test_a_wrapper_of_another_kind_is_left_to_triton():
    class Wrapper:
        def __init__(self, fn):
            self.fn, self.arg_names = fn, fn.arg_names

        def run(self, *args, **kwargs):
            return self.fn.run(*args, **kwargs)

    with launching():
        subject = Subject(around=Wrapper, warm=False)
        for _ in range(4):
            assert subject.launch() == "triton"
        assert "Wrapper" in subject.tuner.whet_not_direct


# Keys.


def test_keys_have_their_own_configs():
    with launching():
        subject = Subject(key=["n", "KIND"], warm=False)
        sizes = [64, 128, 256, 512, 1024, 2048]
        for n in sizes * 3:
            subject.launch((2, n))
        for key in list(subject.tuner.cache):
            subject.tuner.cache[key] = subject.tuner.configs[key[0] > 300]
        for n in sizes * 3:
            subject.launch((2, n))
        for n in sizes:
            assert subject.launch((2, n)) == "whet"
            assert subject.tuner.best_config is subject.tuner.configs[n > 300]


def test_new_values_of_a_bucket_need_no_new_function():
    with launching():
        subject = Subject(key=["n"], buckets={"n": "pow2"}, warm=False)
        subject.args[2] = 256
        subject.warm()
        before = subject.tuner.whet_direct
        for n in range(144, 257, 16):
            assert subject.launch((2, n)) == "whet"
        assert subject.launch((2, 144 + 1)) == "triton"
        assert subject.launch((2, 272)) == "triton"
        assert subject.tuner.whet_direct[: len(before)] == before


@pytest.mark.parametrize(
    ("bucket", "same", "other"),
    [
        ([32, 256, 512], [48, 256], [32, 272, 1024]),
        ([32], [144, 256], [272, 32]),
        (lambda n: n // 100, [208, 288], [192, 304]),
    ],
)
def test_buckets_of_every_form_are_told_apart(bucket, same, other):
    with launching():
        subject = Subject(key=["n"], buckets={"n": bucket}, warm=False)
        subject.args[2] = 240
        subject.warm()
        assert [subject.launch((2, n)) for n in same] == ["whet"] * len(same)
        assert [subject.launch((2, n)) for n in other] == ["triton"] * len(other)


def test_a_tensor_that_is_given_twice_and_two_in_its_place():
    with launching():
        subject = Subject(warm=False)
        subject.args[1] = subject.args[0]
        subject.warm()
        other, shifted = numbers(), numbers(shift=1)
        assert subject.launch((0, other), (1, other)) == "whet"
        assert subject.launch((0, other)) == "triton"
        assert subject.launch((0, shifted), (1, shifted)) == "triton"


def test_a_tensor_given_twice_of_which_one_place_may_not_be_aligned():
    with launching():
        subject = Subject(unspecialized, warm=False)
        tensor, shifted = numbers(), numbers(shift=1)
        subject.args, subject.kwargs = [tensor, tensor, 64, 7], {"BLOCK": 64}
        subject.warm()
        assert subject.launch((0, shifted), (1, shifted)) == "triton"
        assert subject.launch((0, shifted)) == "whet"


def test_numbers_of_two_kinds_in_turn_have_a_function_each():
    with launching():
        subject = Subject()
        for n in (63, 64) * 3:
            subject.launch((2, n))
        assert [subject.launch((2, n)) for n in (61, 48, 7, 16)] == ["whet"] * 4
        assert len(subject.tuner.whet_direct) == 2


def test_no_more_functions_are_written_than_stated():
    with launching():
        subject = Subject()
        for kind in range(2, 11):
            subject.launch(KIND=kind)
        assert subject.launch(KIND=8) == "whet"
        assert [subject.launch(KIND=10) for _ in range(3)] == ["triton"] * 3
        assert subject.launch() == "whet"


def test_the_setting_switches_it_off(monkeypatch):
    with launching():
        monkeypatch.setenv("WHET_DIRECT", "0")
        subject = Subject(warm=False)
        assert [subject.launch() for _ in range(4)] == ["triton"] * 4


# What launches.


def test_an_unknown_launcher_is_left_alone():
    class Another(Launcher38):
        def __call__(self, *args):
            self.launch(args[0], *args[1:])

    with launching(launcher=Another):
        subject = Subject(warm=False)
        for _ in range(3):
            with pytest.raises(TypeError):
                subject.tuner[(1,)](*subject.args, **subject.kwargs)

    class Logging(Launcher38):
        def __call__(self, gridX, gridY, gridZ, stream, function, *args):
            Launcher38.__call__(self, gridX, gridY, gridZ, stream, function, *args)

    with launching(launcher=Logging):
        subject = Subject(warm=False)
        assert [subject.launch() for _ in range(4)] == ["triton"] * 4
        assert "does not call self.launch once" in subject.tuner.whet_not_direct


@pytest.mark.parametrize("name", ["global_scratch_size", "profile_scratch_size"])
def test_a_launch_that_takes_memory_is_left_to_triton(name):
    kind = type("Taking", (Launcher38,), {name: 1})
    with launching(launcher=kind):
        subject = Subject(warm=False)
        assert [subject.launch() for _ in range(4)] == ["triton"] * 4
        assert "memory of its own" in subject.tuner.whet_not_direct


def test_another_version_is_left_alone(monkeypatch):
    from whet.targets.triton import direct

    direct._order.cache_clear()
    monkeypatch.setattr(triton, "__version__", "3.10.0")
    with launching():
        subject = Subject(warm=False)
        assert [subject.launch() for _ in range(4)] == ["triton"] * 4
        assert subject.tuner.whet_not_direct == "how Triton 3.10.0 launches is not known"


def test_another_backend_is_left_alone():
    with launching() as driver:
        driver._target = type(driver._target)("hip", "gfx942", 64)
        subject = Subject(warm=False)
        assert [subject.launch() for _ in range(3)] == ["triton"] * 3
        assert "hip" in subject.tuner.whet_not_direct


# At large.


@pytest.mark.slow(30)
@pytest.mark.parametrize("version", VERSIONS)
def test_random_calls_are_triton_s(version):
    rng = random.Random(int(version[-1]))
    floats = [numbers(), numbers(), numbers(shift=1), numbers(dtype=torch.float16), None]
    others = [*floats[:-1], torch.nn.Parameter(numbers())]
    with launching(version, LAUNCHERS[version]):
        subject = Subject(warm=False, key=["m"])
        by = {"whet": 0, "triton": 0}
        for _ in range(500):
            subject.grid = rng.choice(
                [(1,), (2, 2), lambda meta: (meta["n"] // 8, 1, meta["m"] or 1)]
            )
            values = [
                rng.choices(others, weights=[8, 8, 1, 1, 1])[0],
                rng.choices(others, weights=[8, 8, 1, 1, 1])[0],
                rng.choice([16, 32, 48, 64, 64, 64, 1, 7, 9]),
                rng.choice([2, 2, 2, 4, 1]),
                rng.choice([0.5, 1.0, 2.5, 2]),
                rng.choice([True, False]),
            ]
            by[subject.launch(*enumerate(values), KIND=rng.choice([0, 0, 0, 1, 2]))] += 1
        assert by["whet"] > 100, by


def test_threads_launch_what_they_were_given():
    with launching():
        subject = Subject(key=["n"])
        wrong = []

        def work(seed):
            rng = random.Random(seed)
            x, y = numbers(), numbers()
            for _ in range(150):
                n = rng.choice([16, 32, 48, 63])
                found = subject.tuner[(n,)](x, y, n, 3, 0.5, True, KIND=1)
                mine = [
                    one
                    for one in list(made)
                    if one.grid == (n, 1, 1) and one.values[0] == x.data_ptr()
                ]
                if not mine or mine[-1].values[2] != n or found is None:
                    wrong.append(n)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        [one.start() for one in threads]
        [one.join() for one in threads]
        assert not wrong


# Plain kernels, and what is said.


def test_plain_kernels_on_request():
    with launching():
        mixed.device_caches.clear()
        call = lambda: mixed[(1,)](numbers(), numbers(), 64, 3, 0.5, True, KIND=1)  # noqa: E731
        whet.install(jit=True)
        try:
            for _ in range(4):
                call()
            assert used(mixed)[-2:] == ["whet", "whet"]
            mixed[(1,)](numbers(), numbers(), 63, 3, 0.5, True, KIND=1)
            assert used(mixed) == ["triton"]
            (one,) = [
                one for one in whet.installed() if one.how == "plain" and one.kernel == "mixed"
            ]
            assert one.launch == "direct"
            assert one.guards[0].startswith("def launch(_grid, _args, _kwargs):")
            with pytest.raises(TypeError):
                mixed[(1,)](numbers())
        finally:
            whet.uninstall()
        call()
        assert used(mixed) == ["triton"]


def test_installed_says_which_kernels_launch_directly():
    with launching():
        subject = Subject()
        (one,) = [one for one in whet.installed() if one.guards == subject.tuner.whet_direct]
        assert one.launch == "direct"
        compile(one.guards[0], "guards", "exec")
        assert "and n == 64" not in one.guards[0]
        assert "not n % 16" in one.guards[0]
