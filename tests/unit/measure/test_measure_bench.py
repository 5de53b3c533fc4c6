"""Benches, with real kernels: what they give, and how they fail."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from measure_kernels import (
    KernelLoader,
    SpoilableLoader,
    broken_loader,
    group_timer,
    misused_loader,
    quick_timer,
)
from visits import failure_of, first, further, round_of, sampled

from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure, UsageError
from whet.core.status import Limit, Status
from whet.measure.bench.executor import LocalBench, _may_still_compile
from whet.measure.bench.protocol import Bench, Sampled, Verdict, Visit, from_exception
from whet.measure.bench.remote import RemoteBench
from whet.measure.timer import Warm
from whet.measure.timers import CpuTimer
from whet.testing.fakes import FakeDevice, FakeKernel


class FakeLoaded(FakeKernel):
    facts: ClassVar[dict[str, Value]] = {}

    def check(self) -> Verdict:
        return Verdict(True)

    def close(self) -> None:
        pass


class FakeLoader:
    def __init__(self, ns: float) -> None:
        self.device = FakeDevice()
        self.kernel = FakeLoaded(self.device, ns, first_factor=1.0, busy=1.0)

    def load(self, config: Config, artifact: object) -> FakeLoaded:
        return self.kernel


@pytest.mark.parametrize(("spare_s", "samples", "runs"), [(None, 2, 2), (0.05, 1, 1), (0.2, 2, 2)])
def test_a_slow_config_is_run_as_often_as_there_is_time_to_spare_for(
    spare_s: float | None, samples: int, runs: int
) -> None:
    """A run takes a tenth of a second, and that of its warm-up is a sample."""
    loader = FakeLoader(1e8)
    clock = loader.device.clock
    bench = LocalBench(loader, CpuTimer(clock, clock.cpu, cpu_resolution_ns=1), check_each=False)
    [answer] = bench.measure(Visit(((GOOD, None),), 2, first=True, spare_s=spare_s))
    assert isinstance(answer, Sampled)
    assert len(answer.reading.samples) == samples
    assert loader.kernel.executions == runs


@pytest.mark.parametrize(
    ("first_call_s", "second_s", "again"),
    [
        (0.5, 0.1, True),
        (0.41, 0.1, True),
        (0.39, 0.1, False),
        (9.0, 0.019, False),
        (9, 0.021, True),
    ],
)
def test_a_config_that_may_compile_on_its_second_call_too_is_warmed_up_again(
    first_call_s: float, second_s: float, again: bool
) -> None:
    """Where the first took more than four times the second, and the second more than 20 ms."""
    warm = Warm(loops=1, estimate_ns=second_s * 1e9, seconds=second_s)
    assert _may_still_compile(first_call_s, warm) is again


GOOD = Config(name="good")


@pytest.fixture(scope="module")
def remote() -> Iterator[RemoteBench]:
    with RemoteBench(KernelLoader, quick_timer) as bench:
        yield bench


@pytest.fixture(params=["local", "remote"])
def bench(request: pytest.FixtureRequest) -> Bench:
    if request.param == "local":
        return LocalBench(KernelLoader(), quick_timer())
    shared: RemoteBench = request.getfixturevalue("remote")
    return shared


class TestBoth:
    def test_a_first_look_has_samples_facts_and_seconds(self, bench: Bench) -> None:
        look = first(bench, GOOD, 3, "artifact")
        assert len(look.reading.samples) == 3
        assert look.facts["name"] == "good"
        assert set(look.seconds) == {"load", "check", "warmup", "measure"}
        assert all(seconds >= 0 for seconds in look.seconds.values())

    def test_more_samples_need_no_second_load(self, bench: Bench) -> None:
        first(bench, GOOD, 1)
        more = further(bench, GOOD, 4)
        assert len(more.reading.samples) == 4
        assert "load" not in more.seconds
        assert more.seconds["measure"] > 0

    def test_what_was_never_loaded_is_loaded_when_it_is_sampled(self, bench: Bench) -> None:
        one = further(bench, Config(name="other"), 2)
        assert len(one.reading.samples) == 2
        assert {"load", "warmup", "measure"} <= set(one.seconds)

    def test_what_was_forgotten_is_loaded_again(self, bench: Bench) -> None:
        first(bench, GOOD, 1)
        bench.forget(GOOD)
        assert "load" in further(bench, GOOD, 1).seconds

    def test_a_round_has_one_sample_of_each(self, bench: Bench) -> None:
        configs = [Config(name=name) for name in "abc"]
        taken = [sampled(one) for one in round_of(bench, configs).values()]
        assert [len(one.reading.samples) for one in taken] == [1, 1, 1]
        assert all(one.reading.samples[0] > 0 for one in taken)

    def test_one_who_is_named_several_times_has_as_many_samples(self, bench: Bench) -> None:
        bad, other = Config(name="bad", does="raise"), Config(name="c")
        order = [GOOD, bad, other, other, bad, GOOD, GOOD]
        taken = round_of(bench, order)
        assert len(sampled(taken[GOOD]).reading.samples) == 3
        assert len(sampled(taken[other]).reading.samples) == 2
        assert isinstance(taken[bad], ConfigFailure)

    def test_one_who_fails_in_a_round_does_not_spoil_it(self, bench: Bench) -> None:
        bad = Config(name="bad", does="raise")
        taken = round_of(bench, [GOOD, bad])
        assert isinstance(taken[GOOD], Sampled)
        failure = taken[bad]
        assert isinstance(failure, ConfigFailure)
        assert failure.status is Status.RUN_ERROR

    @pytest.mark.parametrize("when", ["load", "check", "run"])
    def test_an_exception_is_a_run_error_with_the_users_own_line(
        self, bench: Bench, when: str
    ) -> None:
        failure = failure_of(bench, Config(does="raise", when=when))
        assert failure.status is Status.RUN_ERROR
        assert failure.message.startswith("ValueError: no such tile (in measure_kernels.py, line ")
        assert failure.message.endswith(': raise ValueError("no such tile"))')

    def test_what_the_target_says_of_a_config_is_kept(self, bench: Bench) -> None:
        failure = failure_of(bench, Config(does="refuse", when="load"))
        assert failure.status is Status.RESOURCES
        assert failure.message == "needs 96 KB of shared memory, there are 48 KB"

    def test_a_memory_error_is_a_lack_of_resources(self, bench: Bench) -> None:
        failure = failure_of(bench, Config(does="run out of memory"))
        assert failure.status is Status.RESOURCES
        assert failure.message.startswith("out of memory: MemoryError: cannot have 8 TB")

    def test_a_wrong_result_is_said_with_the_gates_message(self, bench: Bench) -> None:
        failure = failure_of(bench, Config(does="lie"))
        assert failure.status is Status.WRONG_RESULT
        assert failure.message == "output 'c': 1 of 4 elements differ"

    def test_a_kernel_that_calls_exit_fails_alone(self, bench: Bench) -> None:
        assert failure_of(bench, Config(does="exit")).status is Status.RUN_ERROR

    def test_it_goes_on_after_a_failure(self, bench: Bench) -> None:
        failure_of(bench, Config(does="raise"))
        assert len(first(bench, GOOD, 2).reading.samples) == 2


class TestLocal:
    def test_it_runs_in_this_process(self) -> None:
        bench = LocalBench(KernelLoader(), quick_timer())
        assert bench.in_process
        assert first(bench, GOOD, 1).facts["pid"] == os.getpid()

    def test_the_loader_gets_what_was_built(self) -> None:
        loader = KernelLoader()
        first(LocalBench(loader, quick_timer()), GOOD, 1, "libgood.so")
        assert loader.log == ["load good libgood.so"]

    def test_checks_can_be_left_out(self) -> None:
        bench = LocalBench(KernelLoader(), quick_timer(), check_each=False)
        assert "check" not in first(bench, Config(does="lie"), 1).seconds

    def test_what_failed_is_closed(self) -> None:
        loader = KernelLoader()
        failure_of(LocalBench(loader, quick_timer()), Config(name="bad", does="lie"))
        assert loader.log[-1] == "close bad"

    def test_the_least_recently_used_is_closed_when_there_is_no_room(self) -> None:
        loader = KernelLoader()
        bench = LocalBench(loader, quick_timer(), capacity=2)
        for name in "ab":
            first(bench, Config(name=name), 1)
        further(bench, Config(name="a"), 1)
        first(bench, Config(name="c"), 1)
        assert [entry for entry in loader.log if entry.startswith("close")] == ["close b"]

    @pytest.mark.parametrize(("ns", "untimed"), [(1_000_000, 1), (50_000_000, 0)])
    def test_a_short_kernel_runs_once_untimed_after_another_may_have_run(
        self, ns: int, untimed: int
    ) -> None:
        loader = FakeLoader(ns)
        clock = loader.device.clock
        bench = LocalBench(loader, CpuTimer(clock, clock.cpu, cpu_resolution_ns=1))
        first(bench, GOOD, 2)
        before = loader.kernel.executions
        further(bench, GOOD, 3)
        assert loader.kernel.executions - before == 3 + untimed

    def test_closing_it_closes_everything_whatever_that_does(self) -> None:
        loader = KernelLoader()
        with LocalBench(loader, quick_timer()) as bench:
            first(bench, Config(name="a", does="close badly"), 1)
            first(bench, Config(name="b"), 1)
        assert loader.log[-2:] == ["close a", "close b"]


class TestRemote:
    def test_it_runs_in_another_process(self, remote: RemoteBench) -> None:
        assert not remote.in_process
        assert first(remote, GOOD, 1).facts["pid"] != os.getpid()

    @pytest.mark.medium
    @pytest.mark.parametrize(
        ("does", "says"),
        [
            ("segfault", "killed by SIGSEGV (segmentation fault)"),
            ("divide", "killed by SIGFPE (floating point exception)"),
            ("leave", "its process ended with exit code 7"),
        ],
    )
    def test_a_crash_is_a_run_error_that_names_the_cause(
        self, remote: RemoteBench, does: str, says: str
    ) -> None:
        failure = failure_of(remote, Config(does=does))
        assert failure.status is Status.RUN_ERROR
        assert failure.message.splitlines()[0] == says

    @pytest.mark.medium
    @pytest.mark.parametrize("does", ["be killed", "bad_alloc"])
    def test_a_death_for_lack_of_memory_is_a_lack_of_resources(
        self, remote: RemoteBench, does: str
    ) -> None:
        failure = failure_of(remote, Config(does=does))
        assert failure.status is Status.RESOURCES
        assert "out of memory" in failure.message.splitlines()[0]

    @pytest.mark.medium
    def test_a_worker_that_was_killed_is_not_blamed_on_the_config_at_once(
        self, remote: RemoteBench
    ) -> None:
        before = first(remote, GOOD, 1).facts["pid"]
        assert isinstance(before, int)
        os.kill(before, signal.SIGKILL)
        assert first(remote, GOOD, 1).facts["pid"] != before

    @pytest.mark.medium
    def test_a_death_is_the_configs_own_only_in_a_process_where_nothing_ran_before(
        self, remote: RemoteBench, tmp_path: Path
    ) -> None:
        mark = tmp_path / "mark"
        first(remote, GOOD, 1)
        once = Config(does="crash once", mark=str(mark))
        first(remote, once, 1)
        assert mark.exists()

    @pytest.mark.medium
    def test_a_kernel_that_never_returns_is_cut_at_the_limit(self, remote: RemoteBench) -> None:
        failure = failure_of(remote, Config(does="hang"), limit_s=0.3)
        assert failure.status is Status.RUN_TIMEOUT
        assert "after 0.3 s" in failure.message
        assert failure.limit == Limit("run_s", 0.3)

    @pytest.mark.medium
    def test_after_a_crash_the_others_are_loaded_again(self, remote: RemoteBench) -> None:
        before = first(remote, GOOD, 1).facts["pid"]
        failure_of(remote, Config(does="leave"))
        again = further(remote, GOOD, 2)
        assert len(again.reading.samples) == 2
        assert "load" in again.seconds
        assert first(remote, GOOD, 1).facts["pid"] != before

    @pytest.mark.medium
    def test_one_who_crashes_in_a_round_is_found_out(self, remote: RemoteBench) -> None:
        bad = Config(name="bad", does="leave")
        other = Config(name="c")
        taken = round_of(remote, (GOOD, bad, other, bad, GOOD))
        assert isinstance(taken[other], Sampled)
        assert len(sampled(taken[GOOD]).reading.samples) == 2
        failure = taken[bad]
        assert isinstance(failure, ConfigFailure)
        assert failure.status is Status.RUN_ERROR

    @pytest.mark.medium
    @pytest.mark.parametrize("timer", [quick_timer, group_timer])
    @pytest.mark.parametrize("when", ["check", "run"])
    @pytest.mark.parametrize("does", ["spoil", "spoil unheard"])
    def test_who_spoils_the_process_of_a_group_fails_alone(
        self, timer: Callable[[], CpuTimer], when: str, does: str
    ) -> None:
        bad, good = Config(name="bad", does=does, when=when), Config(name="c")
        with RemoteBench(SpoilableLoader, timer) as bench:
            visit = Visit(((GOOD, None), (bad, None), (good, None)), 1, first=True)
            one, two, three = bench.measure(visit)
        assert isinstance(two, ConfigFailure)
        assert two.spoils
        assert "not run" not in two.message
        assert isinstance(one, Sampled)
        assert isinstance(three, Sampled)
        assert one.facts["pid"] != three.facts["pid"]

    @pytest.mark.medium
    @pytest.mark.parametrize("timer", [quick_timer, group_timer])
    def test_and_so_does_one_in_a_round(self, timer: Callable[[], CpuTimer]) -> None:
        bad, good = Config(name="bad", does="spoil"), Config(name="c")
        with RemoteBench(SpoilableLoader, timer) as bench:
            taken = round_of(bench, (GOOD, bad, good, GOOD))
        assert len(sampled(taken[GOOD]).reading.samples) == 2
        assert isinstance(taken[good], Sampled)
        assert isinstance(taken[bad], ConfigFailure)

    @pytest.mark.medium
    def test_a_failure_that_spoils_nothing_leaves_the_process_in_use(self) -> None:
        with RemoteBench(SpoilableLoader, quick_timer) as bench:
            before = first(bench, GOOD, 1).facts["pid"]
            failure_of(bench, Config(does="lie"))
            assert first(bench, GOOD, 1).facts["pid"] == before

    @pytest.mark.medium
    def test_a_memory_limit_is_kept_and_reported(self) -> None:
        with RemoteBench(KernelLoader, quick_timer, memory_bytes=200 << 20) as bench:
            failure = failure_of(bench, Config(does="allocate", when="load"))
            assert failure.status is Status.RESOURCES
            assert failure.limit == Limit("memory_bytes", 200 << 20)
            assert len(first(bench, GOOD, 1).reading.samples) == 1

    @pytest.mark.medium
    def test_a_memory_limit_holds_for_shared_memory_too(self) -> None:
        with RemoteBench(KernelLoader, quick_timer, memory_bytes=200 << 20) as bench:
            failure = failure_of(bench, Config(does="share memory"))
            assert failure.status is Status.RESOURCES
            assert failure.message.startswith("out of memory: MemoryError: used ")
            assert failure.limit == Limit("memory_bytes", 200 << 20)
            assert len(first(bench, GOOD, 1).reading.samples) == 1

    @pytest.mark.medium
    def test_closures_work_in_a_fork(self) -> None:
        loader = KernelLoader()
        with RemoteBench(lambda: loader, lambda: quick_timer(), mode="fork") as bench:
            assert first(bench, GOOD, 1).facts["pid"] != os.getpid()
        assert loader.log == []

    @pytest.mark.medium
    def test_a_loader_that_cannot_be_made_is_said_so(self) -> None:
        with RemoteBench(broken_loader, quick_timer) as bench:
            failure = failure_of(bench, GOOD)
        assert failure.message.endswith(": ValueError: no such device")

    @pytest.mark.medium
    def test_a_users_mistake_stays_one(self) -> None:
        with (
            RemoteBench(misused_loader, quick_timer) as bench,
            pytest.raises(UsageError, match=r"'kernel\.c' is missing"),
        ):
            first(bench, GOOD, 1)


TORCHS_ADVICE = "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."


@pytest.mark.parametrize(
    ("problem", "status", "spoils"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "run_error", True),
        (RuntimeError("CUDA error: device-side assert triggered"), "run_error", True),
        (RuntimeError(f"CUDA error: invalid argument\n{TORCHS_ADVICE}"), "run_error", False),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "resources", False),
        (RuntimeError("shapes do not fit"), "run_error", False),
        (ValueError("illegal memory access, said the author"), "run_error", False),
    ],
)
def test_what_a_gpu_says_tells_whether_its_process_can_go_on(
    problem: Exception, status: str, spoils: bool
) -> None:
    failure = from_exception(problem)
    assert (str(failure.status), failure.spoils) == (status, spoils)
