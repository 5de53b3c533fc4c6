"""The explorer's page in a real browser: workloads, the space, brushing, links and exports."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from browser import Tab

from explorer_samples import fill, workload
from explorer_server import running
from whet.store import SqliteStore

pytestmark = pytest.mark.slow

pytest.importorskip("uvicorn", reason="needs the extra explorer")


def workloads(url: str) -> list[dict[str, object]]:
    with urllib.request.urlopen(f"{url}/api/workloads") as answer:
        return list(json.load(answer))


@pytest.fixture
def largest(sample: str) -> str:
    """The id of the shipped table's largest matrix product."""
    found = [w for w in workloads(sample) if w["source_where"] == "h200-gemm-576"]
    return str(max(found, key=lambda w: float(str(w["flops"])))["id"])


def test_every_workload_of_the_store_is_listed(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#workloads")
    known = workloads(sample)
    # More quickly than the page can be drawn anew.
    page.evaluate("document.querySelectorAll('[data-group]').forEach(one => one.click())")
    rows = "document.querySelectorAll('[data-workload-row]').length"
    page.wait_for_function(f"{rows} === {len(known)}")
    page.fill("#workload-filter", "M=4096 N=4096")
    shown = page.locator("[data-workload-row]").count()
    assert 0 < shown < len(known)


def test_a_click_on_a_workload_opens_its_space(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#workloads")
    page.locator("[data-group]").first.click()
    row = page.locator("[data-workload-row]", has_text="M=").nth(3)
    chosen = row.get_attribute("data-workload-row")
    row.click()
    page.wait_for_selector("#view-space:not([hidden])")
    assert f"w={chosen}" in tab.hash()
    page.wait_for_selector("#rows tbody tr")
    assert tab.selected() == 576


@pytest.mark.whole
def test_the_page_alone_answers_the_five_questions(sample: str, largest: str, tab: Tab) -> None:
    (known,) = [w for w in workloads(sample) if w["id"] == largest]
    tab.open(sample, f"#space?w={largest}")
    tab.until_text("[data-answer=matters]", "of the differences by itself")
    best = known["best"]
    assert isinstance(best, dict)
    for name in ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "num_warps", "num_stages"):
        assert f"{name}={best['config'][name]}" in tab.answer("best")
    assert "95 % interval" in tab.answer("sure")
    assert f"{known['equals']} other config" in tab.answer("sure")
    assert "44 of 576" in tab.answer("failed")
    assert "the build was still running after 15 s" in tab.answer("failed")
    assert "min of work for 576 configs" in tab.answer("cost")


def test_the_heat_map_shows_values_held_and_reduced(sample: str, largest: str, tab: Tab) -> None:
    page = tab.open(sample, f"#space?w={largest}&x=BLOCK_SIZE_M&y=BLOCK_SIZE_N")
    assert tab.pixels("#heat canvas") > 20
    assert tab.text("[data-readout=of-best]") == "100 %"
    assert tab.text("[data-readout=product]") == "4×4×3×3×4 = 576"
    assert tab.text("[data-readout=tested]") == "576 of 576"
    page.click('[data-control="num_warps=2"]')
    assert "num_warps%3A2" in tab.hash() or "num_warps:2" in tab.hash()
    assert tab.text("[data-readout=of-best]") != "100 %"
    page.click('[data-control="num_warps=4"]')
    assert "num_warps:4" in tab.hash()
    page.select_option("#heat-reduce", "median")
    assert "median config" in tab.text("#heat .line")
    page.select_option("#heat-unit", "time")
    assert "time (less is better)" in tab.text("#heat .line")
    rows = tab.saved('#heat [data-export="csv"]').decode().splitlines()
    assert rows[0].startswith("BLOCK_SIZE_M,BLOCK_SIZE_N,trial,time_ns")
    assert len(rows) == 1 + 16


def test_the_heat_map_is_worked_by_keyboard(sample: str, largest: str, tab: Tab) -> None:
    page = tab.open(sample, f"#space?w={largest}&x=BLOCK_SIZE_M&y=BLOCK_SIZE_N")
    page.focus("#heat canvas")
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowDown", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert tab.text("[data-readout=of-best]") != "100 %"
    assert page.locator('[data-control="BLOCK_SIZE_M=32"]').get_attribute("aria-pressed") == "true"
    page.keyboard.press("Enter")
    assert "row=" in tab.hash()


def test_a_drag_over_cells_selects_their_trials(sample: str, largest: str, tab: Tab) -> None:
    tab.open(sample, f"#space?w={largest}&x=BLOCK_SIZE_M&y=BLOCK_SIZE_N")
    tab.drag("#heat canvas", (0.2, 0.1), (0.4, 0.3))
    assert "brush=BLOCK_SIZE_M:" in tab.hash()
    assert 0 < tab.selected() < 576


def test_brushing_an_axis_filters_the_table_and_can_be_undone(
    sample: str, largest: str, tab: Tab
) -> None:
    page = tab.open(sample, f"#space?w={largest}")
    assert tab.pixels("#parallel canvas") > 50
    tab.drag("#parallel canvas", (0.052, 0.2), (0.052, 0.5))
    first = tab.selected()
    assert 0 < first < 576
    page.keyboard.press("b")
    second = tab.selected()
    assert 0 < second < 10
    page.click("#undo-button")
    assert tab.selected() == first
    page.keyboard.press("u")
    assert tab.selected() == 576


def test_the_best_share_is_a_key_and_a_number(sample: str, largest: str, tab: Tab) -> None:
    page = tab.open(sample, f"#space?w={largest}")
    measured = 532
    page.fill("#best-k", "10")
    page.click("#best-button")
    assert abs(tab.selected() - measured * 0.10) <= 1
    page.click("#clear-button")
    for share in (0.01, 0.05, 0.10, 0.25):
        page.keyboard.press("b")
        assert abs(tab.selected() - measured * share) <= 1
    page.keyboard.press("b")
    assert tab.selected() == 576


def test_axes_are_moved_inverted_and_chosen(sample: str, largest: str, tab: Tab) -> None:
    page = tab.open(sample, f"#space?w={largest}")
    page.focus('[data-axis="num_warps"]')
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("i")
    assert "!num_warps,BLOCK_SIZE_K" in tab.hash()
    tab.drag('[data-axis="median_ns"]', (0.5, 0.5), (-4.0, 0.5))
    axes = tab.hash().split("axes=")[1].split("&")[0].split(",")
    assert axes.index("median_ns") < len(axes) - 1
    page.click("#parallel summary")
    page.locator("#parallel .menu label", has_text="outcome").click()
    assert ",status" in tab.hash()
    page.focus('[data-axis="BLOCK_SIZE_M"]')
    page.keyboard.press("ArrowUp")
    assert tab.selected() == 144
    page.keyboard.press("Escape")
    assert tab.selected() == 576


def test_a_link_and_a_reload_bring_everything_back(sample: str, largest: str, tab: Tab) -> None:
    link = (
        f"#space?w={largest}&x=num_warps&y=num_stages&fix=BLOCK_SIZE_K:32&reduce=median&unit=time"
        "&axes=num_stages,!num_warps,median_ns&brush=BLOCK_SIZE_M:64|128&log=0&row=12"
    )
    page = tab.open(sample, link)
    for again in (False, True):
        if again:
            tab.again()
        assert tab.selected() == 288
        assert set(tab.hash()[7:].split("&")) == set(link[7:].split("&"))
        assert page.input_value("#heat-x") == "num_warps"
        assert page.input_value("#heat-reduce") == "median"
        assert page.locator("[data-axis]").count() == 3
        pressed = page.locator('[data-control="BLOCK_SIZE_K=32"]').get_attribute("aria-pressed")
        assert pressed == "true"


def test_back_returns_to_the_view_before(sample: str, largest: str, tab: Tab) -> None:
    page = tab.open(sample, f"#space?w={largest}")
    page.click('[data-view="workloads"]')
    page.wait_for_selector("#view-workloads:not([hidden])")
    page.go_back()
    page.wait_for_selector("#view-space:not([hidden])")


def test_the_table_sorts_and_exports_what_is_selected(sample: str, largest: str, tab: Tab) -> None:
    page = tab.open(sample, f"#space?w={largest}&brush=num_warps:8")
    page.locator("#rows th button", has_text="num_stages").click()
    assert "sort=num_stages" in tab.hash()
    rows = tab.saved('#rows [data-export="csv"]').decode().splitlines()
    assert len(rows) == 1 + tab.selected()
    for chart in ("heat", "parallel", "importance"):
        assert tab.saved(f'#{chart} [data-export="png"]')[:8] == b"\x89PNG\r\n\x1a\n"


def test_light_and_dark_follow_the_system_and_a_button(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#workloads")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    tab.until(f"{ground} !== '{light}'")
    page.click("#theme")
    assert page.evaluate(ground) == light
    tab.again()
    assert page.evaluate(ground) == light


def test_nothing_is_wider_than_a_small_screen(sample: str, largest: str, tab: Tab) -> None:
    page = tab.open(sample, f"#space?w={largest}")
    views = page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)")
    for view in views:
        page.click(f'[data-view="{view}"]')
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280, view


def test_two_versions_of_a_kernel_have_names_of_their_own(tmp_path: Path, tab: Tab) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        fill(store)
        fill(store, replace(workload(), fingerprint="f2"), started=500.0)
    with running(store=tmp_path / "s.db") as url:
        page = tab.open(url, "#compare")
        names = page.locator("#workload option").all_text_contents()
        assert {name.split(" · ")[0] for name in names} == {
            "matmul version f1",
            "matmul version f2",
        }
        tab.leave()
