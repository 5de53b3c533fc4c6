"""The threads of a compiled schedule's parallel loops."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import whet

RUNTIME = Path(whet.__file__).parent / "targets" / "schedule" / "runtime.c"
DRIVER = """\
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

void __kmpc_fork_call(void *, int32_t, void *, ...);
int32_t __kmpc_global_thread_num(void *);
void __kmpc_for_static_init_8u(void *, int32_t, int32_t, int32_t *, uint64_t *, uint64_t *,
                               int64_t *, int64_t, int64_t);

static int taken[THREADS][ITERATIONS], cores[THREADS], core[THREADS];

static void loop(int32_t *global, int32_t *bound)
{
    int32_t me = __kmpc_global_thread_num(0), last;
    uint64_t lower = 0, upper = ITERATIONS - 1;
    int64_t stride;
    cpu_set_t mask;
    (void)global; (void)bound;
    __kmpc_for_static_init_8u(0, me, 34, &last, &lower, &upper, &stride, 1, 0);
    for (uint64_t i = lower; i <= upper && i < ITERATIONS; i++) taken[me][i]++;
    pthread_getaffinity_np(pthread_self(), sizeof mask, &mask);
    cores[me] = CPU_COUNT(&mask);
    core[me] = sched_getcpu();
}

int main(void)
{
    int apart = 0, alone = 1;
    for (int round = 0; round < 50; round++) {
        int caller = sched_getcpu();
        __kmpc_fork_call(0, 0, (void *)loop);
        apart += core[1] != caller;
        alone &= cores[1] == 1;
        usleep(round % 5 * 500); /* long enough for a worker to fall asleep, or not */
    }
    for (int i = 0; i < ITERATIONS; i++) {
        int times = 0;
        for (int t = 0; t < THREADS; t++) times += taken[t][i];
        if (times != 50) printf("iteration %d ran %d times\\n", i, times);
    }
    printf("%d %d\\n", alone, apart);
}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("needs Linux and cc")
    folder = tmp_path_factory.mktemp("runtime")
    (folder / "driver.c").write_text(DRIVER)

    def runs(threads, iterations):
        sizes = [f"-DWHET_THREADS={threads}", f"-DTHREADS={threads}", f"-DITERATIONS={iterations}"]
        names = ["driver.c", str(RUNTIME), "-o", "driver"]
        subprocess.run(["cc", "-O2", "-pthread", *sizes, *names], cwd=folder, check=True)
        done = subprocess.run(["./driver"], cwd=folder, capture_output=True, text=True, timeout=60)
        return done.stdout

    return runs


@pytest.mark.medium
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_a_worker_is_never_left_waiting_for_the_core_of_its_caller(run):
    alone, apart = map(int, run(2, 7).split())
    assert alone
    assert apart >= 45  # the caller itself may be moved in between


@pytest.mark.medium
@pytest.mark.parametrize(("threads", "iterations"), [(2, 1), (3, 8), (5, 3)])
def test_every_iteration_runs_once_however_many_threads_there_are(run, threads, iterations):
    assert "ran" not in run(threads, iterations)
