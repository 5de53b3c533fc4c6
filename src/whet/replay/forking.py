"""The same work on many tasks, in forked processes that share what is already in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from typing import Any, TypeVar

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Found = TypeVar("Found")


def forked(
    work: Callable[[Shared, Task], Found], shared: Shared, tasks: Sequence[Task], jobs: int
) -> Iterator[Found]:
    """`work(shared, task)` of each task, in order; in this process where `jobs` is 1."""
    if min(jobs, len(tasks)) <= 1:
        yield from (work(shared, task) for task in tasks)
        return
    context = get_context("fork")
    with ProcessPoolExecutor(min(jobs, len(tasks)), context, _enter, (work, shared)) as pool:
        yield from pool.map(_run, tasks)


_here: list[Any] = []


def _enter(work: Any, shared: Any) -> None:
    """Linear algebra on every core in every process would have them wait for each other."""
    _here[:] = [work, shared]
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # for what is loaded from here on
    with suppress(ImportError):
        import_module("threadpoolctl").threadpool_limits(1)  # for what is loaded already


def _run(task: Any) -> Any:
    work, shared = _here
    return work(shared, task)
