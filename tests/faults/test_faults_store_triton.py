"""A Triton kernel whose store fills up while it is tuned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from whet.cli import main
from whet.core.errors import StoreError
from whet.core.trial import Trial
from whet.engine import log
from whet.store import MemoryStore, SqliteStore
from whet.testing.fake_triton import fake_driver

pytest.importorskip("triton")

KERNEL = """
import triton
import triton.language as tl
import whet
from whet.testing.fake_triton import FakeTensor, told

def inputs(n):
    return (1,), (FakeTensor([0.0], "float32"), FakeTensor([0.0], "float32")), {"n": n}

@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

configs = [triton.Config({"BLOCK": size}) for size in (16, 32, 64)]
tuned = whet.autotune(configs, key=["n"], inputs=inputs)(copy)
tuned.whet_timer = told(lambda config: {16: 4000.0, 32: 1000.0, 64: 2000.0}[config.kwargs["BLOCK"]])
"""


@pytest.fixture(autouse=True)
def _gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(log, "_said", set())
    Path("kernel.py").write_text(KERNEL)
    with fake_driver():
        yield


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The disk has room for one transaction; how many trials each one in memory then has."""
    room, batches, append = iter([True]), list[int](), MemoryStore.append

    def refuse_the_second(store: SqliteStore, trials: Iterable[Trial]) -> int:
        if next(room, False):
            return real(store, trials)
        raise StoreError("store x is on a full disk; free some space")

    def count(store: MemoryStore, trials: Iterable[Trial]) -> int:
        batch = list(trials)
        batches.append(len(batch))
        return append(store, batch)

    real = SqliteStore.append
    monkeypatch.setattr(SqliteStore, "append", refuse_the_second)
    monkeypatch.setattr(MemoryStore, "append", count)
    return batches


@pytest.mark.medium
def test_the_command_shows_the_best_and_says_that_it_is_not_kept(
    remembered: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(RuntimeWarning, match="results will not be saved"):
        code = main(["tune", "kernel.py:tuned", "--key", "n=64", "--store", "s.db", "--quiet"])
    said = capsys.readouterr()
    assert code == StoreError.exit_code
    assert "BLOCK=32" in said.out
    assert said.err.splitlines()[-1].startswith("whet: store x is on a full disk")


@pytest.mark.medium
def test_what_was_measured_before_is_handed_on_at_once(remembered: list[int]) -> None:
    with pytest.warns(RuntimeWarning, match="results will not be saved"):
        main(["tune", "kernel.py:tuned", "--key", "n=64", "--store", "s.db", "--quiet"])
    assert remembered[0] > 1
