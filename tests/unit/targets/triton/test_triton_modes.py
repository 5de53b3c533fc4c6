"""A Triton kernel in each mode: what it launches, compiles, opens and writes down."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import logging
import threading
from dataclasses import replace

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.core.errors import NotTunedError, UsageError
from whet.engine.fallback import calls
from whet.engine.fallback.mode import current_mode
from whet.testing.fake_triton import FakeTensor, fake_driver, told

pytestmark = pytest.mark.usefixtures("warm_binaries")

BLOCKS = (128, 256, 512)


def kernel(**options):
    """A new one each time, as a new process has it. The largest block is the fastest."""

    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    configs = [triton.Config({"BLOCK": block}) for block in BLOCKS]
    made = whet.autotune(configs=configs, key=["n"], **options)(double)
    made.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
    return made


def call(made, n=4, dtype="float32"):
    made[(1,)](FakeTensor([0.0], dtype), FakeTensor([1.0], dtype, address=8192), n)
    return made.best_config.kwargs["BLOCK"]


def missed(cold):
    with whet.open_store(cold.store) as store:
        return store.missed()


@pytest.fixture
def driver():
    with fake_driver() as fake:
        yield fake


@pytest.fixture
def opened(monkeypatch):
    """The places of the stores that a kernel has opened."""
    seen = []

    def opening(path, **options):
        seen.append(path)
        return whet.open_store(path, **options)

    monkeypatch.setattr(calls, "open_store", opening)
    monkeypatch.setattr(calls, "_last", None)
    return seen


@pytest.mark.medium
def test_a_stored_result_is_used_with_one_launch_and_one_compilation(driver, compiled):
    with whet.mode("tune"):
        assert call(kernel()) == 512
    driver.launches.clear()
    compiled.clear()
    with whet.mode("cached"):
        again = kernel()
        assert call(again) == 512
        assert call(again) == 512
    assert len(driver.launches) == 2
    assert compiled == [("double", True)]
    assert list(again.cache.values()) == [again.best_config]


@pytest.mark.medium
def test_a_key_that_is_not_known_takes_the_nearest_known_one(driver):
    call(kernel())
    driver.launches.clear()
    with whet.mode("cached"):
        assert call(kernel(), n=8) == 512
    assert len(driver.launches) == 1


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["cached", "record", "off"])
def test_a_kernel_that_is_not_known_takes_the_first_config(driver, compiled, mode):
    with whet.mode(mode):
        assert call(kernel()) == 128
    assert len(driver.launches) == len(compiled) == 1


@pytest.mark.medium
def test_cached_makes_no_store(driver, cold):
    with whet.mode("cached"):
        call(kernel())
    assert not cold.store.exists()


@pytest.mark.medium
def test_off_opens_no_store_though_there_is_one(driver, cold, opened):
    call(kernel())
    opened.clear()
    with whet.mode("off"):
        made = kernel()
        assert [call(made), call(made)] == [128, 128]
    assert opened == []


@pytest.mark.medium
def test_off_leaves_what_was_tuned_for_the_other_modes(driver):
    made = kernel()
    assert call(made) == 512
    with whet.mode("off"):
        assert call(made) == 128
    assert call(made) == 512


@pytest.mark.medium
def test_cached_opens_the_store_once_for_many_keys(driver, opened):
    call(kernel())
    calls._last.store.close()
    calls._last = None
    opened.clear()
    with whet.mode("cached"):
        made = kernel()
        for n in (4, 5, 6):
            call(made, n=n)
    assert len(opened) == 1


@pytest.mark.medium
def test_require_takes_an_exact_result(driver):
    call(kernel())
    with whet.mode("require"):
        assert call(kernel()) == 512


@pytest.mark.medium
def test_require_names_kernel_key_device_and_the_command(driver, cold):
    def inputs(n, dtype="float32"):
        return (1,), (FakeTensor([0.0], dtype), FakeTensor([0.0], dtype), n)

    call(kernel())
    driver.launches.clear()
    with whet.mode("require"), pytest.raises(NotTunedError) as told:
        call(kernel(inputs=inputs), n=8, dtype="float16")
    text = str(told.value)
    assert "double(n=8, out.dtype=torch.float16, x.dtype=torch.float16) on cuda 90" in text
    command = f"whet tune FILE.py:double --key n=8,dtype=float16 --store {cold.store}"
    assert text.endswith(command)
    assert isinstance(told.value, UsageError)
    assert driver.launches == []


def test_require_says_what_to_do_where_the_command_needs_inputs(driver):
    with whet.mode("require"), pytest.raises(NotTunedError) as told:
        call(kernel())
    assert str(told.value).endswith(
        "; call it once in mode 'tune', or write a function that makes (grid, args) from a key and "
        "run: whet tune FILE.py:double --key n=4 --inputs FILE.py:FUNCTION"
    )


MODULE = """
import triton
import triton.language as tl
import whet

