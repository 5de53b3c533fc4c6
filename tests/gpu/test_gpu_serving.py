"""A kernel that was recorded and packed is called in a new process without any compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 3, mask=at < n)
"""

PROGRAM = """
import json, os, sys

started = []

def note(event, args):
    if event == "subprocess.Popen":
        started.append(str(args[0]))

sys.addaudithook(note)

import torch
import whet
from triton import knobs

compiled = []
knobs.compilation.listener = lambda *, src, cache_hit, **_: compiled.append((src.name, cache_hit))
loaded = None
if os.path.exists("serve.whet"):
    whet.preload("serve.whet")
    import kernels
    loaded = str(whet.preload("serve.whet"))
    whet.sealed(action="error")
import kernels

for n in json.loads(sys.argv[1]):
    x = torch.arange(n, device="cuda", dtype=torch.float32)
    y = torch.empty_like(x)
    kernels.scale[(1,)](x, y, n, BLOCK=64)
    torch.testing.assert_close(y, 3 * x)
compilers = [one for one in started if os.path.basename(one) in ("cc", "gcc", "clang")]
print(json.dumps({
    "loaded": loaded,
    "compiled": [name for name, hit in compiled if not hit],
    "compilers": compilers,
}))
"""

PACK = """
from whet.store import MemoryStore
from whet.store.bundles.writing import write_bundle
from whet.targets.files import RecordedFiles
from whet.targets.triton.jit.packing import packing
from whet.targets.triton.jit.records import Records

found = packing(Records.beside(None), RecordedFiles(), most=8)
write_bundle("serve.whet", MemoryStore(), binaries=found.binaries, jit=found.lines)
"""


def run(folder: Path, cache: str, code: str, *arguments: str, **variables: str) -> str:
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(folder / cache),
        "WHET_STORE": str(folder / "store.db"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        **variables,
    }
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_nothing_is_compiled_after_preloading(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    run(tmp_path, "one", PROGRAM, "[8]", WHET_JIT="record")
    run(tmp_path, "two", PACK)
    served: dict[str, Any] = json.loads(run(tmp_path, "three", PROGRAM, "[9, 1, 64]"))
    assert "is not covered" not in served["loaded"]
    assert served["compiled"] == []
    assert served["compilers"] == []
