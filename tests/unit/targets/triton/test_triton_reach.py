"""`whet.install()` reaches every kernel that tunes through Triton, also those of subclasses."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

from __future__ import annotations

import abc
import contextlib
import gc
import importlib.util
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.runtime import autotuner as stock

import whet
from whet.builds.job import BuildResult
from whet.core.status import Status
from whet.engine import log
from whet.targets.triton import adoption, device, foreign, live
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.jit.preloading import LiveKernels
from whet.testing.fake_triton import FakeTensor, fake_driver, told

pytestmark = pytest.mark.usefixtures("warm_binaries")

BLOCKS = (16, 32, 64)
THAWED = live._thawed


class Super(stock.Autotuner):
    """Looks into files of its own first, as FLA's does."""

    files: Any = None

    def __init__(self, fn: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(fn, *args, **kwargs)
        self.kernel_name = fn.fn.__name__
        self.runs = 0

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.runs += 1
        if self.files is not None:
            self.cache[self.files[0]] = self.files[1]
        result = super().run(*args, **kwargs)
        self.seen = self.best_config
        return result


class ByName(stock.Autotuner):
    def run(self, *args: Any, **kwargs: Any) -> Any:
        return stock.Autotuner.run(self, *args, **kwargs)


class Plain(stock.Autotuner):
    """Adds nothing but an attribute."""

    colour = "red"


class Loop(stock.Autotuner, abc.ABC):
    """Has a loop over `_bench` and a cache of its own, as FlagGems's does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cache = {"mine": None}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        key = self.nargs["n"]
        if key not in self.cache:
            configs = self.prune_configs(kwargs)
            self.timings = {c: self._bench(*args, config=c, **kwargs) for c in configs}
            self.cache[key] = min(self.timings, key=lambda config: self.timings[config])
        self.best_config = self.cache[key]
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


class OwnBench(stock.Autotuner):
    def _bench(self, *args: Any, config: Any, **meta: Any) -> Any:
        self.benched = [*getattr(self, "benched", []), config.kwargs["BLOCK"]]
        return super()._bench(*args, config=config, **meta)


class OwnPrune(stock.Autotuner):
    def prune_configs(self, kwargs: Any) -> Any:
        self.own = self.early_config_prune
        return super().prune_configs(kwargs)[1:]


class Clashing(stock.Autotuner):
    """Has a method by the name of one of whet's."""

    def _chosen(self) -> int:
        return 1


KINDS = [stock.Autotuner, Super, ByName, Plain, Loop, OwnBench, OwnPrune]


def kernel(kind: Any = stock.Autotuner, **options: Any) -> Any:
    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    configs = [triton.Config({"BLOCK": block}) for block in BLOCKS]
    names = {"reset_to_zero": None, "restore_value": None, **options}
    return kind(double, double.arg_names, configs, ["n"], **names)


def call(tuner: Any, n: int = 4, out: Any = None) -> int:
    """The block in use; the largest is the fastest."""
    tuner[(1,)](out or FakeTensor([0.0]), FakeTensor([1.0], address=8192), n)
    return int(tuner.best_config.kwargs["BLOCK"])


def timed(tuner: Any) -> Any:
    tuner.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
    return tuner


@pytest.fixture
def driver() -> Iterator[Any]:
    with fake_driver() as fake:
        yield fake


@pytest.fixture
def installing() -> Iterator[Callable[[], None]]:
    yield whet.install
    whet.uninstall()


@pytest.fixture(params=["before", "after"])
def made(request: Any, installing: Any) -> Callable[..., Any]:
    """Makes kernels that are there `before` install() is called, or come `after` it."""

    def make(kind: Any = stock.Autotuner, **options: Any) -> Any:
        if request.param == "after":
            installing()
        tuner = kernel(kind, **options)
        installing()
        assert isinstance(tuner, kind)
        return timed(tuner)

    return make


@pytest.mark.medium
def test_installing_looks_only_for_kernels_that_are_not_whet_s() -> None:
    ours, theirs = kernel(Autotuner), [kernel(), kernel(Plain)]
    others = list(adoption.live(not_ours=True))
    assert all(any(one is other for other in others) for one in theirs)
    assert not any(isinstance(other, Autotuner) for other in others)
    assert any(one is ours for one in adoption.live())


def entry(tuner: Any) -> Any:
    (one,) = [one for one in whet.installed() if one.place == place(tuner)]
    return one


def place(tuner: Any) -> str:
    code = tuner.base_fn.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


@pytest.fixture(autouse=True, scope="module")
def aside() -> Iterator[None]:
    """What other tests have loaded, some million objects, is left out of the searches here."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def alone(monkeypatch: Any, aside: None) -> None:
    """Kernels of one function share a place: those of earlier tests must be gone. What is said
    once is said in each test."""
    gc.collect()
    monkeypatch.setattr(log, "_said", set())
    monkeypatch.setattr(live, "_thawed", contextlib.nullcontext)


@pytest.fixture
def frozen(monkeypatch: Any) -> None:
    """As servers do when they have loaded everything."""
    monkeypatch.setattr(live, "_thawed", THAWED)
    gc.freeze()


@pytest.mark.medium
@pytest.mark.parametrize("collecting", [True, False])
def test_what_was_put_aside_by_the_collector_is_found(
    installing: Any, request: Any, collecting: bool
) -> None:
    plain, special = kernel(), kernel(Super)
    request.getfixturevalue("frozen")
    before = gc.get_freeze_count()
    if not collecting:
        gc.disable()
    try:
        installing()
        listed = {one.how for one in whet.installed() if one.kernel == "double"}
        assert gc.isenabled() == collecting
    finally:
        gc.enable()

    assert isinstance(plain, Autotuner)
    assert isinstance(special, Autotuner)
    assert {"taken", "subclass"} <= listed
    assert LiveKernels().named(f"{__name__}:{plain.fn.fn.__qualname__}")
    assert gc.get_freeze_count() >= before


@pytest.mark.medium
def test_what_python_itself_put_aside_is_no_reason_to_freeze_the_rest(
    installing: Any, monkeypatch: Any
) -> None:
    """As from 3.12 on, where the collector starts with some hundred objects put aside."""
    monkeypatch.setattr(live, "_thawed", THAWED)
    frozen = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 375)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    plain = kernel()

    installing()

    assert isinstance(plain, Autotuner)
    assert frozen == []


@pytest.mark.medium
@pytest.mark.parametrize("kind", [stock.Autotuner, Super, ByName, Plain])
def test_whet_tunes_it(kind: Any, made: Any, driver: Any, cold: Any) -> None:
    tuner = made(kind)

    assert call(tuner) == 64
    assert cold.measured() == set(BLOCKS)
    assert tuner.whet_result.source == "tuned"


@pytest.mark.medium
@pytest.mark.parametrize("kind", KINDS)
def test_what_people_read_afterwards_is_there(kind: Any, made: Any, driver: Any) -> None:
    tuner = made(kind)
    call(tuner)

    assert tuner.best_config.kwargs == {"BLOCK": 64}
    if kind is not Loop:
        assert tuner.nargs is None
        assert tuner.bench_time > 0
        assert min(tuner.configs_timings, key=tuner.configs_timings.get).kwargs == {"BLOCK": 64}
    assert "configs" not in vars(tuner)
    assert "early_config_prune" not in vars(tuner)


@pytest.mark.medium
def test_what_is_behind_heuristics_is_reached(made: Any, driver: Any, cold: Any) -> None:
    tuner = made(Super)
    outer = triton.heuristics({})(tuner)

    outer[(1,)](FakeTensor([0.0]), FakeTensor([1.0], address=8192), 4)

    assert tuner.seen.kwargs == {"BLOCK": 64}
    assert cold.measured() == set(BLOCKS)


@pytest.mark.medium
def test_every_call_reaches_a_run_of_the_subclass(made: Any, driver: Any) -> None:
    tuner = made(Super)
    for _ in range(3):
        call(tuner)

    assert tuner.runs == 3


@pytest.mark.medium
def test_a_subclass_without_a_run_is_dispatched_as_quickly_as_any(made: Any, driver: Any) -> None:
    tuner = made(Plain)
    call(tuner)
    tuner.run = None  # would be called on the longer way

    assert call(tuner) == 64


@pytest.mark.medium
def test_a_config_that_the_subclass_puts_into_the_cache_wins(made: Any, driver: Any) -> None:
    tuner = made(Super)
    key = (4, "torch.float32", "torch.float32")
    assert call(tuner) == 64
    tuner.files = key, triton.Config({"BLOCK": 128})

    assert call(tuner) == 128
    with whet.mode("off"):
        assert call(tuner) == 128


@pytest.mark.medium
def test_off_ignores_what_whet_has_put_there(made: Any, driver: Any) -> None:
    tuner = made(Super)
    call(tuner)

    with whet.mode("off"):
        assert call(tuner) == 16


@pytest.mark.medium
def test_a_config_of_the_subclass_is_for_every_device(made: Any, driver: Any) -> None:
    tuner = made(Super)
    tuner.files = (4, "torch.float32", "torch.float32"), triton.Config({"BLOCK": 128})
    driver.device = 1

    assert call(tuner) == 128


class Saving(stock.Autotuner):
    """Keeps what was tuned, by Triton's own key."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        result = super().run(*args, **kwargs)
        self.saved = self.cache[args[2], "torch.float32", "torch.float32"]
        return result


@pytest.mark.medium
def test_a_subclass_finds_what_was_tuned_by_tritons_key_on_any_device(
    made: Any, driver: Any, monkeypatch: Any, tmp_path: Any
) -> None:
    def on(index: int) -> int:
        driver.device = index
        monkeypatch.setattr(FakeTensor, "device", f"fake:{index}")
        return call(tuner)

    monkeypatch.setattr(device, "count", lambda: 2)
    tuner = made(Saving)
    assert on(1) == tuner.saved.kwargs["BLOCK"] == 64
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "empty.db"))
    tuner.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])

    assert on(0) == tuner.saved.kwargs["BLOCK"] == 16
    assert on(1) == 64


