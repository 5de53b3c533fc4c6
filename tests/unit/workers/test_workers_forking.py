"""A fork beside linear algebra: OpenBLAS would hang both for ever."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import worker_tasks as tasks

from whet.workers.pool import open_pool
from whet.workers.process import no_forks
from whet.workers.task import Kind, Task

# A hang has no end; this is only how long a busy machine may take.
PATIENCE_S = 120

SCRIPT = """
import threading
import numpy as np
from whet.workers.pool import open_pool
from whet.workers.process import no_forks
from whet.workers.task import Task

matrix = np.random.default_rng(0).random((500, 500)) + 500 * np.eye(500)
built = threading.Event()


def build():
    with open_pool(2, "fork") as pool:
        for _ in range(40):
            pool.submit(Task(len, ((),)))
        while pool.pending:
            pool.wait(None)
    built.set()


threading.Thread(target=build).start()
while not built.wait(0.002):  # or this thread would take the lock again before anybody else
    with no_forks():
        np.linalg.inv(matrix)
print("both ended")
"""


@pytest.mark.slow
def test_linear_algebra_without_forks_and_a_pool_that_forks_both_come_to_an_end() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "4"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.stdout == "both ended\n", ended.stderr


@pytest.mark.medium
def test_a_worker_asked_for_meanwhile_starts_afterwards() -> None:
    with open_pool(1, "fork") as pool:
        with no_forks():
            pool.submit(Task(tasks.add, (2, 3)))
            assert pool.wait(0.3) == []
        (outcome,) = pool.wait(None)
    assert (outcome.kind, outcome.value) == (Kind.DONE, 5)
