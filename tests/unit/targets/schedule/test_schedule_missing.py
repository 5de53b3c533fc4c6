"""Schedules where MLIR's bindings are not installed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import whet

WITHOUT = """\
import sys
sys.modules["torch_mlir"] = None
import whet
from whet.targets.schedule.payloads import matmul
try:
    whet.schedule(matmul(8, 8, 8))
except whet.UsageError as error:
    print(error)
"""


@pytest.mark.medium
def test_one_line_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.stderr == ""
    [line] = done.stdout.splitlines()
    assert "pip install '.[mlir]'" in line


@pytest.mark.medium
def test_the_demo_says_so_too():
    code = (
        'import sys; sys.modules["torch_mlir"] = None\nfrom whet.cli import main\nsys.exit(main())'
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "demo", "--schedule"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "pip install '.[mlir]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.medium
def test_only_one_module_names_the_package():
    rooms = Path(whet.__file__).parent.rglob("*.py")
    assert [p.name for p in rooms if re.search(r"\btorch_mlir\b", p.read_text())] == ["bindings.py"]