@pytest.mark.medium
def test_the_time_of_a_bench_of_its_own_counts_once(made: Any, driver: Any) -> None:
    tuner = made(OwnBench)
    call(tuner)

    assert tuner.whet_spent_s == tuner.bench_time


@pytest.mark.medium
@pytest.mark.parametrize("kind", [stock.Autotuner, Super])
def test_what_whets_own_decorator_tuned_is_found(kind: Any, made: Any, driver: Any) -> None:
    tuner = made(kind)
    ours = whet.autotune(tuner.configs, key=["n"])(tuner.fn)
    call(timed(ours))
    call(tuner)

    assert tuner.whet_result.source == "stored"


@pytest.mark.medium
def test_a_loop_of_its_own_gets_whets_timer_and_builds(
    made: Any, driver: Any, compiled: list[tuple[str, bool]]
) -> None:
    tuner = made(Loop)

    assert call(tuner) == 64
    assert [round(one[0] * 1e6) for one in tuner.timings.values()] == [984, 968, 936]
    assert all(cached for _, cached in compiled)  # by the workers
    assert tuner.cache[4].kwargs == {"BLOCK": 64}
    assert tuner.whet_spent_s > 0


@pytest.mark.medium
def test_what_a_loop_cannot_build_is_never_chosen(installing: Any, cold: Any, driver: Any) -> None:
    tuner = kernel(Loop)
    tuner.configs.append(triton.Config({"BLOCK": 64}, num_warps=64))
    installing()
    timed(tuner)

    assert call(tuner) == 64
    assert [one[0] == float("inf") for one in tuner.timings.values()] == [False] * 3 + [True]


