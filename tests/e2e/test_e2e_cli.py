"""The command as one types it: real files, real compilers, a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from whet.cli import main
from whet.store import open_store

Whet = Callable[..., subprocess.CompletedProcess[str]]

FUNCTION = """
import whet

print("a print of the file's own")

def work(block):
    return sum(range(20_000 // block))

def build():
    return whet.function(work, {"block": [1, 2, 4, 8]}, name="made")

blur = whet.function(work, {"block": [1, 2, 4, 8]}, name="blur")
"""

NATIVE = '''
import numpy as np
import whet

SOURCE = """
void scale(const float *x, float *y, int n)
{
#if TIMES > 9
#error "TIMES is too much"
#endif
    for (int t = 0; t < TIMES; t++)
        for (volatile int i = 0; i < n; i++)
            y[i] = 2.0f * x[i] + (TIMES == 5);
}
"""

def arguments():
    x = np.arange(1000, dtype=np.float32)
    return {"x": x, "y": np.zeros_like(x), "n": 1000}

scale = whet.native(
    SOURCE, {"TIMES": [8, 1, 5, 10, 11]}, function="scale", args=arguments, outputs=["y"],
    reference=lambda x, y, n: 2 * x,
)
'''

FAILING = """
import whet

def fail(x):
    raise ValueError(f"no good")

fails = whet.function(fail, {"x": [1, 2, 3]})
empty = whet.function(fail, {"x": [1, 2, 3]}, constraints=["x > 3"])
"""

SLOW = """
import time
import whet

def sleep(ms):
    time.sleep(ms / 1000)

slow = whet.function(sleep, {"ms": list(range(40, 140))})
"""


def settled(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """In a folder with the files, on a page of 80 columns."""
    patch.chdir(folder)
    patch.setenv("PYTHONPATH", os.pathsep.join(map(os.path.abspath, sys.path)))
    patch.setenv("COLUMNS", "80")
    Path("work.py").write_text(FUNCTION)
    Path("scale.py").write_text(NATIVE)
    Path("failing.py").write_text(FAILING)
    Path("slow.py").write_text(SLOW)


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(monkeypatch, tmp_path)


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str]) -> Whet:
    """`whet` in this process, where starting one adds nothing."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = main(arguments)
        said = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    return run


@dataclass(frozen=True)
class Tuned:
    """What two commands said, and the store that they left."""

    blur: subprocess.CompletedProcess[str]
    scale: subprocess.CompletedProcess[str]
    store: str


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    folder = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as patch:
        settled(patch, folder)
        ran = [whet("tune", name, "--store", "s.db") for name in ("work.py:blur", "scale.py:scale")]
    return Tuned(*ran, str(folder / "s.db"))


def whet(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whet", *arguments], capture_output=True, text=True, timeout=100
    )


def widest(text: str) -> int:
    """Of the lines that are not there to be copied."""
    kept = [line for line in text.splitlines() if "saved in" not in line and "--store" not in line]
    return max(map(len, kept))


@pytest.mark.slow
def test_tune_prints_a_summary_and_keeps_the_result(tuned: Tuned) -> None:
    done = tuned.blur

    assert done.returncode == 0, done.stderr
    assert "block=8" in done.stdout
    assert "first    block=1" in done.stdout
    assert "whet best blur --store s.db" in done.stdout
    assert "a print of the file's own" not in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert widest(done.stdout + done.stderr) <= 80
    with open_store(tuned.store, read_only=True) as store:
        assert store.workloads("blur")[0].configs == 4


@pytest.mark.slow
def test_what_was_tuned_is_found_by_the_other_commands(tuned: Tuned) -> None:
    best = json.loads(whet("best", "blur", "--store", tuned.store, "--json").stdout)
    trials = json.loads(whet("show", "trials", "blur", "--store", tuned.store, "--json").stdout)

    assert best["best"][0]["config"] == {"block": 8}
    assert len(trials["workloads"][0]["trials"]) == 4


@pytest.mark.whole
def test_a_second_tuning_finds_its_answer_in_the_store(tuned: Tuned) -> None:
    done = whet("tune", "work.py:blur", "--store", tuned.store)

    assert done.returncode == 0
    assert "answered from the store" in done.stdout
    assert "answered from the store" in done.stderr


@pytest.mark.slow
def test_json_is_exactly_one_object_with_what_programs_need() -> None:
    done = whet("tune", "work.py:blur", "--json", "--store", "s.db")
    result = json.loads(done.stdout)

    assert done.returncode == 0
    assert result["workload"]["kernel"] == "blur"
    assert result["best"]["config"] == {"block": 8}
    assert 0 < result["best"]["median_ns"] < result["first"]["median_ns"]
    assert result["first"]["config"] == {"block": 1}
    assert result["trials"] == sum(result["statuses"].values()) == 4
    assert sum(result["cost"].values()) == pytest.approx(result["wall_s"], rel=0.05)
    assert result["outcome"] == "finished"


@pytest.mark.medium
def test_a_function_that_returns_a_tunable_can_be_named(here: Whet) -> None:
    done = here("tune", "work.py:build", "--json", "-q", "--store", ":memory:")

    assert json.loads(done.stdout)["workload"]["kernel"] == "made"


@pytest.mark.medium
def test_flags_reach_the_engine(here: Whet) -> None:
    flags = ("--budget", "2trials", "--seed", "3", "--jobs", "1", "--search", "random")
    done = here("tune", "work.py:blur", "--json", "-q", "--store", ":memory:", *flags)
    result = json.loads(done.stdout)

    assert result["trials"] == 2
    assert result["seed"] == 3
    assert result["search"] == "random"
    assert result["budget"] == {"seconds": None, "trials": 2}


def test_an_unknown_strategy_is_a_mistake_with_what_would_be_valid(here: Whet) -> None:
    done = here("tune", "work.py:blur", "--search", "gird", "--store", "s.db")

    assert done.returncode == 2
    assert not Path("s.db").exists()
    assert "grid" in done.stderr.splitlines()[-1]


@pytest.mark.medium
def test_quiet_leaves_stderr_to_the_file(here: Whet) -> None:
    done = here("tune", "work.py:blur", "-q", "--store", ":memory:")

    assert done.stderr == "a print of the file's own\n"


def test_a_c_kernel_is_tuned_and_its_failures_are_summed_up(tuned: Tuned) -> None:
    done = tuned.scale

    assert done.returncode == 0, done.stderr
    assert "best     TIMES=1" in done.stdout
    assert re.search(r"2× build_error .*TIMES is too much", done.stdout)
    assert re.search(r"1× wrong_result ", done.stdout)
    assert widest(done.stdout + done.stderr) <= 80


@pytest.mark.medium
def test_failures_are_listed_with_the_first_line_of_their_error(tuned: Tuned) -> None:
    done = whet("show", "trials", "scale", "--status", "build_error", "--store", tuned.store)

    assert re.search(r"build_error +TIMES=10 .*TIMES is too much", done.stdout)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "message"), [("fails", "no config of 'fail' works"), ("empty", "has no valid config")]
)
def test_a_space_where_nothing_works_is_one_line_and_code_1(
    here: Whet, name: str, message: str
) -> None:
    done = here("tune", f"failing.py:{name}", "-q", "--store", "s.db")

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("whet: ")
    assert message in done.stderr


