"""What the command line's tests share: a page of 80 columns, and `whet` as one types it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from whet.cli import main


@dataclass(frozen=True)
class Ran:
    """What one command line did."""

    code: int
    out: str
    err: str

    @property
    def widest(self) -> int:
        """The folder that the test runs in counts for nothing: its name may be of any length."""
        text = (self.out + self.err).replace(str(Path.cwd()), "")
        return max(map(len, text.splitlines()), default=0)


Whet = Callable[..., Ran]


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
