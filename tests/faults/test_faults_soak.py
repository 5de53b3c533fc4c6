"""Tuning again and again in one process: nothing is held on to."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults_processes import count

ROUNDS = count(4, 60)


@pytest.mark.slow(15)
@pytest.mark.timeout(900)
def test_rounds_of_tuning_leave_no_descriptor_thread_child_or_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scratch: Path
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from soak import Soak

    soak = Soak(tmp_path, scratch)
    soak.round()
    before = soak.sample()
    for _ in range(ROUNDS):
        soak.round()
    after = soak.sample()
    held = ("descriptors", "threads", "children", "temporary")
    assert {name: getattr(after, name) for name in held} == {
        name: getattr(before, name) for name in held
    }
