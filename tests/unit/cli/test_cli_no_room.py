"""`whet tune` on a machine that runs out of something: the best so far, then the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runs import Whet

KERNEL = """
import whet
from whet.core.errors import HostFailure

def spin(n):
    if n == {full_at}:
        raise HostFailure("there is no space; free some")
    sum(range(n))

spin = whet.function(spin, {{"n": [1000, 2000, 3000]}}, isolate=False)
"""


@pytest.mark.parametrize(("full_at", "found"), [(3000, True), (1000, False)])
def test_the_best_so_far_is_printed_and_then_what_is_missing(
    whet: Whet, full_at: int, found: bool
) -> None:
    Path("kernel.py").write_text(KERNEL.format(full_at=full_at))
    ran = whet("tune", "kernel.py:spin", "--store", "s.db", "--search", "grid", "--json", "--quiet")
    result = json.loads(ran.out)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "there is no space; free some" in ran.err
    assert result["outcome"] == "interrupted"
    assert (result["best"] is not None) == found
