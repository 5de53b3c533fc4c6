"""The documentation as a site."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    for page in site.glob("*.html"):
        if page.name == "404.html":
            continue
        for link in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text()):
            if not re.match(r"https?:|data:|mailto:", link):
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_nobody_who_reads_it_fetches_anything_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        text = page.read_text()
        fetched = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="(https?:[^"]+)', text)
        styles = re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="(https?:[^"]+)', text)
        assert [*fetched, *styles] == [], page.name
