"""`make demo` on a fresh clone: what happens is said while it happens."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Stands for python3: `-m venv` makes an environment of itself, and pip says what it was told.
PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then
  mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/whet"
elif [ "$2" = pip ]; then
  echo "pip: $*"
  exit {code}
else
  echo "demo"
fi
"""


def make_demo(folder: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    for name in ("Makefile", "pyproject.toml"):
        if not (folder / name).exists():
            shutil.copy(ROOT / name, folder)
    python = folder / "python"
    python.write_text(PYTHON.replace("{code}", str(code)))
    python.chmod(python.stat().st_mode | stat.S_IEXEC)
    # `make test` runs this, and what it hands down would have this one say where it is.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "demo", f"PYTHON={python}"],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environ,
    )


@pytest.fixture(autouse=True)
def _make() -> None:
    if shutil.which("make") is None:
        pytest.skip("there is no make here")


def test_the_set_up_says_what_it_does_and_how_long_it_takes(tmp_path: Path) -> None:
    lines = make_demo(tmp_path).stdout.splitlines()

    assert [line.split()[0] for line in lines] == ["creating", "installing", "pip:", "demo"]
    assert "seconds" in lines[0]
    assert "a minute" in lines[1]


def test_pip_shows_its_progress(tmp_path: Path) -> None:
    told = make_demo(tmp_path).stdout.split("pip: ")[1].split()

    assert "install" in told
    assert not {"-q", "--quiet"} & {*told}


def test_a_second_time_nothing_is_set_up(tmp_path: Path) -> None:
    make_demo(tmp_path)

    assert make_demo(tmp_path).stdout == "demo\n"


def test_a_set_up_that_failed_is_tried_again(tmp_path: Path) -> None:
    failed = make_demo(tmp_path, code=1)
    (tmp_path / ".venv/bin/python").unlink()

    assert failed.returncode != 0
    assert "demo" not in failed.stdout.splitlines()
    assert "installing" in make_demo(tmp_path).stdout
