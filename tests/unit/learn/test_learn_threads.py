"""Small matrices stay on one core."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from whet.learn.gaussian import one_thread


def threads() -> set[int]:
    np.linalg.inv(np.eye(2))
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_inside_linear_algebra_uses_the_calling_thread_alone() -> None:
    with threadpool_limits(2, user_api="blas"):
        outside = threads()
        with one_thread():
            assert threads() == {1}
        assert threads() == outside
