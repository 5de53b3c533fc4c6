"""Figures of the explorer: parts that add up, and answers that follow the data."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Tab

from explorer_samples import cut, trial, workload
from explorer_server import running
from whet.store import SqliteStore

pytestmark = pytest.mark.slow

pytest.importorskip("uvicorn", reason="needs the extra explorer")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An explorer of a run whose budget ended: 4.91 s by the clock, 8.31 s of work."""
    place = tmp_path_factory.mktemp("ended") / "s.db"
    with SqliteStore(place) as store:
        cut(store)
    with running(store=place) as url:
        yield url


def bars(tab: Tab, figure: str) -> dict[str, float]:
    saved = tab.saved(f'#{figure} [data-export="csv"]').decode().splitlines()
    return {row["name"]: float(row["value"]) for row in csv.DictReader(saved)}


def test_the_parts_of_the_cost_add_up(ended: str, tab: Tab) -> None:
    tab.open(ended, "#cost")
    tab.until_text("#wall .line", "add up to 4.91 s")
    assert "4.91 s for 12 configs" in tab.answer("cost")
    assert "building" not in tab.answer("cost")
    assert "measuring 2.40 s" in tab.answer("cost")
    assert sum(bars(tab, "wall").values()) == pytest.approx(4.91)
    work = bars(tab, "phases")
    assert sum(work.values()) == pytest.approx(8.31)
    assert sum(bars(tab, "stages").values()) == pytest.approx(work["building"])
    tab.leave()


def test_builds_that_timed_out_are_part_of_the_stages(sample: str, tab: Tab) -> None:
    tab.open(sample, "#cost")
    tab.until_text("#stages .line", "add up to")
    stages = bars(tab, "stages")
    assert sum(stages.values()) == pytest.approx(bars(tab, "phases")["building"])
    assert stages["the rest"] > 500
    assert "of work for 576 configs" in tab.answer("cost")


def test_what_matters_is_worked_out_anew_as_trials_come(tmp_path: Path, tab: Tab) -> None:
    place = tmp_path / "s.db"
    of = workload()
    with SqliteStore(place) as store:
        store.put_workload(of)
        store.append([trial(of, {"A": n, "B": 0}, 1e4 + n) for n in range(4)])
    with running(store=place) as url:
        tab.open(url, "#space")
        tab.until_text('[data-answer="matters"]', "Too few trials to say")
        with SqliteStore(place) as store:
            grid = [(a, b) for a in range(14) for b in range(1, 15)]
            made = [trial(of, {"A": a, "B": b}, 1e4 * (1 + a) + b) for a, b in grid]
            store.append(made)
        tab.until_text('[data-answer="matters"]', "A: ")
        tab.until("document.querySelector('#importance .note') === null")
        tab.leave()


def test_what_may_be_noise_is_said_to_be(ended: str, tab: Tab) -> None:
    tab.open(ended, "#space")
    tab.until_text('[data-answer="matters"]', "Nothing that stands out from noise")
    tab.leave()
