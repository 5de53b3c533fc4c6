"""The documentation as a site."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from browser import Tab

ROOT = Path(__file__).parents[2]
MISSING = [name for name in ("mkdocs", "mkdocstrings") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(
        bool(MISSING), reason=f"{' and '.join(MISSING)} not installed: pip install '.[docs]'"
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert built.stdout + built.stderr == ""
    assert built.returncode == 0
    return folder


@pytest.mark.slow
def test_it_builds_without_a_warning_and_begins_with_the_readme(site: Path) -> None:
    assert "drop-in replacement" in (site / "index.html").read_text()


def test_the_api_has_signatures_and_docstrings(site: Path) -> None:
    page = (site / "api.html").read_text()
    assert 'id="whet.engine.tuning.tune"' in page or 'id="whet.tune"' in page
    assert "Finds the fastest config of a target and stores it." in page
    assert ":::" not in page


def test_what_its_pages_show_and_link_to_is_there(site: Path) -> None:
    for page in pages(site):
        for link in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text()):
            if not re.match(r"https?:|data:|mailto:", link):
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def pages(site: Path) -> list[Path]:
    found = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    assert len(found) > 50
    return found


def test_no_page_from_disk_complains_asks_another_host_or_is_wider_than_a_phone(
    site: Path, tab: Tab
) -> None:
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.page.set_viewport_size({"width": 390, "height": 844})
    for page in pages(site):
        tab.page.goto(page.as_uri())
        wide = tab.page.evaluate("document.documentElement.scrollWidth")
        assert (wide, tab.complaints) == (390, []), page.name
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_search_finds_a_page_from_disk(site: Path, tab: Tab) -> None:
    tab.page.goto((site / "decisions/picking.html").as_uri())
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("ssh forward port")
    tab.until_text("#found", "Explorer › On another machine")
    tab.page.keyboard.press("ArrowDown")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**/explorer.html#on-another-machine")
    tab.page.fill("#search input", "no such words anywhere")
    tab.until_text("#found", "Nothing found")


def test_a_narrow_window_has_its_pages_behind_a_button(site: Path, tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.page.goto((site / "index.html").as_uri())
    assert not tab.page.locator("#pages").is_visible()
    tab.page.click("#menu")
    tab.page.click("#pages >> text=Getting started")
    assert tab.text("h1").startswith("Getting started")


def test_code_is_copied_without_its_prompts(site: Path, tab: Tab) -> None:
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.page.goto((site / "explorer.html").as_uri())
    tab.page.locator(".code button").first.click()
    tab.until_text(".code button", "Copied")
    copied = tab.page.evaluate("navigator.clipboard.readText()")
    assert copied.splitlines()[0].startswith("pip install")


# Of an element and of what is behind it, as WCAG has it.
CONTRAST = """selector => [...document.querySelectorAll(selector)].map(element => {
    const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true })
    const shade = color => {
        pen.clearRect(0, 0, 1, 1)
        pen.fillStyle = color
        pen.fillRect(0, 0, 1, 1)
        const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data
        const [x, y, z] = [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        return a ? 0.2126 * x + 0.7152 * y + 0.0722 * z : null
    }
    let [behind, at] = [null, element]
    while (behind === null) {
        behind = shade(getComputedStyle(at).backgroundColor)
        at = at.parentElement
    }
    const ink = getComputedStyle(element).color
    const [low, high] = [shade(ink), behind].sort((a, b) => a - b)
    return [ink, (high + 0.05) / (low + 0.05)]
})"""  # noqa: E501


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_code_has_colours_that_can_be_read(site: Path, browser: Any, scheme: str) -> None:
    tab = Tab(browser, scheme)
    tab.page.goto((site / "triton.html").as_uri())
    ground = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    coloured = tab.page.evaluate(CONTRAST, "pre span[class]")
    texts = tab.page.evaluate(CONTRAST, "p, a, summary, code, small, h1")
    tab.page.click("#theme")
    turned = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.page.goto((site / "index.html").as_uri())
    kept = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.close()

    assert len({ink for ink, _ in coloured}) >= 5
    assert min(contrast for _, contrast in [*coloured, *texts]) >= 4.5
    assert ground != turned == kept
