"""A space full of traps: each gets its own status, and the right config is still found."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import whet
from whet.core.status import Status
from whet.engine import Settings
from whet.store import MemoryStore

KERNEL = """
#include <stdlib.h>
#include <string.h>
#if CASE == DOES_NOT_COMPILE
#error "this case is not written yet"
#endif
#if CASE == ENDLESS_BUILD
#include "endless.h"
#endif
enum { SLOW = 0, SEGFAULT = 1, ENDLESS = 2, WRONG = 3, FAST = 6, GREEDY = 7, ABORT = 8 };

void square(const float *x, float *y, int n)
{
    if (CASE == SEGFAULT) *(volatile int *)8 = 1;
    if (CASE == ENDLESS) for (volatile int i = 0;; i++) ;
    if (CASE == ABORT) abort();
    if (CASE == GREEDY) {
        char *everything = malloc((size_t)1 << 46);
        memset(everything, 1, (size_t)1 << 46);
        y[0] = everything[n];
    }
    for (int repeat = 0; repeat < (CASE == SLOW ? 20 : 1); repeat++)
        for (volatile int i = 0; i < n; i++)
            y[i] = x[i] * x[i] + (CASE == WRONG && i == 7);
}
"""

EXPECTED = {
    0: Status.OUTRACED,
    1: Status.RUN_ERROR,
    2: Status.RUN_TIMEOUT,
    3: Status.WRONG_RESULT,
    4: Status.BUILD_ERROR,
    5: Status.BUILD_TIMEOUT,
    6: Status.OK,
    7: Status.RESOURCES,
    8: Status.RUN_ERROR,
}


def trapped(tmp_path: Path, cases: list[int]):
    pipe = tmp_path / "endless.h"
    if not pipe.exists():
        os.mkfifo(pipe)  # a header that is never read to its end
    (tmp_path / "square.c").write_text(KERNEL)
    x = np.arange(1, 2001, dtype=np.float32)
    return whet.native(
        tmp_path / "square.c",
        {"CASE": cases},
        function="square",
        options=("-O1", "-DDOES_NOT_COMPILE=4", "-DENDLESS_BUILD=5"),
        args={"x": x, "y": np.zeros_like(x), "n": x.size},
        outputs=["y"],
        reference=lambda x, y, n: x * x,
    )


LIMITS = Settings(build_limit_s=2.0, run_limit_s=2.0, jobs=2)


@pytest.mark.whole
def test_every_trap_gets_its_own_status_and_a_readable_error(tmp_path):
    result = whet.tune(trapped(tmp_path, sorted(EXPECTED)), store=MemoryStore(), settings=LIMITS)
    assert {t.config["CASE"]: t.status for t in result.trials} == EXPECTED
    assert result.config == whet.Config(CASE=6)
    errors = {t.config["CASE"]: t.error for t in result.trials}
    assert "SIGSEGV" in errors[1]
    assert "still running after 2 s" in errors[2]
    assert "1 of 2000 elements differ" in errors[3]
    assert "[7]" in errors[3]
    assert "this case is not written yet" in errors[4]
    assert "2 s" in errors[5]
    assert "memory" in errors[7]
    assert "SIGABRT" in errors[8]


@pytest.mark.slow
def test_failures_are_remembered_and_those_of_a_limit_tried_again_when_it_rises(tmp_path):
    store = MemoryStore()
    whet.tune(trapped(tmp_path, [0, 2, 4, 5, 6]), store=store, settings=LIMITS)
    again = whet.tune(trapped(tmp_path, [0, 2, 4, 5, 6]), store=store, settings=LIMITS)
    assert again.source == "stored"
    patient = Settings(build_limit_s=2.0, run_limit_s=3.0, jobs=2)
    retried = whet.tune(trapped(tmp_path, [0, 2, 4, 5, 6]), store=store, settings=patient)
    assert [t.config["CASE"] for t in retried.trials] == [2]
    assert retried.trials[0].limit.value == 3.0
    assert retried.config == whet.Config(CASE=6)


@pytest.mark.medium
def test_a_space_where_nothing_works_says_what_happened(tmp_path):
    with pytest.raises(whet.TuningFailedError, match=r"no config of 'square' works.*1 run_error"):
        whet.tune(trapped(tmp_path, [1, 4]), store=MemoryStore(), settings=LIMITS)


def test_a_space_without_a_valid_config_is_an_error_that_names_the_constraint():
    target = whet.function(lambda a: a, {"a": [1, 2]}, constraints=["a > 5"], name="f")
    with pytest.raises(whet.TuningFailedError, match="a > 5"):
        whet.tune(target, store=MemoryStore())


@pytest.mark.slow
def test_a_python_callable_may_crash_hang_lie_and_exhaust_memory_too():
    import ctypes

    def f(case):
        if case == 1:
            ctypes.string_at(0)
        if case == 2:
            while True:
                pass
        if case == 3:
            return 41
        if case == 4:
            return bytearray(1 << 46) and 42
        if case == 5:
            raise KeyError("no such tile")
        if case == 6:
            os._exit(3)
        if case == 7:
            return 42
        return sum(range(20_000)) and 42

    target = whet.function(f, {"case": list(range(8))}, reference=42, key={})
    result = whet.tune(target, store=MemoryStore(), settings=LIMITS)
    assert {t.config["case"]: t.status for t in result.trials} == {
        0: Status.OUTRACED,
        1: Status.RUN_ERROR,
        2: Status.RUN_TIMEOUT,
        3: Status.WRONG_RESULT,
        4: Status.RESOURCES,
        5: Status.RUN_ERROR,
        6: Status.RUN_ERROR,
        7: Status.OK,
    }
    errors = {t.config["case"]: t.error for t in result.trials}
    assert "KeyError: 'no such tile'" in errors[5]
    assert "exit code 3" in errors[6]


SLOW_SCRIPT = """
import sys, time
import whet

