"""Every test has a store and a Triton cache of its own, and nothing is in them when it starts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import whet


@dataclass(frozen=True)
class Cold:
    """Where one test's results go."""

    store: Path
    triton: Path

    def workloads(self) -> list[Any]:
        if not self.store.exists():
            return []
        with whet.open_store(self.store, read_only=True) as store:
            return [known.workload for known in store.workloads()]

    def trials(self, *, superseded: bool = False) -> list[whet.Trial]:
        """Of all workloads, the only one in most tests."""
        if not self.store.exists():
            return []
        with whet.open_store(self.store, read_only=True) as store:
            return [
                trial
                for known in store.workloads()
                for trial in store.trials(known.workload.id, all=superseded)
            ]

    def statuses(self, parameter: str = "BLOCK") -> dict[Any, str]:
        return {trial.config[parameter]: trial.status.value for trial in self.trials()}

    def measured(self, parameter: str = "BLOCK") -> set[Any]:
        return {trial.config[parameter] for trial in self.trials() if trial.status.measured}

    def measuring_runs(self) -> list[int]:
        """How many runs of each workload have tried anything."""
        with whet.open_store(self.store, read_only=True) as store:
            return [
                sum(run.trials > 0 for run in store.runs(known.workload.id))
                for known in store.workloads()
            ]

    def files(self, ending: str) -> list[str]:
        return sorted(path.name for path in self.triton.rglob(f"*.{ending}"))


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cold:
    place = Cold(tmp_path / "store.db", tmp_path / "triton")
    monkeypatch.setenv("WHET_STORE", str(place.store))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(place.triton))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    for name in ("TRITON_INTERPRET", "TRITON_PRINT_AUTOTUNING", "TRITON_CACHE_AUTOTUNING"):
        monkeypatch.delenv(name, raising=False)
    return place


@pytest.fixture
def warm_binaries(cold: Cold, binaries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's cache has what earlier tests compiled: for files whose tests are about other things
    and use the same few kernels."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(binaries))


@pytest.fixture
def cold_binaries(warm_binaries: None, cold: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
    """In such a file, for a test that is about compiling."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cold.triton))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Names of the kernels that this process compiles, and whether the disk cache had them."""
    from triton import knobs

    seen: list[tuple[str, bool]] = []

    def listener(*, src: Any, cache_hit: bool, **_: Any) -> None:
        seen.append((src.name, cache_hit))

    monkeypatch.setattr(knobs.compilation, "listener", listener)
    return seen


@pytest.fixture
def fresh_workers() -> Iterator[None]:
    """They are new interpreters, as for users. All have ended before the next test begins, which
    would otherwise be charged with what they took."""
    yield
    end = time.monotonic() + 10.0
    while _starting() and time.monotonic() < end:
        time.sleep(0.01)


def _starting() -> bool:
    return any(thread.name == "whet-starter" for thread in threading.enumerate())