@whet.autotune(configs=[triton.Config({"BLOCK": b}) for b in (128, 256)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def scale(out, x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)

wrapped = triton.heuristics({})(scale)
"""


def test_a_kernel_of_a_module_is_named_by_file_and_object(driver, tmp_path, monkeypatch):
    path = tmp_path / "module_of_scale.py"
    path.write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    import module_of_scale

    with whet.mode("require"), pytest.raises(NotTunedError, match=rf"whet tune {path}:scale "):
        call(module_of_scale.scale)


@pytest.mark.medium
def test_record_writes_each_key_down_once(driver, cold):
    with whet.mode("record"):
        made = kernel()
        for n in (4, 8, 4, 8):
            call(made, n=n)
        call(kernel(), n=4)
    assert len(driver.launches) == 5
    assert [dict(miss.workload.key)["n"] for miss in missed(cold)] == [4, 8]
    assert [(a.name, a.dtype, a.value) for a in missed(cold)[0].arguments] == [
        ("out", "torch.float32", None),
        ("x", "torch.float32", None),
        ("n", "", 4),
    ]


@pytest.mark.medium
def test_record_writes_nothing_down_for_a_stored_key(driver, cold):
    call(kernel())
    with whet.mode("record"):
        assert call(kernel()) == 512
    assert missed(cold) == []


@pytest.mark.medium
def test_a_key_is_off_the_list_once_it_is_tuned(driver, cold):
    with whet.mode("record"):
        call(kernel())
    assert len(missed(cold)) == 1
    call(kernel())
    assert missed(cold) == []


@pytest.mark.medium
def test_a_choice_made_without_tuning_is_replaced_when_tuning_is_allowed(driver):
    made = kernel()
    with whet.mode("cached"):
        assert call(made) == 128
        assert made.cache == {}
    with whet.mode("tune"):
        assert call(made) == 512
    with whet.mode("cached"):
        assert call(made) == 512


@pytest.mark.medium
def test_a_choice_made_without_tuning_does_not_satisfy_require(driver):
    made = kernel()
    with whet.mode("cached"):
        call(made)
    with whet.mode("require"), pytest.raises(NotTunedError):
        call(made)


@pytest.mark.medium
def test_the_kernels_own_mode_outranks_the_context_and_the_context_the_environment(
    driver, monkeypatch
):
    monkeypatch.setenv("WHET_MODE", "off")
    assert call(kernel()) == 128
    with whet.mode("tune"):
        assert call(kernel()) == 512
        assert call(kernel(mode="off")) == 128
    assert call(kernel(mode="cached")) == 512


@pytest.mark.medium
def test_another_variable_is_noticed_at_the_next_new_key(driver, monkeypatch):
    made = kernel()
    monkeypatch.setenv("WHET_MODE", "cached")
    assert call(made, n=4) == 128
    monkeypatch.setenv("WHET_MODE", "tune")
    assert call(made, n=5) == 512
    assert call(made, n=4) == 512


@pytest.mark.medium
def test_a_kernels_mode_can_be_changed(driver):
    made = kernel(mode="off")
    assert call(made) == 128
    made.whet_mode = "tune"
    assert call(made) == 512


def test_a_mode_that_is_none_is_refused_when_the_kernel_is_decorated():
    with pytest.raises(UsageError, match=r"mode 'chached' .*did you mean 'cached'"):
        kernel(mode="chached")


@pytest.mark.medium
def test_threads_may_be_in_different_modes_at_once(driver):
    made = kernel()
    call(made)
    launch, launched = made.fn.run, {mode: set() for mode in ("off", "cached", "tune")}

    def launching(*args, **keywords):
        launched[current_mode()].add(keywords["BLOCK"])
        return launch(*args, **keywords)

    made.fn.run = launching

    def work(mode):
        with whet.mode(mode):
            for _ in range(200):
                call(made)

    threads = [threading.Thread(target=work, args=(mode,)) for mode in launched]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert launched == {"off": {128}, "cached": {512}, "tune": {512}}


@pytest.mark.medium
def test_a_hook_of_the_chosen_config_is_run(driver):
    ran = []
    made = kernel()
    made.configs[0].pre_hook = lambda arguments: ran.append(arguments["n"])
    with whet.mode("cached"):
        call(made)
        call(made)
    assert ran == [4, 4]


@pytest.mark.medium
def test_a_warm_up_compiles_the_config_in_use_alone(driver, compiled):
    call(kernel())
    compiled.clear()
    with whet.mode("cached"):
        kernel().warmup(FakeTensor([0.0]), FakeTensor([1.0], address=8192), 4, grid=(1,))
    assert compiled == [("double", True)]


@pytest.mark.medium
def test_nothing_is_compiled_or_benchmarked_during_graph_capture(driver, compiled, monkeypatch):
    from whet.targets.triton import device

    monkeypatch.setattr(device, "capturing", lambda: True)
    with whet.mode("cached"):
        assert call(kernel()) == 128
    assert len(driver.launches) == len(compiled) == 1


# Benchmark functions of the user's own, and Triton's own file of results


def counted():
    calls = []

    def do_bench(run, quantiles):
        calls.append(run())
        return [10.0 - len(calls)] * 3

    return do_bench, calls


@pytest.mark.medium
def test_a_users_own_benchmark_is_not_run_and_what_it_said_is_known(driver):
    do_bench, calls = counted()
    assert call(kernel(do_bench=do_bench)) == 512
    calls.clear()
    with whet.mode("require"):
        assert call(kernel(do_bench=do_bench)) == 512
    assert calls == []


@pytest.mark.medium
def test_what_a_users_own_benchmark_said_is_no_result_of_ours(driver):
    do_bench, _ = counted()
    call(kernel(do_bench=do_bench))
    with whet.mode("require"), pytest.raises(NotTunedError):
        call(kernel())


@pytest.mark.medium
def test_a_missed_key_of_a_users_own_benchmark_goes_when_it_is_tuned(driver, cold):
    do_bench, calls = counted()
    with whet.mode("record"):
        call(kernel(do_bench=do_bench))
    assert calls == []
    assert len(missed(cold)) == 1
    call(kernel(do_bench=do_bench))
    assert missed(cold) == []


@pytest.mark.medium
def test_tritons_own_file_is_read_and_no_stopgap_is_written_to_it(driver, cold):
    with whet.mode("cached"):
        assert call(kernel(cache_results=True)) == 128
    assert cold.files("autotune.json") == []
    call(kernel(cache_results=True))
    cold.store.unlink()
    with whet.mode("require"):
        assert call(kernel(cache_results=True)) == 512


# What torch.compile reads


def pruned(made, n=4, dtype="float32"):
    """As Dynamo does: the function is read as an attribute, then called."""
    named = {"out": FakeTensor([0.0], dtype), "x": FakeTensor([0.0], dtype), "n": n}
    prune = made.early_config_prune
    left = made.configs if prune is None else prune(made.configs, named)
    return [config.kwargs["BLOCK"] for config in left]


def test_unknown_keys_leave_the_compiler_one_config_where_nothing_may_be_tuned(driver):
    made = kernel()
    assert pruned(made) == list(BLOCKS)
    for mode in ("cached", "record", "off"):
        with whet.mode(mode):
            assert pruned(made) == [128]


@pytest.mark.medium
def test_known_keys_leave_the_compiler_the_stored_config(driver):
    call(kernel())
    made = kernel()
    with whet.mode("require"):
        call(made)
        assert pruned(made) == [512]
        with pytest.raises(NotTunedError, match="no stored result"):
            pruned(made, n=8)
    with whet.mode("off"):
        assert pruned(made) == [128]


@pytest.mark.medium
def test_the_compiler_finds_stored_keys_that_were_never_called_in_this_process(driver):
    pytest.importorskip("torch")
    for n in (4, 33):
        call(kernel(buckets={"n": "pow2"}), n=n)
    with whet.mode("require"):
        made = kernel(buckets={"n": "pow2"})
        assert [pruned(made, n=n) for n in (3, 4, 60)] == [[512]] * 3
        for unknown in ({"n": 8}, {"n": 4, "dtype": "float16"}):
            with pytest.raises(NotTunedError):
                pruned(made, **unknown)


@pytest.mark.medium
def test_the_compiler_gets_nothing_that_was_tuned_from_another_source(driver, monkeypatch):
    call(kernel())
    from whet.targets.triton import dynamo as stored_rows

    real = stored_rows.source_of
    monkeypatch.setattr(
        stored_rows, "source_of", lambda tuner: replace(real(tuner), fingerprint="another")
    )
    with whet.mode("cached"):
        assert pruned(kernel()) == [128]


@pytest.mark.medium
def test_an_inherited_config_is_left_to_the_compiler_only_where_nothing_may_be_tuned(driver):
    call(kernel(), n=8)
    made = kernel()
    with whet.mode("cached"):
        call(made)
        assert pruned(made) == [512]
    assert pruned(made) == list(BLOCKS)


@pytest.mark.medium
def test_the_authors_own_pruning_counts_for_unknown_keys(driver):
    made = kernel(prune_configs_by={"early_config_prune": lambda listed, named, **_: listed[1:]})
    with whet.mode("cached"):
        assert pruned(made) == [256]
        assert call(made) == 256


# Buckets


@pytest.mark.medium
def test_sizes_of_one_bucket_are_one_workload_tuned_with_the_first_size_met(driver, cold):
    made = kernel(buckets={"n": "pow2"})
    for n in (33, 64, 50, 65):
        assert call(made, n=n) == 512
    assert sorted(dict(one.key)["n"] for one in cold.workloads()) == [64, 128]
    assert [key[0] for key in made.cache] == [64, 128]


@pytest.mark.medium
def test_a_new_process_finds_the_bucket(driver):
    call(kernel(buckets={"n": [16, 100]}), n=20)
    with whet.mode("require"):
        made = kernel(buckets={"n": [16, 100]})
        assert [call(made, n=n) for n in (17, 100, 17)] == [512] * 3
        with pytest.raises(NotTunedError, match=r"double\(n=16,"):
            call(made, n=16)


@pytest.mark.medium
def test_the_compiler_finds_every_size_of_a_known_bucket(driver):
    made = kernel(buckets={"n": "pow2"})
    call(made, n=33)
    assert [pruned(made, n=n) for n in (33, 64)] == [[512], [512]]
    assert pruned(made, n=65) == pruned(made, n=32) == list(BLOCKS)


@pytest.mark.parametrize(
    ("buckets", "text"),
    [
        ({"m": "pow2"}, "names 'm', which is not in key"),
        ({"n": "pow3"}, "did you mean 'pow2'"),
        ({"n": [4, 2]}, "not in ascending order"),
        ({"n": []}, "a list of upper bounds"),
        ({"n": 7}, "a list of upper bounds"),
        ("pow2", "give a dict"),
    ],
)
def test_bad_buckets_are_refused_when_the_kernel_is_decorated(buckets, text):
    with pytest.raises(UsageError, match=text):
        kernel(buckets=buckets)


@pytest.mark.medium
def test_every_choice_is_one_line_of_the_log(driver, caplog):
    call(kernel())
    caplog.set_level(logging.INFO, logger="whet")
    with whet.mode("cached"):
        made = kernel()
        call(made)
        call(made)
    (record,) = caplog.records
    assert record.name == "whet"
    assert record.getMessage().startswith('event=chosen kernel=double key="n=4 out.dtype=')
    assert " source=exact cost_s=" in record.getMessage()
