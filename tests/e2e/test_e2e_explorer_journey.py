"""A model's journey in the explorer: kept by the doctor, shown in a frame where nothing runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browser import Tab

from explorer_samples import fill
from explorer_server import running
from whet.cli import main
from whet.store import SqliteStore
from whet.store.scanning import journey_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")

MODEL = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return (x + 1).relu().sum(1)

def make_model():
    return Model(), torch.ones(16, 64)
"""


@dataclass(frozen=True)
class Examined:
    """A store with a model that the doctor has examined, and a kernel."""

    store: Path
    report: Path
    model: str
    kernel: str


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> Examined:
    folder = tmp_path_factory.mktemp("examined")
    file, place, report = folder / "model.py", folder / "s.db", folder / "journey.html"
    file.write_text(MODEL)
    words = ["doctor", f"{file}:make_model", "--modes", "eager", "--store", str(place)]
    with pytest.MonkeyPatch.context() as patch:
        # Neither headers nor programs that try the vector units: they take longer than the rest.
        patch.setenv("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
        patch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "0")
        assert main([*words, "--report", str(report)]) == 0
    with SqliteStore(place) as store:
        (model,) = store.workloads()
        fill(store)
        (kernel,) = (one for one in store.workloads() if one.workload != model.workload)
    return Examined(place, report, model.workload.id, kernel.workload.id)


@pytest.fixture(scope="module")
def explorer(examined: Examined) -> Iterator[str]:
    pytest.importorskip("uvicorn", reason="needs the extra explorer")
    with running(store=examined.store) as url:
        yield url


@pytest.mark.slow
def test_a_report_has_the_artefacts_of_this_very_model(examined: Examined) -> None:
    text = examined.report.read_text()
    assert "return (x + 1).relu().sum(1)" in text
    assert "as Dynamo captured it" in text
    assert "in ATen&#x27;s operations" in text
    assert "cpp_fused_add_relu_sum_0" in text
    assert "C++, " in text
    assert "The phases of the whole compilation" in text
    assert "<svg" in text


def follow(tab: Tab, link: Any) -> None:
    """Playwright's click tries a script of its own, which the frame refuses."""
    link.click()
    tab.page.wait_for_timeout(200)
    tab.complaints = [one for one in tab.complaints if "Blocked script execution" not in one]


def tabs(page: Any) -> list[str]:
    found = page.locator("[data-view]").evaluate_all("all => all.map(a => a.dataset.view)")
    return [str(one) for one in found]


def test_the_doctors_report_is_a_view_of_its_model(
    examined: Examined, explorer: str, tab: Tab
) -> None:
    page = tab.open(explorer, f"#space?w={examined.model}")
    page.click('[data-view="journey"]')
    frame = page.frame_locator("#view-journey iframe")
    frame.locator("h1", has_text="make_model: from Python to machine code").wait_for()
    assert "cpp_fused_add_relu_sum_0" in (frame.locator("#fusion").text_content() or "")
    assert "eager" in (frame.locator("#modes table").text_content() or "")
    ids = frame.locator("section").evaluate_all("all => all.map(one => one.id)")
    assert ids[:3] == ["findings", "modes", "python"]
    assert "[0/0]" in (frame.locator("#capture").text_content() or "")
    machine = frame.locator("#machine")
    assert machine.evaluate("one => one.getBoundingClientRect().top > innerHeight")
    follow(tab, frame.locator(".map a", has_text="Machine code"))
    assert machine.evaluate("one => one.getBoundingClientRect().top < innerHeight")
    assert page.locator("#rows").is_hidden()
    tab.again()
    assert tab.hash().startswith("#journey")
    page.frame_locator("#view-journey iframe").locator("#python").wait_for()


