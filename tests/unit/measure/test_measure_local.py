"""A bench in this process, and kernels that spoil it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import Any

import pytest

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Built, Verdict, Visit
from whet.measure.gpu.timer import CudaTimer
from whet.testing.fake_stream import US, QueuedKernel, Stream

STICKY = "CUDA error: an illegal memory access was encountered"


class Context(Stream):
    """Once `lost`, every launch fails with the same error."""

    lost = False


class Loaded(QueuedKernel):
    facts: Mapping[str, Any] = {}
    stream: Context

    def __init__(self, stream: Context, poison_at: int = 0) -> None:
        super().__init__(stream, 5 * US)
        self._poison_at = poison_at

    def repeat(self, n: int) -> None:
        self.stream.lost = self.stream.lost or self.launches + 1 == self._poison_at
        if self.stream.lost:
            raise RuntimeError(STICKY)
        super().repeat(n)

    def check(self) -> Verdict:
        return Verdict(True, "")

    def close(self) -> None:
        pass


class Kernels:
    def __init__(self, kernels: list[Loaded]) -> None:
        self.kernels = kernels

    def load(self, config: Config, artifact: Any) -> Loaded:
        return self.kernels[next(iter(config.values()))]  # type: ignore[index]


def bench_of(*poison_at: int) -> tuple[LocalBench, tuple[Built, ...]]:
    """One kernel for each number: the launch with which it spoils the context, 0 for none."""
    stream = Context()
    kernels = [Loaded(stream, launch) for launch in poison_at]
    timer = CudaTimer(stream, overhead_ns=0.0)
    built = tuple((Config(at=at), None) for at in range(len(kernels)))
    return LocalBench(Kernels(kernels), timer), built


@pytest.mark.parametrize("launch", [1, 2, 3])
def test_of_several_nobody_is_blamed_for_a_spoilt_context(launch: int) -> None:
    bench, built = bench_of(0, launch, 0)
    with pytest.raises(ConfigFailure, match="illegal memory access") as lost:
        bench.measure(Visit(built, 2, first=True))
    assert lost.value.spoils


def test_nor_in_a_round() -> None:
    bench, built = bench_of(0, 4)
    bench.measure(Visit(built, 2, first=True))
    with pytest.raises(ConfigFailure, match="illegal memory access") as lost:
        bench.measure(Visit(built, 1))
    assert lost.value.spoils


@pytest.mark.parametrize("first", [True, False])
def test_nor_is_one_that_is_alone_answered_where_nothing_can_follow(first: bool) -> None:
    bench, built = bench_of(1)
    with pytest.raises(ConfigFailure, match="illegal memory access") as lost:
        bench.measure(Visit(built, 1, first=first))
    assert lost.value.spoils


@pytest.mark.parametrize("first", [True, False])
def test_a_failure_holds_on_to_nothing_that_was_loaded(first: bool) -> None:
    held: list[weakref.ref[Any]] = []

    class Failing:
        def load(self, config: Config, artifact: Any) -> Loaded:
            kernel = Broken(Context())
            held.append(weakref.ref(kernel))
            return kernel

    gc.disable()
    try:
        bench = LocalBench(Failing(), CudaTimer(Stream(), overhead_ns=0.0))
        [failure] = bench.measure(Visit(((Config(at=0), None),), 1, first=first))
        assert isinstance(failure, ConfigFailure)
        assert [ref() for ref in held] == [None]
    finally:
        gc.enable()


class Broken(Loaded):
    def repeat(self, n: int) -> None:
        raise RuntimeError("invalid argument")