@pytest.mark.parametrize("target", ["work.py:blurr", "wrk.py:blur", "work.py:"])
def test_a_misspelt_target_is_code_2_and_makes_no_store(here: Whet, target: str) -> None:
    done = here("tune", target, "--store", "s.db")

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("whet: ")
    assert "Traceback" not in done.stderr
    assert not Path("s.db").exists()


def test_what_is_not_a_store_is_not_overwritten(here: Whet) -> None:
    Path("notes.txt").write_text("dear diary\n" * 100)
    done = here("tune", "work.py:blur", "-q", "--store", "notes.txt")

    assert done.returncode == 1
    assert "notes.txt" in done.stderr.splitlines()[-1]
    assert Path("notes.txt").read_text() == "dear diary\n" * 100


def interrupted(*arguments: str) -> tuple[int, str, str]:
    """Runs whet and sends Ctrl-C as soon as there is a best so far."""
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if "best " in line:
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate(timeout=60)
    return process.returncode, out, "".join(seen) + err


@pytest.mark.medium
def test_ctrl_c_prints_the_best_so_far_and_keeps_every_trial() -> None:
    code, out, err = interrupted("tune", "slow.py", "--store", "s.db")

    assert code == 130
    assert "interrupted: this is the best so far" in out
    assert "ms=40" in out
    assert "Traceback" not in out + err
    with open_store("s.db", read_only=True) as store:
        [known] = store.workloads()
        assert known.configs >= 1


