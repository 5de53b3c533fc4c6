"""The tool that asks whether tests notice a change, on a module of a few lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import mutants

MODULE = '''\
"""Has 1 constant."""
LIMIT = 3
__all__ = ["limited", "unheld"]


def limited(n: int) -> int:
    if n < 0:
        raise ValueError(f"{n} is below {0}")
    return min(n, LIMIT)


def unheld(n: int) -> int:
    return n + 7
'''
TESTS = """\
import pytest
from tiny.module import limited, unheld


@pytest.mark.parametrize(("given", "limit"), [(0, 0), (2, 2), (5, 3)])
def test_it_is_limited(given, limit):
    assert limited(given) == limit


def test_below_zero_is_refused():
    with pytest.raises(ValueError):
        limited(-1)


def test_it_is_called():
    unheld(1)
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    for name, text in (("tiny/__init__.py", ""), ("tiny/module.py", MODULE)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "test_tiny.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow: long\n  gpu: needs one\n")
    return tmp_path


@pytest.mark.slow
def test_a_change_that_tests_notice_is_told_from_one_that_they_do_not(tiny: Path) -> None:
    command = [sys.executable, mutants.__file__, "tiny", "--root", tiny, "--package", "tiny"]
    command += ["--tests", "checks", "--json", tiny / "found.json"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    found = json.loads((tiny / "found.json").read_text())
    noticed = {one["text"]: one["by"] is not None for one in found}
    assert {text.split(":")[1].split()[0] for text in noticed} == {"2", "7", "9", "13"}
    for text, held in noticed.items():
        assert held is ("module.py:13 " not in text), text


def test_the_same_seed_gives_the_same_mutants(tiny: Path) -> None:
    first, again, other = (mutants.sampled(tiny, ["tiny"], 4, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 4
