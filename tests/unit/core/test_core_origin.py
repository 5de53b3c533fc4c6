"""Where a source comes from: kept with a workload, and no part of what makes it the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from whet.core.frozen import FrozenMap
from whet.core.workload import Origin, Workload
from whet.testing.samples import a_workload

ORIGIN = Origin("c0de", FrozenMap({"M": "256"}), ("/home/me/f.py:f",))


def test_an_origin_survives_json_and_changes_no_identity() -> None:
    workload = replace(a_workload(), origin=ORIGIN)
    again = Workload.from_json(workload.to_json())
    assert again.origin == ORIGIN
    assert (workload, workload.id) == (a_workload(), a_workload().id)


def test_a_workload_without_an_origin_is_written_as_before() -> None:
    data = a_workload().to_json()
    assert "origin" not in data
    assert not Workload.from_json(data).origin


def test_of_two_origins_the_newer_place_comes_first_and_what_is_known_stays() -> None:
    newer = Origin(places=("/elsewhere/g.py:g",))
    joined = newer.over(ORIGIN)
    assert joined.places == ("/elsewhere/g.py:g", "/home/me/f.py:f")
    assert (joined.code, joined.captured) == (ORIGIN.code, ORIGIN.captured)


def test_a_portable_origin_names_no_folder() -> None:
    assert ORIGIN.portable().places == ("f.py:f",)


@pytest.mark.parametrize("change", [{"places": "f.py"}, {"code": 1}, {"captured": {"M": 1}}])
def test_an_origin_of_other_types_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is not"):
        Origin.from_json({**ORIGIN.to_json(), **change})
