"""A report in a real browser: one file, no server, no network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from browser import Tab

from explorer_samples import HOSTILE, fill, hostile
from whet.store import SqliteStore

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the report of a store with a kernel and one of hostile names."""
    folder = tmp_path_factory.mktemp("report")
    with SqliteStore(folder / "s.db") as store:
        fill(store)
        hostile(store)
    out = folder / "report.html"
    command = [
        sys.executable,
        "-m",
        "whet",
        "explore",
        "--out",
        str(out),
        "--store",
        str(folder / "s.db"),
    ]
    subprocess.run([*command, "--quiet"], check=True)
    return out.as_uri()


@pytest.fixture
def offline(browser: Any) -> Iterator[Tab]:
    one = Tab(browser)
    one.context.set_offline(True)
    yield one
    one.close()
    assert one.complaints == []


def opened(tab: Tab, report: str, link: str) -> Any:
    tab.page.goto("about:blank")
    tab.page.goto(f"{report}{link}")
    tab.until("Boolean(window.whetTimings && window.whetTimings.last.started)")
    return tab.page


@pytest.mark.slow
def test_a_report_has_the_views_and_their_answers(report: str, offline: Tab) -> None:
    page = opened(offline, report, "#space")
    offline.until_text('[data-answer="matters"]', "BM")
    assert "BM=128 BN=128 num_warps=4" in offline.answer("best")
    assert "2 of 32: 2 out of resources" in offline.answer("failed")
    views = page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)")
    assert views == ["workloads", "space", "search", "cost", "frontier", "compare", "trial"]
    for view in views:
        page.click(f'[data-view="{view}"]')
        page.wait_for_selector(f"#view-{view}:not([hidden])")
    assert "The best config" in offline.text('[data-trial="verdict"]')


def test_a_report_selects_and_is_linked_to(report: str, offline: Tab) -> None:
    page = opened(offline, report, "#space?brush=BM:128|256")
    assert offline.selected() == 16
    assert offline.pixels("#heat canvas") > 10
    page.click("#clear-button")
    assert offline.selected() == 32
    offline.again()
    assert offline.selected() == 32


def test_a_report_replays_searches(report: str, offline: Tab) -> None:
    page = opened(offline, report, "#search")
    page.wait_for_selector(".lane canvas")
    assert page.locator(".lane canvas").count() >= 2
    page.press("#step", "Home")
    page.press("#step", "ArrowRight")
    assert offline.text("#step-count").startswith("1 of ")


def test_a_report_draws_samples_as_quantiles(report: str, offline: Tab) -> None:
    page = opened(offline, report, "#trial")
    offline.until_text('[data-trial="verdict"]', "The best config")
    assert offline.pixels("#samples canvas") > 3
    rows = offline.saved('#samples [data-export="csv"]').decode().splitlines()
    shares = [row.split(",")[1] for row in rows if row.startswith("trial ")]
    assert shares == ["0", "0.05", "0.25", "0.5", "0.75", "0.95", "1"]
    page.goto(f"{report}#space?brush=status:resources")
    page.locator("#rows tbody tr").first.click()
    offline.until_text('[data-trial="error"]', "Required: 262144")


def test_hostile_text_is_text_in_a_report_too(report: str, offline: Tab) -> None:
    page = opened(offline, report, "#workloads")
    assert page.evaluate("window.hacked") is None
    page.locator("[data-workload-row]", has_text=HOSTILE.split(">")[0]).click()
    page.locator("#rows tbody tr", has_text="build failed").click()
    offline.until_text('[data-trial="error"]', "window.hacked = 1")
    assert page.evaluate("window.hacked") is None
