"""Every command of README and docs/, run page by page, in order, in a scratch copy of examples/."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pages import PAGES, ROOT, Command, commands

pytestmark = pytest.mark.timeout(900)


def torch_and_triton() -> bool:
    return all(importlib.util.find_spec(name) for name in ("torch", "triton"))


def a_gpu() -> bool:
    if not torch_and_triton():
        return False
    import torch

    return bool(torch.cuda.is_available())


def mlir() -> bool:
    return importlib.util.find_spec("torch_mlir") is not None


NEEDS: dict[str, Callable[[], bool]] = {"gpu": a_gpu, "torch": torch_and_triton, "mlir": mlir}

# The exit code is an answer, not a failure: beside other work a pick is slower than it was.
MAY_ANSWER_1 = "verify"

QUICK = {"docs/formats.md"}


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


class Scratch:
    """A folder with the examples, a home of its own, and `whet` and `python` on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(
            ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__")
        )
        programs = folder / "bin"
        programs.mkdir()
        for name, words in (("python", '"$@"'), ("whet", '-m whet "$@"')):
            program = programs / name
            program.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}\n")
            program.chmod(0o755)
        environ = {name: text for name, text in os.environ.items() if not name.startswith("WHET_")}
        self.environ = environ | {
            "HOME": str(folder / "home"),
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
            "TRITON_CACHE_DIR": str(folder / "triton"),
        }
        for name in ("DATA", "CONFIG", "CACHE", "STATE"):
            self.environ[f"XDG_{name}_HOME"] = str(folder / "home" / name.lower())

    def run(self, line: str) -> Ran:
        one = subprocess.run(
            ["sh", "-c", line],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        return Ran(one.returncode, one.stdout, one.stderr)


Page = dict[str, Ran]


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Page]:
    """What came of a page's commands, by line; one whose needs are not met here is missing."""
    pages: dict[str, Page] = {}

    def ran(page: str) -> Page:
        if page not in pages:
            scratch = Scratch(tmp_path_factory.mktemp(Path(page).stem))
            pages[page] = {
                command.line: scratch.run(command.line)
                for command in commands(page)
                if not command.excuse and (not command.needs or NEEDS[command.needs]())
            }
        return pages[page]

    return ran


def runnable() -> list[object]:
    return [
        pytest.param(
            command,
            id=f"{Path(page).stem}: {command.line}",
            marks=() if page in QUICK else pytest.mark.slow,
        )
        for page in PAGES
        for command in commands(page)
        if not command.excuse
    ]


@pytest.mark.parametrize("command", runnable())
def test_every_command_runs_as_printed(page_of: Callable[[str], Page], command: Command) -> None:
    page = page_of(command.page)
    if command.line not in page:
        pytest.skip(f"needs {NEEDS[command.needs].__name__.replace('_', ' ')}")
    one = page[command.line]
    assert "Traceback" not in one.err
    if MAY_ANSWER_1 in command.words and one.code == 1:
        assert "whet: " not in one.err
    else:
        assert one.code == 0, one.err[-2000:]


@pytest.mark.slow
def test_the_program_in_production_uses_what_was_tuned(page_of: Callable[[str], Page]) -> None:
    ran = page_of("docs/production.md")
    [before] = [one for line, one in ran.items() if line.startswith("WHET_MODE=record")]
    after = [one for line, one in ran.items() if "WHET_MODE=require" in line]
    assert "tuned for this workload" not in before.out
    assert len(after) == 2
    for one in after:
        assert one.out.count("tuned for this workload") == len(one.out.splitlines()) == 3
