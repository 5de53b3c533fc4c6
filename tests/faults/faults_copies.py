"""Programs of this folder, each in a copy of one process that has imported whet.

    python faults_copies.py < REQUESTS

A request is a line of JSON: a file for its output, the program and its arguments. Answered by a
line with the status that the copy ended with.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src"


class Copies:
    """The other end: `run` is as `subprocess.run`, without the half second of a new interpreter."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "output"
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__))],
            env={**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONFAULTHANDLER": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(self._output), program, *arguments]), file=self._process.stdin)
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return subprocess.CompletedProcess([program, *arguments], code, self._output.read_text())

    def close(self) -> None:
        self._process.communicate()


def _become(output: str, program: str, *arguments: str) -> NoReturn:
    code = 1
    try:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.argv = [program, *arguments]
        runpy.run_path(str(HERE / program), run_name="__main__")
        code = 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    # Most of what the programs import. Nothing is tuned here: threads do not survive a copy.
    import numpy.random  # noqa: F401

    import whet
    import whet.engine.review.verify
    import whet.engine.steps.run
    import whet.store.sql

    assert all((whet.function, whet.refine, whet.tune))  # which importing whet leaves for later

    for line in sys.stdin:
        request: list[Any] = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(*request)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
