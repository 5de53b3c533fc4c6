"""The explorer worked by Back, by keys and by ear."""

from __future__ import annotations

from itertools import pairwise

import pytest
from browser import Tab

pytestmark = pytest.mark.slow

pytest.importorskip("uvicorn", reason="needs the extra explorer")

READ = "whetTimings.app.ds?.complete"


def test_back_undoes_what_was_selected_held_and_sorted(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#space")
    tab.until(READ)
    links = [tab.hash()]
    for act in (
        "#best-button",
        '[data-control="num_warps=2"]',
        "#rows th:last-child button",
    ):
        page.click(act)
        links.append(tab.hash())
    tab.drag("#heat canvas", (0.2, 0.1), (0.5, 0.3))
    links.append(tab.hash())
    assert len(set(links)) == 5
    for link in reversed(links[:-1]):
        page.go_back()
        tab.until(f"location.hash === {link!r}")
    assert tab.selected() == 576
    assert page.locator(".chip").count() == 0


def test_a_drag_is_one_step_back(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#space")
    tab.until(READ)
    link = tab.hash()
    tab.drag("#parallel canvas", (0.045, 0.35), (0.045, 0.6))
    assert tab.selected() < 576
    page.go_back()
    tab.until(f"location.hash === {link!r}")
    assert tab.selected() == 576


def test_charts_that_act_say_so_and_tell_where_their_cursor_is(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#space?x=BLOCK_SIZE_M&y=BLOCK_SIZE_N")
    tab.until(READ)
    for chart in page.locator("canvas[tabindex]").all():
        assert chart.get_attribute("role") == "application"
        assert chart.get_attribute("aria-label")
    page.focus("#heat canvas")
    page.keyboard.press("ArrowLeft")
    assert "BLOCK_SIZE_M = 64, BLOCK_SIZE_N = 256" in tab.text("#announced")
    assert "time " in tab.text("#announced")
    tab.until("document.querySelector('#importance canvas').hidden === false")
    page.focus("#importance canvas")
    page.keyboard.press("ArrowDown")
    assert "with others" in tab.text("#announced")
    page.click('[data-view="search"]')
    tab.until("whetTimings.app.made.search.lanes.length > 0")
    page.focus("#convergence canvas")
    page.keyboard.press("ArrowRight")
    assert "evaluation 1" in tab.text("#announced")


def test_rows_have_names_and_headings_their_order(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#space")
    tab.until(READ)
    name = page.locator("#rows tbody tr").first.get_attribute("aria-label")
    assert name.startswith("place 1, measured 186 µs: BLOCK_SIZE_M=128")
    for view in page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)"):
        page.click(f'[data-view="{view}"]')
        page.wait_for_timeout(100)
        levels = page.evaluate(
            "[...document.querySelectorAll('h1, h2, h3')].filter(one => one.offsetParent)"
            ".map(one => Number(one.tagName[1]))"
        )
        steps = [after - before for before, after in pairwise(levels)]
        assert levels[0] == 1
        assert max(steps) <= 1, (view, levels)