@pytest.mark.medium
def test_ctrl_c_gives_json_that_says_so() -> None:
    code, out, _ = interrupted("tune", "slow.py", "--store", "s.db", "--json")
    result = json.loads(out)

    assert code == 130
    assert result["outcome"] == "interrupted"
    assert result["best"]["median_ns"] > 0


def on_a_terminal(*arguments: str, **environ: str) -> tuple[int, str, str]:
    """Exit code, stdout, and what a terminal on stderr was sent."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", *arguments],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", **environ},
        text=True,
    )
    os.close(theirs)
    sent = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                sent += os.read(ours, 65536)
            except OSError:  # the other end is closed: it has ended
                break
    out, _ = process.communicate(timeout=10)
    os.close(ours)
    return process.returncode, out, sent.decode()


COLOURS = re.compile(r"\x1b\[[0-9;]*(?:3[0-7]|9[0-7])m")


@pytest.mark.slow
def test_on_a_terminal_the_display_is_redrawn_in_place_and_cleared() -> None:
    code, out, sent = on_a_terminal("tune", "work.py:blur", "--store", ":memory:", NO_COLOR="")

    assert code == 0
    assert "blur() on" in sent
    assert "\x1b[1A" in sent
    assert COLOURS.search(sent)
    assert sent.rstrip("\r\n").endswith("\x1b[2K")
    assert sent.rindex("\x1b[?25h") > sent.rindex("\x1b[?25l")
    assert "block=8" in out
    assert "\x1b" not in out


@pytest.mark.slow
def test_no_color_leaves_the_display_without_colours() -> None:
    _, _, plain = on_a_terminal("tune", "work.py:blur", "--store", ":memory:", NO_COLOR="1")

    assert "\x1b[1A" in plain
    assert not COLOURS.search(plain)


@pytest.mark.slow
def test_a_dumb_terminal_gets_plain_lines() -> None:
    _, _, sent = on_a_terminal("tune", "work.py:blur", "--store", ":memory:", TERM="dumb")

    assert "\x1b" not in sent
    assert "tuning blur" in sent


@pytest.mark.slow
def test_ctrl_c_on_a_terminal_leaves_the_cursor_visible() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", "tune", "slow.py", "--store", ":memory:"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    sent = b""
    asked = False
    while True:
        try:
            sent += os.read(ours, 65536)
        except OSError:
            break
        if not asked and b"ms=" in sent:
            process.send_signal(signal.SIGINT)
            asked = True
    process.communicate(timeout=30)
    os.close(ours)

    assert process.returncode == 130
    assert b"Traceback" not in sent
    assert sent.rindex(b"\x1b[?25h") > sent.rindex(b"\x1b[?25l")


DEMO = ("demo", "--cpu", "--n", "64", "--budget", "2trials")


@pytest.mark.whole
def test_the_demo_tells_the_whole_story_on_a_page() -> None:
    done = whet(*DEMO, "--store", "s.db")

    assert done.returncode == 0, done.stderr
    for part in ("space", "GFLOP/s", "% of NumPy", "check    passed", "time ", "whet best matmul"):
        assert part in done.stdout
    assert widest(done.stdout + done.stderr) <= 80
    (look,) = (line for line in done.stdout.splitlines() if "in the browser" in line)
    assert ("explore --store" in look) == bool(find_spec("starlette"))
    if "explore --out demo.html" in look:
        assert whet("explore", "--out", "demo.html", "--store", "s.db").returncode == 0


@pytest.mark.slow
def test_the_demo_as_json_adds_its_own_numbers(here: Whet) -> None:
    result: dict[str, Any] = json.loads(here(*DEMO, "--store", ":memory:", "--json", "-q").stdout)

    assert result["best"]["median_ns"] > 0
    assert result["demo"]["n"] == 64
    assert result["demo"]["numpy_gflops"] > 0
    assert result["demo"]["percent_of_numpy"] > 0
