"""The entry point: help that reads well and starts fast, and one line for whatever goes wrong."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, one_line
from whet import __version__
from whet.cli.app import FORMER, root
from whet.cli.commands import settings as settings_command


def commands_of(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that can be typed, groups included."""
    yield words, group
    for name in getattr(group, "commands", ()):
        yield from commands_of(group.commands[name], (*words, name))


EVERY = dict(commands_of(root()))


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        **options,
    )


@pytest.mark.medium
def test_the_version_is_printed(whet: Whet) -> None:
    ran = whet("--version")
    assert (ran.code, ran.out) == (0, f"whet {__version__}\n")


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_every_help_has_a_purpose_and_examples_and_fits_a_page(
    whet: Whet, command: tuple[str, ...]
) -> None:
    ran = whet(*command, "--help")
    assert ran.code == 0
    assert ran.out.startswith("Usage: whet")
    assert "Examples:\n" in ran.out
    assert ran.widest <= 80
    assert "..." not in re.sub(r"[A-Z]\]?\.\.\.", "", ran.out)


@pytest.mark.medium
def test_commands_are_listed_in_the_order_of_use(whet: Whet) -> None:
    lines = whet("--help").out.splitlines()
    sections = lines[lines.index("Tune:") : lines.index("  Examples:")]
    listed = [line.split()[0] for line in sections if line.startswith("  ")]
    assert listed == [
        "tune",
        "run",
        "warmup",
        "precompile",
        "ask",
        "tell",
        "demo",
        "best",
        "show",
        "explore",
        "mcp",
        "jit",
        "schedule",
        "store",
        "pack",
        "lock",
        "export",
        "serving",
        "import",
        "verify",
        "bench",
        "doctor",
        "settings",
        "lab",
    ]


def test_there_are_few_commands_and_each_says_the_same_wherever_it_is_listed() -> None:
    alone = [one for one in EVERY.values() if not hasattr(one, "commands")]
    assert len(alone) <= 37
    for group in EVERY.values():
        for name, place in getattr(getattr(group, "commands", None), "places", {}).items():
            assert len(place.about) <= 64
            assert place.name == name


@pytest.mark.parametrize(
    ("words", "now"),
    [
        (("compare-searches",), "whet lab searches"),
        (("unpack", "b.whet"), "whet store merge"),
        (("store", "ls", "--json"), "whet store stats --list"),
        (("policy",), "whet settings --check"),
        (("policy", "check", "train.py"), "whet settings --check"),
        (("jit", "add", "scale", "n=1"), "whet jit --add"),
    ],
)
def test_a_former_name_says_the_present_one(whet: Whet, words: tuple[str, ...], now: str) -> None:
    ran = whet(*words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith(f"whet {words[0]}")
    assert ran.err.endswith(f": this is '{now}' now\n")


def test_what_former_names_lead_to_is_there() -> None:
    for former, now in FORMER.items():
        assert tuple(former.split()) not in EVERY
        words = [word for word in now.split()[1:] if not word.isupper()]
        names = tuple(itertools.takewhile(lambda word: word.isalpha(), words))
        command = EVERY.get(names) or EVERY[names[:-1]]  # the last word is a view of `show`
        options = {option for one in command.params for option in one.opts}
        assert {word for word in words if word.startswith("-")} <= options


def test_a_kernel_may_have_the_name_of_a_former_command(whet: Whet) -> None:
    assert "WHET_JIT=record" in whet("jit", "add").err


def test_only_commands_that_are_asked_for_are_imported() -> None:
    group = root()
    assert list(group.commands)[:2] == ["tune", "run"]
    assert not any(dict.values(group.commands))
    assert group.commands.get("best").name == "best"
    assert group.commands.get("nothing") is None


@pytest.mark.medium
@pytest.mark.parametrize("command", [(), ("store",)])
def test_a_group_without_a_command_shows_its_help(whet: Whet, command: tuple[str, ...]) -> None:
    ran = whet(*command)
    assert ran.code == 0
    assert ran.out == whet(*command, "--help").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("settngs",), "no such command 'settngs'. Did you mean 'settings'? (see whet --help)"),
        (
            ("settings", "--jsn"),
            "whet: no such option --jsn; did you mean --json? (see whet settings --help)",
        ),
        (("tune",), "whet: missing argument 'FILE.py:NAME' or --missed (see whet tune --help)"),
        (("best", "a", "b"), "unexpected extra argument"),
        (("tune", "--budget"), "whet: option '--budget' requires an argument"),
        (("tune", "nowhere.py:x"), "whet: no such file: nowhere.py"),
        (
            ("settings", "--store", ""),
            "whet: store = '' (flag --store) is not valid; use a path or postgresql://host/database",
        ),
    ],
)
def test_a_mistake_in_typing_is_one_line_and_code_2(
    whet: Whet, arguments: tuple[str, ...], message: str
) -> None:
    assert message in one_line(whet(*arguments))


