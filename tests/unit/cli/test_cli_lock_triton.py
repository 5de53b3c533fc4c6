"""`whet lock check` against the kernels of a program."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_runs import Whet

pytest.importorskip("triton")

import whet as library
from whet.cli.arguments.locate import live_tuners
from whet.core.config import Config
from whet.engine.lockfile.entries import LockEntry, write_lock
from whet.targets.triton.keys import plain_config
from whet.targets.triton.source import source_of
from whet.testing.samples import a_workload

PROGRAM = """
import triton, triton.language as tl

def kernels():
    return triton.autotune([triton.Config({"BLOCK": b}) for b in (16, 32)], key=["n"])

@kernels()
@triton.jit
def double(out, x, n, BLOCK: tl.constexpr):
    tl.store(out, tl.load(x) * 2)

@kernels()
@triton.jit
def halve(out, x, n, BLOCK: tl.constexpr):
    tl.store(out, tl.load(x) / 2)
"""


@pytest.fixture(autouse=True)
def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.setattr(sys, "path", list(sys.path))
    gc.collect()
    yield
    library.uninstall()


@pytest.mark.slow
def test_check_lists_what_no_kernel_would_use(whet: Whet) -> None:
    found = [t for t in live_tuners("train.py", None) if t.base_fn.__name__ == "double"]
    # Of other tests there may be more of this name.
    double = next(t for t in found if Path(t.base_fn.__code__.co_filename).parent == Path.cwd())
    del found
    source, fitting = source_of(double).fingerprint, plain_config(double.configs[0])
    del double

    def entry(n: int, config: Config, fingerprint: str = source) -> LockEntry:
        return LockEntry.of(
            a_workload(kernel="double", fingerprint=fingerprint, key={"n": n}), config
        )

    some = [entry(1, fitting), entry(2, Config(BLOCK=7)), entry(3, fitting, "0123")]
    write_lock(Path("whet.lock"), some)
    ran = whet("lock", "check", "train.py")
    assert ran.code == 1
    *listed, summary = ran.out.splitlines()
    # Kernels that other tests have imported into this process are listed, too.
    ours = [line for line in listed if line.startswith(("double", "halve"))]
    assert [line.partition(":")[0] for line in ours] == [
        "double(n=3) on Test CPU",
        "double(n=2) on Test CPU",
        "halve",
    ]
    assert "(0123)" in ours[0]
    assert "[BLOCK=7]" in ours[1]
    assert summary.endswith(f"{len(listed)} problems")