@pytest.mark.medium
def test_a_config_that_fails_does_not_end_a_loop(made: Any, driver: Any) -> None:
    tuner = made(Loop)

    def times(config: Any) -> float:
        if config.kwargs["BLOCK"] == 64:
            raise RuntimeError("illegal")
        return 1000.0 - config.kwargs["BLOCK"]

    tuner.whet_timer = told(times)
    with pytest.warns(RuntimeWarning, match=r"double failed with .*illegal"):
        assert call(tuner) == 32


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:warmup, rep:DeprecationWarning")
@pytest.mark.parametrize(
    ("options", "ours"),
    [({}, True), ({"warmup": 25, "rep": 100}, True), ({"rep": 9}, False), ({"do_bench": 1}, False)],
)
def test_a_loop_keeps_a_benchmark_that_somebody_asked_for(
    options: Any, ours: bool, made: Any, driver: Any
) -> None:
    if "do_bench" in options:
        options = {"do_bench": lambda call, quantiles: [1.0, 1.0, 1.0]}
    tuner = made(Loop, **options)
    if not ours:
        tuner._do_bench = lambda call, quantiles: [1.0, 1.0, 1.0]
    call(tuner)

    assert {one[0] == 1.0 for one in tuner.timings.values()} == {not ours}


@pytest.mark.medium
def test_a_bench_of_its_own_is_used(made: Any, driver: Any) -> None:
    tuner = made(OwnBench)

    assert call(tuner) == 64
    assert tuner.benched == list(BLOCKS)


