"""What one process records and packs, another one runs without a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jit_parts import FRESH, Run, output_in

from fork_server import ForkServer
from whet.store import MemoryStore
from whet.store.bundles.writing import write_bundle

pytest.importorskip("triton")

from whet.core.errors import BundleError
from whet.targets.triton.jit.preloading import take
from whet.targets.triton.jit.records import Records

pytestmark = pytest.mark.medium

KERNELS = """
import triton
import triton.language as tl

FACTOR = tl.constexpr(3)

@triton.jit
def by(value, factor: tl.constexpr):
    return value * factor

@triton.jit
def scale(x, y, n, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, by(tl.load(x + at * stride, mask=at < n), FACTOR), mask=at < n)

def made(offset):
    @triton.jit
    def shift(x, n):
        tl.store(x, n + offset)
    return shift
"""

LATER = """
import triton
import triton.language as tl

@triton.jit
def late(x, n):
    tl.store(x, n)
"""

# Each step is one line of JSON in the arguments; what happened in it is one line of the answer.
PROGRAM = """
import importlib, json, sys, threading, warnings
import whet
import triton
from whet.testing.fake_triton import FakeTensor, fake_driver

compiled, built, seals = [], [], []

LAUNCHER = '''
#include <Python.h>
/* %s */
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "launcher", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_launcher(void) { return PyModule_Create(&module); }
'''

class CompiledLauncher:
    # As in Triton 3.6: one library for each signature.

    def __init__(self, source, metadata):
        from triton.runtime import build

        text = LAUNCHER % list(source.signature.values())
        build.compile_module_from_src(src=text, name="launcher")

    def __call__(self, *args):
        pass

def note_process(event, args):
    if event == "subprocess.Popen" and str(args[0]).rpartition("/")[2] == "gcc":
        built.append("gcc")

sys.addaudithook(note_process)

def listener(*, src, cache_hit, **_):
    compiled.append([src.name, cache_hit])

def call(n, stride=1, kernel="scale", align=0, thread=""):
    import kernels

    x, y = (FakeTensor([0.0], "float16", place + align) for place in (4096, 8192))
    if kernel == "scale":
        act = lambda: kernels.scale[(1,)](x, y, n, stride, BLOCK=64, num_warps=2)
    elif kernel == "late":
        act = lambda: importlib.import_module("later").late[(1,)](x, n)
    else:
        act = lambda: kernels.made(tl.constexpr(stride))[(1,)](x, n)
    if not thread:
        return act()
    worker = threading.Thread(target=act, name=thread)
    worker.start()
    worker.join()

def step(name, value):
    if name == "import":
        importlib.import_module(value)
    elif name == "preload":
        found = whet.preload(value, devices=[0, 1] if "two" in value else None)
        return {
            "ready": found.ready,
            "waiting": found.waiting,
            "uncovered": [[one.kernel, one.why] for one in found.uncovered],
        }
    elif name == "sealed":
        seals.append(whet.sealed(**value))
    elif name == "set":
        import kernels
        setattr(kernels, "FACTOR", tl.constexpr(value))
    elif name == "compile":
        import kernels
        signature = {"x": "*fp16", "n": "i32"}
        source = triton.compiler.ASTSource(kernels.made(tl.constexpr(value)), signature)
        triton.compile(source, target=triton.backends.compiler.GPUTarget("cuda", 90, 32))
    elif name == "threads":
        import kernels
        from concurrent.futures import ThreadPoolExecutor
        x, y = FakeTensor([0.0], "float16", 4096), FakeTensor([0.0], "float16", 8192)
        with ThreadPoolExecutor(2) as pool, triton.AsyncCompileMode(pool):
            for block in value:
                kernels.scale.warmup(x, y, 8, 1, BLOCK=block, grid=(1,))
    elif name == "launchers":
        driver.launcher_cls = CompiledLauncher
    elif name == "device":
        driver.device = value
    else:
        call(**value)

