"""MkDocs hooks: pages and files that lie outside docs/ become part of the site, links and all.

Pages link to each other as they lie in the repository, so that they can be read there. In the site
README.md is the home page; what a page links to beside other pages, an example or a list of
results, is copied along.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from whet._version import __version__

ROOT = Path(__file__).parents[2]

# In the repository and in the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/NOTES.md": "notes.md",
}
ICON = ROOT / "src/whet/explorer/static/icon.svg"
_IN_REPOSITORY = {site: source for source, site in PAGES.items()}
_LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")


def on_config(config: Any) -> Any:
    config.extra["version"] = __version__
    return config


def on_files(files: Any, config: Any) -> Any:
    files.append(File.generated(config, "icon.svg", abs_src_path=str(ICON)))
    for source, site in PAGES.items():
        files.append(File.generated(config, site, content=(ROOT / source).read_text()))
    for page in [file for file in files if file.is_documentation_page()]:
        for target in _linked(_source(page.src_uri), page.content_string):
            if files.get_file_from_path(_site(target)) is None and (ROOT / target).is_file():
                copy = File.generated(config, _site(target), abs_src_path=str(ROOT / target))
                files.append(copy)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    source, here = _source(page.file.src_uri), posixpath.dirname(page.file.src_uri) or "."

    def moved(match: re.Match[str]) -> str:
        start, link, anchor, end = match.groups()
        if "://" in link:
            return match.group()
        link = posixpath.relpath(_site(_target(source, link)), here)
        return f"{start}{link}{anchor or ''}{end}"

    return _LINK.sub(moved, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """A table that is wider than the window scrolls by itself."""
    return html.replace("<table>", '<div class="scroll"><table>').replace(
        "</table>", "</table></div>"
    )


def on_post_build(config: Any) -> None:
    """The search's index as a script, which a page may load from disk as well; what a whole page
    says is in its sections."""
    index = Path(config.site_dir) / "search/search_index.json"
    docs = json.loads(index.read_text())["docs"]
    docs = [one if "#" in one["location"] else {**one, "text": ""} for one in docs]
    index.with_name("index.js").write_text(f"var searchIndex = {json.dumps({'docs': docs})}")
    index.unlink()


def _linked(source: str, text: str) -> list[str]:
    found = [link for _, link, _, _ in _LINK.findall(text) if "://" not in link]
    return [_target(source, link) for link in found]


def _target(source: str, link: str) -> str:
    """The file in the repository that a link in `source` names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _source(site: str) -> str:
    return _IN_REPOSITORY.get(site, f"docs/{site}")


def _site(source: str) -> str:
    return PAGES.get(source) or source.removeprefix("docs/")
