"""What can be seen: by eyes that tell few colours apart, and on any ground."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import Tab

from explorer_samples import fill
from explorer_server import running
from whet.store import SqliteStore

pytestmark = pytest.mark.slow

pytest.importorskip("uvicorn", reason="needs the extra explorer")

# As the Web Content Accessibility Guidelines have it.
CONTRAST = """
const level = c => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4)
const light = ([r, g, b]) => 0.2126 * level(r) + 0.7152 * level(g) + 0.0722 * level(b)
const contrast = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((p, q) => p - q)
    return (high + 0.05) / (low + 0.05)
}
const parts = text => text.match(/[0-9.]+/g).slice(0, 3).map(Number)
const hex = text => [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16))
"""


def test_text_on_cells_stands_out_on_every_colour(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#space")
    least = page.evaluate(
        "(async () => {" + CONTRAST + "const m = await import('/static/colors.js')\n"
        "const colours = [...Array(201).keys()].map(i => m.viridis(i / 200))\n"
        "return Math.min(...colours.map(one => contrast(one, hex(m.inkOn(one)))))})()"
    )
    assert least >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_controls_have_borders_that_can_be_seen(sample: str, browser: Any, scheme: str) -> None:
    tab = Tab(browser, scheme)
    page = tab.open(sample, "#space")
    found = page.evaluate(
        "(() => {" + CONTRAST + "const of = (one, name) => parts(getComputedStyle(one)[name])\n"
        "const panel = of(document.querySelector('#heat'), 'backgroundColor')\n"
        "const all = [...document.querySelectorAll('#heat select, #parameters button, #best-k')]\n"
        "return all.map(one => contrast(of(one, 'borderTopColor'), panel))})()"
    )
    tab.close()
    assert min(found) >= 3


@pytest.mark.parametrize("wide", [320, 390, 800])
def test_every_view_fits_a_narrow_window(sample: str, tab: Tab, wide: int) -> None:
    tab.page.set_viewport_size({"width": wide, "height": 844})
    page = tab.open(sample, "#space")
    assert page.locator('meta[name="viewport"]').count() == 1
    for view in page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)"):
        link = page.locator(f'[data-view="{view}"]').bounding_box()
        assert 0 <= link["x"] <= link["x"] + link["width"] <= wide
        page.click(f'[data-view="{view}"]')
        page.wait_for_timeout(150)
        if view == "compare":
            tab.until("document.querySelectorAll('#compare-keys tbody tr').length > 0")
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert over <= 0, view


def test_a_lost_server_is_a_banner_with_the_command(tmp_path: Path, browser: Any) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        fill(store)
    tab = Tab(browser)
    with running(store=tmp_path / "s.db") as url:
        tab.open(url, "#space")
        tab.until("whetTimings.app.connected === true")
        assert not tab.page.is_visible("#lost")
    tab.until("!document.querySelector('#lost').hidden")
    assert "Start it again with: whet explore" in tab.text("#lost")
    tab.leave()
    tab.close()


def test_an_empty_store_has_the_command_that_fills_it_in_every_view(
    tmp_path: Path, tab: Tab
) -> None:
    with SqliteStore(tmp_path / "s.db"):
        pass
    with running(store=tmp_path / "s.db") as url:
        page = tab.open(url)
        for view in page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)"):
            page.click(f'[data-view="{view}"]')
            assert "whet " in page.inner_text("main"), view
            assert page.locator("main button:visible").count() == 0, view
        tab.leave()


def test_what_is_not_there_has_no_buttons(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#cost")
    tab.until_text("#range-statistics", "A recorded table has no timeline")
    assert page.locator("#timeline button:visible").count() == 0
    assert page.locator("#phases button:visible").count() > 0


def test_failures_have_a_dashed_grey_lane_beyond_the_slow_end(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#space")
    tab.until("whetTimings.app.ds?.complete && whetTimings.app.made.space.lines.axes.length > 0")
    failed, fastest, slowest = page.evaluate(
        "(() => {const lines = whetTimings.app.made.space.lines;"
        "const time = lines.axes.find(one => one.axis.name === 'median_ns');"
        "return [0, 1, time.axis.count - 1].map(bin => lines.slot(time, bin)[0])})()"
    )
    assert failed < slowest < fastest
    red, green, blue = page.evaluate(
        "import('/static/parallel.js').then(m => m.classColor(5)).then(text =>"
        "[1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16)))"
    )
    assert max(red, green, blue) - min(red, green, blue) < 40
    swatch = page.locator("#parallel .legend .swatch").last
    assert "repeating-linear-gradient" in swatch.evaluate("one => one.style.background")
