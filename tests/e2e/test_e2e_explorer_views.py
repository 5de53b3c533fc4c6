"""The explorer's other views in a real browser: search, cost, frontier, compare, trial, live."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Tab

from explorer_samples import HOSTILE, fill, hostile, trial, workload
from explorer_server import running
from whet.core.config import Config
from whet.core.intermediate import keep_stages
from whet.core.status import Status
from whet.core.timeline import Span, Timeline
from whet.store import SqliteStore
from whet.store.opening import ir_folder

pytestmark = pytest.mark.slow

pytest.importorskip("uvicorn", reason="needs the extra explorer")


def spans() -> tuple[Span, ...]:
    """Two workers that build for three seconds, and a device that measures."""
    made = []
    for at in range(6):
        config = Config(BM=(32, 64, 128)[at % 3], BN=32, num_warps=4).id
        start = 0.5 * at
        made += [
            Span(f"worker {at % 2}", "build", start, 0.9, config),
            Span(f"worker {at % 2}", "llir", start, 0.4, config, 1),
            Span("device", "measure", start + 0.9, 0.1, config),
        ]
    return tuple(made)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An explorer of a store with one kernel on two devices, its run and its timeline."""
    place = tmp_path_factory.mktemp("tuned") / "s.db"
    with SqliteStore(place) as store:
        run = fill(store)
        store.save_timeline(run.id, Timeline(spans()))
        fill(store, workload(device="NVIDIA A100"), started=500.0)
    with running(store=place) as url:
        yield url


def lane(tab: Tab, name: str) -> str:
    return tab.text(f'[data-lane-status="{name}"]')