@pytest.mark.medium
def test_a_prune_of_its_own_is_used_with_the_authors(made: Any, driver: Any) -> None:
    def prune(configs: Any, named: Any, **more: Any) -> Any:
        return configs[:2]

    tuner = made(OwnPrune, prune_configs_by={"early_config_prune": prune})

    assert call(tuner) == 32
    assert call(tuner, n=8) == 32
    assert tuner.own is prune


@pytest.mark.medium
def test_hooks_that_a_subclass_puts_there_are_used(made: Any, driver: Any) -> None:
    class Safe(Super):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.pre_hook = self._before
            self.post_hook = lambda named, exception: seen.append("after")

        def _before(self, named: Any, reset_only: bool = False) -> None:
            seen.append("before")
            for name in self.reset_to_zero:
                if named[name] is not None:
                    named[name].zero_()

    seen: list[str] = []
    tuner = made(Safe, reset_to_zero=["out"])
    out = FakeTensor([3.0])
    call(tuner, out=out)

    assert out.values == [0.0]
    assert seen.count("after") >= len(BLOCKS)


class Counting(Super):
    """Puts a hook there and declares nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen_by_hook: list[tuple[int, bool]] = []
        self.pre_hook = self._count

    def _count(self, named: Any, reset_only: bool = False) -> None:
        self.seen_by_hook.append((named["BLOCK"], reset_only))


# Up to 3.7 Triton's own hook after a launch fails where the one before it is not Triton's.
RESTORED = [
    None,
    *([["out"]] if "restore_copies" in stock.Autotuner.__init__.__code__.co_names else []),
]


@pytest.mark.medium
@pytest.mark.parametrize("restored", RESTORED)
def test_a_hook_that_is_put_there_is_called_as_triton_would(
    restored: Any, made: Any, driver: Any
) -> None:
    tuner = made(Counting, restore_value=restored)
    call(tuner)

    assert {block for block, _ in tuner.seen_by_hook} == set(BLOCKS)
    assert [reset for _, reset in tuner.seen_by_hook].count(True) == 1
    assert tuner.seen_by_hook[-1] == (64, True)


@pytest.mark.medium
def test_the_authors_pruning_holds(made: Any, driver: Any) -> None:
    def prune(configs: Any, named: Any, **more: Any) -> Any:
        return configs[:2]

    tuner = made(Super, prune_configs_by={"early_config_prune": prune})

    assert call(tuner) == 32


@pytest.mark.medium
def test_the_compiler_finds_what_was_tuned(made: Any, driver: Any) -> None:
    tuner = made(Super)
    named = {"out": FakeTensor([0.0]), "x": FakeTensor([0.0]), "n": 4}
    assert tuner.early_config_prune is None
    call(tuner)

    (left,) = tuner.early_config_prune(tuner.configs, named)
    assert left.kwargs == {"BLOCK": 64}


@pytest.mark.medium
def test_what_torch_makes_as_it_traces_stays_tritons(installing: Any) -> None:
    installing()
    jit = kernel().fn
    torchs = {"__name__": "torch._higher_order_ops.triton_kernel_wrap", "autotune": stock.autotune}
    exec("def wrapped(configs, fn): return autotune(configs=configs, key=[])(fn)", torchs)
    tuner = torchs["wrapped"]([triton.Config({"BLOCK": 16})] * 2, jit)

    assert type(tuner) is stock.Autotuner
    [reason] = {one.reason for one in whet.installed() if one.how == "left alone"}
    assert "torch.compile" in reason


@pytest.mark.medium
def test_tritons_own_function_makes_kernels_that_are_taken(installing: Any) -> None:
    installing()
    tuner = stock.autotune([triton.Config({"BLOCK": 16})], key=["n"])(kernel().fn)

    assert type(tuner) is Autotuner


@pytest.mark.medium
def test_the_interpreter_takes_the_first_config(made: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    tuner = made(Super)
    launched: list[Any] = []
    monkeypatch.setattr(tuner.fn, "run", lambda *args, **kwargs: launched.append(kwargs["BLOCK"]))
    call(tuner)

    assert launched == [16]


@pytest.mark.medium
def test_nothing_is_tuned_while_a_graph_is_captured(
    made: Any, driver: Any, monkeypatch: Any
) -> None:
    tuner = made(Super)
    monkeypatch.setattr(device, "capturing", lambda: True)

    with pytest.warns(RuntimeWarning, match="cannot be tuned during CUDA graph capture"):
        assert call(tuner) == 16
    assert len(driver.launches) == 1


@pytest.mark.medium
@pytest.mark.parametrize("kind", [stock.Autotuner, Super, ByName])
def test_threads_tune_a_key_once(kind: Any, installing: Any, driver: Any, cold: Any) -> None:
    installing()
    tuner = timed(kernel(kind))
    chosen: list[int] = []
    threads = [threading.Thread(target=lambda: chosen.append(call(tuner))) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert chosen == [64] * 4
    assert cold.measuring_runs() == [1]


@pytest.mark.medium
@pytest.mark.parametrize("kind", KINDS)
def test_uninstalling_restores_class_attributes_and_cache(
    kind: Any, installing: Any, driver: Any
) -> None:
    tuner = kernel(kind)
    before, cache = dict(vars(tuner)), tuner.cache
    installing()
    timed(tuner)
    call(tuner)
    whet.uninstall()

    left = vars(tuner)
    added = {"best_config", "nargs", "bench_time", "configs_timings"}
    own = {"runs", "seen", "timings", "benched", "own"}
    assert type(tuner) is kind
    assert left.keys() - before.keys() <= added | own
    assert {n for n in before if left[n] is not before[n]} <= {"runs"}
    assert tuner.cache is cache
    assert [one.kwargs["BLOCK"] for one in cache.values() if one is not None] == [64]


@pytest.mark.medium
def test_an_uninstalled_kernel_uses_what_was_tuned(installing: Any, driver: Any) -> None:
    tuner = kernel(Super)
    installing()
    call(timed(tuner))
    whet.uninstall()
    tuner._bench = None  # Triton's own loop would call it

    assert call(tuner) == 64


@pytest.mark.medium
def test_uninstalling_leaves_nothing_in_tritons_class() -> None:
    before = dict(vars(stock.Autotuner))
    whet.install()
    whet.uninstall()

    assert dict(vars(stock.Autotuner)) == before


@pytest.mark.medium
def test_a_class_that_cannot_be_helped_is_left_as_it_was(made: Any, driver: Any) -> None:
    tuner = kernel(Clashing)
    before = dict(vars(tuner))
    made()

    assert type(tuner) is Clashing
    assert vars(tuner) == before
    (one,) = [one for one in whet.installed() if one.kind.endswith("Clashing")]
    assert one.how == "left alone"
    assert "Clashing defines _chosen" in one.reason
    assert call(tuner) == 16


@pytest.mark.medium
def test_an_attribute_by_the_name_of_one_of_whets_is_left_alone(made: Any, driver: Any) -> None:
    tuner = kernel(Plain)
    tuner._lookup = "mine"
    made()

    assert (type(tuner), tuner._lookup) == (Plain, "mine")
    (one,) = [one for one in whet.installed() if one.kind.endswith("Plain")]
    assert "Plain sets _lookup" in one.reason


@pytest.mark.usefixtures("cold_binaries")
@pytest.mark.medium
def test_what_uses_up_the_limit_of_builds_is_not_compiled_again(
    made: Any, driver: Any, compiled: list[tuple[str, bool]], monkeypatch: Any
) -> None:
    def built(call: Any, menu: Any, configs: Any) -> dict[str, BuildResult]:
        plain = {config: menu.plain(config) for config in configs}
        slow = [one for config, one in plain.items() if config.kwargs["BLOCK"] != 16]
        return {one.id: BuildResult(one, Status.BUILD_TIMEOUT, error="8 s") for one in slow}

    monkeypatch.setattr(foreign, "build_all", built)

    assert call(made(Loop)) == 16
    assert compiled.count(("double", False)) == 1


@pytest.mark.medium
def test_a_kernel_with_a_run_put_into_it_keeps_that(installing: Any, driver: Any) -> None:
    tuner = kernel()
    seen: list[Any] = []

    def run(*args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return stock.Autotuner.run(tuner, *args, **kwargs)

    tuner.run = run
    installing()

    assert call(timed(tuner)) == call(tuner) == 64
    assert len(seen) == 2
    whet.uninstall()
    assert type(tuner) is stock.Autotuner


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kind", "how"), [(stock.Autotuner, "taken"), (Super, "subclass"), (Loop, "subclass")]
)
def test_every_kernel_is_listed_with_what_it_cost(
    kind: Any, how: str, made: Any, driver: Any
) -> None:
    tuner = made(kind)
    known = len(tuner.cache)
    assert (entry(tuner).how, entry(tuner).called, entry(tuner).seconds) == (how, False, 0.0)
    call(tuner)

    one = entry(tuner)
    assert (one.kernel, one.kind) == ("double", f"{kind.__module__}.{kind.__qualname__}")
    assert (one.called, one.keys) == (True, known + 1)
    assert one.seconds > 0


@pytest.mark.medium
def test_what_whet_decorates_is_listed_as_that(installing: Any) -> None:
    installing()
    tuner = triton.autotune([triton.Config({"BLOCK": 16})], key=["n"])(kernel().fn)

    assert "decorated" in {one.how for one in whet.installed() if one.place == place(tuner)}


@pytest.mark.medium
def test_without_installing_kernels_are_listed_as_left_alone() -> None:
    tuner = kernel(Super)

    assert entry(tuner).how == "left alone"
    assert "whet.install()" in entry(tuner).reason


def library() -> tuple[Callable[[], None], Callable[[], None]]:
    """Reassigns `triton.autotune` for its users, and puts Triton's back, as FLA does."""

    def autotune(configs: Any, key: Any) -> Any:
        return lambda fn: Super(fn, fn.arg_names, configs, key, None, None)

    def configure() -> None:
        triton.autotune = autotune

    def restore() -> None:
        triton.autotune = stock.autotune

    return configure, restore


