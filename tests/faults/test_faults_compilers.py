"""Compilers that never end are killed at the limit, with everything they have started."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from faults_compilers import numbers_in, stuck_compiler
from faults_processes import alive, check_nothing_left

import whet
from whet.core.config import Config
from whet.core.status import Limit, Status
from whet.engine import Settings
from whet.store import MemoryStore

SOURCE = """
void fill(float *y, int n)
{
    for (int repeat = 0; repeat < WORK; repeat++)
        for (volatile int i = 0; i < n; i++)
            y[i] = 1;
}
"""


@pytest.mark.medium
def test_a_stuck_c_compiler_is_killed_with_its_family_and_the_best_is_found(
    tmp_path: Path, scratch: Path
) -> None:
    pids = tmp_path / "pids"
    real = shutil.which("cc")
    assert real is not None
    compiler = stuck_compiler(tmp_path / "stuck-cc", real, "-DSTUCK=1", pids)
    y = np.zeros(2000, np.float32)
    target = whet.native(
        SOURCE,
        {"WORK": [9, 1], "STUCK": [0, 1]},
        function="fill",
        args={"y": y, "n": y.size},
        compiler=str(compiler),
    )
    settings = Settings(build_limit_s=3.0, jobs=2)
    result = whet.tune(target, store=MemoryStore(), settings=settings)
    assert result.config == Config(WORK=1, STUCK=0)
    stuck = [trial for trial in result.trials if trial.config["STUCK"]]
    assert [trial.status for trial in stuck] == [Status.BUILD_TIMEOUT] * 2
    assert {trial.limit for trial in stuck} == {Limit("build_s", 3.0)}
    assert len(numbers_in(pids)) == 8
    assert not any(alive(pid) for pid in numbers_in(pids))
    check_nothing_left(scratch)
