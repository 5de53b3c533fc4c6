"""What the command line's tests share: a page of 80 columns, and `whet` as one types it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_runs import Ran, Whet
from fork_server import ForkedWorkers, ForkServer, one_server
from whet.cli import main
from whet.workers import process


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


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    with one_server() as server:
        yield server


@pytest.fixture
def forked_workers(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes are forked from one that has imported torch and Triton."""
    monkeypatch.setattr(process, "subprocess", ForkedWorkers(fork_server))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Triton's cache: what is compiled once will do for all of the tests that ask for it."""
    return tmp_path_factory.mktemp("triton-cache")
