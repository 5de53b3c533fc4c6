"""First looks at several configs from one queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.measure import Hopeless
from whet.measure.bench.executor import Executor
from whet.measure.bench.protocol import Answer, Sampled, Verdict, Visit
from whet.measure.gpu.timer import CudaTimer
from whet.measure.timer import DeviceTimer, FlushingTimer, GroupTimer, L2Timer, PrimedTimer
from whet.measure.timers import CpuTimer
from whet.testing.fake_stream import US, QueuedKernel, Stream


class Loaded(QueuedKernel):
    facts: Mapping[str, Any] = {"registers": 32}

    def __init__(self, stream: Stream, ns: float, fails_at: int = 0, right: bool = True) -> None:
        super().__init__(stream, ns)
        self._fails_at = fails_at
        self._right = right

    def repeat(self, n: int) -> None:
        if self.launches + 1 == self._fails_at:
            raise RuntimeError("invalid argument")
        super().repeat(n)

    def check(self) -> Verdict:
        return Verdict(self._right, "" if self._right else "wrong")

    def close(self) -> None:
        pass


class Kernels:
    """A loader of what it was given, by the config's `at`."""

    def __init__(self, kernels: list[Loaded]) -> None:
        self.kernels = kernels

    def load(self, config: Config, artifact: Any) -> Loaded:
        return self.kernels[int(config["at"])]  # type: ignore[call-overload]


def looks(
    kernels: list[Loaded], hopeless: Hopeless | None = None, samples: int = 2
) -> tuple[Answer, ...]:
    timer = CudaTimer(kernels[0].stream, overhead_ns=0.0)
    built = tuple((Config(at=at), None) for at in range(len(kernels)))
    visit = Visit(built, samples, first=True, hopeless=hopeless)
    return Executor(Kernels(kernels), timer).measure(visit)


def microseconds(taken: Sequence[Answer]) -> list[list[float]]:
    return [
        [round(ns / US, 3) for ns in look.reading.samples]
        for look in taken
        if isinstance(look, Sampled)
    ]


def test_everybody_is_launched_once_and_then_sampled() -> None:
    stream = Stream()
    kernels = [Loaded(stream, ns * US) for ns in (5, 9, 7)]
    taken = looks(kernels)
    assert microseconds(taken) == [[5, 5], [9, 9], [7, 7]]
    assert [kernel.launches for kernel in kernels] == [3, 3, 3]


def test_it_takes_fewer_queues_than_configs() -> None:
    stream = Stream()
    timer = CudaTimer(stream, overhead_ns=0.0)
    timer.warm(QueuedKernel(stream, 5 * US))
    stream.sleeps.clear()
    kernels = [Loaded(stream, 5 * US) for _ in range(8)]
    built = tuple((Config(at=at), None) for at in range(8))
    Executor(Kernels(kernels), timer).measure(Visit(built, 2, first=True))
    assert len(stream.sleeps) == 2 + 4, "two of four launches, and four of two times two samples"


def test_who_is_hopeless_beside_the_best_of_the_same_group_gets_no_sample() -> None:
    stream = Stream()
    kernels = [Loaded(stream, ns * US) for ns in (90, 5, 60, 7)]
    taken = looks(kernels, Hopeless(best_ns=100 * US, times=1.5, slack_ns=0.0))
    assert [isinstance(look, Sampled) and look.hopeless for look in taken] == [
        True,
        False,
        True,
        False,
    ]
    assert [kernel.launches for kernel in kernels] == [1, 3, 1, 3]


def test_in_a_fixed_plan_nobody_is_hopeless() -> None:
    stream = Stream()
    kernels = [Loaded(stream, ns * US) for ns in (5, 500)]
    assert microseconds(looks(kernels, None, samples=3)) == [[5] * 3, [500] * 3]


def test_a_kernel_that_fails_among_others_fails_alone() -> None:
    for launch in (1, 2, 3):
        stream = Stream()
        kernels = [Loaded(stream, 5 * US), Loaded(stream, 6 * US, launch), Loaded(stream, 7 * US)]
        one, two, three = looks(kernels)
        assert isinstance(two, ConfigFailure)
        assert two.status is Status.RUN_ERROR
        assert microseconds([one, three]) == [[5, 5], [7, 7]]


def test_a_wrong_result_is_no_obstacle_to_the_others() -> None:
    stream = Stream()
    kernels = [Loaded(stream, 5 * US, right=False), Loaded(stream, 6 * US)]
    wrong, other = looks(kernels)
    assert isinstance(wrong, ConfigFailure)
    assert wrong.status is Status.WRONG_RESULT
    assert microseconds([other]) == [[6, 6]]


def test_seconds_are_shared_and_kernel_seconds_are_each_ones_own() -> None:
    stream = Stream()
    taken = looks([Loaded(stream, ns * US) for ns in (5, 9)])
    one, two = (look for look in taken if isinstance(look, Sampled))
    assert one.seconds["measure"] == two.seconds["measure"] > 0
    assert round(two.seconds["measure.kernel"] / one.seconds["measure.kernel"], 3) == 1.8


def test_a_group_is_tightened_by_whoever_is_best_so_far() -> None:
    bar = Hopeless(best_ns=10.0, times=2.0, slack_ns=1.0)
    assert not bar.includes(21.0)
    assert bar.includes(21.1)
    assert bar.after(5.0).includes(11.1)
    assert bar.after(12.0) == bar


def test_the_gpu_timer_offers_all_that_a_timer_may_and_that_of_the_cpu_nothing() -> None:
    timer = CudaTimer(Stream(), overhead_ns=0.0)
    group: GroupTimer = timer
    cached: L2Timer = timer
    flushing: FlushingTimer = timer
    primed: PrimedTimer = timer
    held: DeviceTimer = timer
    offered = (GroupTimer, L2Timer, FlushingTimer, PrimedTimer, DeviceTimer)
    for one, kind in zip((group, cached, flushing, primed, held), offered, strict=True):
        assert isinstance(one, kind)
        assert not isinstance(CpuTimer(), kind)
