"""Numbers with three digits and a unit, and tables that fit."""

from __future__ import annotations

import json

import pytest

from whet.cli.terminal.output import (
    Column,
    bar_text,
    bytes_text,
    count_text,
    fields,
    first_line,
    ns_text,
    print_json,
    seconds_text,
    shorten,
    table,
    three_digits,
    times_text,
    told_by_values,
)
from whet.core.config import Config


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0.5, "0.50 ns"),
        (12.34, "12.3 ns"),
        (12345.0, "12.3 µs"),
        (999.9, "1.00 µs"),
        (1.234e6, "1.23 ms"),
        (4.2e10, "42.0 s"),
        (None, "–"),
    ],
)
def test_nanoseconds_are_shown_in_the_unit_that_suits_them(ns: float | None, text: str) -> None:
    assert ns_text(ns) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12.3 ms"), (59.9, "59.9 s"), (59.99, "1 min 00 s"), (83, "1 min 23 s")],
)
def test_seconds_become_minutes_where_that_reads_better(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_hours_leave_seconds_out() -> None:
    assert seconds_text(3 * 3600 + 125) == "3 h 02 min"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (8 * 2**30, "8.00 GiB")]
)
def test_bytes_use_binary_units(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_three_digits_do_not_become_four_by_rounding() -> None:
    assert [three_digits(x) for x in (9.994, 9.996, 99.96)] == ["9.99", "10.0", "100"]


def test_ratios_and_counts_are_words() -> None:
    assert times_text(4.312) == "4.31×"
    assert count_text(1, "trial") == "1 trial"
    assert count_text(1234, "trial") == "1,234 trials"


def test_a_bar_is_never_wider_than_asked_and_never_hides_something() -> None:
    assert bar_text(1.0, 10) == "█" * 10
    assert bar_text(7.0, 10) == "█" * 10
    assert bar_text(0.0, 10) == ""
    assert bar_text(1e-9, 10) == "▏"
    assert bar_text(0.55, 10) == "█████▌"


def test_the_first_line_of_an_error_is_the_first_that_says_something() -> None:
    assert first_line("\n  cc: error: no such file  \nmore") == "cc: error: no such file"
    assert first_line("") == ""


def test_shortening_says_that_it_did() -> None:
    assert shorten("BM=64 BN=32", 11) == "BM=64 BN=32"
    assert shorten("BM=64 BN=32", 8) == "BM=64 B…"
    assert shorten("BM=64 BN=32", 7) == "BM=64…"


def test_a_table_keeps_to_its_width_by_cutting_flexible_columns() -> None:
    layout = [Column("id"), Column("config", flexible=True), Column("median", align="right")]
    rows = [("3fa2", "BM=64 " * 30, "1.23 ms"), ("77b1", "BM=1", "12 s")]
    lines = table(layout, rows, 60)
    assert max(map(len, lines)) == 60
    assert lines[1].startswith("3fa2  BM=64 BM=64")
    assert lines[1].endswith("…  1.23 ms")
    assert lines[2].endswith("   12 s")


def test_a_table_that_fits_is_left_alone() -> None:
    layout = [Column("a"), Column("b", flexible=True)]
    assert table(layout, [("1", "two")], 80) == ["a  b", "1  two"]


def test_fields_go_on_beneath_their_value() -> None:
    lines = fields({"best": ["BM=64", "1.23 ms"], "note": "word " * 20}, 40)
    assert lines[:2] == ["best     BM=64", "         1.23 ms"]
    assert all(len(line) <= 40 for line in lines)
    assert all(line.startswith(" " * 9) for line in lines[3:])


def test_json_is_one_value_that_keeps_its_letters(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"unit": "µs", "list": [1, 2]})
    text = capsys.readouterr().out
    assert json.loads(text) == {"unit": "µs", "list": [1, 2]}
    assert "µs" in text


def test_json_escapes_what_would_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name\x9b": "a\x7f\x85\u202e\u2066b é \U000e0001"}
    print_json(value)
    said = capsys.readouterr().out
    assert said.replace("\n", "").isprintable()
    assert "\\u202e\\u2066b é \\udb40\\udc01" in said
    assert json.loads(said) == value


def test_json_refuses_what_json_does_not_have() -> None:
    with pytest.raises(ValueError, match="JSON"):
        print_json({"x": float("nan")})


def test_long_configs_are_told_by_the_values_that_differ() -> None:
    configs = [Config(BM=64, BN=32, flag=""), Config(BM=16, BN=32, flag="-O3")]
    assert told_by_values(configs, 12) == ("by BM, flag; all with BN=32", ["64 ''", "16 -O3"])
    assert told_by_values(configs, 80) == ("", [str(config) for config in configs])


def test_configs_with_other_parameters_are_told_in_full() -> None:
    configs = [Config(BM=64), Config(BN=32)]
    assert told_by_values(configs, 3) == ("", ["BM=64", "BN=32"])
