"""What an author gets to read for a mistake: where it is written, or at the first call."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.testing.fake_triton import FakeTensor, fake_driver, told

N = 4


def copy_kernel():
    @triton.jit
    def copy(out, x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr = False):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)

    return copy


def tuned(*configs, **options):
    kernel = whet.autotune(configs=list(configs), key=["n"], **options)(copy_kernel())
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    return kernel


def launch(kernel, **more):
    with fake_driver():
        kernel[(1,)](FakeTensor([0.0] * N, address=8192), FakeTensor([1.0] * N), N, **more)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"search": "gpx"}, "unknown search 'gpx'; did you mean 'gp'"),
        ({"budget": "30x"}, "budget '30x' is not valid"),
        ({"budget": -30}, "budget -30 is not valid; give seconds"),
        (
            {"check": "agre"},
            'check is \'agre\'; give "agree", "bitwise", "deterministic" or a reference function',
        ),
        ({"inputs": 3}, "inputs is 3; give a function"),
        ({"mode": "cach"}, "did you mean 'cached'"),
        ({"mode": "Tune"}, "mode 'Tune' is not valid; did you mean 'tune'"),
        ({"space": {"BLOCK": [64]}}, "give either configs= or space="),
    ],
)
def test_a_wrong_option_is_said_where_it_is_written(options, said):
    with pytest.raises(whet.UsageError, match=said):
        tuned(triton.Config({"BLOCK": 64}), **options)


def test_a_dict_is_no_config_and_the_right_spelling_is_shown():
    with pytest.raises(whet.UsageError, match=r"use triton.Config\(\{'BLOCK': 64\}\)"):
        whet.autotune(configs=[{"BLOCK": 64}], key=["n"])


def test_a_decorator_without_parentheses_is_told_apart_from_a_list_of_configs():
    with pytest.raises(whet.UsageError, match=r"use @whet.autotune\(configs=\[…\], key=\[…\]\)"):
        whet.autotune(copy_kernel())


def test_a_plain_function_is_not_a_kernel():
    with pytest.raises(whet.UsageError, match=r"put @triton\.jit below @whet\.autotune"):
        whet.autotune(configs=[], key=[])(len)


def test_configs_may_come_from_a_generator():
    kernel = whet.autotune(configs=(triton.Config({"BLOCK": b}) for b in (32, 64)), key=["n"])(
        copy_kernel()
    )
    assert [config.kwargs["BLOCK"] for config in kernel.configs] == [32, 64]


def test_a_space_may_be_written_as_a_dict():
    kernel = whet.autotune(space={"BLOCK": [32, 64], "num_warps": [4]}, key=["n"])(copy_kernel())
    assert [(one.kwargs, one.num_warps) for one in kernel.configs] == [
        ({"BLOCK": 32}, 4),
        ({"BLOCK": 64}, 4),
    ]


def test_a_parameter_that_a_config_does_not_set_is_named_with_kernel_and_config():
    kernel = tuned(triton.Config({"BLOCK": 64}), triton.Config({"BLOK": 128}))
    with pytest.raises(TypeError, match=r"copy\(\) is missing 'BLOCK'.*\[BLOK: 128"):
        launch(kernel)


@pytest.mark.medium
def test_a_parameter_may_come_from_a_heuristic():
    def block(arguments):
        return 64

    configs = [triton.Config({}, num_warps=warps) for warps in (2, 4)]
    kernel = triton.heuristics({"BLOCK": block})(copy_kernel())
    tuner = whet.autotune(configs=configs, key=["n"])(kernel)
    tuner.whet_timer = told(lambda config: 1000.0 + config.num_warps)
    launch(tuner)
    assert tuner.best_config.num_warps == 2


@pytest.mark.medium
def test_where_every_config_is_wrong_that_is_said_though_the_launch_works():
    kernel = tuned(
        triton.Config({"BLOCK": 64}),
        triton.Config({"BLOCK": 128}),
        check=lambda named: {"out": FakeTensor([7.0] * N)},
    )
    with pytest.warns(
        RuntimeWarning, match="no config of 'copy' works: .*wrong_result.*using the first"
    ):
        launch(kernel)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("check", "said"),
    [
        (lambda named: FakeTensor([1.0] * N), "check= returned a FakeTensor; return a dict"),
        (lambda named: {"o": FakeTensor([1.0] * N)}, "check= returned 'o', no argument"),
        (lambda out, x: {}, "check= raised TypeError"),
        (lambda named: {"out": named["y"]}, "check= raised KeyError: 'y'"),
    ],
)
def test_a_wrong_check_function_is_said_to_be_wrong_and_no_config_blamed(check, said, cold):
    kernel = tuned(triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}), check=check)
    with pytest.warns(RuntimeWarning, match=f"{said}.*using the first"):
        launch(kernel)
    assert cold.statuses() == {}
