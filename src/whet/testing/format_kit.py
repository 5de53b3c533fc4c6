"""What every format that a package brings owes, as a pytest class.

class TestMine(FormatContract):
    def make_format(self):
        return MINE

A format that is only read or only written has nothing to show here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.interop import (
    FileReading,
    Finding,
    Format,
    FormatError,
    MeasuredWorkload,
    ReadOptions,
    keep,
)
from whet.store import MemoryStore
from whet.testing.samples import a_trial, a_workload

OTHER_M = 1024


class FormatContract:
    """Fill in `make_format`; `key` and `config` where the format takes only certain ones."""

    key: Mapping[str, Any] = FrozenMap({"M": 512, "N": 64, "dtype": "f32"})
    config: Mapping[str, Any] = FrozenMap({"BM": 64, "BN": 32})

    def make_format(self) -> Format:
        raise NotImplementedError

    def test_what_is_written_can_be_read_again(self, tmp_path: Path) -> None:
        reading = self._read(self._written(tmp_path))
        assert {one.key["M"] for one in reading} == {self.key["M"], OTHER_M}
        assert {one.best for one in reading} == {Config(self.config)}

    def test_it_writes_the_same_for_the_same_results(self, tmp_path: Path) -> None:
        one, two = (self._written(tmp_path / name) for name in ("one", "two"))
        assert [path.name for path in one] == [path.name for path in two]
        assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]

    def test_what_was_read_is_kept_once(self, tmp_path: Path) -> None:
        store = MemoryStore()
        files = self._written(tmp_path)
        assert keep(store, self._read(files))[1] > 0
        assert keep(store, self._read(files))[1] == 0

    def test_the_options_come_before_what_the_file_says(self, tmp_path: Path) -> None:
        options = ReadOptions(kernel="another", device="Another GPU")
        found = self._read(self._written(tmp_path), options)
        assert {(one.kernel, one.device) for one in found} == {("another", "Another GPU")}

    @pytest.mark.parametrize("content", [b"", b"\0\xff\xfe", b"something, else\n1, 2\n"])
    def test_what_is_not_of_the_format_is_refused_by_name(
        self, tmp_path: Path, content: bytes
    ) -> None:
        path = tmp_path / "not-of-it"
        path.write_bytes(content)
        self._refused(path)

    def test_a_file_that_is_not_there_is_refused_by_name(self, tmp_path: Path) -> None:
        self._refused(tmp_path / "nowhere")

    def _written(self, folder: Path) -> list[Path]:
        write = self.make_format().write
        assert write is not None
        measured = []
        for m in (self.key["M"], OTHER_M):
            workload = a_workload(key={**self.key, "M": m})
            best = a_trial(workload, self.config)
            measured.append(MeasuredWorkload(workload, best, [best]))
        paths = []
        for file in write(measured):
            assert not file.path.is_absolute()
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text)
            paths.append(path)
        assert paths
        return paths

    def _read(self, paths: list[Path], options: ReadOptions | None = None) -> list[Finding]:
        read = self.make_format().read
        assert read is not None
        readings = [read(path, options or ReadOptions()) for path in paths]
        assert all(isinstance(reading, FileReading) for reading in readings)
        return [found for reading in readings for found in reading.findings]

    def _refused(self, path: Path) -> None:
        read = self.make_format().read
        assert read is not None
        with pytest.raises(FormatError, match=path.name):
            read(path, ReadOptions())
