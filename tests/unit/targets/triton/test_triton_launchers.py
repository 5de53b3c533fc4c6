"""Launchers that have to be compiled, as in Triton 3.6, are compiled by workers.

The stand-in has 3.6's interface. It uses Triton's own cache and starts a real C compiler, through a
script that writes down who started it.
"""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import os
import shutil
import signal
import sysconfig
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton import knobs
from triton.runtime import build
from triton.runtime.cache import FileCacheManager

import whet
from whet.builds.builder import Builder
from whet.builds.job import Job
from whet.core.status import Status
from whet.targets.triton import device
from whet.targets.triton.compiler import compile as launchers
from whet.targets.triton.compiler.capture import compile_request
from whet.targets.triton.compiler.compile import compile_kernel, launcher_built, launcher_class
from whet.testing.fake_triton import FakeTensor, fake_driver, told

HEADER = Path(sysconfig.get_paths()["include"]) / "Python.h"

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or not HEADER.exists(), reason="needs gcc and Python's headers"
)

SOURCE = """
#include <Python.h>
/* %s */
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "__triton_launcher", NULL, -1, NULL};
PyMODINIT_FUNC PyInit___triton_launcher(void) { return PyModule_Create(&module); }
"""


def make_launcher(constants, signature, described):
    return SOURCE % f"{list(signature.values())} {described or None}"


class CompiledLauncher:
    """`CudaLauncher` of Triton 3.6, as far as a worker sees it."""

    def __init__(self, source, metadata):
        described = getattr(metadata, "tensordesc_meta", None)
        text = make_launcher(source.constants, source.signature, described)
        build.compile_module_from_src(src=text, name="__triton_launcher")
        self.launch_pdl = metadata.launch_pdl

    def __call__(self, *args):
        pass


class Compiler:
    """The C compiler, and who started it."""

    def __init__(self, folder):
        self.log, self.script = folder / "cc.log", folder / "cc"
        self.does('exec gcc "$@"')

    def does(self, what):
        self.script.write_text(f"#!/bin/sh\necho $PPID >> {self.log}\n{what}\n")
        self.script.chmod(0o755)

    @property
    def starts(self):
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []


@pytest.fixture
def compiler(monkeypatch, tmp_path, cold):
    found = Compiler(tmp_path)
    monkeypatch.setenv("CC", str(found.script))
    if hasattr(build, "_find_compiler"):  # from 3.7 on it is remembered
        build._find_compiler.cache_clear()
    return found


@pytest.fixture
def driver():
    with fake_driver() as fake:
        fake.launcher_cls = CompiledLauncher
        yield fake


def double_kernel():
    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    return double


def request(block=128, dtype="float32", **options):
    tensors = FakeTensor([0.0] * 4, dtype), FakeTensor([1.0] * 4, dtype)
    keywords = {"BLOCK": block, "grid": (1,), **options}
    return compile_request(double_kernel(), (*tensors, 4), keywords, device.limits(0))


def built(*requests, jobs=3, at_each=lambda: None):
    results = []
    with Builder(jobs, "fork", limit_s=60) as builder:
        for number, one in enumerate(requests):
            job = Job(compile_kernel, (one, None, launcher_class()))
            builder.submit(whet.Config(number=number), job)
        while builder.pending:
            results += builder.ready()
            at_each()
    return results


def libraries(cold):
    return list(cold.triton.glob("*/__triton_launcher*"))


@pytest.mark.slow
def test_one_worker_compiles_the_launcher_for_all_configs(compiler, driver, cold):
    there = []
    results = built(
        *(request(block) for block in (64, 128, 256, 512)),
        at_each=lambda: there.append(len(libraries(cold))),
    )
    assert [one.status for one in results] == [Status.OK] * 4
    assert len(compiler.starts) == 1
    assert os.getpid() not in compiler.starts
    assert set(there) == {1}, "a kernel was handed out before its launcher was there"


@pytest.mark.medium
def test_the_process_that_launches_finds_it(compiler, driver):
    """The first call of a kernel, from tuning to launching."""
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128, 256)]
    tuner = whet.autotune(configs=configs, key=["n"])(double_kernel())
    tuner.whet_timer = told(lambda config: float(config.kwargs["BLOCK"]))
    tuner[(1,)](FakeTensor([0.0] * 4), FakeTensor([1.0] * 4), 4)
    assert tuner.best_config.kwargs == {"BLOCK": 64}
    assert len(compiler.starts) == 1
    assert os.getpid() not in compiler.starts


