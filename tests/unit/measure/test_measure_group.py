"""First looks at several configs from one queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.core.timing import L2
from whet.measure import Hopeless, Reading, Runnable, Timer, Warm
from whet.measure.bench.executor import Executor
from whet.measure.bench.protocol import Answer, DeviceRoom, Sampled, Verdict, Visit
from whet.measure.gpu.timer import CudaTimer
from whet.measure.timer import as_timer
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


class Bare:
    """A timer of another package, as it was written before there was a base class."""

    name = "bare"

    def warm(self, run: Runnable) -> Warm:
        return Warm(1, 10.0, 0.0)

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        return Reading((10.0,) * samples, 1, self.name)


class Rich(Bare):
    primed_below_ns = 7.0
    released = False

    @property
    def l2(self) -> L2:
        return "warm" if self.released else "cold"

    def warm_all(self, runs: Sequence[Runnable]) -> list[Warm]:
        return [Warm(2, 20.0, 0.0) for _ in runs]

    def turn(self, runs: Sequence[Runnable], warms: Sequence[Warm]) -> list[Reading]:
        return [Reading((20.0,), 2, self.name) for _ in runs]

    def release(self) -> None:
        self.released = True


def test_a_timer_without_the_base_class_gets_what_it_lacks_from_it() -> None:
    run = Loaded(Stream(), 5 * US)
    timer = as_timer(Bare())
    assert isinstance(timer, Timer)
    assert (timer.name, timer.l2, timer.grouped) == ("bare", "none", False)
    assert timer.primed_below_ns == CpuTimer.primed_below_ns
    assert timer.measure(run, 2, timer.warm(run)).samples == (10.0, 10.0)
    timer.prepare(DeviceRoom())
    timer.release()


def test_a_timer_without_the_base_class_keeps_all_that_it_offers() -> None:
    run, own = Loaded(Stream(), 5 * US), Rich()
    timer = as_timer(own)
    assert (timer.l2, timer.grouped, timer.primed_below_ns) == ("cold", True, 7.0)
    [reading] = timer.turn([run], timer.warm_all([run]))
    assert (reading.samples, reading.loops) == ((20.0,), 2)
    timer.release()
    assert own.released
    assert timer.l2 == "warm"


def test_a_timer_with_the_base_class_is_taken_as_it_is() -> None:
    timer = CudaTimer(Stream(), overhead_ns=0.0)
    assert as_timer(timer) is timer
    assert timer.grouped
    assert not CpuTimer().grouped
