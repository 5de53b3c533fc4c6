"""How long a study still takes, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest

from whet.cli.terminal.countdown import Countdown, left_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def count(stream: io.StringIO, seconds_each: float, every: int, part: str = "") -> str:
    clock = Clock()
    shown = Countdown("tunings", stream, clock, part)
    for finished in range(1, every + 1):
        clock.now += seconds_each
        shown(finished, every)
    return stream.getvalue()


@pytest.fixture(autouse=True)
def _a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_sees_what_is_left() -> None:
    assert "3 of 10 tunings, about 7 s" in count(Terminal(), 1.0, 10)


def test_the_line_is_cleared_at_the_end() -> None:
    assert count(Terminal(), 1.0, 3).endswith("\r\033[K")


def test_a_terminal_is_not_written_to_for_every_tuning() -> None:
    assert count(Terminal(), 0.001, 1000).count("\r") < 20


def test_elsewhere_a_line_comes_now_and_then() -> None:
    lines = count(io.StringIO(), 1.0, 100).splitlines()
    assert "10 of 100 tunings, about 1 min 30 s" in lines[0]
    assert 2 < len(lines) < 10


def test_elsewhere_what_is_quick_is_silent() -> None:
    assert count(io.StringIO(), 0.05, 100) == ""


def test_a_long_name_of_a_part_gives_way_to_the_estimate() -> None:
    lines = count(io.StringIO(), 1.0, 60, part="auto + transfer + " * 8).splitlines()
    assert all(len(line) < 80 and line.endswith("left") for line in lines)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (7.2, "7 s"),
        (43, "40 s"),
        (57, "1 min"),
        (83, "1 min 20 s"),
        (700, "12 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_an_estimate_is_as_exact_as_a_guess(seconds: float, text: str) -> None:
    assert left_text(seconds) == text
