"""What a newcomer sees first: the sample, its tour, and a list that can be taken in."""

from __future__ import annotations

import json
import urllib.request

import pytest
from browser import Tab

pytestmark = pytest.mark.slow

pytest.importorskip("uvicorn", reason="needs the extra explorer")

# Whether two boxes of the page share a place, and whether one begins below the header.
APART = """([one, other]) => {
    const [a, b] = [one, other].map(name => document.querySelector(name).getBoundingClientRect());
    return a.bottom <= b.top || b.bottom <= a.top || a.right <= b.left || b.right <= a.left;
}"""
BELOW = "document.querySelector('.toured').getBoundingClientRect().top >= " + (
    "document.querySelector('#top').getBoundingClientRect().bottom"
)


def test_the_sample_begins_with_a_space_and_its_answers(sample: str, tab: Tab) -> None:
    page = tab.open(sample)
    assert tab.hash().startswith("#space")
    assert page.evaluate(APART, ["#tour", "#answers"])
    assert page.evaluate(APART, ["#tour", "#heat"])


def test_the_tour_stands_beside_what_it_explains(sample: str, tab: Tab) -> None:
    page = tab.open(sample)
    page.wait_for_selector("#tour:not([hidden])")
    stops = 0
    while page.locator("#tour:not([hidden])").count():
        stops += 1
        tab.until(BELOW)
        explained = page.evaluate("document.querySelector('.toured').id")
        part = "header" if page.locator(f"#{explained} > header").count() else ".answer, iframe"
        page.wait_for_selector(f"#{explained} {part}")
        assert page.evaluate(APART, ["#tour", f"#{explained} {part}"]), explained
        if page.locator(f"#{explained} canvas").count():
            assert page.evaluate(APART, ["#tour", f"#{explained} canvas"]), explained
        page.click("#tour-next")
    assert stops >= 10


def test_the_tour_ends_where_another_view_is_opened(sample: str, tab: Tab) -> None:
    page = tab.open(sample)
    page.wait_for_selector("#tour:not([hidden])")
    page.click('[data-answer="cost"] a')
    page.wait_for_selector("#view-cost:not([hidden])")
    assert page.locator("#tour:not([hidden])").count() == 0


def test_an_answer_leads_to_what_it_rests_on(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#space")
    tab.until_text('[data-answer="matters"]', "Its good value depends on the others")
    page.click('[data-answer="failed"]')
    assert tab.selected() == 44
    assert "44 of 576" in tab.answer("failed")
    page.click("#clear-button")
    box = page.locator("#parallel canvas").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 56, box["y"] + 42)
    assert tab.selected() == 44
    page.click('[data-answer="best"]')
    tab.until_text('[data-trial="verdict"]', "The best config")


def test_the_sample_compares_devices_and_schedules(sample: str, tab: Tab) -> None:
    with urllib.request.urlopen(f"{sample}/api/workloads") as answer:
        lines = json.load(answer)
    of = {(line["kernel"], line["device"]): line["id"] for line in lines}
    page = tab.open(sample, f"#compare?w={of['convolution_kernel', 'NVIDIA RTX A4000']}")
    tab.until_text("#compare-words", "The pick of A has 63.2 % of the fastest's speed on B")
    one, two = (id for (kernel, _), id in of.items() if kernel in ("tiled", "vectorized"))
    page.goto(f"{sample}/#compare?w={one}&b={two}")
    tab.until_text("#beside", "nothing is stored between operations")


def test_many_keys_of_one_kernel_are_one_row_until_it_is_unfolded(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#workloads")
    rows = page.locator("[data-workload-row]")
    alone = rows.count()
    assert alone < 12
    assert page.locator("[data-group]").count() == 2
    assert "64 keys" in tab.text('[data-group*="h200-gemm-576"]')
    page.locator("[data-group] button").first.press("Enter")
    assert rows.count() == alone + 64
    tab.again()
    assert rows.count() == alone + 64
    page.locator("[data-group]").first.click()
    assert rows.count() == alone


def test_filter_and_order_of_the_list_are_in_the_address(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#workloads")
    page.fill("#workload-filter", "M=4096 N=4096")
    page.click('#workloads th:has-text("best") button')
    page.click('#workloads th:has-text("best") button')
    shown = page.locator("[data-workload-row]").evaluate_all("all => all.map(a => a.textContent)")
    assert 0 < len(shown) < 64
    tab.again()
    assert page.input_value("#workload-filter") == "M=4096 N=4096"
    rows = page.locator("[data-workload-row]")
    assert rows.evaluate_all("all => all.map(a => a.textContent)") == shown
    assert page.locator('#workloads th[aria-sort="descending"]').count() == 1
