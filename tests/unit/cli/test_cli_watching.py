"""Progress of `whet.tune` in Python programs: for who watches, and for nobody else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import Any

import pytest

import whet
from whet.core.event import Event, RunFinished
from whet.store import MemoryStore

TARGET = """
import sys, threading, whet

def work(n):
    return sum(range(n))

target = whet.function(work, whet.Space({"n": [1000, 2000]}), name="work")

def tune(**more):
    return whet.tune(target, store=":memory:", budget="2trials", jobs=1, **more)
"""


def on_a_terminal(code: str) -> str:
    """What a program writes to stderr where that is a terminal."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", TARGET + code],
        stdin=subprocess.DEVNULL,
        stderr=slave,
        env={**os.environ, "TERM": "xterm"},
    ) as program:
        os.close(slave)
        written = b""
        while data := _read(master):
            written += data
    os.close(master)
    assert program.returncode == 0, written.decode()
    return written.decode()


def _read(master: int) -> bytes:
    try:
        return os.read(master, 4096)
    except OSError:  # how Linux says that nobody has the terminal any more
        return b""


def work(n: int) -> int:
    return sum(range(n))


def tuned(**more: Any) -> whet.Result:
    target = whet.function(work, whet.Space({"n": [1000, 2000]}), name="work")
    return whet.tune(target, store=MemoryStore(), budget="2trials", jobs=1, **more)


@pytest.mark.medium
def test_a_terminal_shows_it_live() -> None:
    written = on_a_terminal("tune()")
    assert "work() on" in written
    assert "first config's" in written


@pytest.mark.medium
@pytest.mark.parametrize(
    "code",
    [
        "tune(progress=False)",
        "tune(on_event=lambda event: None)",
        "thread = threading.Thread(target=tune); thread.start(); thread.join()",
        "whet.choice({'a': lambda x: x, 'b': lambda x: x + 0}, budget='2trials')(1)",
    ],
    ids=["switched off", "a subscriber", "another thread", "a call"],
)
def test_a_terminal_shows_nothing_that_nobody_waits_for(code: str) -> None:
    assert on_a_terminal(code) == ""


@pytest.mark.medium
def test_without_a_terminal_nothing_is_said_or_loaded() -> None:
    code = "tune(); sys.exit(any(name in sys.modules for name in ('rich', 'whet.cli')))"
    done = subprocess.run(
        [sys.executable, "-c", TARGET + code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


@pytest.mark.medium
def test_it_can_be_asked_for_and_heard_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[Event] = []
    tuned(progress=True, on_event=heard.append)
    assert "2/2 trials" in capsys.readouterr().err
    assert isinstance(heard[-1], RunFinished)


def test_a_notebook_shows_progress_and_the_result() -> None:
    pytest.importorskip("ipykernel", reason="notebooks need ipykernel, which is not installed")
    manager = pytest.importorskip("jupyter_client.manager")
    kernel, client = manager.start_new_kernel(kernel_name="python3")
    try:
        told: list[tuple[str, dict[str, str]]] = []
        answer = client.execute_interactive(
            TARGET + "tune()",
            output_hook=lambda one: told.append((one["msg_type"], one["content"].get("data", {}))),
            timeout=120,
        )
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    assert answer["content"]["status"] == "ok"
    drawn = [data["text/plain"] for kind, data in told if kind == "update_display_data"]
    assert any("work() on" in text for text in drawn)
    assert "trials" not in drawn[-1]
    result = next(data for kind, data in told if kind == "execute_result")
    assert "<table>" in result["text/html"]
    assert result["text/plain"].startswith("Result(tuned: Trial([n=")