def test_a_journey_says_that_it_is_being_read(examined: Examined, explorer: str, tab: Tab) -> None:
    held: list[Any] = []
    tab.page.route("**/journey?*", lambda route: held.append(route))
    page = tab.open(explorer, f"#journey?w={examined.model}")
    tab.until_text("#view-journey .note", "Reading the journey…")
    held[0].continue_()
    tab.until("!document.querySelector('#view-journey .note')")
    assert page.locator("#view-journey iframe").count() == 1


def test_a_report_keeps_the_journey(examined: Examined, tab: Tab, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    words = ["explore", "--out", str(out), "--store", str(examined.store), "--quiet"]
    assert main(words) == 0
    tab.context.set_offline(True)
    page = tab.open(f"file://{tmp_path}", f"out.html#journey?w={examined.model}")
    grounds = set()
    for _ in range(2):
        page.click("#theme")  # from the system's to light to dark
        frame = page.frame_locator("#view-journey iframe")
        frame.locator("h1", has_text="make_model: from Python to machine code").wait_for()
        body = frame.locator("body")
        assert body.evaluate("one => getComputedStyle(one).maxWidth") == "1100px"
        grounds.add(body.evaluate("one => getComputedStyle(one).backgroundColor"))
    assert len(grounds) == 2
    follow(tab, frame.locator(".map a", has_text="Machine code"))
    inside = "one => one.getBoundingClientRect().top < innerHeight"
    assert frame.locator("#machine").evaluate(inside)


def test_a_journey_has_the_explorers_colours(examined: Examined, explorer: str, tab: Tab) -> None:
    page = tab.open(explorer, f"#journey?w={examined.model}")
    ground = "body => getComputedStyle(body).backgroundColor"
    seen = {page.frame_locator("iframe").locator("body").evaluate(ground)}
    for _ in range(2):  # from the system's to light to dark
        page.click("#theme")
        frame = page.frame_locator("iframe")
        frame.locator("#findings").wait_for()
        assert frame.locator("body").evaluate(ground) == page.evaluate(f"({ground})(document.body)")
        seen.add(frame.locator("body").evaluate(ground))
    assert len(seen) == 2


def test_without_a_journey_there_is_no_such_view(
    examined: Examined, explorer: str, tab: Tab
) -> None:
    page = tab.open(explorer, f"#space?w={examined.kernel}")
    assert "journey" not in tabs(page)
    page.keyboard.press("9")
    assert tab.hash().startswith("#space")
    page.select_option("#workload", examined.model)
    tab.until("Boolean(document.querySelector('[data-view=journey]'))")
    page.keyboard.press("9")
    page.wait_for_selector("#view-journey iframe")
    page.select_option("#workload", examined.kernel)
    tab.until_text("#view-journey", "No journey was kept")
    assert "journey" not in tabs(page)


@pytest.mark.slow
def test_nothing_in_a_journey_runs(tab: Tab, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra explorer")
    with SqliteStore(tmp_path / "s.db") as store:
        fill(store)
        (one,) = store.workloads()
        path = journey_file(store, one.workload.id)
        assert path is not None
        path.parent.mkdir()
        path.write_text("<h1>forged</h1><script>parent.document.title = 'ran'</script>")
    with running(store=tmp_path / "s.db") as url:
        page = tab.open(url, "#journey")
        page.frame_locator("iframe").locator("h1", has_text="forged").wait_for()
        page.wait_for_timeout(200)
        assert page.title() == "whet: Journey"
        # The browser says what it has refused; nothing else may be wrong.
        refused = [one for one in tab.complaints if "sandbox" in one or "script" in one]
        assert refused == tab.complaints
        assert refused
        tab.complaints.clear()
        tab.leave()


@pytest.mark.slow
def test_the_kept_page_is_the_report_and_goes_with_its_workload(examined: Examined) -> None:
    with SqliteStore(examined.store) as store:
        path = journey_file(store, examined.model)
        assert path is not None
        assert path.read_bytes() == examined.report.read_bytes()
        store.gc(workloads=[examined.model])
        assert not path.exists()
        assert store.workloads()
