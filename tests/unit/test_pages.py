"""What README and docs/ show is what is there."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import whet
from pages import PAGES, ROOT, commands, text_of
from whet.cli.app import root
from whet.core.plugins import GROUPS

LINKING = (*PAGES, "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "benchmarks/NOTES.md")


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


@cache
def anchors(path: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", without_code(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", LINKING)
def test_every_link_leads_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text_of(page))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_every_file_it_names_exists(page: str) -> None:
    for path in re.findall(r"\b(?:benchmarks|examples|docs/tools)/[\w/]+\.py", text_of(page)):
        assert (ROOT / path).exists(), path


def test_every_page_is_linked_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", text_of("README.md")))
    assert linked == {page for page in PAGES if page.startswith("docs/") and page.count("/") == 1}


def test_every_decision_is_found_from_the_architecture_and_from_a_module() -> None:
    decisions = {page for page in PAGES if page.startswith("docs/decisions/")}
    linked = re.findall(r"\]\((decisions/[\w-]+\.md)", text_of("docs/architecture.md"))
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert {f"docs/{page}" for page in linked} == decisions
    assert set(re.findall(r"docs/decisions/[\w-]+\.md", source)) == decisions
    assert len(text_of("docs/architecture.md").split()) <= 2000


def test_the_readme_is_read_in_a_minute() -> None:
    assert len(text_of("README.md").encode()) <= 7000


def test_a_triton_users_line_comes_before_the_demo() -> None:
    readme = text_of("README.md")
    assert readme.index("+@whet.autotune") < readme.index("make demo")


@pytest.mark.parametrize("example", ["blocked_norm", "dot"])
def test_examples_are_shown_as_they_are(example: str) -> None:
    shown = f"```python\n{(ROOT / 'examples' / f'{example}.py').read_text()}```"
    assert shown in text_of("docs/getting-started.md")


def test_what_is_not_run_since_another_page_prints_it_is_run_there() -> None:
    known = [command for page in PAGES for command in commands(page)]
    run = {(one.page, one.line) for one in known if not one.excuse}
    elsewhere = [one for one in known if one.excuse.startswith("as printed in ")]
    assert elsewhere
    for one in elsewhere:
        assert (one.excuse.removeprefix("as printed in "), one.line) in run


def asked_of_whet() -> list[list[str]]:
    """Each `whet …` in a console block, and in the text where an option is named."""
    blocks = [command.words for page in PAGES for command in commands(page)]
    inline = [
        shlex.split(line.replace("\n", " "))
        for page in (*PAGES, "CONTRIBUTING.md")
        for line in re.findall(r"`(whet [a-z][^`]*)`", without_code(text_of(page)))
    ]
    lines = {shlex.join(words[1:]) for words in (*blocks, *inline) if words[0] == "whet"}
    return [shlex.split(line) for line in sorted(lines)]


@cache
def every_command() -> Any:
    return root()


def written() -> Iterator[tuple[str, str]]:
    """Every page, script and source file that may tell somebody what to install."""
    folders = [ROOT / name for name in ("src", "docs", "examples", "benchmarks", ".ci")]
    for path in (*ROOT.glob("*"), *(path for folder in folders for path in folder.rglob("*"))):
        if path.suffix in ("", ".py", ".md", ".toml", ".js", ".html") and path.is_file():
            yield str(path.relative_to(ROOT)), path.read_text()


@pytest.mark.medium
def test_nobody_is_told_to_install_the_package_that_another_project_reserved() -> None:
    """On PyPI, `whet` is an empty package of somebody else, which would replace this one."""
    told = re.compile(r"pip install(?: -\S+)* ['\"]?whet(?![-\w])|\bwhet\[[a-z]")
    assert [(name, told.findall(text)) for name, text in written() if told.search(text)] == []
    for project in ("pyproject.toml", "examples/plugin/pyproject.toml"):
        about = tomllib.loads(text_of(project))["project"]
        assert "whet" not in {about["name"], *about["dependencies"]}


@pytest.mark.medium
def test_every_extra_that_somebody_is_told_to_install_exists() -> None:
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    naming = re.compile(r"['\"]\.\[([a-z-]+)\]|install_extra\(['\"]([a-z-]+)|extra `([a-z-]+)`")
    named = {"".join(found) for _, text in written() for found in naming.findall(text)}
    assert {"mlir", "ray", "explorer"} <= named <= set(extras)


@pytest.mark.medium
@pytest.mark.parametrize("words", asked_of_whet(), ids=" ".join)
def test_every_command_has_that_name_and_those_options(words: list[str]) -> None:
    command = every_command()
    words = [*words]
    while hasattr(command, "commands") and words:
        name = words.pop(0)
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    if "SCRIPT.py" in {parameter.metavar for parameter in command.params}:
        words = words[:1]  # what follows is the script's own
    assert {word for word in words if word.startswith("-")} <= known


def test_every_kind_of_plugin_is_documented_and_in_the_example() -> None:
    project = tomllib.loads((ROOT / "examples/plugin/pyproject.toml").read_text())["project"]
    assert set(project["entry-points"]) == set(GROUPS.values())
    for group in GROUPS.values():
        assert f"| `{group}` |" in text_of("docs/plugins.md")


def test_no_command_is_printed_twice_on_a_page() -> None:
    for page in PAGES:
        lines = [command.line for command in commands(page)]
        assert len({*lines}) == len(lines), page


@pytest.mark.medium
def test_the_command_line_page_is_what_the_commands_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "tools")
    import command_line

    fresh = command_line.page() == text_of("docs/command-line.md")
    assert fresh, "run docs/tools/command_line.py"


def test_the_api_page_has_every_public_name() -> None:
    named = re.findall(r"^::: whet\.([\w.]+)$", text_of("docs/api.md"), re.MULTILINE)
    modules = ["autotuner", "errors", "lock", "results", "serving"]
    below = {f"{name}.{one}" for name in modules for one in getattr(whet, name).__all__}
    below.remove("autotuner.TuningFailedError")  # which whet.errors has
    assert {*named, *modules, "__version__"} == {*whet.__all__, *below}


def test_the_picture_is_of_what_was_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "tools")
    import picture

    recorded = (picture.PICTURES / "tune.txt").read_text()
    assert max(map(len, recorded.splitlines())) <= 80
    drawn = (picture.PICTURES / "tune.svg").read_text()
    assert shown(drawn) == shown(picture.drawn(recorded, "whet"))
    assert [line.strip() for line in shown(drawn).splitlines() if line.strip()] == [
        line.strip() for line in recorded.splitlines() if line.strip()
    ]
    assert "url(http" not in drawn


def shown(svg: str) -> str:
    """The text of a picture, line by line."""
    import html

    lines: dict[str, str] = {}
    for line, text in re.findall(r'<text[^>]*clip-path="url\(#([\w-]+)\)"[^>]*>(.*?)</text>', svg):
        lines[line] = lines.get(line, "") + html.unescape(text).replace("\xa0", " ")
    return "\n".join(lines.values())


@pytest.mark.medium
def test_every_capability_has_a_whole_test() -> None:
    """Those that CONTRIBUTING lists are those that are marked."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    listed = set(re.findall(r"^\| .* \| `(test_\w+)(?:\[\w+\])?` \|$", text, flags=re.M))
    marked = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        source = file.read_text()
        for at in re.finditer(r"pytest\.mark\.whole\b", source):
            found = re.search(r"^ *def (test_\w+)", source[at.end() :], flags=re.M)
            assert found is not None, file
            marked.add(found[1])
    assert listed == marked


@pytest.mark.medium
def test_every_test_that_holds_a_threat_off_exists() -> None:
    files = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", text_of("docs/threats.md"))
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}(" in files[file].read_text(), f"{file}::{test}"


def test_every_module_the_architecture_names_is_there() -> None:
    modules = [f"/{path.relative_to(ROOT).as_posix()}" for path in ROOT.glob("*/**/*.py")]
    pages = [page for page in PAGES if page.startswith(("docs/architecture", "docs/decisions/"))]
    named = re.findall(r"`([\w/]+\.py)`", "".join(map(text_of, pages)))
    assert len(named) > 50
    for path in named:
        assert any(module.endswith(f"/{path}") for module in modules), path