@pytest.mark.parametrize(
    ("flag", "value", "remedy"),
    [
        ("--budget", "soon", "30s"),
        ("--seed", "x", "a whole number, 0 or more"),
        ("--jobs", "0", "a whole number from 1 to 100,000"),
    ],
)
def test_a_bad_value_of_a_flag_names_the_flag_and_what_would_be_valid(
    whet: Whet, flag: str, value: str, remedy: str
) -> None:
    err = one_line(whet("tune", "kernel.py:x", flag, value))
    assert f"{flag.removeprefix('--')} = '{value}' (flag {flag})" in err
    assert remedy in err


def test_an_unexpected_error_is_one_line_and_its_own_code(
    whet: Whet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("the unthinkable")

    monkeypatch.setattr(settings_command, "_values", fail)
    ran = whet("settings")
    assert ran.code == 70
    assert ran.err.startswith("whet: RuntimeError: the unthinkable (")
    assert "WHET_DEBUG=1" in ran.err
    assert ran.err.count("\n") == 1


def test_whet_debug_gives_the_traceback(whet: Whet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_DEBUG", "1")
    ran = whet("tune", "nowhere.py:x")
    assert ran.code == 2
    assert "Traceback" in ran.err
    assert ran.err.splitlines()[-1].startswith("whet: ")
    assert ran.err.splitlines()[-1].endswith(": nowhere.py")


def test_an_unknown_variable_is_noted_on_stderr_once(
    whet: Whet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_BUGDET", "3s")
    ran = whet("store", "stats", "--list", "--json")
    assert ran.code == 0
    assert ran.err.startswith("whet: note: the variable WHET_BUGDET is not a setting")
    assert ran.err.count("\n") == 1


@pytest.mark.medium
def test_importing_the_command_line_loads_nothing_heavy() -> None:
    heavy = ["numpy", "rich", "sqlite3", "whet.store", "whet.engine", "whet.targets", "whet.builds"]
    code = f"import sys, whet.cli; print([name for name in {heavy} if name in sys.modules])"
    assert python("-c", code).stdout == "[]\n"


@pytest.mark.medium
def test_help_loads_nothing_heavy() -> None:
    heavy = ["numpy", "rich", "sklearn", "torch", "triton"]
    code = (
        "import sys; from whet.cli import main; main(['--help']);"
        "own = [name for name in ('whet.engine', 'whet.store') if name in sys.modules];"
        f"[main([*one, '--help']) for one in {list(EVERY)}];"
        f"print(own, [name for name in {heavy} if name in sys.modules])"
    )
    assert python("-c", code).stdout.endswith("\n[] []\n")


@pytest.mark.medium
def test_python_dash_m_is_the_same_command() -> None:
    done = python("-m", "whet", "--version")
    assert (done.returncode, done.stdout) == (0, f"whet {__version__}\n")


@pytest.mark.medium
def test_a_reader_that_goes_away_is_not_complained_about() -> None:
    code = "import os, sys; r, w = os.pipe(); os.dup2(w, 1); os.close(r); os.close(w);"
    done = python("-c", code + "from whet.cli import main; sys.exit(main(['--help']))")
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.medium
def test_a_terminal_without_the_letters_gets_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = python("-m", "whet")
    assert done.returncode == 0
    assert "whet.function(...)" in done.stdout


@pytest.mark.medium
def test_ctrl_c_while_the_commands_are_imported_ends_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "whet", "best"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
