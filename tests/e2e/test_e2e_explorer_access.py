"""Every view of the explorer, in light and in dark, as axe-core sees it."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from browser import Tab

from whet.doctor.finding import Diagnosis, Examination, Finding, Line, Remedy
from whet.doctor.journey.gather import ModeJourney, RanEvent, StagedKernel
from whet.doctor.journey.page import page as report
from whet.doctor.modes.compiler import TunedOp
from whet.doctor.modes.verdict import ModeTrial, ModeVerdict, TrialOfModes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

pytest.importorskip("uvicorn", reason="needs the extra explorer")

FOLDER = os.environ.get("WHET_AXE") or str(Path(__file__).parents[2] / ".axe")
AXE = Path(FOLDER, "node_modules", "axe-core", "axe.min.js")

# A frame in which nothing runs cannot be asked; the doctor's page is looked at by itself.
FOUND = """
({rules}) => axe.run(document, {
    iframes: false,
    resultTypes: ["violations"],
    ...(rules && {runOnly: {type: "rule", values: rules}}),
}).then(told => told.violations
    .filter(one => ["serious", "critical"].includes(one.impact))
    .map(one => `${one.id}: ${one.nodes.map(node => node.target + " " + node.html).join("; ")}`))
"""


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.is_file():
        pytest.skip("needs axe-core: npm install --prefix .axe axe-core")
    return AXE.read_text()


def found(page: Any, axe: str, scheme: str) -> list[str]:
    """In dark only what colours may change: the rest was looked at in light."""
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(axe)
    rules = ["color-contrast", "link-in-text-block"] if scheme == "dark" else None
    return [str(one) for one in page.evaluate(FOUND, {"rules": rules})]


def links(sample: str) -> dict[str, str]:
    """Every view, of what has most to show in it."""
    with urllib.request.urlopen(f"{sample}/api/workloads") as answer:
        lines = sorted(json.load(answer), key=lambda line: float(line["cost_s"]))
    of = {line["kernel"]: line["id"] for line in lines}
    made = {view: f"#{view}" for view in ("workloads", "space", "frontier", "sizes")}
    for view in ("search", "cost", "trial", "live"):
        made[view] = f"#{view}?w={of['attention_kernel']}"
    made["compare"] = f"#compare?w={of['convolution_kernel']}"
    made["schedules"] = f"#compare?w={of['tiled']}&b={of['fused']}&c={of['vectorized']}"
    return {**made, "journey": f"#journey?w={of['make_mlp']}"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_a_serious_finding(sample: str, browser: Any, axe: str, scheme: str) -> None:
    tab = Tab(browser, scheme)
    page = tab.open(sample, "#space")
    wrong = {}
    for view, link in links(sample).items():
        page.goto(f"{sample}/{link}")
        tab.until("whetTimings.app.ds?.complete")
        # The last that a view draws waits half a second.
        page.wait_for_timeout(700)
        wrong[view] = found(page, axe, scheme)
    page.click("#words")
    wrong["words"] = found(page, axe, scheme)
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
    told = found(tab.page, axe, scheme)
    tab.close()
    assert told == []


def test_a_page_that_is_wrong_is_found(sample: str, browser: Any, axe: str) -> None:
    tab = Tab(browser)
    page = tab.open(sample, "#space")
    page.evaluate("document.getElementById('workload').removeAttribute('aria-label')")
    told = found(page, axe, "light")
    tab.close()
    assert any(one.startswith("select-name: #workload") for one in told)
