"""Formats of other packages, read and written by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugin_package import install
from whet.cli.app import main
from whet.store import open_store

MODULE = """
from pathlib import PurePosixPath
from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.interop import Finding, Format, FormatError, OutFile, FileReading, Tried

def read(path, options):
    if not path.exists():
        raise FormatError(f"there is no file {path}")
    config = Config(BM=int(path.read_text()))
    tried = (Tried(config),)
    kernel, device = options.kernel or "mm", options.device or "H200"
    found = Finding(kernel, device, FrozenMap({"M": 1}), "plain", tried, best=config)
    return FileReading((found,), ("read with care",))

def write(measured):
    return [
        OutFile(PurePosixPath(f"{one.workload.kernel}.txt"), str(one.best.config["BM"]))
        for one in measured
    ]

PLAIN = Format(read, write)
ONLY_READ = Format(read)
ODD = Format(lambda path, options: 3, lambda measured: 1 / 0)
NONE = read
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"plain": "PLAIN", "only-read": "ONLY_READ", "odd": "ODD", "none": "NONE"}
    points = {name: f"plain_format:{value}" for name, value in names.items()}
    folder = install(tmp_path / "site", {"whet.formats": points}, {"plain_format": MODULE})
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHET_STORE", "store.db")
    (tmp_path / "mm.txt").write_text("64")


@pytest.mark.medium
def test_one_is_read_and_written_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "plain", "mm.txt", "--kernel", "mine"]) == 0
    said = capsys.readouterr()
    assert "1 workload, 1 trial new" in said.out
    assert said.err == "whet: note: read with care\n"
    with open_store("store.db") as store:
        [known] = store.workloads()
        assert known.workload.kernel == "mine"
    assert main(["export", "plain", "mine", "--out", "out"]) == 0
    assert capsys.readouterr().out == "out/mine.txt\n"
    assert (tmp_path / "out" / "mine.txt").read_text() == "64"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("import plane mm.txt", "unknown format 'plane'; did you mean 'plain'? valid: vllm"),
        ("export plane mm", "unknown export format 'plane'; did you mean 'plain'? valid: vllm"),
        ("export only-read mm", "unknown export format 'only-read';"),
        ("import plain nothing", "there is no file nothing"),
        (
            "import odd mm.txt",
            "cannot use the format 'odd' of package some-parts: it read 'int', not a FileReading",
        ),
        (
            "export odd mm",
            "cannot use the format 'odd' of package some-parts: ZeroDivisionError: ",
        ),
        (
            "import none mm.txt",
            "cannot use the format 'none' of package some-parts: it is a 'function', not a Format",
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "plain", "mm.txt"]) == 0
    capsys.readouterr()
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"whet: {said}")
    assert err.count("\n") == 1


def test_what_cannot_be_read_leaves_no_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "odd", "mm.txt"]) == 2
    assert not os.path.exists("store.db")
