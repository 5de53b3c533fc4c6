"""One word for one thing, and a list of them in every view."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from browser import Tab

from explorer_samples import fill, trial, workload
from explorer_server import running
from whet.core.status import Status
from whet.explorer.glossary import GLOSSARY
from whet.store import SqliteStore

pytestmark = pytest.mark.slow

pytest.importorskip("uvicorn", reason="needs the extra explorer")

# What said little, or something else elsewhere.
PUZZLING = (
    "over first",
    "over typical",
    "cannot be told from",
    "tried as",
    "of the rest",
    "place here",
    "Is it so here",
    "Compared with stock",
    "stopped early, slower",
    " outcomes",
    "row 1",
)


def test_words_are_explained_in_every_view(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#space")
    for view in page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)"):
        page.click(f'[data-view="{view}"]')
        page.keyboard.press("?")
        shown = page.locator("#glossary:visible dt").all_text_contents()
        assert shown == list(GLOSSARY), view
        page.keyboard.press("Escape")
        assert page.locator("#glossary:visible").count() == 0
    page.click("#words")
    assert GLOSSARY["the pick"] in tab.text("#glossary")
    page.click("#glossary button")


def test_no_view_has_a_puzzling_word(tmp_path: Path, tab: Tab) -> None:
    of = workload()
    with SqliteStore(tmp_path / "s.db") as store:
        fill(store, of)
        slow = {"BM": 16, "BN": 16, "num_warps": 4}
        store.append([trial(of, slow, 9e4, status=Status.OUTRACED, samples=3)])
        fill(store, workload("argued", **{"0": 20}), started=2e3)
    with running(store=tmp_path / "s.db") as url:
        page = tab.open(url, "#workloads")
        for view in page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)"):
            page.click(f'[data-view="{view}"]')
            page.wait_for_timeout(400)
            text = page.evaluate("document.body.innerText")
            assert [one for one in PUZZLING if one in text] == [], view
        page.click('[data-view="workloads"]')
        assert "argument 0=20" in tab.text("#workloads")
        tab.leave()


def test_headings_and_signs_are_in_the_list(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#workloads")
    page.wait_for_selector("#workloads th")
    headings = page.locator("#workloads th").all_text_contents()
    assert {"key", "cost", "over the median", "of roofline"} <= set(headings) & set(GLOSSARY)
    title = page.locator("#workloads th button", has_text="key").get_attribute("title")
    assert title == f"Sort by key: {GLOSSARY['key']}"
    page.click('[data-view="space"]')
    page.wait_for_selector("#heat .legend span")
    signs = page.evaluate(
        "[...document.querySelectorAll('#heat .legend span')].slice(1)"
        ".map(one => one.lastChild.textContent)"
    )
    known = {"tied with the pick": "tied", "never measured": "never tried"}
    assert {known.get(one, one) for one in signs} <= set(GLOSSARY) | {"failed"}


def test_the_first_config_is_not_compared_with_itself(tmp_path: Path, tab: Tab) -> None:
    of = workload()
    with SqliteStore(tmp_path / "s.db") as store:
        run = fill(store, of)
        store.save_run(replace(run, first=run.best))
    with running(store=tmp_path / "s.db") as url:
        tab.open(url, "#space")
        tab.until_text('[data-answer="best"]', "BM=128")
        assert "the author's first config" in tab.answer("best")
        assert "× as fast as the first" not in tab.answer("best")
        tab.leave()
