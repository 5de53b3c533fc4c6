"""Kernels as inference servers write them: recorded in one process and ready in another."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jit_parts import FRESH, Run, output_in

from fork_server import ForkServer

pytest.importorskip("triton")

import triton

from whet.targets.triton.jit.records import Records

pytestmark = pytest.mark.medium

KERNELS = """
from enum import IntEnum
import triton
import triton.language as tl

class Quant(IntEnum):
    NONE = 0
    FP8 = 1

@triton.jit
def attend(out, rows: tl.int32, stride: tl.int64, QUANT: tl.constexpr, TYPE: tl.constexpr):
    value = rows.to(TYPE)
    if QUANT == 1:
        value += 1
    tl.store(out + stride, value)

@triton.jit
def shrink(out, n, launch_pdl: tl.constexpr, num_stages: tl.constexpr = 1):
    if launch_pdl:
        tl.extra.cuda.gdc_wait()
    tl.store(out, n + num_stages)

@triton.jit
def spread(out, *parts, BLOCK: tl.constexpr):
    tl.store(out, parts[0] + parts[1] + BLOCK)
"""

PROGRAM = """
import json, multiprocessing, os, sys
import whet
import triton
import triton.language as tl
from whet.testing.fake_triton import FakeTensor, fake_driver
import kernels

compiled = []
triton.knobs.compilation.listener = lambda *, src, cache_hit, **_: compiled.append(
    [src.name, cache_hit]
)
x = FakeTensor([0.0], "float32", 4096)

def attend(rows, stride=1, quant="NONE"):
    kernels.attend[(1,)](x, rows, stride, QUANT=kernels.Quant[quant], TYPE=tl.float32)

def by_place(n):
    kernels.shrink[(1,)](x, n, True)

def by_name(n):
    kernels.shrink[(1,)](x, n, launch_pdl=True, num_stages=2)

def spread(n):
    kernels.spread[(1,)](x, n, 1, BLOCK=8)

def async_(n):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool, triton.AsyncCompileMode(pool):
        kernels.shrink.warmup(x, n, False, grid=(1,))

def forked(name, *values):
    process = multiprocessing.get_context("fork").Process(target=globals()[name], args=values)
    process.start()
    process.join()

def killed(name, *values):
    globals()[name](*values)
    os._exit(0)

def preload(path):
    found = whet.preload(path)
    return [found.ready, [one.why for one in found.uncovered]]

def sealed():
    whet.sealed(action="error")

with fake_driver():
    for text in sys.argv[1:]:
        name, *values = json.loads(text)
        answer = error = None
        try:
            answer = globals()[name](*values)
        except whet.UnforeseenCompileError as problem:
            error = str(problem)
        print(json.dumps({"answer": answer, "error": error, "compiled": compiled}), flush=True)
        compiled.clear()
"""


@dataclass(frozen=True)
class Server:
    """A folder with the kernels in it; every process has a Triton cache of its own."""

    folder: Path
    start: Run

    def run(self, *steps: list[Any], **variables: str) -> list[dict[str, Any]]:
        command = ["-c", PROGRAM, *(json.dumps(step) for step in steps)]
        printed = output_in(self.folder, command, variables, self.start)
        return [json.loads(line) for line in printed.splitlines()]

    def record(self, *steps: list[Any]) -> list[Any]:
        self.run(*steps, WHET_JIT="record")
        return Records(self.folder / "store.db.jit").all()

    def pack(self, *options: str) -> str:
        return self.whet("pack", "serve.whet", "--jit", *options)

    def whet(self, *arguments: str) -> str:
        return output_in(self.folder, ["-m", "whet", *arguments], {}, self.start)


@pytest.fixture
def server(tmp_path: Path, fork_server: ForkServer) -> Server:
    (tmp_path / "kernels.py").write_text(KERNELS)
    return Server(tmp_path, fork_server.run)


@pytest.fixture
def fresh_server(tmp_path: Path) -> Server:
    """Its programs begin without Triton, as a user's do."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    return Server(tmp_path, FRESH)


