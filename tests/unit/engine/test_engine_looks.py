"""How long a first look at a config may take."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import pytest

from whet.engine.steps.samples import Sampler


def look_limit_s(run_limit_s: float, quickest_look_s: float | None) -> float:
    needed: dict[str, Any] = {one.name: None for one in fields(Sampler) if one.default is MISSING}
    needed["run_limit_s"] = run_limit_s
    return Sampler(**needed, quickest_look_s=quickest_look_s).look_limit_s


def test_before_anything_was_looked_at_a_look_may_take_as_long_as_a_run() -> None:
    assert look_limit_s(600.0, None) == 600.0


def test_then_it_may_take_fifty_times_the_quickest_and_five_seconds() -> None:
    assert look_limit_s(600.0, 0.2) == pytest.approx(15.0)
    assert look_limit_s(600.0, 0.0) == pytest.approx(5.0)


def test_but_never_longer_than_a_run() -> None:
    assert look_limit_s(60.0, 1.2) == 60.0
    assert look_limit_s(60.0, 1.0) == pytest.approx(55.0)
