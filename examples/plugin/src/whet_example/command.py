"""`whet tune 'command:gzip -{level=1,6,9} -c big.txt'`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from typing import Any

import whet
from whet.core.errors import UsageError
from whet.engine import Target

_CHOICE = re.compile(r"\{(\w+)=([^{}]*)\}")


def command(text: str) -> Target:
    """A program's options: `{level=1,6,9}` stands for each of its values in turn. What the program
    prints is thrown away, and a config with which it fails has failed."""
    space = {name: values.split(",") for name, values in _CHOICE.findall(text)}
    if not space:
        raise UsageError(f"'{text}' leaves nothing to choose; write a choice as {{level=1,6,9}}")
    program = shlex.split(text)[0]
    here = os.getcwd()  # the process that measures has a folder of its own
    return whet.function(run, space, args=[text, here], name=program, key={"command": text})


def run(text: str, folder: str, **config: Any) -> None:
    line = _CHOICE.sub(lambda choice: str(config[choice[1]]), text)
    subprocess.run(
        shlex.split(line),
        check=True,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
