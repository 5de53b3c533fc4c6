"""Who starts the C compiler while a kernel is tuned. Triton 3.6 has a launcher compiled for each
signature; later versions have none, and then there is nothing to count."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
triton: Any = pytest.importorskip("triton")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

COMPILER = shutil.which("gcc") or shutil.which("clang")

PROGRAM = """
import json, os, sys, time
import torch, triton, triton.language as tl
import whet
from whet.targets.triton.compiler.compile import launcher_class

@triton.autotune([triton.Config({"BLOCK": block}) for block in (128, 256, 512, 1024)], key=["n"])
@triton.jit
def scale(out, x, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, value * factor, mask=offsets < n)

def call(dtype):
    x = torch.ones(4096, device="cuda", dtype=dtype)
    out = torch.empty_like(x)
    began = time.perf_counter()
    scale[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](out, x, 4096, 3.0)
    torch.cuda.synchronize()
    assert (out == 3).all()
    return time.perf_counter() - began

def starts():
    if not os.path.exists(sys.argv[1]):
        return []
    return [int(line) == os.getpid() for line in open(sys.argv[1]).read().split()]

if sys.argv[2] == "whet":
    whet.install()
triton.runtime.driver.active.utils  # the driver's own module, which is not a launcher
before = len(starts())
seconds = [call(torch.float32), call(torch.float16)]
print(json.dumps({
    "seconds": seconds,
    "here": sum(starts()[before:]),
    "elsewhere": len(starts()[before:]) - sum(starts()[before:]),
    "compiles": launcher_class() is not None,
}))
"""


def ran(folder: Path, how: str) -> dict[str, Any]:
    """With stores and caches of its own, in `folder`."""
    assert COMPILER is not None
    folder.mkdir(exist_ok=True)
    program, script, log = folder / "program.py", folder / "cc", folder / "cc.log"
    program.write_text(PROGRAM)
    script.write_text(f'#!/bin/sh\necho $PPID >> {log}\nexec {COMPILER} "$@"\n')
    script.chmod(0o755)
    environment = {
        **os.environ,
        "CC": str(script),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "WHET_STORE": str(folder / "store.db"),
    }
    done = subprocess.run(
        [sys.executable, str(program), str(log), how],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(how, found)
    return found


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_the_tuning_process_starts_no_c_compiler(tmp_path: Path) -> None:
    stock = ran(tmp_path / "stock", "stock")
    tuned = ran(tmp_path / "whet", "whet")
    assert stock["here"] > 0 if tuned["compiles"] else stock["here"] == 0
    assert (tuned["here"], tuned["elsewhere"]) == (0, stock["here"])


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_a_second_process_starts_none_at_all(tmp_path: Path) -> None:
    ran(tmp_path / "whet", "whet")
    again = ran(tmp_path / "whet", "whet")
    assert (again["here"], again["elsewhere"]) == (0, 0)
