"""Command lines, in this process and in a folder of their own: exit codes 0, 1 and 2 only."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from unittest import mock

from fuzzing import stores, tables
from fuzzing.target import Target, WrongAnswerError, folder
from whet.cli import app, main
from whet.core.config import Config
from whet.core.status import Status
from whet.store import SqliteStore
from whet.testing.samples import a_run, a_trial, a_workload

_SERVED = "E=8,N=4096,device_name=NVIDIA_H200.json"
_FILES = ("results.db", "other.db", "b.whet", "table.whet.json", _SERVED, "x.json", "no.py")
_COMMANDS = (
    "best", "show", "trials", "cost", "space", "diff", "verify", "tune", "lab", "record",
    "precompile", "replay", "pareto", "searches", "pack", "unpack", "import", "export", "store",
    "settings", "run", "stats", "init", "key", "gc", "merge", "vllm-moe", "vllm-fp8",
    "sglang-moe", "triton", "python", "demo",
)  # fmt: skip
_OPTIONS = (
    "--all", "--all-workloads", "--arch", "--best-only", "--binaries", "--block-shape", "--budget",
    "--configs", "--cpu", "--device", "--down", "--dry-run", "--dtype", "--e-key", "--evals",
    "--exit-code", "--extra", "--fail-over", "--flops", "--force", "--function", "--help", "--jobs",
    "--json", "--k-key", "--kernel", "--key", "--keys", "--l2", "--l2-bytes", "--limit", "--list",
    "--m-key", "--max-configs", "--max-leaves", "--max-size", "--missed", "--n", "--n-key",
    "--names", "--older-than", "--other-toolchains", "--out", "--param", "--per-channel-quant",
    "--quiet", "--record", "--repeats", "--run", "--runs", "--samples", "--search", "--seed",
    "--status", "--store", "--style", "--superseded", "--timeline", "--toolchain", "--top",
    "--transfer", "--triton", "--version", "--where", "--workload", "--workloads", "--bundle",
    "-h", "-q", "--",
)  # fmt: skip
_VALUES = (
    *_FILES, "matmul", "steer", "softmax", "M=64", "M=64,N=32", "M", "0", "1", "-1", "3", "1e9",
    "nan", "30s", "2trials", "30d", "1G", "random", "auto", "grid", "ok", "build_error", "cold",
    "table", "tree", "vllm-moe", "triton", "python", "kernel-tuner", "sm_90",
    "sqlite:///results.db", ":memory:", "", ".", "no.py:blur", "table.whet.json:x", "=",
    "a=b=c", "[128,128]", "cc=gcc 12.2.0", "3.5.1", "f32",
)  # fmt: skip
_LINES = (
    "best matmul", "best steer", "show trials steer", "show cost steer",
    "best matmul --where M=64 --json", "show trials matmul --status ok --json",
    "show trials softmax --limit 3", "show cost matmul --json", "store diff results.db other.db",
    "settings --json", "settings --check", "show steer", "store stats", "store stats --check",
    "store stats --list", "store stats --list --json --store other.db",
    "store gc --dry-run --older-than 30d", "store gc --superseded --max-size 1G",
    "store merge other.db", "pack out.whet --best-only", "store merge b.whet", "unpack b.whet",
    f"import vllm-moe {_SERVED}", "import table table.whet.json",
    "export vllm-moe matmul --out served", "export python matmul --out chosen.py --style table",
    "tune no.py:blur --budget 2trials", "verify matmul", "lab replay nothing --search random",
    "lab pareto nothing", "lab searches nothing", "run no.py", "precompile no.py:k --arch sm_90",
)  # fmt: skip
# These work for minutes, or run what they are given; from here they may only refuse.
_TOO_LONG = ("demo", "lab", "record", "run", "precompile")


@cache
def _pristine() -> Path:
    place = folder() / "pristine"
    place.mkdir()
    (place / "results.db").write_bytes(stores.sqlite_file())
    with SqliteStore(place / "results.db") as store:
        _add_hostile_words(store)
    (place / "other.db").write_bytes(stores.sqlite_file())
    (place / "b.whet").write_bytes(stores.bundle_bytes())
    (place / "table.whet.json").write_bytes(tables.own_seeds()[1])
    (place / _SERVED).write_text(json.dumps(tables.SERVING))
    (place / "x.json").write_text("[1")
    return place


def _add_hostile_words(store: SqliteStore) -> None:
    """Names and messages that would steer a terminal, as a merged bundle may bring them."""
    workload = a_workload(kernel="steer", key={"dtype": "\x1b[31mred"}, toolchain={"cc": "\x1b[0m"})
    store.put_workload(workload)
    failed = a_trial(workload, {"BM": "\x1b[2J"}, status=Status.RUN_ERROR, error="\x1b]0;title\x07")
    store.append([failed, a_trial(workload, {"BM": "\x1b[1m"}, 20.0)])
    store.save_run(a_run(workload, {"BM": "\x1b[1m"}, first=Config(BM="\x1b[1m")))


@contextmanager
def _in_a_folder() -> Iterator[None]:
    before, environ, modules = Path.cwd(), dict(os.environ), {*sys.modules}
    place = folder() / "work"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(_pristine(), place)
    home = str(folder() / "home")
    os.chdir(place)
    os.environ.update(HOME=home, XDG_DATA_HOME=home, XDG_CONFIG_HOME=home, XDG_CACHE_HOME=home)
    os.environ.update(WHET_STORE="results.db", COLUMNS="80")
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environ)
        for name in sys.modules.keys() - modules:  # files that a command was given are modules now
            if str(place) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


_commands = cache(app.root)


def _is_safe(arguments: list[str]) -> bool:
    """Nothing outside the folder, and nothing that would take long."""
    known = {*_VALUES, *_COMMANDS}
    strange = [one for one in arguments if one not in known]
    if any("/" in one or ".." in one or "~" in one for one in strange):
        return False
    there = any(name in one for one in arguments for name in (".whet", ".db", ".json"))
    heavy = any(one in _TOO_LONG for one in arguments)
    return "demo" not in arguments and not (heavy and there)


def _command_line(data: bytes) -> None:
    arguments = [part.decode(errors="surrogateescape") for part in data.split(b"\0")]
    if not _is_safe(arguments):
        return
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    # Making the commands takes ten times as long as reading a line with them.
    made_once = mock.patch.object(app, "root", _commands)
    with _in_a_folder(), made_once, redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    said = err.buffer.getvalue().decode()
    text = out.buffer.getvalue().decode()
    if code not in (0, 1, 2) or "Traceback" in said:
        raise WrongAnswerError(f"exit code {code}: {said[-600:]}")
    if code == 0 and "--json" in arguments and text.startswith(("{", "[")):
        json.loads(text)
    if "\x1b" in said or ("\x1b" in text and b"\x1b" not in data):
        raise WrongAnswerError("control characters reach the terminal")


TARGETS = (
    Target(
        "command-line", _command_line,
        lambda: [line.replace(" ", "\0").encode() for line in _LINES],
        (), ("cli/",), "words", (*_COMMANDS, *_OPTIONS, *_VALUES), 15_000,
        ("os.system", "os.fork", "os.posix_spawn", "socket.connect"),
    ),
)  # fmt: skip
