"""A machine without space: that is said, no config is blamed, and the next run finds the best."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

import whet
from whet.builds.builder import Builder
from whet.builds.job import BuildResult, Built, Job
from whet.core.config import Config
from whet.core.errors import HostFailure
from whet.core.run import Outcome
from whet.engine import Settings
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Visit
from whet.measure.timers import CpuTimer
from whet.store import MemoryStore
from whet.targets.native.loader import NativeLoader
from whet.targets.native.target import NativeTarget
from whet.testing.fake_target import FakeTarget

SOURCE = """
void add(float *x, int n)
{ for (int k = 0; k < WORK; k++) for (volatile int i = 0; i < n; i++) x[i] += 1; }
"""

# Words of two lines, as a linker's: what is short comes before what says "error".
COMPILER = """#!/bin/sh
if [ -e {full} ] && [ "$1" != --version ]
then echo "ld: final link failed: No space left on device
collect2: error: ld returned 1 exit status" >&2; exit 1
fi
exec cc "$@"
"""


def no_space() -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """As long as this file is there, the compiler finds no space."""
    path = tmp_path / "full"
    path.touch()
    return path


@pytest.fixture
def target(tmp_path: Path, full: Path) -> NativeTarget:
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(full=full))
    compiler.chmod(0o755)
    return whet.native(
        SOURCE,
        {"WORK": [9, 1]},
        function="add",
        args={"x": np.zeros(1000, np.float32), "n": 1000},
        compiler=str(compiler),
    )


@pytest.mark.slow
def test_a_tuning_ends_and_the_next_one_finds_the_best(target: NativeTarget, full: Path) -> None:
    store = MemoryStore()
    with pytest.raises(HostFailure, match=r"could not be built: no space left.*TMPDIR"):
        whet.tune(target, store=store)
    workload = target.workload().id
    assert store.trials(workload) == []
    assert [run.outcome for run in store.runs(workload)] == [Outcome.INTERRUPTED]
    full.unlink()
    assert whet.tune(target, store=store).config == Config(WORK=1)


def test_a_tuning_that_ends_has_its_best_so_far() -> None:
    def kernel(n: int) -> int:
        if n == 1:
            raise HostFailure("no space")
        return sum(range(1000 * n))

    target = whet.function(kernel, {"n": [9, 5, 1]}, isolate=False)
    with pytest.raises(whet.HostLostError, match="no space") as caught:
        whet.tune(target, store=MemoryStore(), search="grid", settings=Settings(jobs=1))
    result = caught.value.result
    assert result is not None
    assert result.interrupted
    assert result.config in (Config(n=9), Config(n=5))


class HalfBuilt(FakeTarget):
    """There is space for all builds but the last."""

    def job(self, config: Config) -> Job | None:
        return Job(no_space) if config["n"] == 4 else super().job(config)


@pytest.mark.medium
@pytest.mark.parametrize("shares_host", [True, False])
def test_what_was_built_when_space_ran_out_is_measured(shares_host: bool) -> None:
    """Also where measuring waits until nothing is being built."""
    times = {1: 3e6, 2: 2e6, 3: 1e6, 4: 1.0}
    target = HalfBuilt(
        {"n": list(times)},
        lambda config: times[int(config["n"])],
        building=True,
        shares_host=shares_host,
    )
    store = MemoryStore()
    with pytest.raises(whet.HostLostError, match=r"\[n=4\] could not be built") as caught:
        whet.tune(target, store=store, search="grid", settings=Settings(jobs=1))
    assert caught.value.result is not None
    assert caught.value.result.config == Config(n=3)
    known = {trial.config["n"] for trial in store.trials(target.workload().id)}
    assert known == {1, 2, 3}


@pytest.mark.medium
def test_builds_that_had_found_space_are_still_handed_out() -> None:
    with Builder(jobs=1, mode="fork", limit_s=10.0) as builder:
        builder.submit(Config(n=1), Job(Built, (b"",)))
        builder.submit(Config(n=2), Job(no_space))
        found: list[BuildResult] = []

        def take_all() -> NoReturn:
            while True:
                found.extend(builder.ready())

        with pytest.raises(HostFailure, match=r"\[n=2\] could not be built"):
            take_all()
        found.extend(builder.ready())
    assert [result.config for result in found] == [Config(n=1)]


def test_what_cannot_be_written_to_be_loaded_is_not_the_configs_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", lambda *arguments: no_space())
    bench = LocalBench(NativeLoader({}, None, 0.0, 0.0), CpuTimer())
    with bench, pytest.raises(HostFailure, match=r"\[n=1\] could not be loaded: no space left"):
        bench.measure(Visit(((Config(n=1), b""),), 1, first=True))