def test_strategies_race_over_the_heat_map(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#search?lanes=grid:0,random:0&budget=40&step=0")
    page.wait_for_selector('[data-lane="random:0"] canvas')
    assert page.locator(".lane").count() == 2
    assert "It learns nothing" in tab.text('[data-lane="grid:0"] .line')
    assert lane(tab, "grid:0") == "Not started."
    page.focus("#step")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert tab.text("#step-count") == "2 of 40"
    assert lane(tab, "random:0").startswith("2 tried")
    before = tab.pixels('[data-lane="random:0"] canvas')
    page.select_option("#speed", "100")
    page.click("#play")
    tab.until_text("#step-count", "40 of 40")
    assert "% of the best" in lane(tab, "random:0")
    assert tab.pixels('[data-lane="random:0"] canvas') != before
    page.press("#step", "ArrowLeft")
    assert tab.text("#step-count") == "39 of 40"
    page.press("#step", "Home")
    assert tab.text("#step-count") == "0 of 40"
    page.select_option("#add-lane", "auto:0")
    page.wait_for_selector('[data-lane="auto:0"] canvas')
    assert page.locator(".lane").count() == 3


def test_a_replay_can_be_paused_and_linked_to(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#search?lanes=random:0&budget=200&step=0")
    page.wait_for_selector('[data-lane="random:0"] canvas')
    page.keyboard.press("Space")
    tab.until("Number(document.querySelector('#step').value) > 3")
    page.keyboard.press("Space")
    stopped = tab.text("#step-count")
    page.wait_for_timeout(400)
    assert tab.text("#step-count") == stopped
    tab.again()
    page.wait_for_selector('[data-lane="random:0"] canvas')
    assert tab.text("#step-count") == stopped


def test_convergence_is_drawn_by_evaluations_and_by_seconds(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#search?lanes=random:0,grid:0&budget=60")
    page.wait_for_selector('[data-lane="random:0"] canvas')
    assert tab.pixels("#convergence canvas") > 10
    rows = tab.saved('#convergence [data-export="csv"]').decode().splitlines()
    assert rows[0] == "series,evaluations,share of the best speed"
    page.select_option("#by", "seconds")
    assert "by=seconds" in tab.hash()
    rows = tab.saved('#convergence [data-export="csv"]').decode().splitlines()
    assert rows[0] == "series,seconds of tuning,share of the best speed"
    assert "Medium tiles win" in tab.text("#claims")


def test_a_run_that_took_place_is_replayed(tuned: str, tab: Tab) -> None:
    page = tab.open(tuned, "#search")
    page.wait_for_selector('[data-lane^="run:"] canvas')
    assert "32 tried" in tab.text('[data-lane^="run:"]')
    assert "100 % of the best" in tab.text('[data-lane^="run:"]')


def test_the_bill_is_shown_by_phase_stage_and_outcome(tuned: str, tab: Tab) -> None:
    page = tab.open(tuned, "#cost")
    page.wait_for_selector("#range-statistics table")
    phases = tab.saved('#phases [data-export="csv"]').decode()
    assert "building,16" in phases
    assert "measuring,8" in phases
    assert "llir,6" in tab.saved('#stages [data-export="csv"]').decode()
    assert "out of resources" in tab.saved('#outcomes [data-export="csv"]').decode()
    page.focus("#outcomes canvas")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "brush=status:resources" in tab.hash()
    assert tab.selected() == 2


def test_the_timeline_zooms_pans_and_tells_of_a_range(tuned: str, tab: Tab) -> None:
    page = tab.open(tuned, "#cost")
    page.wait_for_selector("#range-statistics table")
    assert "Whole run" in tab.text("#range-statistics")
    page.keyboard.press("w")
    page.keyboard.press("w")
    zoomed = tab.hash()
    assert "zoom=" in zoomed
    page.keyboard.press("d")
    assert tab.hash() != zoomed
    page.keyboard.press("0")
    assert "zoom=" not in tab.hash()
    tab.drag("#timeline canvas", (0.1, 0.5), (0.4, 0.5))
    assert "range=" in tab.hash()
    assert "Selected" in tab.text("#range-statistics")
    assert "The device was busy" in tab.text("#range-statistics")
    tab.again()
    tab.until_text("#range-statistics", "Selected")
    trace = json.loads(tab.saved("#trace"))
    assert len([one for one in trace["traceEvents"] if one["ph"] == "X"]) == len(spans())
    page.click("#select-range")
    assert "brush=order:" in tab.hash()


def test_a_table_has_a_bill_but_no_timeline(sample: str, tab: Tab) -> None:
    tab.open(sample, "#cost")
    tab.until_text("#range-statistics", "A recorded table has no timeline")
    assert "triton.autotune would have spent" in tab.text("#stock")
    assert "cubin" in tab.saved('#stages [data-export="csv"]').decode()


def test_the_frontier_has_the_knobs_of_pareto(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#frontier?knobs=draws-20~runs-4~search-random")
    tab.until_text("#frontier-words", "95 %")
    assert "sequential" in tab.text("#frontier-legend")
    assert "racing" not in tab.text("#frontier-legend")
    before = tab.saved('#frontier [data-export="csv"]')
    page.fill("#knob-compile_factor", "4")
    page.keyboard.press("Tab")
    tab.until("!document.querySelector('#frontier-words').textContent.includes('Simulating')")
    assert "compile_factor-4" in tab.hash()
    assert tab.saved('#frontier [data-export="csv"]') != before
    shown = tab.saved('#frontier [data-export="csv"]')
    for name, value in (("most_configs", "9"), ("exec_ms_low", "40"), ("exec_ms_high", "50")):
        page.fill(f"#knob-{name}", value)
        page.keyboard.press("Tab")
        tab.until("!document.querySelector('#frontier-words').textContent.includes('Simulating')")
        assert f"{name}-{value}" in tab.hash()
        other = tab.saved('#frontier [data-export="csv"]')
        assert other != shown
        shown = other
    page.check("#knob-racing")
    tab.until_text("#frontier-legend", "racing")
    page.fill("#knob-search", "none")
    page.keyboard.press("Tab")
    tab.until("!document.querySelector('#frontier-legend').textContent.includes('random')")
    assert page.is_checked("#knob-racing")
    page.reload()
    tab.until_text("#frontier-legend", "racing")
    assert page.input_value("#knob-exec_ms_high") == "50"
    shown = tab.pixels("#frontier canvas")
    page.locator("#frontier-legend button").first.click()
    assert tab.pixels("#frontier canvas") != shown


def test_a_trial_shows_its_samples_facts_and_rank(sample: str, tab: Tab) -> None:
    page = tab.open(sample, "#trial")
    tab.until_text('[data-trial="verdict"]', "The best config")
    assert tab.pixels("#samples canvas") > 5
    assert "207" in tab.text('[data-fact="registers"]')
    assert "144 KiB" in tab.text('[data-fact="shared memory"]')
    assert "95 % interval" in tab.text("#samples .line")
    assert "--keep-ir" in tab.text("#ir")
    samples = tab.saved('#samples [data-export="csv"]').decode().splitlines()
    assert sum(line.startswith("trial 117,") for line in samples) == 12
    page.select_option("#compare-with", index=2)
    tab.until_text("#trial .line", "which it is compared with")
    assert page.locator("#trial .differs").count() > 1
    link = tab.hash()
    tab.again()
    tab.until_text("#trial .line", "which it is compared with")
    assert tab.hash() == link


def test_a_failed_trial_shows_the_whole_error(tuned: str, tab: Tab) -> None:
    page = tab.open(tuned, "#space?brush=status:resources")
    page.locator("#rows tbody tr").first.click()
    tab.until_text('[data-trial="verdict"]', "out of resources")
    assert "Required: 262144" in tab.text('[data-trial="error"]')


def test_only_the_latest_trial_of_a_config_counts(tmp_path: Path, tab: Tab) -> None:
    place = tmp_path / "s.db"
    of = workload()
    with SqliteStore(place) as store:
        store.put_workload(of)
        store.append([trial(of, {"BM": 32}, 2e4), trial(of, {"BM": 64}, 4e4)])
        store.append([trial(of, {"BM": 32}, 8e4, created=1.0)])
    with running(store=place) as url:
        tab.open(url, "#space")
        assert tab.selected() == 2
        assert "80" in tab.text("#rows tbody tr:nth-child(2)")
        assert tab.text('[data-answer="best"]').count("BM=64") == 1
        tab.leave()


@pytest.mark.slow
def test_a_kernel_without_parameters_is_shown_too(tmp_path: Path, tab: Tab) -> None:
    place = tmp_path / "s.db"
    of = workload()
    with SqliteStore(place) as store:
        store.put_workload(of)
        store.append([trial(of, {}, 2e4)])
    with running(store=place) as url:
        page = tab.open(url, "#space")
        for view in page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)"):
            page.click(f'[data-view="{view}"]')
            page.wait_for_timeout(100)
        assert "no parameters" in tab.answer("best")
        tab.leave()


@pytest.mark.slow
def test_a_run_is_followed_from_before_its_first_trial(tmp_path: Path, tab: Tab) -> None:
    """Configs tried again while one looks: searches keep to what the last trial says."""
    place = tmp_path / "s.db"
    of = workload()
    with SqliteStore(place) as store:
        store.put_workload(of)
    with running(store=place) as url:
        page = tab.open(url, "#space")
        with SqliteStore(place) as store:
            store.append([trial(of, {"BM": m, "BN": 1}, 1e3 * m) for m in (32, 64)])
            tab.until_text("#selected-count", "2 of 2")
            page.click('[data-view="search"]')
            page.wait_for_selector(".lane canvas")
            store.append([trial(of, {"BM": 32, "BN": 1}, 9e4, created=1.0)])
            tab.until_text("#rows tbody tr:nth-child(2)", "90.00 µs")
        page.click('[data-view="space"]')
        page.click('[data-view="search"]')
        page.wait_for_selector(".lane canvas")
        assert "best 64.0 µs, 100 % of the best" in tab.text('[data-lane="random:0"]')
        tab.leave()


def test_a_link_names_its_workload_at_once(sample: str, tab: Tab) -> None:
    tab.open(sample, "#space")
    assert "#space?w=" in tab.hash()


@pytest.mark.slow
def test_intermediate_code_is_shown_and_compared(tmp_path: Path, tab: Tab) -> None:
    place = tmp_path / "s.db"
    of = workload()
    folder = ir_folder(str(place))
    assert folder is not None
    keep_stages(folder, "one", {"ttir": "a\nb\nc", "ptx": f"mov 1\n{HOSTILE}\nret"})
    keep_stages(folder, "two", {"ttir": "a\nb\nc", "ptx": "mov 2\nadd\nret"})
    with SqliteStore(place) as store:
        store.put_workload(of)
        store.append([trial(of, {"BM": 32}, 9e4, ir="one"), trial(of, {"BM": 64}, 8e4, ir="two")])
    with running(store=place) as url:
        page = tab.open(url, "#trial?row=0&ir=ptx")
        tab.until_text('[data-ir="ptx"]', "mov 1")
        assert HOSTILE in tab.text('[data-ir="ptx"]')
        page.goto(f"{url}/#trial?row=1&vs=0&ir=ptx")
        tab.until_text("#ir", "2 lines only in trial 2 (+), 2 lines only in trial 1 (−)")
        assert "add" in page.locator('[data-ir="ptx"] .plus').nth(1).text_content()
        page.click('[data-stage="ttir"]')
        tab.until_text("#ir", "ttir is the same in both")
        assert page.evaluate("window.hacked") is None
        tab.leave()


def test_an_empty_store_says_what_to_do_and_fills_while_one_looks(tmp_path: Path, tab: Tab) -> None:
    place = tmp_path / "s.db"
    with SqliteStore(place):
        pass
    with running(store=place) as url:
        page = tab.open(url)
        assert "The store is empty" in tab.text("#workloads")
        for view in page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)"):
            page.click(f'[data-view="{view}"]')
        page.click('[data-view="workloads"]')
        with SqliteStore(place) as store:
            fill(store)
        page.wait_for_selector("[data-workload-row]")
        tab.until_text('[data-answer="best"]', "BM=128")
        tab.leave()


@pytest.mark.slow
def test_a_run_that_goes_on_is_drawn_in_full_only_now_and_then(tmp_path: Path, tab: Tab) -> None:
    place = tmp_path / "s.db"
    with SqliteStore(place) as store:
        run = fill(store)
    with running(store=place) as url:
        tab.open(url, "#space")
        draws = "[whetTimings.counts.heat, whetTimings.counts.parallel, whetTimings.counts.table]"
        tab.until("whetTimings.counts.table > 0")
        with SqliteStore(place) as store:
            for n in range(40):
                store.append([trial(run.workload, {"BM": 512, "BN": n, "num_warps": 4}, 5e4 + n)])
                tab.page.wait_for_timeout(100)
            tab.until_text('[data-readout="tested"]', "72 of 32")
            heat, lines, table = tab.page.evaluate(draws)
        assert heat > lines
        assert heat > table
        tab.until_text("#selected-count", "72 of 72")
        tab.leave()


def test_trials_of_another_process_appear_as_they_end(tmp_path: Path, tab: Tab) -> None:
    place = tmp_path / "s.db"
    of = workload()
    with SqliteStore(place) as store:
        store.put_workload(of)
        store.append([trial(of, {"BM": 32, "BN": 1}, 9e4), trial(of, {"BM": 64, "BN": 1}, 8e4)])
    with running(store=place) as url:
        page = tab.open(url, "#live")
        tab.until("document.querySelector('#live-status').dataset.connected === 'true'")
        with SqliteStore(place) as store:
            for at, ns in enumerate((7e4, 6e4, 5e4)):
                store.append([trial(of, {"BM": 128, "BN": at}, ns)])
                page.wait_for_selector(f'#rows [data-row="{2 + at}"]')
            store.append([trial(of, {"BM": 256, "BN": 1}, status=Status.RESOURCES, error="no")])
            page.wait_for_selector('#rows [data-row="5"]')
        tab.until_text('[data-answer="best"]', "BM=128 BN=2")
        assert "6 trials" in tab.text("#live-events")
        page.click('[data-view="space"]')
        assert tab.selected() == 6
        assert page.locator('[data-control="BM=256"]').count() == 1
        tab.leave()


@pytest.mark.slow
def test_hostile_text_is_shown_as_text_in_every_view(tmp_path: Path, tab: Tab) -> None:
    place = tmp_path / "s.db"
    with SqliteStore(place) as store:
        of = hostile(store)
        fill(store)
    with running(store=place) as url:
        page = tab.open(url, f"#workloads?w={of.id}")
        assert HOSTILE in tab.text(f'[data-workload-row="{of.id}"]')
        for view in page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)"):
            page.click(f'[data-view="{view}"]')
            page.wait_for_timeout(100)
            assert page.evaluate("window.hacked") is None, view
            assert page.locator("main img, main script, #answers script").count() == 0
        page.click('[data-view="space"]')
        page.locator("#rows tbody tr", has_text="build failed").click()
        tab.until_text('[data-trial="error"]', HOSTILE)
        page.hover("#trial h2")
        assert page.evaluate("window.hacked") is None
        tab.leave()


def test_the_tour_goes_through_the_views_on_a_first_visit(sample: str, tab: Tab) -> None:
    page = tab.open(sample)
    page.wait_for_selector("#tour:not([hidden])")
    seen = []
    while page.locator("#tour:not([hidden])").count():
        seen.append(str(page.evaluate("location.hash.split('?')[0]")))
        page.click("#tour-next")
    assert {"#workloads", "#space", "#search", "#cost", "#trial"} <= set(seen)
    tab.again()
    page.wait_for_timeout(200)
    assert page.locator("#tour:not([hidden])").count() == 0
    page.click("#tour-button")
    page.wait_for_selector("#tour:not([hidden])")
    page.keyboard.press("Escape")
    assert page.locator("#tour:not([hidden])").count() == 0


def test_a_broken_link_still_opens(sample: str, tab: Tab) -> None:
    links = (
        "#nowhere?w=gone&row=99999999&x=%E0%A4%A&at=[[&brush=:|,~&axes=,,&step=-5",
        "#search?lanes=nothing:0&budget=0",
        "#trial?row=-3&vs=77777777",
        "#cost?zoom=9..1&range=a..b&run=none",
    )
    for link in links:
        page = tab.open(sample, link)
        page.wait_for_selector(".view:not([hidden])")
        assert "576" in tab.answer("failed")


def test_the_assets_stay_small_and_bundle_as_one_scope() -> None:
    """A report puts all modules into one file; every name must be of one module alone."""
    from whet import explorer

    folder = Path(str(explorer.__file__)).parent / "static"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    pages = [path for path in files if path.name != "widget.js"]  # notebooks alone load that one
    assert sum(path.stat().st_size for path in pages) <= 260_000
    names: dict[str, str] = {}
    for path in files:
        if path.suffix != ".js":
            continue
        text = path.read_text()
        assert "import(" not in text
        assert "import.meta" not in text
        assert path.name == "source.js" or "fetch(" not in text
        assert "innerHTML" not in text
        assert "document.write" not in text
        pattern = r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)"
        for name in re.findall(pattern, text, re.MULTILINE):
            assert name not in names, f"{name} is in {names[name]} and {path.name}"
            names[name] = path.name


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_draws_in_light_and_dark(
    sample: str, browser: Any, scheme: str, tmp_path: Path
) -> None:
    tab = Tab(browser, scheme)
    page = tab.open(sample, "#space")
    for view in page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)"):
        page.click(f'[data-view="{view}"]')
        page.wait_for_selector(f"#view-{view}:not([hidden])")
        assert len(page.screenshot(path=str(tmp_path / f"{view}.png"))) > 10_000
    tab.close()
    assert tab.complaints == []
