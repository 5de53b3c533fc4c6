"""Comparing stores, devices, keys and runs: what became slower first, and what changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import Tab

from explorer_samples import fill, trial, workload
from explorer_server import running
from whet.core.config import Config
from whet.core.intermediate import keep_stages
from whet.core.run import Outcome
from whet.store import SqliteStore
from whet.store.opening import ir_folder

pytestmark = pytest.mark.slow

pytest.importorskip("uvicorn", reason="needs the extra explorer")

# By tile: what it took before and takes now. The pick changed, and is slower; one config is faster.
BEFORE = {16: 400.0, 32: 300.0, 64: 200.0, 128: 100.0, 256: 500.0}
NOW = {16: 400.4, 32: 150.0, 64: 201.0, 128: 190.0, 256: 1000.0}


def fill_with(place: Path, times: dict[int, float], **key: Any) -> None:
    with SqliteStore(place) as store:
        of = workload(**key)
        store.put_workload(of)
        store.append([trial(of, {"BM": bm, "warps": 4}, 1e3 * ns) for bm, ns in times.items()])


@pytest.fixture(scope="module")
def against(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An explorer of two stores, the one before a change and the one after it, with three keys."""
    folder = tmp_path_factory.mktemp("against")
    for n, factor in ((1, 1.0), (2, 0.5), (3, 1.001)):
        fill_with(folder / "before.db", BEFORE, N=n)
        now = NOW if n == 1 else {bm: factor * ns for bm, ns in BEFORE.items()}
        fill_with(folder / "now.db", now, N=n)
    with running(folder / "now.db", arguments=["--against", str(folder / "before.db")]) as url:
        yield url


def rows(tab: Tab, selector: str) -> list[str]:
    found = tab.page.locator(f"{selector} tbody tr").all()
    return [" ".join(row.locator("td").all_text_contents()) for row in found]


def at_first_key(tab: Tab, url: str) -> Any:
    """A is the store before, B the one now."""
    page = tab.open(url, "#compare")
    of_key = page.locator("#workload option", has_text="now.db").filter(has_text="N=1")
    page.select_option("#workload", of_key.get_attribute("value"))
    tab.until_text("#compare-words", "150 µs on B")
    assert "A is before.db, B is now.db." in tab.text("#compare-words")
    return page


def test_two_stores_are_compared_by_ratio_with_what_became_slower_first(
    against: str, tab: Tab
) -> None:
    at_first_key(tab, against)
    words = tab.text("#compare-words")
    assert "100 µs on A, 150 µs on B, 1.50×" in words
    assert "B is slower." in words
    assert "In the pick: BM 128 → 32." in words
    assert "5 configs measured on both: B / A is 1.01×" in words
    assert "2 slower, 1 faster, 2 tied." in words
    told = rows(tab, "#compare")
    assert [one.split()[0] for one in told] == ["BM=256", "BM=128", "BM=32"]
    assert told[0].endswith("slower")
    assert told[-1].endswith("faster")
    assert "2.00×" in told[0]
    table = tab.saved('#compare [data-export="csv"]').decode().splitlines()
    assert table[0] == "config,a_ns,b_ns,ratio,low,high,verdict"
    assert len(table) == 6


def test_every_key_of_both_stores_is_told_the_slower_first(against: str, tab: Tab) -> None:
    page = at_first_key(tab, against)
    text = tab.text("#compare-keys")
    assert "3 keys on both sides: 1 slower on B, 1 faster, 1 tied." in text
    keys = rows(tab, "#compare-keys")
    assert [one.split()[0] for one in keys] == ["N=1", "N=2", "N=3"]
    assert "BM 128 → 32" in keys[0]
    page.locator("#compare-keys tbody tr").nth(1).click()
    tab.until_text("#compare-words", "100 µs on A, 50.0 µs on B")
    page.go_back()
    tab.until_text("#compare-words", "100 µs on A, 150 µs on B")


def test_another_device_is_compared_by_shares_of_its_fastest(tmp_path: Path, tab: Tab) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        fill(store)
        fill(store, workload(device="NVIDIA A100"), started=500.0)
    with running(store=tmp_path / "s.db") as url:
        page = tab.open(url, "#compare")
        tab.until_text("#compare-words", "30 configs measured on both")
        assert "A is NVIDIA A100, B is NVIDIA H200." in tab.text("#compare-words")
        assert "B / A, of the fastest on each side is 1×" in tab.text("#compare-words")
        assert "Both picked the same config." in tab.text("#compare-words")
        assert "No config differs by more than the 2 %" in tab.text("#compare")
        tab.drag("#compare canvas", (0.06, 0.5), (0.5, 0.5))
        assert "brush=median_ns" in tab.hash()
        assert 0 < tab.selected() < 30
        tab.leave()
        assert page


