"""One config for several sizes, one parameter at a time, and any metric against time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Tab

from explorer_samples import trial, workload
from explorer_server import running
from whet.core.status import Status
from whet.store import SqliteStore

pytestmark = pytest.mark.slow

pytest.importorskip("uvicorn", reason="needs the extra explorer")

# Of four sizes, "wide" is the fastest at one and close at two, and fails at the last.
SHARES = {
    "wide": (1.0, 0.97, 0.96, None),
    "narrow": (0.5, 1.0, 0.6, 1.0),
    "square": (0.9, 0.5, 1.0, 0.2),
}


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("sizes") / "s.db"
    with SqliteStore(place) as store:
        for at in range(4):
            of = workload(N=256 * (at + 1))
            store.put_workload(of)
            for name, shares in SHARES.items():
                share = shares[at]
                config = {"shape": name, "warps": 4}
                if share is None:
                    store.append([trial(of, config, status=Status.RESOURCES, error="no")])
                else:
                    ns = 1e5 * (at + 1) / share
                    store.append([trial(of, config, ns, samples=1, registers=int(100 * share))])
    with running(store=place) as url:
        yield url


def test_one_config_serves_most_sizes_and_the_rest_are_named(several: str, tab: Tab) -> None:
    page = tab.open(several, "#sizes")
    tab.until_text("#sizes-words", "serves 3 of 4 sizes within 5 % of the fastest: shape=wide.")
    assert "At worst: fails (N=1024)" in tab.text("#sizes-words")
    assert "For the rest: shape=narrow serves 1 more." in tab.text("#sizes-words")
    rows = tab.saved('#sizes [data-export="csv"]').decode().splitlines()
    assert rows[0] == "config,serves,N=256,N=512,N=768,N=1024"
    name, served, *shares = rows[1].split(",")
    assert (name, served) == ("shape=wide warps=4", "3")
    assert [float(one) for one in shares] == pytest.approx([1.0, 0.97, 0.96, 0.0], abs=1e-3)
    page.select_option("#within", "2")
    tab.until_text("#sizes-words", "serves 2 of 4 sizes within 2 %")
    assert "within=2" in tab.hash()


def test_a_cell_of_the_matrix_opens_the_trial_at_that_size(several: str, tab: Tab) -> None:
    page = tab.open(several, "#sizes")
    tab.until_text("#sizes-words", "serves 3 of 4")
    page.focus("#sizes canvas")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert "shape=wide, size N=768, time 313 µs" in tab.text("#announced")
    page.keyboard.press("Enter")
    tab.until_text('[data-trial="verdict"]', "96 % of the fastest's speed")
    assert "N=768" in tab.text("#workload option:checked")


def test_a_kernel_of_one_size_has_no_such_view(tmp_path: Path, tab: Tab) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        of = workload()
        store.put_workload(of)
        store.append([trial(of, {"BM": 32}, 2e4)])
    with running(store=tmp_path / "s.db") as url:
        page = tab.open(url, "#space")
        assert page.locator('[data-view="sizes"]').count() == 0
        tab.leave()


def test_the_sample_has_a_config_that_serves_many_sizes(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#sizes")
    tab.until_text("#sizes-words", "serves 30 of 64 sizes within 5 %")
    assert tab.pixels("#sizes canvas") > 20
    page.locator("#sizes tbody tr").first.click()
    tab.until_text('[data-fact="BLOCK_SIZE_K"]', "64")


def test_slices_show_one_parameter_at_a_time(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#space")
    page.wait_for_selector('[data-slice="num_warps"] canvas')
    assert page.locator("[data-slice]").count() == 5
    assert "all others as in the pick, BLOCK_SIZE_M=128" in tab.text("#slices .line")
    page.focus('[data-slice="num_stages"] canvas')
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert "num_stages=4" in tab.text("#announced")
    page.keyboard.press("Enter")
    tab.until_text('[data-fact="num_stages"]', "4")
    page.click('[data-view="space"]')
    tab.until_text("#slices .line", "all others as in the opened config")


def test_any_metric_is_set_against_time(several: str, tab: Tab) -> None:
    page = tab.open(several, "#space")
    tab.until_text("#metric", "registers")
    rows = tab.saved('#scatter [data-export="csv"]').decode().splitlines()
    assert rows[0] == "series,registers,time"
    assert len(rows) > 3
    metrics = page.locator("#metric option").all_text_contents()
    assert {"registers", "shape", "order tried"} <= set(metrics)
    page.select_option("#metric", "order")
    assert "metric=order" in tab.hash()
    tab.drag("#scatter canvas", (0.05, 0.5), (0.5, 0.5))
    assert "brush=order" in tab.hash()
    assert 0 < tab.selected() < 3
