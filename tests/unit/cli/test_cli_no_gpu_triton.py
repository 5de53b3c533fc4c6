"""A Triton kernel where there is no GPU: no piece of advice leads back to another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fork_server import ForkServer
from whet.cli.commands import demo

pytest.importorskip("triton")

pytestmark = pytest.mark.skipif(demo.gpu_ready(), reason="there is a GPU")

KERNEL = """
import triton, triton.language as tl, whet
from whet.testing.fake_triton import FakeTensor

def inputs(n):
    return (1,), (FakeTensor([0.0]), n)

@whet.autotune([triton.Config({"BLOCK": size}) for size in (16, 32)], key=["n"], inputs=inputs)
@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, i, mask=i < n)
"""

INSTEAD = "'whet precompile kernel.py:fill --arch h100 --key n=64'"


def said(
    *arguments: str, torch: bool = True, server: ForkServer | None = None, **environ: str
) -> str:
    """What a command that cannot work says, with torch hidden where that is asked for, or, by a
    server, imported already."""
    Path("kernel.py").write_text(KERNEL)
    Path("hidden").mkdir()
    Path("hidden/sitecustomize.py").write_text(
        "" if torch else "import sys\nsys.modules['torch'] = None\n"
    )
    path = os.pathsep.join([str(Path("hidden").absolute()), *filter(None, sys.path)])
    command = [sys.executable, "-m", "whet", *arguments]
    environ = {**os.environ, "PYTHONPATH": path, "WHET_STORE": "store.db", **environ}
    if server is not None:
        done = server.run(command, cwd=os.getcwd(), env=environ)
    else:
        done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.slow
def test_tuning_points_to_the_command_that_works_here(fork_server: ForkServer) -> None:
    text = said("tune", "kernel.py:fill", "--key", "n=64", server=fork_server)
    assert "no GPU" in text
    assert INSTEAD in text
    assert "TRITON_INTERPRET" not in text


@pytest.mark.slow
def test_under_the_interpreter_tuning_points_there_too() -> None:
    text = said("tune", "kernel.py:fill", "--key", "n=64", TRITON_INTERPRET="1")
    assert "unset it, and " + INSTEAD in text
    assert "unset it to tune" not in text


@pytest.mark.slow
def test_a_machine_without_torch_is_told_that_this_is_what_is_missing() -> None:
    text = said("tune", "kernel.py:fill", "--key", "n=64", torch=False)
    assert "needs torch" in text
    assert INSTEAD in text


@pytest.mark.slow
def test_precompiling_under_the_interpreter_says_to_unset_it() -> None:
    text = said(
        *("precompile", "kernel.py:fill", "--arch", "h100", "--key", "n=64"), TRITON_INTERPRET="1"
    )
    assert "TRITON_INTERPRET is set" in text