def f(a):
    time.sleep(0.01)

try:
    whet.tune(whet.function(f, {"a": list(range(500))}, key={}), store=sys.argv[1],
              on_event=lambda e: print(type(e).__name__, flush=True))
except whet.Interrupted as stop:
    print("best", stop.result.config, len(stop.result.trials), stop.result.run.outcome, flush=True)
    raise SystemExit(130)
"""


@pytest.mark.medium
def test_ctrl_c_keeps_every_finished_trial_and_the_best_so_far(tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(textwrap.dedent(SLOW_SCRIPT))
    run = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "s.db")], stdout=subprocess.PIPE, text=True
    )
    reported = 0
    while reported < 5:
        reported += "TrialFinished" in run.stdout.readline()
    run.send_signal(signal.SIGINT)
    rest, _ = run.communicate(timeout=30)
    reported += rest.count("TrialFinished")
    last = rest.splitlines()[-1].split()
    assert run.returncode == 130
    assert last[0] == "best"
    assert last[-1] == "interrupted"
    with whet.open_store(tmp_path / "s.db") as store:
        (summary,) = store.workloads()
        assert summary.trials == reported
        assert summary.best is not None


@pytest.mark.slow
def test_the_next_run_goes_on_where_an_interrupted_one_ended(tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(textwrap.dedent(SLOW_SCRIPT).replace("range(500)", "range(12)"))
    run = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "s.db")], stdout=subprocess.PIPE, text=True
    )
    while "TrialFinished" not in run.stdout.readline():
        time.sleep(0.001)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=30)
    with whet.open_store(tmp_path / "s.db") as store:
        before = {t.config for w in store.workloads() for t in store.trials(w.workload.id)}
    run = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "s.db")], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    with whet.open_store(tmp_path / "s.db") as store:
        (summary,) = store.workloads()
        first_rows = {}
        for trial in store.trials(summary.workload.id, all=True):
            first_rows.setdefault(trial.config, trial.run_id)
    assert len(first_rows) == 12
    assert 0 < len(before) < 12
    assert len({first_rows[config] for config in before}) == 1