def test_two_runs_of_a_workload_are_compared(tmp_path: Path, tab: Tab) -> None:
    of = workload()
    with SqliteStore(tmp_path / "s.db") as store:
        run = fill(store, of)
        again = replace(run, id="again", started=9e3, best=Config(BM=64, BN=64, num_warps=4))
        store.save_run(replace(again, outcome=Outcome.RUNNING))
        config = {"BM": 64, "BN": 64, "num_warps": 4}
        store.append([trial(of, config, 1e6, run="again", created=9e3)])
        store.append([trial(of, config, 1e6, run="again", created=9e3 + 1)])
        store.save_run(again)
    with running(store=tmp_path / "s.db") as url:
        page = tab.open(url, "#compare")
        tab.until_text("#compare-b", "run of 1970-01-01 02:30")
        page.select_option("#compare-b", f"run:{run.id}")
        tab.until_text("#compare-words", "B is run of 1970-01-01 02:30, grid")
        assert "1 config measured on both" in tab.text("#compare-words")
        assert "1 slower, 0 faster" in tab.text("#compare-words")
        page.locator("#compare tbody tr").first.click()
        tab.until_text("#trial .line", "This is trial 34.")
        tab.leave()


def test_sizes_disagree_about_the_best_config(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#compare")
    tab.until_text("#compare-words", "A is h200-gemm-paper, B is h200-gemm-576.")
    other = page.locator("#compare-b option", has_text=re.compile("^K=256 M=256 N=256$"))
    page.select_option("#compare-b", other.get_attribute("value"))
    tab.until_text("#compare-words", "532 configs measured on both")
    assert "The pick of B has 50.3 % of the fastest's speed on A." in tab.text("#compare-words")


def test_alone_it_says_what_to_compare_with(tmp_path: Path, tab: Tab) -> None:
    fill_with(tmp_path / "s.db", NOW)
    with running(store=tmp_path / "s.db") as url:
        page = tab.open(url, "#compare")
        tab.until_text("#compare-words", "whet explore --against STORE")
        assert page.locator("#compare canvas:visible, #compare select:visible").count() == 0
        tab.leave()


def test_a_trial_is_compared_with_another_one_and_not_with_itself(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#trial")
    tab.until_text("#trial .line", "This is trial 117.")
    partners = page.locator("#compare-with option").all_text_contents()
    assert partners[0] == "–"
    assert not any(one.startswith("trial 117,") for one in partners)
    assert any("trial 473, tied with the pick, 187 µs" in one for one in partners)
    page.select_option("#compare-with", label=next(one for one in partners if "473" in one))
    tab.until_text("#trial .line", "This is trial 117, beside trial 473")
    assert page.locator("#trial thead th").all_text_contents() == ["", "trial 117", "trial 473"]
    assert "117" in tab.text('#rows [data-row="116"] td:last-child')


def test_code_side_by_side_is_not_clipped_and_agrees_with_what_is_said(
    tmp_path: Path, tab: Tab
) -> None:
    place = tmp_path / "s.db"
    folder = ir_folder(str(place))
    assert folder is not None
    long = f"%0 = linalg.matmul {'ins(%arg0 : tensor<64x64xf32>) ' * 12}"
    with SqliteStore(place) as store:
        for name, ns in (("tiled", 4e6), ("fused", 1e6)):
            keep_stages(folder, name, {"insight": f"{name} is one nest", "scheduled": long})
            of = workload(name)
            store.put_workload(of)
            store.append([trial(of, {"ti": 8}, ns, ir=name)])
    with running(store=place) as url:
        page = tab.open(url, "#compare")
        page.wait_for_selector("#beside:not([hidden])")
        assert "4.00 ms on" in tab.text("#compare-words")
        assert "They are different kernels" in tab.text("#compare-words")
        assert page.locator("#compare canvas:visible").count() == 0
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 800})
            clipped = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length"
            assert page.locator("#beside pre").evaluate_all(clipped) == 0
        tab.leave()
