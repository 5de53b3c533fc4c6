"""Every command of README and docs/, run page by page, in order, in a scratch copy of examples/."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pages import PAGES, ROOT, commands
from whet.measure.gpu.nvml import installed_gpu

pytestmark = pytest.mark.timeout(900)


def torch_and_triton() -> bool:
    return all(importlib.util.find_spec(name) for name in ("torch", "triton"))


def a_gpu() -> bool:
    return torch_and_triton() and bool(installed_gpu(None)[0])


def mlir() -> bool:
    return importlib.util.find_spec("torch_mlir") is not None


NEEDS: dict[str, Callable[[], bool]] = {"gpu": a_gpu, "torch": torch_and_triton, "mlir": mlir}

# The exit code is an answer, not a failure: beside other work a pick is slower than it was.
MAY_ANSWER_1 = "verify"

MARKS = {"README.md": pytest.mark.whole, "docs/schedules.md": pytest.mark.slow(40)}


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


def pages_with_commands() -> list[object]:
    return [
        pytest.param(page, id=Path(page).stem, marks=MARKS.get(page, pytest.mark.slow))
        for page in PAGES
        if any(not command.excuse for command in commands(page))
    ]


def run_page(page: str, folder: Path) -> dict[str, Ran]:
    """What came of its commands, by line; one whose needs are not met here is missing."""
    scratch, ran = Scratch(folder), {}
    for command in commands(page):
        if command.needs and not command.excuse and not NEEDS[command.needs]():
            warnings.warn(f"not run, for want of {command.needs}: {command.line}", stacklevel=1)
        elif not command.excuse:
            ran[command.line] = scratch.run(command.line)
    return ran


def works(line: str, one: Ran) -> bool:
    if "Traceback" in one.err:
        return False
    answers = MAY_ANSWER_1 in shlex.split(line) and "whet: " not in one.err
    return one.code == 0 or (one.code == 1 and answers)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with_commands())
def test_every_command_runs_as_printed(page: str, tmp_path: Path) -> None:
    ran = run_page(page, tmp_path / Path(page).stem)
    failed = [(line, one.err[-2000:]) for line, one in ran.items() if not works(line, one)]
    assert failed == []
    if page == "docs/production.md":
        the_program_in_production_uses_what_was_tuned(ran)


def the_program_in_production_uses_what_was_tuned(ran: dict[str, Ran]) -> None:
    [before] = [one for line, one in ran.items() if line.startswith("WHET_MODE=record")]
    after = [one for line, one in ran.items() if "WHET_MODE=require" in line]
    assert "tuned for this workload" not in before.out
    assert len(after) == 2
    for one in after:
        assert one.out.count("tuned for this workload") == len(one.out.splitlines()) == 3
