"""Every view of the explorer, in light and in dark, as axe-core sees it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Tab

from explorer_samples import fill
from explorer_server import running
from whet.doctor.finding import Diagnosis, Examination, Finding, Line, Remedy
from whet.doctor.journey.gather import ModeJourney, RanEvent, StagedKernel
from whet.doctor.journey.page import page as report
from whet.doctor.modes.compiler import TunedOp
from whet.doctor.modes.verdict import ModeTrial, ModeVerdict, TrialOfModes
from whet.store import SqliteStore
from whet.store.scanning import journey_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

pytest.importorskip("uvicorn", reason="needs the extra explorer")

FOLDER = os.environ.get("WHET_AXE") or str(Path(__file__).parents[2] / ".axe")
AXE = Path(FOLDER, "node_modules", "axe-core", "axe.min.js")

# A frame in which nothing runs cannot be asked; the doctor's page is looked at by itself.
FOUND = """
axe.run(document, {iframes: false, resultTypes: ["violations"]}).then(told => told.violations
    .filter(one => ["serious", "critical"].includes(one.impact))
    .map(one => `${one.id}: ${one.nodes.map(node => node.target + " " + node.html).join("; ")}`))
"""
JOURNEY = "<h1>A model</h1><p>It is read.</p>"


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.is_file():
        pytest.skip("needs axe-core: npm install --prefix .axe axe-core")
    return AXE.read_text()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An explorer of a store whose kernel has a run, failures and a journey."""
    place = tmp_path_factory.mktemp("kept") / "s.db"
    with SqliteStore(place) as store:
        run = fill(store)
        path = journey_file(store, run.workload.id)
        assert path is not None
        path.parent.mkdir()
        path.write_text(JOURNEY)
    with running(store=place) as url:
        yield url


def found(page: Any, axe: str) -> list[str]:
    page.evaluate(axe)
    return [str(one) for one in page.evaluate(FOUND)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("which", ["sample", "kept"])
def test_no_view_has_a_serious_finding(
    request: pytest.FixtureRequest, browser: Any, axe: str, which: str, scheme: str
) -> None:
    tab = Tab(browser, scheme)
    page = tab.open(request.getfixturevalue(which), "#space")
    wrong = {}
    for view in page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)"):
        page.click(f'[data-view="{view}"]')
        tab.until(f"!document.querySelector('#view-{view}').hidden")
        page.wait_for_timeout(1500)
        wrong[view] = found(page, axe)
    page.click("#words")
    wrong["words"] = found(page, axe)
    tab.close()
    assert {view: told for view, told in wrong.items() if told} == {}


def a_report() -> str:
    table = TunedOp("addmm", "8x8", (("addmm", 0.5), ("triton_mm", 0.7)), {"addmm": 0.51})
    modes = ModeTrial("eager", "ok", 2e6), ModeTrial("default", "ok", 1e6, autotune=(table,))
    finding = Finding("graph-break", "because", Line("m.py", 3, "x.item()"), (Remedy("do"),))
    trial = TrialOfModes(modes, ModeVerdict("default", (), 2.0, 10, True, "Use it."))
    one = ModeJourney(
        "default",
        kernels=(StagedKernel("triton_poi", {"ttir": "module", "ptx": ".version 8"}),),
        events=(RanEvent("addmm", "device", 0, 10), RanEvent("launch", "host", 0, 20)),
    )
    told = Diagnosis("model", "m.py:1", "2.13", Examination((finding,)), trial, device="a GPU")
    return report(told, [one, ModeJourney("max-autotune")], "class Model: ...")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_doctors_page_has_no_serious_finding(
    browser: Any, axe: str, scheme: str, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(a_report())
    tab = Tab(browser, scheme)
    tab.page.goto(file.as_uri())
    told = found(tab.page, axe)
    tab.close()
    assert told == []


def test_a_page_that_is_wrong_is_found(kept: str, browser: Any, axe: str) -> None:
    tab = Tab(browser)
    page = tab.open(kept, "#space")
    page.evaluate("document.getElementById('workload').removeAttribute('aria-label')")
    told = found(page, axe)
    tab.close()
    assert any(one.startswith("select-name: #workload") for one in told)
