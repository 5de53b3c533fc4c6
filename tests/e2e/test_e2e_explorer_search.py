"""What the explorer says of a search and of its pick, on runs that went as runs do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Tab

from explorer_samples import cut, raced
from explorer_server import running
from whet.store import SqliteStore

pytestmark = pytest.mark.slow

pytest.importorskip("uvicorn", reason="needs the extra explorer")

DRAWN = "whetTimings.app.made.search?.lanes.length > 0"
CURVES = "whetTimings.app.made.search.curve.chart.input"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """An explorer, a run whose budget ended, and one that stopped most configs early."""
    place = tmp_path_factory.mktemp("runs") / "s.db"
    with SqliteStore(place) as store:
        ended, race = cut(store), raced(store)
    with running(store=place) as url:
        yield url, ended.workload.id, race.workload.id


def curve(tab: Tab, name: str) -> list[float]:
    """The shares that a search of that name reached, evaluation by evaluation."""
    found: list[Any] = tab.page.evaluate(f"{CURVES}.series.map(one => [one.name, [...one.y]])")
    return next(shares for title, shares in found if title == name)


def test_no_search_finds_more_than_the_fastest_there_is(
    runs: tuple[str, str, str], tab: Tab
) -> None:
    url, ended, _ = runs
    tab.open(url, f"#search?w={ended}")
    tab.until(DRAWN)
    assert "100 % of the best" in tab.text('[data-lane-status^="run:"]')
    shares = curve(tab, "auto, the run")
    assert max(shares) == 1.0
    assert shares[0] == pytest.approx(0.4)
    assert "the run gets to 95 % after 9 " in tab.text("#convergence .line")
    tab.leave()


def test_configs_that_were_stopped_early_are_part_of_the_curve(
    runs: tuple[str, str, str], tab: Tab
) -> None:
    url, _, race = runs
    tab.open(url, f"#search?w={race}")
    tab.until(DRAWN)
    shares = curve(tab, "auto, the run")
    assert 0.1 < shares[0] < 0.9
    assert sorted(shares) == shares
    # The few samples of the one stopped early that seemed fastest do not count.
    assert max(shares[:620]) < 0.6
    assert shares[-1] == 1.0
    tab.leave()


def test_the_ticks_of_a_level_curve_differ(runs: tuple[str, str, str], tab: Tab) -> None:
    url, _, race = runs
    tab.open(url, f"#search?w={race}&lanes=run:none")
    tab.until(DRAWN)
    tab.page.evaluate(
        "whetTimings.app.made.search.curve.chart.update({series: [{name: 'level',"
        "kind: 'steps', color: 'red', x: [1, 2], y: [1, 1]}],"
        f"x: {CURVES}.x, y: {CURVES}.y}})"
    )
    low, high = tab.page.evaluate(f"{CURVES}.y.ends")
    assert high - low >= 0.1
    tab.leave()


def test_a_race_is_the_median_and_the_middle_half_of_twenty_seeds(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#search?lanes=random:0,grid:0&budget=30")
    tab.until_text("#convergence .line", "the median of 20 seeds")
    one = page.evaluate(f"{CURVES}.series.find(one => one.name === 'random')")
    assert all(
        low <= mid <= up for low, mid, up in zip(one["lower"], one["y"], one["upper"], strict=True)
    )
    assert any(low < up for low, up in zip(one["lower"], one["upper"], strict=True))
    # It asks for the same configs whatever the seed.
    assert page.evaluate(f"{CURVES}.series.find(one => one.name === 'grid').upper") is None


def test_what_whet_uses_comes_first(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#search?budget=10")
    tab.until(DRAWN)
    names = page.locator(".lane").evaluate_all("all => all.map(one => one.dataset.lane)")
    assert names == ["auto:0", "gp:0", "random:0", "grid:0"]


def test_a_run_of_a_hundred_thousand_trials_is_drawn(tmp_path: Path, tab: Tab) -> None:
    place = tmp_path / "s.db"
    with SqliteStore(place) as store:
        raced(store, configs=100_000)
    with running(store=place) as url:
        tab.open(url, "#search")
        tab.until(DRAWN, seconds=60)
        assert tab.pixels("#convergence canvas") > 10
        assert len(curve(tab, "auto, the run")) == 100_000
        tab.leave()


def test_the_pick_and_the_fastest_are_told_apart(runs: tuple[str, str, str], tab: Tab) -> None:
    url, ended, race = runs
    page = tab.open(url, f"#space?w={ended}")
    tab.until_text("#dispute", "the pick, BM=32 WARPS=2 took 94.0 ms")
    said = tab.text("#dispute")
    assert "the fastest, BM=64 WARPS=4 took 40.0 ms" in said
    assert "the budget ended before" in said
    assert "continue with --budget 10s" in said
    assert tab.text("[data-readout=best-found]") == "94.0 ms"
    assert tab.text("[data-readout=fastest-seen]") == "40.0 ms"
    assert tab.text("[data-readout=of-best]") == "42.6 %"
    assert "1 other config had a lower median" in tab.answer("sure")
    assert re.search("the fastest seen.*the pick", tab.text("#rows tbody"))
    assert "the fastest seen" in tab.text("#heat-legend")
    page.click('[data-view="trial"]')
    tab.until_text('[data-trial="verdict"]', "The pick, not the fastest seen")
    tab.open(url, f"#space?w={race}")
    tab.until("whetTimings.app.ds?.complete")
    assert page.locator("#dispute").count() == 0
    tab.leave()