triton.knobs.compilation.listener = listener
tl = triton.language
with fake_driver() as driver:
    for text in sys.argv[1:]:
        name, value = json.loads(text)
        answer = error = None
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                answer = step(name, value)
            except Exception as problem:
                error = f"{type(problem).__name__}: {problem}"
        print(json.dumps({
            "answer": answer,
            "error": error,
            "compiled": compiled[:],
            "built": len(built),
            "launches": len(driver.launches),
            "said": [str(one.message) for one in said if "whet" in str(one.message)],
        }))
        compiled.clear()
        built.clear()
        driver.launches.clear()
"""


@dataclass(frozen=True)
class Place:
    """A folder with the program in it; every process has a Triton cache of its own."""

    folder: Path
    start: Run = FRESH

    def run(self, *steps: Sequence[Any], **variables: str) -> list[dict[str, Any]]:
        command = ["-c", PROGRAM, *(json.dumps(step) for step in steps)]
        printed = output_in(self.folder, command, variables, self.start)
        return [json.loads(line) for line in printed.splitlines()]

    def whet(self, *arguments: str) -> str:
        return output_in(self.folder, ["-m", "whet", *arguments], {}, self.start)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Place:
    """Recorded with a batch of 8, and packed: as it was met, and with what is reachable."""
    folder = tmp_path_factory.mktemp("serving")
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "later.py").write_text(LATER)
    found = Place(folder, fork_server.run)
    done = found.run(
        ["call", {"n": 8}],
        ["call", {"n": 24, "kernel": "late"}],
        ["call", {"n": 8, "kernel": "made", "stride": 5}],
        WHET_JIT="record",
    )
    assert [one["error"] for one in done] == [None] * 3
    found.whet("pack", "met.whet", "--jit")
    shutil.copy(folder / "met.whet", folder / "two.whet")
    found.whet("pack", "more.whet", "--jit", "--reachable")
    return found


@pytest.mark.slow
def test_a_specialization_is_recorded_with_who_called(place: Place) -> None:
    found = {one.name: one for one in Records(place.folder / "store.db.jit").all()}
    assert set(found) == {"scale", "late", "shift"}
    scale = found["scale"]
    assert scale.kernel == "kernels:scale"
    assert [one.property_text for one in scale.arguments] == [
        "*fp16, aligned to 16",
        "*fp16, aligned to 16",
        "i32, not divisible by 16",
        "== 1",
        "== 64",
    ]
    assert dict(scale.options)["num_warps"] == 2
    assert scale.target == ("cuda", 90, 32)
    assert [one.value for one in scale.arguments if one.name == "n"] == [8]
    assert scale.met.caller.endswith("in <lambda>")
    assert not scale.met.tuning
    assert scale.binary


def test_a_preloaded_kernel_is_called_without_a_compiler(place: Place) -> None:
    loaded, sealed, called, again = place.run(
        ["preload", "met.whet"],
        ["sealed", {"action": "error"}],
        ["call", {"n": 9}],
        ["call", {"n": 10}],
    )
    assert loaded["answer"]["waiting"] == [
        "kernels:made.<locals>.shift",
        "kernels:scale",
        "later:late",
    ]
    assert sealed["compiled"] == []
    assert called["error"] is None
    assert not any(not hit for _, hit in called["compiled"])
    assert again["compiled"] == []


def test_preloading_neither_launches_nor_compiles(place: Place) -> None:
    _, loaded, called = place.run(
        ["import", "kernels"], ["preload", "met.whet"], ["call", {"n": 9}]
    )
    assert loaded["answer"]["ready"] == 1
    assert loaded["compiled"] == [["scale", True]]
    assert loaded["launches"] == 0
    assert called["compiled"] == []
    assert called["launches"] == 1


def test_every_device_that_was_asked_for_is_ready(place: Place) -> None:
    *_, called = place.run(
        ["import", "kernels"], ["preload", "two.whet"], ["device", 1], ["call", {"n": 9}]
    )
    assert called["error"] is None
    assert called["compiled"] == []


def test_triton_still_sees_that_a_global_has_changed(place: Place) -> None:
    *_, called = place.run(
        ["import", "kernels"], ["preload", "met.whet"], ["set", 4], ["call", {"n": 9}]
    )
    assert "FACTOR has changed" in called["error"]


def test_another_source_is_not_covered_and_named(place: Place, tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS.replace("stride, mask", "stride + 1, mask"))
    shutil.copy(place.folder / "met.whet", tmp_path / "met.whet")
    _, loaded = Place(tmp_path, place.start).run(["import", "kernels"], ["preload", "met.whet"])
    [[kernel, why]] = loaded["answer"]["uncovered"]
    assert kernel == "kernels:scale"
    assert "was packed" in why
    assert loaded["compiled"] == []


def test_a_module_that_is_imported_later_is_ready_once_it_is_sealed(place: Place) -> None:
    _, loaded, _, sealed, called = place.run(
        ["import", "kernels"],
        ["preload", "met.whet"],
        ["import", "later"],
        ["sealed", {"action": "error"}],
        ["call", {"n": 24, "kernel": "late"}],
    )
    assert "later:late" in loaded["answer"]["waiting"]
    assert sealed["compiled"] == [["late", True]]
    assert called["error"] is None
    assert called["compiled"] == []


def test_a_kernel_that_is_made_later_is_served_when_it_is_called(place: Place) -> None:
    _, loaded, _, same, other = place.run(
        ["call", {"n": 8, "kernel": "made", "stride": 7}],
        ["preload", "met.whet"],
        ["sealed", {"action": "error"}],
        ["call", {"n": 8, "kernel": "made", "stride": 5}],
        ["call", {"n": 8, "kernel": "made", "stride": 6}],
    )
    assert "kernels:made.<locals>.shift" in loaded["answer"]["waiting"]
    assert loaded["answer"]["uncovered"] == []
    assert same["error"] is None
    assert same["compiled"] == [["shift", True]]
    assert "UnforeseenCompileError" in other["error"]


def test_a_batch_of_one_is_named_with_its_argument_and_the_line_that_adds_it(place: Place) -> None:
    *_, called = place.run(
        ["import", "kernels"],
        ["preload", "met.whet"],
        ["sealed", {}],
        ["call", {"n": 1}],
        WHET_JIT="error",
    )
    assert called["launches"] == 0
    assert called["compiled"] == []
    assert [line.strip() for line in called["error"].splitlines()][:3] == [
        "UnforeseenCompileError: kernel kernels:scale is compiled while serving:",
        "argument n: i32, not divisible by 16 (8) → == 1",
        "to add it: whet jit kernels:scale --add n=1",
    ]
    assert "\n  called at " in called["error"]


def test_reachable_variants_make_it_pass(place: Place) -> None:
    *_, one, round_, wide = place.run(
        ["import", "kernels"],
        ["preload", "more.whet"],
        ["sealed", {"action": "error"}],
        ["call", {"n": 1}],
        ["call", {"n": 64}],
        ["call", {"n": 2**40 + 1}],
    )
    assert [called["error"] for called in (one, round_, wide)] == [None] * 3
    assert [called["compiled"] for called in (one, round_, wide)] == [[]] * 3


def test_a_warning_is_given_once(place: Place) -> None:
    *_, first, second, same = place.run(
        ["import", "kernels"],
        ["preload", "met.whet"],
        ["sealed", {}],
        ["call", {"n": 1}],
        ["call", {"n": 32}],
        ["call", {"n": 1}],
        WHET_JIT="warn",
    )
    assert ["not divisible by 16 (8) → == 1" in text for text in first["said"]] == [True]
    assert ["→ i32, divisible by 16 (32)" in text for text in second["said"]] == [True]
    assert same["said"] == []
    assert first["launches"] == same["launches"] == 1


def test_threads_are_exempted_by_name(place: Place) -> None:
    *_, exempt, served = place.run(
        ["import", "kernels"],
        ["sealed", {"action": "error", "exempt": ["warmup-*"]}],
        ["call", {"n": 8, "thread": "warmup-1"}],
        ["call", {"n": 1}],
    )
    assert exempt["compiled"] == [["scale", False]]
    assert "UnforeseenCompileError" in served["error"]


def test_what_is_compiled_on_threads_is_recorded_with_its_binary(
    place: Place, tmp_path: Path
) -> None:
    [done] = place.run(
        ["threads", [32, 128]], WHET_JIT="record", WHET_STORE=str(tmp_path / "threads.db")
    )
    assert done["error"] is None
    found = Records(tmp_path / "threads.db.jit").all()
    assert [one.kernel for one in found] == ["kernels:scale"] * 2
    assert all(one.binary and not one.why for one in found)


def test_a_compile_without_a_call_is_reported_and_recorded_by_name(
    place: Place, tmp_path: Path
) -> None:
    before, _, after = place.run(
        ["compile", 1],
        ["sealed", {"action": "error"}],
        ["compile", 2],
        WHET_JIT="record",
        WHET_STORE=str(tmp_path / "other.db"),
    )
    assert before["error"] is None
    assert "kernel shift " in after["error"]
    assert "triton.jit" in after["error"]
    [one] = Records(tmp_path / "other.db.jit").all()
    assert one.kernel == "kernels:made.<locals>.shift"
    assert "torch.compile" in one.why


def test_a_variable_preloads_a_program_that_does_not_ask(place: Place) -> None:
    called, again = place.run(
        ["call", {"n": 9}],
        ["call", {"n": 10}],
        WHET_PRELOAD=str(place.folder / "met.whet"),
    )
    assert called["error"] is None
    assert [hit for _, hit in called["compiled"]] == [True] * len(called["compiled"])
    assert again["compiled"] == []


def test_one_kernel_is_packed_by_name(place: Place) -> None:
    said = place.whet("pack", "one.whet", "--jit", "--kernel", "scale")
    assert said.startswith("one.whet: 1 compiled kernel, 1 specialization (")
    listed = json.loads(place.whet("jit", "--bundle", "one.whet", "--json"))
    assert [one["kernel"] for one in listed["specializations"]] == ["kernels:scale"]


def test_a_line_that_describes_nothing_is_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path / "odd.whet", MemoryStore(), jit=['{"v": 1, "kernel": "x"}'])
    with pytest.raises(BundleError, match="line 1 of its specializations"):
        take(tmp_path / "odd.whet")


LIBRARY = """
import sys
from triton.runtime import build
from whet.targets.triton.jit.records import place_library, watch_libraries
from whet.targets.triton.jit.records import Records