def decorated() -> Any:
    """By whatever `triton.autotune` is now."""
    configs = [triton.Config({"BLOCK": block}) for block in BLOCKS]
    return timed(triton.autotune(configs, key=["n"])(kernel().fn))


@pytest.mark.medium
@pytest.mark.parametrize("first", [True, False])
def test_a_library_may_reassign_the_decorator(
    first: bool, installing: Any, driver: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(triton, "autotune", stock.autotune)
    configure, restore = library()
    steps = [configure, installing] if first else [installing, configure]
    for step in steps:
        step()
    theirs = decorated()
    assert isinstance(theirs, Super)
    assert call(theirs) == 64
    restore()
    tritons = decorated()
    assert call(tritons) == 64

    assert isinstance(theirs, Autotuner)
    assert isinstance(tritons, Autotuner)
    whet.uninstall()
    assert triton.autotune is stock.autotune
    assert type(theirs) is Super


@pytest.mark.medium
def test_uninstalling_leaves_a_librarys_decorator_in_place(
    installing: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(triton, "autotune", stock.autotune)
    configure, _ = library()
    installing()
    configure()
    theirs = triton.autotune
    whet.uninstall()

    assert triton.autotune is theirs


@pytest.mark.medium
def test_a_known_call_is_not_looked_into_again(made: Any, driver: Any, monkeypatch: Any) -> None:
    tuner = made(Super)
    call(tuner)
    monkeypatch.setattr(tuner, "_chosen", None)

    assert call(tuner) == 64
    assert tuner.seen.kwargs == {"BLOCK": 64}


@pytest.mark.medium
def test_a_config_of_the_subclass_wins_over_a_stopgap(made: Any, driver: Any) -> None:
    tuner = made(Super)
    with whet.mode("cached"):
        assert call(tuner) == call(tuner) == 16
        tuner.files = (4, "torch.float32", "torch.float32"), triton.Config({"BLOCK": 128})
        assert call(tuner) == 128


@pytest.mark.medium
def test_keywords_reach_the_kernel(made: Any, driver: Any) -> None:
    tuner = made(Super)
    for _ in range(2):
        tuner[(1,)](FakeTensor([0.0]), x=FakeTensor([1.0], address=8192), n=4)

    assert tuner.seen.kwargs == {"BLOCK": 64}
    assert tuner.runs == 2


@pytest.mark.slow
def test_an_optional_tensor_may_be_missing(made: Any, driver: Any) -> None:
    @triton.jit
    def double(out, x, bias, n, WITH_BIAS: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        if WITH_BIAS:
            value += tl.load(bias + offsets, mask=offsets < n)
            tl.store(bias + offsets, value, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    class Safe(Super):
        """As FLA's: Triton's own hooks did not expect None up to 3.7."""

        def __init__(self, _: Any, __: Any, configs: Any, key: Any, **more: Any) -> None:
            super().__init__(double, double.arg_names, configs, key, ["bias"], ["bias"])
            self.restore_copies: dict[str, Any] = {}

            def pre_hook(named: Any, reset_only: bool = False) -> None:
                if named["bias"] is not None:
                    named["bias"].zero_()

            def post_hook(named: Any, exception: Any) -> None:
                for name, copy in self.restore_copies.items():
                    named[name].copy_(copy)

            self.pre_hook, self.post_hook = pre_hook, post_hook

    tuner = made(Safe)
    x, bias = FakeTensor([1.0], address=8192), FakeTensor([5.0], address=65536)
    tuner[(1,)](FakeTensor([0.0]), x, None, 4, False)
    assert tuner.seen.kwargs == {"BLOCK": 64}
    tuner[(1,)](FakeTensor([0.0]), x, bias, 4, True)
    assert tuner.seen.kwargs == {"BLOCK": 64}


@pytest.mark.medium
def test_a_launcher_may_be_held_for_longer_than_whet_is_installed(
    installing: Any, driver: Any
) -> None:
    tuner = kernel(Plain)
    installing()
    launch = timed(tuner)[(1,)]
    args = FakeTensor([0.0]), FakeTensor([1.0], address=8192), 4
    launch(*args)
    whet.uninstall()
    launch(*args)

    assert tuner.best_config.kwargs == {"BLOCK": 64}


class Late(stock.Autotuner):
    """Does not call Triton's constructor."""

    def __init__(self, fn: Any, arg_names: Any, configs: Any, key: Any, **more: Any) -> None:
        self.fn, self.base_fn, self.arg_names = fn, fn.fn, arg_names
        self.configs, self.keys = configs, key

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.best_config = self.configs[0]
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


@pytest.mark.medium
def test_a_class_that_lacks_what_tritons_has_is_left_as_it_was(
    installing: Any, driver: Any
) -> None:
    tuner = kernel(Late)
    installing()

    assert type(tuner) is Late
    assert "_do_bench" in entry(tuner).reason
    assert call(tuner) == 16


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed")
@pytest.mark.parametrize("mode", ["tune", "cached"])
@pytest.mark.parametrize("kind", [stock.Autotuner, Super])
def test_torch_compile_takes_what_was_tuned(
    kind: Any, mode: Any, made: Any, driver: Any, monkeypatch: Any
) -> None:
    import torch
    import torch.utils._triton
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    monkeypatch.setattr(torch.utils._triton, "has_triton", lambda: True)  # without a GPU
    tuner = made(kind)

    def double(x: Any) -> Any:
        out = torch.zeros_like(x)
        tuner[(1,)](out, x, 4)
        return out

    double(torch.ones(4))
    driver.launches.clear()
    kernel_side_table.reset_table()
    torch._dynamo.reset()
    with whet.mode(mode):
        torch.compile(double, backend=lambda graph, _: graph.forward, fullgraph=True)(torch.ones(4))

    traced = list(kernel_side_table.id_to_kernel.values())[-1]
    kernel_side_table.reset_table()
    assert [config.kwargs for config in traced.configs] == [{"BLOCK": 64}]
    assert type(traced) is stock.Autotuner
    assert len(driver.launches) == 1
