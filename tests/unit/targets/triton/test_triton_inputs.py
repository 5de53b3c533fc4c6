"""What `inputs` may return, and what is said of anything else."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.targets.triton.offline.kernel import Kernel, check_inputs, kernel_of, make_inputs
from whet.testing.fake_triton import FakeTensor

X = FakeTensor([0.0])

EXAMPLE = """\
def inputs(n):
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    return grid, (x_ptr, y_ptr, n)  # tensors and numbers, in this order"""


@triton.jit
def copy(x_ptr, y_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr, SCALE: tl.constexpr = 1):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def kernel(inputs: Any = None) -> Kernel:
    even = triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
    configs = [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})]
    found = kernel_of(even(whet.autotune(configs, key=["n"], inputs=inputs)(copy)))
    assert found is not None
    return found


def refusal(made: Any) -> whet.UsageError:
    with pytest.raises(whet.UsageError) as raised:
        make_inputs(kernel(lambda n: made), {"n": 4})
    return raised.value


@pytest.mark.parametrize(
    ("made", "launch"),
    [
        (((1,), (X, X, 4)), ((1,), (X, X, 4), {})),
        (([1, 2, 3], [X, X, 4]), ([1, 2, 3], (X, X, 4), {})),
        (((1,), (X, X), {"n": 4}), ((1,), (X, X), {"n": 4})),
        ((len, (X, X, 4), {"SCALE": 2}), (len, (X, X, 4), {"SCALE": 2})),
    ],
)
def test_a_grid_arguments_and_perhaps_keywords_are_a_launch(made: Any, launch: Any) -> None:
    assert make_inputs(kernel(lambda n: made), {"n": 4}) == launch


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "returned None, which is not (grid, args)"),
        (4, "returned an int, which is not (grid, args)"),
        ([(1,), (X, X, 4)], "returned a list of 2, which is not (grid, args)"),
        (((1,), X, X, 4), "returned (tuple of 1, FakeTensor, FakeTensor, int), which is not"),
        ((X, X, 4), "returned (FakeTensor, FakeTensor, int), but the first part must be a grid"),
        (((X, X, 4), (1,)), "returned (tuple of 3, tuple of 1), but the first part must be a grid"),
        (
            (4, (X, X, 4)),
            "returned (int, tuple of 3), but the first part must be a grid of one to three",
        ),
        (((1,), X), "returned (tuple of 1, FakeTensor), but the second part must be a tuple"),
        (
            ((1,), (X, X), (4,)),
            "returned (tuple of 1, tuple of 2, tuple of 1), but the third part must be a dict",
        ),
        (((1,), (X, X)), "returned 2 arguments and omitted n"),
        (((1,), (X, X, 4, True, 32, 1, 9)), "returned 7 arguments, but the kernel takes 6"),
    ],
)
def test_another_shape_is_shown_beside_the_right_one_for_this_kernel(made: Any, said: str) -> None:
    error = refusal(made)

    assert f"kernel 'copy' {said}" in str(error)
    assert error.__notes__ == [EXAMPLE]


def test_a_kernel_without_inputs_is_told_what_they_would_look_like() -> None:
    with pytest.raises(
        whet.UsageError, match=r"whet.autotune\(…, inputs=…\) or --inputs"
    ) as raised:
        check_inputs(kernel())

    assert raised.value.__notes__ == [EXAMPLE]
