"""`whet tune KIND:TEXT`: targets of other packages."""

from __future__ import annotations

from pathlib import Path

import pytest

import whet
from plugin_package import install
from whet.cli.app import main
from whet.cli.arguments.locate import locate
from whet.core.errors import UsageError

MODULE = """
import whet
from whet.core.errors import UsageError

def work(n, step):
    return sum(range(0, n, step))

def sums(text):
    if not text.isdigit():
        raise UsageError(f"sums:{text} is not a number; write sums:1000")
    n = int(text)
    return whet.function(
        work, {"step": [1, 50]}, kwargs={"n": n}, name="sums", key={"n": n}
    )

def odd(text):
    return 3
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"sums": "sums_target:sums", "odd": "sums_target:odd"}
    folder = install(tmp_path / "site", {"whet.targets": points}, {"sums_target": MODULE})
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHET_STORE", "store.db")


@pytest.mark.medium
def test_one_is_tuned_and_found_again_by_what_was_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tune", "sums:5000", "-q"]) == 0
    assert main(["tune", "sums:3000", "-q"]) == 0
    capsys.readouterr()
    assert main(["best", "sums:5000"]) == 0
    said = capsys.readouterr().out
    assert "n=5000" in said
    assert "n=3000" not in said
    assert main(["best", "sums"]) == 0
    assert "n=3000" in capsys.readouterr().out


@pytest.mark.medium
def test_what_was_missed_of_one_is_tuned_where_it_is_named() -> None:
    target = locate("sums:4000")
    whet.choose(target, mode="record")  # type: ignore[arg-type]
    assert main(["tune", "--missed", "-q"]) == 1  # a record has no package make anything
    assert main(["tune", "sums:4000", "--missed", "-q"]) == 0
    assert whet.choose(target, mode="cached").source == "exact"  # type: ignore[arg-type]


def test_a_file_of_that_name_comes_first(tmp_path: Path) -> None:
    (tmp_path / "sums").write_text("not Python")
    with pytest.raises(UsageError, match="sums is not a Python file"):
        locate("sums:thing")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sums:many", "sums:many is not a number; write sums:1000"),
        ("odd:1", "cannot use the target 'odd' of package some-parts: it made 'int', not a Target"),
        (
            "sumz:4 0",
            "'sumz:4 0' does not say what to tune; use FILE.py:NAME; no installed package has a "
            "target 'sumz'; did you mean 'sums'? valid: odd, sums",
        ),
        (
            "sumz:name",
            "no such file: sumz; no installed package has a target 'sumz'; did you mean 'sums'? "
            "valid: odd, sums",
        ),
        ("sums.py:name", "no such file: sums.py"),
    ],
)
def test_what_is_wrong_is_one_line(
    text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", text]) == 2
    assert capsys.readouterr().err == f"whet: {said}\n"