@pytest.mark.slow
def test_another_signature_has_another_launcher(compiler, driver, cold):
    built(request(64), request(64, "float16"), request(128, "float16"))
    assert len(compiler.starts) == len(libraries(cold)) == 2


@pytest.mark.medium
def test_a_config_that_is_refused_leaves_the_launcher_for_the_others(compiler, driver, cold):
    (refused,) = built(request(num_warps=64))
    assert refused.status is Status.RESOURCES
    assert len(libraries(cold)) == 1
    (fine,) = built(request())
    assert fine.status is Status.OK
    assert len(compiler.starts) == 1


@pytest.mark.medium
@pytest.mark.parametrize("broken", ["/nonexistent/cc", None])
def test_without_a_c_compiler_the_kernel_is_built_all_the_same(
    broken, compiler, driver, cold, monkeypatch, capfd
):
    if broken is None:
        compiler.does("echo no space >&2; exit 1")
    else:
        monkeypatch.setenv("CC", broken)
    (result,) = built(request())
    assert (result.status, result.error) == (Status.OK, "")
    assert libraries(cold) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.medium
def test_a_worker_that_is_killed_leaves_no_half_launcher_and_locks_nobody_out(
    compiler, driver, cold
):
    compiler.does('kill -9 $PPID; sleep 60; exec gcc "$@"')
    (result,) = built(request())
    assert result.status is Status.BUILD_ERROR
    assert libraries(cold) == []
    compiler.does('exec gcc "$@"')
    (result,) = built(request(256))
    assert result.status is Status.OK
    assert len(libraries(cold)) == 1
    assert list(cold.triton.glob("*.lock")) == []


@pytest.mark.medium
def test_a_compiler_that_hangs_does_not_hold_up_the_kernel(compiler, driver, cold, monkeypatch):
    monkeypatch.setattr(launchers, "_LONGEST_WAIT_S", 0.2)
    compiler.does("sleep 60")
    (result,) = built(request())
    assert result.status is Status.OK
    assert libraries(cold) == []


class OwnManager(FileCacheManager):
    """A user's own cache, elsewhere."""

    def __init__(self, key, **options):
        super().__init__(key, **options)
        self.cache_dir = os.path.join(os.environ["OWN_CACHE"], key)
        os.makedirs(self.cache_dir, exist_ok=True)


@pytest.mark.medium
def test_it_goes_where_a_users_own_cache_manager_puts_it(compiler, driver, monkeypatch, tmp_path):
    monkeypatch.setenv("OWN_CACHE", str(tmp_path / "own"))
    monkeypatch.setattr(knobs.cache, "manager_class", OwnManager)
    built(request(64), request(128))
    assert len(compiler.starts) == 1
    assert len(list((tmp_path / "own").glob("*/__triton_launcher*"))) == 1


@pytest.mark.medium
def test_with_descriptors_it_is_made_of_the_compiled_kernel(compiler, driver, cold):
    """How they are passed is in the kernel's metadata only."""
    descriptors = replace(request(), signature={"out": "tensordesc<fp16[16, 16]>", "x": "i32"})
    kernel = SimpleNamespace(
        metadata=SimpleNamespace(tensordesc_meta=[{"swizzle": 1}], launch_pdl=False)
    )
    with launcher_built(CompiledLauncher, descriptors) as kernels:
        assert compiler.starts == []
        kernels.append(kernel)
    assert len(libraries(cold)) == 1
    source = SimpleNamespace(constants={}, signature=descriptors.signature)
    CompiledLauncher(source, kernel.metadata)
    assert len(compiler.starts) == 1


@pytest.mark.medium
def test_two_processes_build_it_once(compiler, driver, cold):
    """As ranks do that tune different kernels of one signature."""
    compiler.does('sleep 0.5; exec gcc "$@"')
    other = os.fork()
    if other == 0:
        signal.alarm(60)
        with launcher_built(CompiledLauncher, request(64)):
            pass
        os._exit(0)
    until = time.monotonic() + 30
    while not compiler.starts and time.monotonic() < until:
        time.sleep(0.01)
    with launcher_built(CompiledLauncher, request(128)):
        pass
    os.waitpid(other, 0)
    assert len(compiler.starts) == len(libraries(cold)) == 1


def test_where_triton_compiles_no_launcher_nothing_is_done():
    with fake_driver():
        assert launcher_class() is None
        threads = threading.active_count()
        with launcher_built(None, request()):
            assert threading.active_count() == threads
