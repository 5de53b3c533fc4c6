"""How the explorer writes values: hidden characters, digits, one parameter, saved cells."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pytest
from browser import Tab

from explorer_samples import fill, trial, workload
from explorer_server import running
from whet.core.status import Status
from whet.store import SqliteStore

pytestmark = pytest.mark.slow

pytest.importorskip("uvicorn", reason="needs the extra explorer")

TURNED = "fast\u202etsaf"
HIDDEN = "fast\u200b"


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The address of an explorer, and workloads of texts that deceive, of one parameter, of two."""
    place = tmp_path_factory.mktemp("values") / "s.db"
    texts, one = workload("k\u202ek", N=1), workload("one", N=2)
    with SqliteStore(place) as store:
        store.put_workload(texts)
        pairs = [(mode, n) for mode in (TURNED, HIDDEN, "fast") for n in (1, 2)]
        store.append([trial(texts, {"MODE": mode, "N": n}, 1e5 * n) for mode, n in pairs])
        store.put_workload(one)
        blocks = {16: 3e5, 32: 2e5, 64: 99998.0, 128: 2e5}
        store.append([trial(one, {"BLOCK": block, "C": 1}, ns) for block, ns in blocks.items()])
        store.append([trial(one, {"BLOCK": 256, "C": 1}, status=Status.RESOURCES, error="no")])
        two = fill(store).workload
    with running(store=place) as url:
        yield {"url": url, "texts": texts.id, "one": one.id, "two": two.id}


def test_characters_that_deceive_are_shown_escaped(values: dict[str, str], tab: Tab) -> None:
    page = tab.open(values["url"], f"#space?w={values['texts']}")
    tab.until("whetTimings.app.ds?.complete")
    shown = page.evaluate("document.body.innerText") + page.inner_text("#workload")
    assert "\u202e" not in shown
    assert "\u200b" not in shown
    assert "fast\\u202etsaf" in tab.text("#rows tbody")
    assert "fast\\u200b" in tab.text("#parameters")
    assert "k\\u202ek" in tab.text("#workload")
    page.click("text=fast\\u200b >> nth=0")
    tab.again()
    saved = tab.saved('#rows [data-export="csv"]').decode()
    assert TURNED in saved, "what is saved is what was measured"
    tab.leave()


def test_numbers_stand_below_one_another(values: dict[str, str], tab: Tab) -> None:
    page = tab.open(values["url"], f"#space?w={values['one']}")
    tab.until("whetTimings.app.ds?.complete")
    times = page.locator("#rows tbody td:nth-child(2)")
    assert times.all_inner_texts() == ["100.0 µs", "200.0 µs", "200.0 µs", "300.0 µs", "–"]
    for part in ("th", "td"):
        cell = page.locator(f"#rows {part}.number").nth(1)
        assert cell.evaluate("one => getComputedStyle(one).textAlign") == "right"
    assert tab.text("[data-readout=best-found]") == "100 µs"
    tab.leave()


# Registers and the like arrive when another kernel has been opened, whose trials are not there yet.
LATE_FACTS = """async () => {
    const { app } = whetTimings, { slices } = app.made.space, { ds } = app
    slices.key0 = ""
    const reading = slices.readFacts()
    app.ds = null
    await reading
    app.ds = ds
}"""


def test_one_parameter_is_a_strip_with_intervals(values: dict[str, str], tab: Tab) -> None:
    page = tab.open(values["url"], f"#space?w={values['one']}")
    tab.until("whetTimings.app.ds?.complete")
    page.wait_for_selector("#slices canvas")
    assert not page.is_visible("#heat")
    plots = "[...whetTimings.app.made.space.slices.plots.values()].map(one => one.input.series)"
    (series,) = page.evaluate(plots)
    _, _, measured, failed, pick = series
    assert [one["x"] for one in (measured, failed, pick)] == [[0, 1, 2, 3], [4], [2]]
    spans = zip(measured["lows"], measured["y"], measured["highs"], strict=True)
    assert all(low < ns < high for low, ns, high in spans)
    page.focus("#slices canvas")
    page.keyboard.press("ArrowRight")
    assert "95 % interval" in tab.text("#announced")
    for _ in ("the pick", "what failed"):
        page.keyboard.press("ArrowDown")
    assert "out of resources" in tab.text("#announced")
    page.goto(f"{values['url']}/#space?w={values['two']}")
    tab.until("!document.querySelector('#heat').hidden")
    tab.until("document.querySelectorAll('#slices canvas').length === 3")
    page.evaluate(LATE_FACTS)
    tab.leave()


def test_saved_cells_outside_the_selection_are_said_to_be_that(
    values: dict[str, str], tab: Tab
) -> None:
    tab.open(values["url"], f"#space?w={values['two']}&x=BM&y=BN&brush=BM:32")
    tab.until("whetTimings.app.ds?.complete")
    rows = csv.DictReader(tab.saved('#heat [data-export="csv"]').decode().splitlines())
    outcomes = {(row["BM"], row["BN"]): (row["outcome"], row["time_ns"]) for row in rows}
    assert outcomes["32", "32"][0] == "ok"
    said, ns = outcomes["64", "64"]
    assert said == "outside the selection"
    assert float(ns) > 0
    tab.leave()
