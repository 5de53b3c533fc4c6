"""What one process has read of a kernel's source, the next one need not read again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("triton")

from triton_kernels import copy
from whet.core.files import cache_folder
from whet.targets.triton import source
from whet.targets.triton.source import ReadSource

READING = ReadSource("FunctionDef(…)", frozenset({"tl.load", "BLOCK"}), frozenset({"KNOWN"}))
OTHER = READING._replace(text="other")


def unread(text: str) -> ReadSource:
    raise AssertionError("this was read before")


def folder() -> Path:
    return Path(cache_folder(source.FOLDER))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ReadSource]:
    """What a process makes of a source that has nothing in memory and parses it as told."""

    def read(text: str = "def f(): pass", parsed: ReadSource | None = READING) -> ReadSource:
        parse = unread if parsed is None else lambda text: parsed
        monkeypatch.setattr(source, "_parsed", parse)
        return source._read.__wrapped__(text)

    return read


@pytest.fixture
def remember(read: Callable[..., ReadSource]) -> Callable[..., Path]:
    def remember(text: str = "def f(): pass") -> Path:
        before = set(folder().glob("*"))
        assert read(text) == READING
        [new] = set(folder().glob("*")) - before
        return new

    return remember


def test_what_was_read_is_not_read_again_and_another_source_is(read, remember) -> None:
    remember()
    assert read(parsed=None) == READING
    assert read("def g(): pass", OTHER) == OTHER


def test_what_another_version_of_the_reader_has_left_is_not_taken(
    remember, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reader = tmp_path / "reader.py"
    monkeypatch.setattr(source, "__file__", str(reader))
    for version in ("one", "another"):
        reader.write_text(version)
        source._versions.cache_clear()  # as in a new process
        remember()
    source._versions.cache_clear()


@pytest.mark.parametrize("damage", [b"", b"{}", None])
def test_a_damaged_file_is_replaced(damage: bytes | None, read, remember) -> None:
    file = remember()
    good = file.read_bytes()
    file.write_bytes(good[:-3] if damage is None else damage)
    assert read() == READING
    assert file.read_bytes() == good


def test_a_file_of_another_source_is_not_believed(read, remember) -> None:
    file, other = remember(), remember("def g(): pass")
    other.write_bytes(file.read_bytes())
    assert read("def g(): pass", OTHER) == OTHER


def test_a_file_that_others_may_write_is_not_believed(read, remember) -> None:
    remember().chmod(0o666)
    assert read(parsed=OTHER) == OTHER


def test_without_a_folder_everything_is_read(
    read, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        assert read() == READING


def test_the_folder_does_not_grow_without_end(
    read, remember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_MOST_FILES", 4)
    for number in range(5):
        file = remember(f"def f{number}(): pass")
        os.utime(file, ns=(number, number))
    assert len(list(folder().iterdir())) == 2
    assert read("def f4(): pass", None) == READING


def test_a_fingerprint_is_the_same_from_a_remembered_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source._read.cache_clear()
    first = source.fingerprint(copy)
    assert list(folder().iterdir())
    source._read.cache_clear()
    monkeypatch.setattr(source, "_parsed", unread)
    assert source.fingerprint(copy) == first
