"""What the command line's tests share: a page of 80 columns, and `whet` as one types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_runs import Ran, Whet
from whet.cli import main


@pytest.fixture(autouse=True)
def _a_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def whet(capsys: pytest.CaptureFixture[str]) -> Whet:
    """`whet("tune", "x.py:y")` runs the console script's own entry point."""

    def run(*arguments: str) -> Ran:
        code = main(arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
