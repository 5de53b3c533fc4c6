"""A terminal that knows only some characters shows the rest in others that can be read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest

from whet.cli import main
from whet.cli.terminal.encoding import READABLE, replacement
from whet.cli.terminal.live import frame
from whet.cli.terminal.output import bar_text, ns_text, print_json, times_text
from whet.cli.terminal.tally import Tally
from whet.core.run import Run
from whet.store import open_store
from whet.testing.samples import a_run, a_trial, a_workload


def in_ascii(say: Callable[[], object]) -> str:
    """What comes out of stdout where it is as under `PYTHONIOENCODING=ascii`."""
    raw = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(raw, encoding="ascii", write_through=True)):
        say()
        return raw.getvalue().decode("ascii")


def shown(text: str, encoding: str = "ascii") -> str:
    return text.encode(encoding, READABLE).decode(encoding)


def test_numbers_keep_their_units_and_bars_their_length() -> None:
    assert shown(ns_text(12_345.0)) == "12.3 us"
    assert shown(ns_text(None)) == "-"
    assert shown(times_text(1.5)) == "1.50x"
    assert shown(bar_text(0.53, 10)) == "#####."
    assert len(shown(bar_text(0.53, 10))) == len(bar_text(0.53, 10))


def test_a_letter_loses_its_accent_and_what_has_no_likeness_is_a_question_mark() -> None:
    assert replacement("é") == "e"
    assert replacement("核") == "?"


def test_what_the_encoding_has_stays_as_it_is() -> None:
    assert shown("12 µs × 3 – é", "latin-1") == "12 µs × 3 - é"
    assert shown("12 µs █", "utf-8") == "12 µs █"


def a_store() -> Run:
    run = a_run(a_workload(), {"BM": 1}, tried=2)
    with open_store("s.db") as store:
        store.save_run(run)
        store.append([a_trial(run.workload, {"BM": n}, 1000.0 * n, run_id=run.id) for n in (1, 2)])
    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "cost", "--store", "s.db"),
        ("show", "trials", "matmul", "--store", "s.db"),
        ("tune", "--help"),
    ],
)
def test_no_command_prints_question_marks_for_its_own_characters(
    arguments: tuple[str, ...],
) -> None:
    a_store()
    text = in_ascii(lambda: main(arguments))
    assert text
    assert "?" not in text


def test_json_escapes_what_cannot_be_printed_so_that_nothing_is_lost() -> None:
    text = in_ascii(lambda: print_json({"name": "größe 核"}))
    assert json.loads(text) == {"name": "größe 核"}


def test_the_live_display_can_be_shown_in_ascii() -> None:
    text = shown("\n".join(line.plain for line in frame(Tally(), 80)))
    assert "?" not in text
    assert "------" in text
