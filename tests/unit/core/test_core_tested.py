"""Packages whose private parts whet uses: what was tested is stated, and newer ones are told of."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

from whet.core import tested
from whet.core.tested import TESTED, check_tested

PAGE = Path(__file__).parents[3] / "docs" / "getting-started.md"


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "_said", set())


def test_a_newer_one_is_told_of_once_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TESTED, "triton", "3.9")
    with pytest.warns(match=r"triton 3\.10\.0\+git is newer than 3\.9, .* 'triton<3\.10'"):
        check_tested("triton", "3.10.0+git")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_tested("triton", "3.10.0+git")


@pytest.mark.parametrize("known", ["3.9.7", "3.6.0", "2.11", "main"])
def test_what_was_tested_and_what_has_no_number_is_not(
    monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    monkeypatch.setitem(TESTED, "triton", "3.9")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_tested("triton", known)


@pytest.mark.parametrize("package", TESTED)
def test_the_tests_run_with_no_newer_one(package: str) -> None:
    try:
        here = version(package)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_tested(package, here)


def test_the_page_says_the_same() -> None:
    stated = f"PyTorch {TESTED['torch']}, Triton {TESTED['triton']} and Ray {TESTED['ray']}"
    assert stated in " ".join(PAGE.read_text().split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("triton", "import whet; whet.autotune"),
        ("torch", "from whet.doctor.checkup import require_torch; require_torch()"),
        (
            "ray",
            "ray.is_initialized = lambda: True  # so that no cluster is looked for\n"
            "from whet.engine.executors.ray_cluster import connect; connect('auto')",
        ),
    ],
    ids=["triton", "torch", "ray"],
)
def test_whoever_uses_a_newer_one_hears_of_it(package: str, use: str) -> None:
    if find_spec(package) is None:  # which loads nothing, so that this file stays a small one
        pytest.skip(f"{package} is not installed")
    code = f"import {package}; {package}.__version__ = '99.1'\n{use}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"{package} 99.1 is newer" in done.stderr
    assert TESTED[package] in done.stderr