source = '''
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "launcher", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_launcher(void) { return PyModule_Create(&module); }
'''
records = Records(sys.argv[2])
if sys.argv[1] == "record":
    watch_libraries(records)
else:
    for key in records.binaries.keys():
        assert place_library(records.binaries.get(key))
build.compile_module_from_src(src=source, name="launcher")
"""


needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None
    or not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists(),
    reason="needs gcc and Python's headers",
)


@pytest.mark.slow
@needs_gcc
def test_a_launcher_is_used_where_it_was_packed_and_never_built_while_preloading(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    forked, place = Place(tmp_path, fork_server.run), Place(tmp_path)
    _, recorded = forked.run(["launchers", 0], ["call", {"n": 8}], WHET_JIT="record")
    assert recorded["built"] == 1
    forked.whet("pack", "more.whet", "--jit", "--reachable", "--most", "1")
    _, _, loaded, called = place.run(
        ["launchers", 0], ["import", "kernels"], ["preload", "more.whet"], ["call", {"n": 9}]
    )
    assert loaded["answer"]["ready"] == 1
    assert loaded["built"] == called["built"] == 0
    [[kernel, why]] = loaded["answer"]["uncovered"]
    assert kernel == "kernels:scale"
    assert why.startswith("Triton's launcher for it was not packed")


@pytest.mark.slow
@needs_gcc
def test_a_library_is_built_once_and_then_travels(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\necho >> {tmp_path}/log\nexec gcc "$@"\n')
    compiler.chmod(0o755)
    for act, cache in (("record", "one"), ("use", "two")):
        environment = {
            **os.environ,
            "CC": str(compiler),
            "TRITON_CACHE_DIR": str(tmp_path / cache),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        command = [sys.executable, "-c", LIBRARY, act, str(tmp_path / "jit")]
        subprocess.run(command, env=environment, check=True)
    assert len((tmp_path / "log").read_text().splitlines()) == 1
