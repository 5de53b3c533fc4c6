"""Every command that the README prints, run in its order, once, in a scratch copy of examples/."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]

NOT_RUN = {
    "make demo": "it would install an environment; test_e2e_cli.py runs the demo itself",
    "make test": "it is what runs this",
}


def torch_and_triton() -> bool:
    return all(importlib.util.find_spec(name) for name in ("torch", "triton"))


def a_gpu() -> bool:
    if not torch_and_triton():
        return False
    import torch

    return bool(torch.cuda.is_available())


NEEDS: dict[str, Callable[[], bool]] = {
    "whet tune examples/matmul/matmul_triton.py:matmul_fp16": a_gpu,
    "whet export triton": a_gpu,
    "whet precompile": torch_and_triton,
    "whet pack kernels.whet --binaries packed": torch_and_triton,
}

# The exit code is an answer, not a failure: beside other work a pick is slower than it was.
MAY_ANSWER_1 = ("whet verify",)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def commands() -> list[str]:
    """What follows `$ ` in the console blocks, without its comment."""
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines), "a console block holds commands only"
    return [line[2:].split("  #")[0].split(" # ")[0].rstrip() for line in lines]


def without_settings(command: str) -> str:
    """`WHET_MODE=off python x.py` is `python x.py`."""
    words = shlex.split(command)
    return " ".join(words[next(i for i, word in enumerate(words) if "=" not in word) :])


def needed(command: str) -> Callable[[], bool] | None:
    plain = without_settings(command)
    return next((need for start, need in NEEDS.items() if plain.startswith(start)), None)


def runnable() -> list[str]:
    return [command for command in commands() if command not in NOT_RUN]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """By command, what came of it; one whose needs are not met here is missing."""
    scratch = tmp_path_factory.mktemp("readme")
    shutil.copytree(
        ROOT / "examples", scratch / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )
    programs = scratch / "bin"
    programs.mkdir()
    for name, words in (("python", '"$@"'), ("whet", '-m whet "$@"')):
        program = programs / name
        program.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}\n")
        program.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("WHET_")}
    environ |= {
        "HOME": str(scratch / "home"),
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
    }
    for name in ("DATA", "CONFIG", "CACHE", "STATE"):
        environ[f"XDG_{name}_HOME"] = str(scratch / "home" / name.lower())
    done: dict[str, Ran] = {}
    for command in runnable():
        need = needed(command)
        if need is None or need():
            one = subprocess.run(
                ["sh", "-c", command],
                cwd=scratch,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=600,
            )
            done[command] = Ran(one.returncode, one.stdout, one.stderr)
    return done


@pytest.mark.parametrize("command", runnable())
def test_every_command_runs_as_printed(ran: dict[str, Ran], command: str) -> None:
    if command not in ran:
        need = needed(command)
        assert need is not None
        pytest.skip(f"needs {need.__name__.replace('_', ' ')}")
    one = ran[command]
    assert "Traceback" not in one.err
    if without_settings(command).startswith(MAY_ANSWER_1) and one.code == 1:
        assert "whet: " not in one.err
    else:
        assert one.code == 0, one.err[-2000:]


def test_no_command_is_printed_twice() -> None:
    every = commands()
    assert len({*every}) == len(every)


def test_whatever_is_excused_is_still_printed() -> None:
    every = commands()
    plain = [without_settings(command) for command in every]
    assert {*NOT_RUN} <= {*every}
    for start in (*NEEDS, *MAY_ANSWER_1):
        assert any(command.startswith(start) for command in plain), start


def test_the_program_of_the_readme_uses_what_was_tuned(ran: dict[str, Ran]) -> None:
    [before] = [one for command, one in ran.items() if command.startswith("WHET_MODE=record")]
    after = [one for command, one in ran.items() if "WHET_MODE=require" in command]
    assert "tuned for this workload" not in before.out
    assert len(after) == 2
    for one in after:
        assert one.out.count("tuned for this workload") == len(one.out.splitlines()) == 3