@pytest.mark.slow
def test_members_of_an_enum_and_integers_of_declared_types_are_preloaded(server: Server) -> None:
    [one] = server.record(["attend", 7])
    rows, stride = one.arguments[1:3]
    assert (rows.property_text, rows.hint) == ("i32, not divisible by 16", "i32")
    assert (stride.property_text, stride.hint) == ("i64, == 1", "i64:1")
    server.pack()
    loaded, _, called = server.run(["preload", "serve.whet"], ["sealed"], ["attend", 9])
    assert loaded["answer"] == [1, []]
    assert loaded["compiled"] == [["attend", True]]
    assert called["error"] is None
    assert called["compiled"] == []


@pytest.mark.slow
def test_a_declared_integer_that_is_one_is_reachable(server: Server) -> None:
    server.record(["attend", 7])
    server.pack("--reachable")
    loaded, _, *called = server.run(
        ["preload", "serve.whet"], ["sealed"], ["attend", 1], ["attend", 32], ["attend", 7, 24]
    )
    assert loaded["answer"][1] == []
    assert [one["error"] for one in called] == [None] * 3
    assert [one["compiled"] for one in called] == [[]] * 3


@pytest.mark.slow
def test_what_is_missing_is_added_by_the_line_in_the_message(server: Server) -> None:
    server.record(["attend", 7], ["attend", 7, 32])
    server.pack()
    *_, called = server.run(["preload", "serve.whet"], ["sealed"], ["attend", 1, 1, "FP8"])
    first, *lines = called["error"].splitlines()
    assert first.startswith("kernel kernels:attend ")
    assert [line.strip() for line in lines[:2]] == [
        "argument rows: i32, not divisible by 16 (7) → i32, == 1",
        "constant QUANT: == Quant.NONE → == Quant.FP8",
    ]
    assert lines[-1].strip().startswith("called at ")
    [command] = [line.partition("to add it: whet ")[2] for line in lines if "to add" in line]
    assert "--like" in command  # the latest one that was recorded has another stride
    server.whet(*command.split())
    server.pack()
    *_, called = server.run(["preload", "serve.whet"], ["sealed"], ["attend", 1, 1, "FP8"])
    assert (called["error"], called["compiled"]) == (None, [])


@pytest.mark.slow
@pytest.mark.parametrize("call", ["by_place", "by_name"])
def test_an_argument_that_is_named_like_an_option_is_passed_as_it_was(
    server: Server, call: str
) -> None:
    server.record([call, 7])
    server.pack("--reachable", "--most", "1")
    loaded, _, called, one = server.run(["preload", "serve.whet"], ["sealed"], [call, 9], [call, 1])
    assert loaded["answer"] == [2, []]
    assert (called["error"], called["compiled"]) == (None, [])
    assert (one["error"], one["compiled"]) == (None, [])


@pytest.mark.slow
@pytest.mark.skipif(
    "VAR_POSITIONAL" not in inspect.getsource(triton.runtime.jit),
    reason="kernels of this Triton take no *arguments",
)
def test_any_number_of_arguments_are_preloaded(fresh_server: Server) -> None:
    server = fresh_server
    server.record(["spread", 7])
    server.pack()
    loaded, _, called = server.run(["preload", "serve.whet"], ["sealed"], ["spread", 9])
    assert loaded["answer"] == [1, []]
    assert (called["error"], called["compiled"]) == (None, [])


def test_what_a_forked_engine_compiles_is_recorded(server: Server) -> None:
    found = server.record(["forked", "attend", 7], ["forked", "by_place", 7])
    assert [(one.name, bool(one.binary)) for one in found] == [("attend", True), ("shrink", True)]


def test_what_threads_have_compiled_is_recorded_though_the_program_is_killed(
    server: Server,
) -> None:
    [one] = server.record(["killed", "async_", 7])
    assert one.binary
    assert not one.why
