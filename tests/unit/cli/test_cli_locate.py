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


def test_a_target_is_found_by_its_name() -> None:
    write('blur = whet.function(work, {"block": [1, 2]}, name="blur")')

    assert locate("kernel.py:blur").name == "blur"


def test_a_function_without_arguments_is_asked_for_the_target() -> None:
    write('def blur():\n    return whet.function(work, {"block": [1, 2]}, name="made")')

    assert locate("kernel.py:blur").name == "made"


def test_a_function_whose_arguments_have_defaults_will_do() -> None:
    write('def blur(n=3):\n    return whet.function(work, {"block": [1, n]}, name="made")')

    assert locate("kernel.py:blur").name == "made"


def test_the_only_target_needs_no_name() -> None:
    write('blur = whet.function(work, {"block": [1]}, name="blur")\nalias = blur')

    assert locate("kernel.py").name == "blur"


def test_the_only_function_that_may_return_a_target_needs_no_name() -> None:
    write('def make():\n    return whet.function(work, {"block": [1]}, name="made")')

    assert locate("kernel.py").name == "made"


def test_among_several_one_must_be_named() -> None:
    write('a = whet.function(work, {"block": [1]})\nb = whet.function(work, {"block": [2]})')

    with pytest.raises(UsageError, match=r"has 2 tunables.*a, b"):
        locate("kernel.py")


def test_a_file_without_tunables_says_how_to_make_one() -> None:
    write("x = 1")

    with pytest.raises(UsageError, match=r"nothing to tune.*whet\.function"):
        locate("kernel.py")


def test_a_misspelt_name_gets_a_suggestion() -> None:
    write('blur = whet.function(work, {"block": [1]})')

    with pytest.raises(UsageError, match=r"no 'blurr'; did you mean 'blur'\? valid: blur"):
        locate("kernel.py:blurr")


def test_a_missing_file_is_named_with_the_files_nearby() -> None:
    write("", "kernel.py")

    with pytest.raises(UsageError, match=r"no such file: kernal\.py; did you mean 'kernel\.py'"):
        locate("kernal.py:blur")


def test_a_folder_is_not_a_file() -> None:
    Path("folder").mkdir()

    with pytest.raises(UsageError, match="is a directory"):
        locate("folder:blur")


def test_a_file_that_is_not_python_is_refused() -> None:
    Path("kernel.c").write_text("int x;")

    with pytest.raises(UsageError, match="is not a Python file"):
        locate("kernel.c:blur")


@pytest.mark.parametrize("text", ["kernel.py:", "kernel.py:not a name"])
def test_what_is_not_a_name_is_refused(text: str) -> None:
    write("")

    with pytest.raises(UsageError, match=r"use FILE\.py:NAME"):
        locate(text)


def test_a_name_that_is_something_else_says_what() -> None:
    write('size = 3\nblur = whet.function(work, {"block": [1]})')

    with pytest.raises(
        UsageError, match=r"kernel\.py:size has type int and cannot be tuned.*valid: blur"
    ):
        locate("kernel.py:size")


def test_a_function_that_needs_arguments_is_named_with_them() -> None:
    write("")

    with pytest.raises(UsageError, match=r"requires arguments \(block\)"):
        locate("kernel.py:work")


def test_a_function_that_returns_something_else_says_what() -> None:
    write("def make():\n    return 3")

    with pytest.raises(UsageError, match=r"returned int, which cannot be tuned"):
        locate("kernel.py:make")


def test_an_exception_in_the_file_points_at_the_files_own_line() -> None:
    write("values = {}\nvalues['x']")

    with pytest.raises(UsageError) as caught:
        locate("kernel.py:blur")
    assert str(caught.value) == "kernel.py:8: KeyError: 'x'"


def test_an_exception_further_down_points_at_the_line_that_led_there() -> None:
    Path("helper_for_kernel.py").write_text("def fail():\n    raise RuntimeError('deep')\n")
    write("import helper_for_kernel\n\nhelper_for_kernel.fail()")

    with pytest.raises(UsageError) as caught:
        locate("kernel.py:blur")
    assert str(caught.value) == "kernel.py:9: RuntimeError: deep"


def test_a_mistake_in_a_space_points_at_the_line_that_made_it() -> None:
    write('blur = whet.function(work, {"block": [1]}, constraints=["blok > 1"])')

    with pytest.raises(UsageError) as caught:
        locate("kernel.py:blur")
    assert str(caught.value).startswith("kernel.py:7: ")
    assert "blok" in str(caught.value)


def test_a_syntax_error_points_at_its_line() -> None:
    write("def (:")

    with pytest.raises(UsageError, match=r"^kernel\.py:7: SyntaxError: "):
        locate("kernel.py:blur")


def test_a_file_that_exits_is_an_error_like_any_other() -> None:
    write("import sys\nsys.exit(3)")

    with pytest.raises(UsageError, match=r"^kernel\.py:8: SystemExit: 3$"):
        locate("kernel.py:blur")


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
