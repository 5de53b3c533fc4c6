"""What people and libraries rely on in `triton.autotune` holds for `whet.autotune`."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import importlib
import inspect
import math
import re

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton import knobs
from triton.runtime import autotuner as stock
from triton.runtime.driver import driver as active
from triton.runtime.errors import OutOfResources

import whet
from whet.testing.fake_triton import FakeTensor, fake_driver, told

pytestmark = pytest.mark.usefixtures("warm_binaries")

PRINTED = "Triton autotuning for function double"
ATTRIBUTES = [
    "fn",
    "base_fn",
    "arg_names",
    "configs",
    "keys",
    "cache",
    "cache_results",
    "restore_value",
    "reset_to_zero",
    "restore_copies",
    "pre_hook",
    "post_hook",
    "user_defined_pre_hook",
    "user_defined_post_hook",
    "perf_model",
    "configs_top_k",
    "early_config_prune",
    "do_bench",
    "num_warmups",
    "num_reps",
    "use_cuda_graph",
    "run",
    "warmup",
    "prune_configs",
]
AFTER_TUNING = ["best_config", "nargs", "bench_time", "configs_timings"]


def configs(*blocks, **options):
    return [triton.Config({"BLOCK": block}, **options) for block in blocks]


def double_kernel():
    """A new one each time: a `JITFunction` remembers what it has compiled."""

    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    return double


def tuned(listed=None, key=("n",), **options):
    """Smaller blocks are quicker."""
    listed = configs(128, 256) if listed is None else listed
    tuner = whet.autotune(configs=listed, key=list(key), **options)(double_kernel())
    tuner.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    return tuner


def pair(dtype="float32"):
    return FakeTensor([0.0] * 4, dtype), FakeTensor([1.0] * 4, dtype)


@pytest.fixture
def driver():
    with fake_driver() as fake:
        yield fake


def test_the_decorator_takes_tritons_parameters_in_tritons_order():
    ours = list(inspect.signature(whet.autotune).parameters)
    theirs = list(inspect.signature(stock.autotune).parameters)
    assert ours[: len(theirs)] == theirs


def test_what_it_makes_is_an_autotuner_of_tritons():
    assert isinstance(tuned(), stock.Autotuner)


@pytest.mark.medium
def test_every_attribute_people_touch_is_there(driver):
    kernel = tuned()
    theirs = stock.autotune(configs(128, 256), ["n"])(double_kernel())
    known = [name for name in ATTRIBUTES if hasattr(theirs, name)]
    assert [name for name in known if not hasattr(kernel, name)] == []
    kernel[(1,)](*pair(), 4)
    assert [name for name in AFTER_TUNING if not hasattr(kernel, name)] == []


def test_no_configs_mean_one_default():
    (only,) = tuned([]).configs
    assert only.all_kwargs() == {"num_warps": 4, "num_ctas": 1, "num_stages": 3}


@pytest.mark.medium
def test_one_config_is_launched_and_not_measured(driver, cold):
    kernel = tuned(configs(256))
    kernel[(1,)](*pair(), 4)
    assert driver.launches == [("double", (1, 1, 1))]
    assert kernel.best_config.kwargs == {"BLOCK": 256}
    assert not cold.trials()


@pytest.mark.medium
def test_the_fastest_is_chosen_and_every_config_has_its_timings(driver):
    kernel = tuned(configs(512, 128, 256))
    kernel[(1,)](*pair(), 4)
    assert kernel.best_config.kwargs == {"BLOCK": 128}
    assert set(kernel.configs_timings) == set(kernel.configs)
    assert all(len(times) == 3 for times in kernel.configs_timings.values())
    assert kernel.nargs is None


@pytest.mark.medium
def test_the_key_has_the_named_values_and_the_dtypes(driver):
    kernel = tuned()
    kernel[(1,)](*pair(), 4)
    kernel[(1,)](*pair("float16"), 4)
    single, half = ["torch.float32"] * 2, ["torch.float16"] * 2
    assert list(kernel.cache) == [(4, *single), (4, *half)]


@pytest.mark.medium
def test_positional_and_keyword_calls_share_a_key(driver, cold):
    kernel = tuned()
    out, x = pair()
    kernel[(1,)](out, x, 4)
    kernel[(1,)](out, x, n=4)
    kernel[(1,)](out, x=x, n=4)
    assert len(kernel.cache) == 1
    assert cold.measuring_runs() == [1]


@pytest.mark.medium
def test_early_pruning_gets_positional_arguments_and_keywords_apart(driver, cold):
    seen = []

    def prune(listed, nargs, **keywords):
        seen.append((sorted(nargs), keywords["n"]))
        return [config for config in listed if config.kwargs["BLOCK"] < 512]

    kernel = tuned(configs(128, 256, 512), prune_configs_by={"early_config_prune": prune})
    kernel[(1,)](*pair(), n=4)
    assert seen == [(["out", "x"], 4)]
    assert cold.measured() == {128, 256}


@pytest.mark.medium
def test_a_list_pruned_to_one_is_not_measured(driver, cold):
    kernel = tuned(prune_configs_by={"early_config_prune": lambda listed, nargs, **_: listed[1:]})
    kernel[(1,)](*pair(), 4)
    assert kernel.best_config.kwargs == {"BLOCK": 256}
    assert len(driver.launches) == 1
    assert not cold.trials()


def test_nothing_left_after_pruning_is_tritons_error(driver):
    kernel = tuned(prune_configs_by={"early_config_prune": lambda *_, **__: []})
    with pytest.raises(stock.AutotunerError, match="No valid autotuner configs after pruning"):
        kernel[(1,)](*pair(), 4)


@pytest.mark.medium
@pytest.mark.parametrize(("top_k", "left"), [(2, {64, 128}), (0.5, {64, 128}), (1.0, None)])
def test_a_model_keeps_the_best_it_predicts(driver, cold, top_k, left):
    def model(out, x, n, BLOCK, num_warps, **_):
        return BLOCK

    listed = configs(512, 128, 256, 64)
    pruning = {"perf_model": model, "top_k": top_k}
    tuned(listed, prune_configs_by=pruning)[(1,)](*pair(), 4)
    assert cold.measured() == (left or {64, 128, 256, 512})


def test_a_parameter_both_passed_and_tuned_is_a_conflict(driver):
    with pytest.raises(ValueError, match=r"Conflicting meta-parameters: BLOCK\. Make sure that"):
        tuned()[(1,)](*pair(), 4, BLOCK=64)
    assert driver.launches == []


class Hooks:
    """One letter for each thing that happens: c config's hook, b before, l launch, a after,
    x after with an exception, r reset only."""

    def __init__(self, driver):
        self.text = ""
        self.exceptions = []
        driver.on_launch = lambda *_: self._note("l")

    def _note(self, letter):
        self.text += letter

    def config(self, arguments):
        assert arguments["n"] == 4
        self._note("c")

    def before(self, arguments, reset_only=False):
        assert arguments["n"] == 4
        assert "BLOCK" in arguments
        self._note("r" if reset_only else "b")

    def after(self, arguments, exception):
        self._note("a" if exception is None else "x")
        if exception is not None:
            self.exceptions.append(exception)


@pytest.mark.medium
def test_hooks_surround_every_launch_of_the_tuning_in_tritons_order(driver):
    hooks = Hooks(driver)
    listed = configs(128, 256, pre_hook=hooks.config)
    tuned(listed, pre_hook=hooks.before, post_hook=hooks.after)[(1,)](*pair(), 4)
    assert re.fullmatch("(cbla){2,}rcl", hooks.text)


@pytest.mark.medium
def test_hooks_of_a_tuned_key_are_the_chosen_configs_only(driver):
    hooks = Hooks(driver)
    listed = configs(128, 256, pre_hook=hooks.config)
    kernel = tuned(listed, pre_hook=hooks.before, post_hook=hooks.after)
    kernel[(1,)](*pair(), 4)
    hooks.text = ""
    kernel[(1,)](*pair(), 4)
    kernel[(1,)](*pair(), 4)
    assert hooks.text == "clcl"


def own_benchmark(call, quantiles):
    call()
    return [1.0, 1.0, 1.0]


@pytest.mark.medium
@pytest.mark.parametrize("benchmark", [None, own_benchmark], ids=["ours", "the user's"])
def test_a_refused_config_is_told_to_the_hooks_once_and_never_launched(driver, benchmark):
    hooks = Hooks(driver)
    listed = configs(128, 256) + configs(512, num_warps=64)
    kernel = tuned(listed, pre_hook=hooks.before, post_hook=hooks.after, do_bench=benchmark)
    kernel[(1,)](*pair(), 4)
    (error,) = hooks.exceptions
    assert isinstance(error, OutOfResources)
    assert (error.required, error.limit, error.name) == (2048, 1024, "threads")
    assert re.fullmatch("(bla|bx){3,}rl", hooks.text)
    assert kernel.configs_timings[listed[2]] == [math.inf] * 3


@pytest.mark.medium
def test_hooks_are_told_of_refused_configs_though_none_is_left(driver):
    hooks = Hooks(driver)
    listed = configs(128, 256, num_warps=64)
    with pytest.raises(OutOfResources):
        tuned(listed, pre_hook=hooks.before, post_hook=hooks.after)[(1,)](*pair(), 4)
    assert hooks.text == "bxbxr"


@pytest.mark.medium
def test_configs_that_differ_in_their_hooks_only_are_all_tried(driver):
    called = set()

    def hook(name):
        return lambda arguments: called.add(name)

    listed = [triton.Config({"BLOCK": 128}, pre_hook=hook(name)) for name in ("one", "two")]
    tuned(listed)[(1,)](*pair(), 4)
    assert called == {"one", "two"}


@pytest.mark.medium
def test_a_launch_that_fails_is_told_to_the_hooks(driver):
    hooks = Hooks(driver)

    def launch(name, arguments):
        if arguments[-1] == 256:
            raise RuntimeError("device lost")
        hooks.text += "l"

    driver.on_launch = launch
    kernel = tuned(pre_hook=hooks.before, post_hook=hooks.after)
    kernel[(1,)](*pair(), 4)
    assert [str(error) for error in hooks.exceptions] == ["device lost"]
    assert re.fullmatch("(bla|bx)+rl", hooks.text)
    assert kernel.best_config.kwargs == {"BLOCK": 128}


@pytest.mark.medium
def test_a_users_benchmark_is_called_once_for_each_usable_config(driver):
    seen = []

    def benchmark(call, quantiles):
        call()
        seen.append(quantiles)
        return [float(len(seen)), 0.0, 9.0]

    kernel = tuned(configs(128, 256) + configs(512, num_warps=64), do_bench=benchmark)
    kernel[(1,)](*pair(), 4)
    assert seen == [(0.5, 0.2, 0.8)] * 2
    one, two, refused = kernel.configs
    assert kernel.configs_timings[one] == [1.0, 0.0, 9.0]
    assert kernel.configs_timings[two] == [2.0, 0.0, 9.0]
    assert kernel.configs_timings[refused] == [math.inf] * 3
    assert kernel.best_config is one
    assert len(driver.launches) == 3


@pytest.mark.medium
def test_results_of_a_users_benchmark_compare_as_lists(driver):
    answers = iter([[1.0, 3.0], [1.0, 2.0]])
    kernel = tuned(do_bench=lambda call, quantiles: next(answers))
    kernel[(1,)](*pair(), 4)
    assert kernel.best_config.kwargs == {"BLOCK": 256}


@pytest.mark.medium
def test_what_a_user_benchmarks_was_compiled_beforehand(driver, compiled):
    tuned(do_bench=own_benchmark)[(1,)](*pair(), 4)
    assert compiled == [("double", True)] * 2


@pytest.mark.parametrize("options", [{"warmup": 5, "rep": 10}, {"use_cuda_graph": True}])
def test_the_old_ways_of_timing_are_still_taken(options):
    with pytest.warns(DeprecationWarning, match="warmup, rep, and use_cuda_graph"):
        kernel = tuned(**options)
    assert (kernel.num_warmups, kernel.num_reps) == (options.get("warmup"), options.get("rep"))
    assert kernel.use_cuda_graph is options.get("use_cuda_graph", False)


@pytest.mark.medium
def test_a_tuning_is_printed_in_tritons_words_and_a_stored_one_is_not(driver, monkeypatch, capsys):
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    tuned()[(1,)](*pair(), 4)
    printed = capsys.readouterr().out
    assert f"{PRINTED},\nwith key as (4, 'torch.float32', 'torch.float32'),\n" in printed
    assert "best config selected: BLOCK: 128, num_warps: 4" in printed
    tuned()[(1,)](*pair(), 4)
    assert capsys.readouterr().out == ""


@pytest.mark.medium
def test_each_config_is_printed_as_triton_prints_it(driver, monkeypatch, capsys):
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    theirs = stock.autotune(configs(128, 256), ["n"], do_bench=lambda call, quantiles: [1.0] * 3)
    theirs(double_kernel())[(1,)](*pair(), 4)
    expected = [line for line in capsys.readouterr().out.splitlines() if " with config " in line]
    tuned()[(1,)](*pair(), 4)
    printed = [line for line in capsys.readouterr().out.splitlines() if " with config " in line]
    assert len(expected) == 2
    assert sorted(printed) == sorted(expected)


@pytest.mark.medium
def test_a_config_that_cannot_be_built_is_printed_with_the_reason(driver, monkeypatch, capsys):
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    tuned(configs(100, 128))[(1,)](*pair(), 4)
    printed = capsys.readouterr().out
    assert "Autotuning kernel double with config BLOCK: 100, num_warps: 4" in printed
    assert "Autotuning failed with CompilationError: arange's range must be a power of 2" in printed


@pytest.mark.medium
@pytest.mark.skipif(
    not hasattr(type(knobs.autotuning), "listener"), reason="this Triton has no such listener"
)
def test_the_listener_hears_of_each_tuning_once_and_whether_it_was_stored(driver, monkeypatch):
    heard = []
    monkeypatch.setattr(knobs.autotuning, "listener", lambda **told: heard.append(told))
    for _ in range(2):
        kernel = tuned()
        kernel[(1,)](*pair(), 4)
        kernel[(1,)](*pair(), 4)
    assert [told["cache_hit"] for told in heard] == [False, True]
    assert heard[0]["duration"] > 0
    assert heard[1]["duration"] is None
    assert heard[1]["fn"] is kernel.fn
    assert heard[1]["key"] == (4, "torch.float32", "torch.float32")
    assert heard[1]["best_config"] is kernel.best_config
    assert set(heard[1]["configs_timings"]) == set(kernel.configs)


@pytest.mark.medium
def test_a_cleared_cache_asks_the_store_again_and_builds_nothing(driver, cold, compiled):
    kernel = tuned()
    kernel[(1,)](*pair(), 4)
    before = list(compiled), len(driver.launches), cold.trials(superseded=True)
    kernel.cache.clear()
    assert not kernel.cache
    kernel[(1,)](*pair(), 4)
    assert len(kernel.cache) == 1
    assert (compiled, len(driver.launches) - 1, cold.trials(superseded=True)) == before


@pytest.mark.medium
def test_a_cache_replaced_by_a_plain_dictionary_is_used(driver):
    kernel = tuned()
    kernel[(1,)](*pair(), 4)
    slow = kernel.configs[1]
    kernel.cache = {(4, "torch.float32", "torch.float32"): slow}
    kernel[(1,)](*pair(), 4)
    assert kernel.best_config is slow


@pytest.mark.medium
def test_a_config_put_into_the_cache_by_hand_is_used(driver):
    kernel = tuned()
    kernel[(1,)](*pair(), 4)
    (key,) = kernel.cache
    kernel.cache[key] = kernel.configs[1]
    kernel[(1,)](*pair(), 4)
    assert kernel.best_config is kernel.configs[1]


@pytest.mark.medium
def test_assigned_configs_are_those_that_are_tuned(driver, cold):
    kernel = tuned()
    kernel.configs = configs(512, 1024)
    kernel[(1,)](*pair(), 4)
    assert cold.measured() == {512, 1024}


@pytest.mark.medium
def test_one_config_assigned_after_a_tuning_is_the_one_launched(driver):
    kernel = tuned()
    kernel[(1,)](*pair(), 4)
    kernel.configs = configs(1024)
    kernel[(1,)](*pair(), 4)
    assert kernel.best_config.kwargs == {"BLOCK": 1024}


@pytest.mark.medium
def test_an_argument_of_the_key_that_is_none_has_a_key_of_its_own(driver):
    @triton.jit
    def optional(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        if x is not None:
            tl.store(out + offsets, tl.load(x + offsets), mask=offsets < n)

    kernel = whet.autotune(configs=configs(128, 256), key=["n"])(optional)
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    out, x = pair()
    for source in (x, None, x, None):
        kernel[(1,)](out, source, 4)
    assert list(kernel.cache) == [(4, "torch.float32", "torch.float32"), (4, "torch.float32")]


@pytest.mark.usefixtures("cold_binaries")
@pytest.mark.medium
def test_warming_up_compiles_every_pruned_config_and_launches_none(driver, cold):
    pruning = {"early_config_prune": lambda listed, nargs, **_: listed[:2]}
    kernel = tuned(configs(128, 256, 512), prune_configs_by=pruning)
    found = kernel.warmup(*pair(), 4, grid=(1,))
    assert isinstance(found, list)
    assert len(found) == len(cold.files("cubin")) == 2
    assert driver.launches == []


@pytest.mark.medium
def test_a_call_returns_what_a_launch_returns(driver):
    kernel = tuned()
    for _ in range(2):
        assert kernel[(1,)](*pair(), 4).metadata.name == "double"


@pytest.mark.medium
def test_the_short_way_finds_in_memory_what_the_tuning_has_compiled(driver, compiled):
    kernel = tuned()
    kernel[(1,)](*pair(), 4)
    before = list(compiled)
    kernel[(1,)](*pair(), 4)
    assert compiled == before


@pytest.mark.medium
def test_a_grid_may_be_a_function_of_the_chosen_config(driver):
    kernel = tuned()
    for _ in range(2):
        kernel[lambda meta: (triton.cdiv(1024, meta["BLOCK"]),)](*pair(), 4)
    assert driver.launches[-2:] == [("double", (8, 1, 1))] * 2


def test_without_a_driver_the_error_says_what_is_missing(monkeypatch):
    # As an attribute of its package, the name of that module is the driver in use.
    monkeypatch.setattr(importlib.import_module("triton.runtime.driver"), "backends", {})
    for remembered in ("_active", "_default"):
        monkeypatch.setattr(active, remembered, None)
    with pytest.raises(
        whet.UsageError, match=r"finds no GPU .*whet precompile.*TRITON_INTERPRET=1"
    ):
        tuned()[(1,)](*pair(), 4)


@pytest.mark.medium
def test_installing_replaces_tritons_decorator_until_it_is_taken_out():
    theirs, inner = triton.autotune, stock.autotune
    whet.install()
    try:
        whet.install()
        assert triton.autotune is triton.runtime.autotune is whet.autotune
        assert stock.autotune is inner
    finally:
        whet.uninstall()
    assert triton.autotune is triton.runtime.autotune is theirs


@pytest.mark.medium
def test_what_a_users_own_benchmark_said_is_kept_as_that(driver):
    answers = iter([[3.0, 2.9, 3.1], [1.0, 0.9, 1.1]])
    kernel = tuned(do_bench=lambda call, quantiles: next(answers))
    kernel[(1,)](*pair(), 4)
    with whet.open_store() as store:
        (summary,) = store.workloads()
        assert summary.workload.toolchain["timer"] == "do_bench"
        timings = {t.config["BLOCK"]: t.timing for t in store.trials(summary.workload.id)}
    assert sorted(t.foreign.median_ns for t in timings.values()) == [1e6, 3e6]
    assert all(t.samples == () for t in timings.values())


@pytest.mark.medium
def test_a_store_that_cannot_be_used_does_not_stop_a_kernel(driver, monkeypatch, tmp_path):
    (tmp_path / "not-a-store").write_text("something else")
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "not-a-store"))
    kernel = tuned()
    with pytest.warns(RuntimeWarning, match="results will not be saved"):
        kernel[(1,)](*pair(), 4)
    assert kernel.best_config is not None
