"""`FILE.py:NAME` leads to a tunable, or to one line that says what is wrong."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from whet.cli.arguments.locate import locate
from whet.core.errors import UsageError

WORK = """
import whet

def work(block):
    return sum(range(100 // block))

"""


def write(text: str, name: str = "kernel.py") -> Path:
    path = Path(name)
    path.write_text(WORK + text)
    return path


BLUR = 'blur = whet.function(work, {"block": [1]}, name="blur")'
MADE = 'return whet.function(work, {"block": [1, 2]}, name="made")'


@pytest.mark.parametrize(
    ("text", "typed", "name"),
    [
        pytest.param(BLUR, "kernel.py:blur", "blur", id="a target"),
        pytest.param(f"def blur():\n    {MADE}", "kernel.py:blur", "made", id="a function"),
        pytest.param(f"def blur(n=3):\n    {MADE}", "kernel.py:blur", "made", id="defaults"),
        pytest.param(f"{BLUR}\nalias = blur", "kernel.py", "blur", id="the only target"),
        pytest.param(f"def make():\n    {MADE}", "kernel.py", "made", id="the only function"),
    ],
)
def test_a_tunable_is_found(text: str, typed: str, name: str) -> None:
    write(text)
    assert locate(typed).name == name


@pytest.mark.parametrize(
    ("text", "typed", "said"),
    [
        (
            f"{BLUR}\nb = whet.function(work, {{'block': [2]}})",
            "kernel.py",
            r"has 2 tunables.*blur, b",
        ),
        ("x = 1", "kernel.py", r"nothing to tune.*whet\.function"),
        (BLUR, "kernel.py:blurr", r"no 'blurr'; did you mean 'blur'\? valid: blur"),
        ("", "kernal.py:blur", r"no such file: kernal\.py; did you mean 'kernel\.py'"),
        ("", "folder:blur", "is a directory"),
        ("", "kernel.c:blur", "is not a Python file"),
        ("", "kernel.py:", r"use FILE\.py:NAME"),
        ("", "kernel.py:not a name", r"use FILE\.py:NAME"),
        (f"size = 3\n{BLUR}", "kernel.py:size", r"kernel\.py:size has type int and .*valid: blur"),
        ("", "kernel.py:work", r"requires arguments \(block\)"),
        ("def make():\n    return 3", "kernel.py:make", "returned int, which cannot be tuned"),
        ("values = {}\nvalues['x']", "kernel.py:blur", r"^kernel\.py:8: KeyError: 'x'$"),
        (BLUR[:-1] + ', constraints=["blok > 1"])', "kernel.py:blur", r"^kernel\.py:7: .*blok"),
        ("def (:", "kernel.py:blur", r"^kernel\.py:7: SyntaxError: "),
        ("import sys\nsys.exit(3)", "kernel.py:blur", r"^kernel\.py:8: SystemExit: 3$"),
    ],
)
def test_what_leads_nowhere_says_what_is_wrong(text: str, typed: str, said: str) -> None:
    write(text)
    Path("folder").mkdir()
    Path("kernel.c").write_text("int x;")
    with pytest.raises(UsageError, match=said):
        locate(typed)


def test_an_exception_further_down_points_at_the_line_that_led_there() -> None:
    Path("helper_for_kernel.py").write_text("def fail():\n    raise RuntimeError('deep')\n")
    write("import helper_for_kernel\n\nhelper_for_kernel.fail()")
    with pytest.raises(UsageError) as caught:
        locate("kernel.py:blur")
    assert str(caught.value) == "kernel.py:9: RuntimeError: deep"


def test_a_failing_file_is_not_left_among_the_modules() -> None:
    write("1 / 0")
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        locate("kernel.py:blur")
    assert "kernel" not in sys.modules


@pytest.mark.medium
def test_another_process_can_unpickle_what_the_file_defines() -> None:
    write('blur = whet.function(work, {"block": [1]})')
    target = locate("kernel.py:blur")
    data = pickle.dumps(target.fn)  # type: ignore[attr-defined]
    code = f"import pickle; print(pickle.loads({data!r})(50))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )
    assert done.stdout == "1\n", done.stderr


def test_a_file_named_like_a_known_module_does_not_replace_it() -> None:
    write('blur = whet.function(work, {"block": [1]}, name="mine")', "json.py")
    before = sys.modules["json"] if "json" in sys.modules else __import__("json")
    target = locate("json.py:blur")
    assert target.name == "mine"
    assert sys.modules["json"] is before
    assert pickle.loads(pickle.dumps(target.fn)) is target.fn  # type: ignore[attr-defined]


def test_the_file_may_import_its_neighbours() -> None:
    Path("helper_for_kernel.py").write_text("SPACE = {'block': [1, 2, 3]}\n")
    write("from helper_for_kernel import SPACE\nblur = whet.function(work, SPACE)")
    assert len(list(locate("kernel.py:blur").space)) == 3
