"""A kernel whose Python is compiled here and the rest on another machine is the same kernel."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import contextlib
import json
from dataclasses import replace

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton import knobs
from triton.language.extra import libdevice

import whet
from whet.builds.builder import Builder
from whet.builds.job import Job
from whet.core.status import Status
from whet.engine.executors.node_pool import DividedPool, NodePool
from whet.targets.triton import device
from whet.targets.triton.compiler.capture import compile_request
from whet.targets.triton.compiler.compile import compile_kernel
from whet.targets.triton.compiler.divided import begin_kernel, reason_to_stay
from whet.targets.triton.packed.portable import CacheSlot
from whet.testing.build_nodes import WorkerNode
from whet.testing.fake_triton import FakeTensor, fake_driver
from whet.workers.task import Task

pytestmark = pytest.mark.medium


@pytest.fixture(autouse=True)
def driver():
    with fake_driver() as fake:
        yield fake


@pytest.fixture
def node():
    with WorkerNode() as made:
        yield made


def request(tile=32, scale=2.0, **keywords):
    """A kernel that no other process could import, with a value that it captures."""
    factor = tl.constexpr(scale)

    @triton.jit
    def product(a, b, c, K, TILE: tl.constexpr):
        rows = tl.arange(0, TILE)
        total = tl.zeros((TILE, TILE), tl.float32)
        for k in range(0, K, TILE):
            left = tl.load(a + rows[:, None] * K + rows[None, :] + k)
            right = tl.load(b + rows[:, None] * TILE + rows[None, :] + k * TILE)
            total = tl.dot(left, right, total)
        total = libdevice.tanh(total * factor)
        tl.store(c + rows[:, None] * TILE + rows[None, :], total)

    half = [FakeTensor([1.0], "float16") for _ in range(2)]
    arguments = (*half, FakeTensor([0.0]), 4096)
    return compile_request(
        product, arguments, {"TILE": tile, "grid": (1,), **keywords}, device.limits(0)
    )


def built(request, shared=None, keep=None):
    with Builder(1, "fork", limit_s=60, shared=shared) as builder:
        job = Job(compile_kernel, (request, None, None, keep), None, begin_kernel)
        builder.submit(whet.Config(only=1), job)
        (result,) = builder.ready()
    return result


def built_by(nodes, request, keep=None):
    """On these machines, and all that was said."""
    said = []
    pool = NodePool(on_unfit=lambda name, reason: said.append(f"{name}: {reason}"))
    for one in nodes:
        pool.add(one)
    try:
        return built(request, DividedPool(pool, 1, said.append), keep), said
    finally:
        pool.close()


def cached(folder):
    """The files of Triton's cache; of the one that lists them, with their paths, the names."""
    return {
        path.name: sorted(json.loads(path.read_text())["child_paths"])
        if path.name.startswith("__grp__")
        else path.read_bytes()
        for path in folder.rglob("*.*")
    }


@contextlib.contextmanager
def cache_in(folder):
    with knobs.cache.scope():
        knobs.cache.dir = str(folder)
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("variable", [None, "DISABLE_LLVM_OPT", "TRITON_DISABLE_LINE_INFO", "hip"])
def test_every_file_in_tritons_cache_is_the_one_that_would_have_been_made_here(
    node, tmp_path, monkeypatch, variable
):
    other = fake_driver("gfx942", shared_bytes=65_536) if variable == "hip" else None
    if other is None and variable is not None:
        monkeypatch.setenv(variable, "1")
    with other or contextlib.nullcontext():
        with cache_in(tmp_path / "here") as here:
            whole = built(request())
        with cache_in(tmp_path / "divided") as there:
            divided, said = built_by([node], request())
    assert whole.status is divided.status is Status.OK, divided.error
    assert (divided.artifact, divided.facts) == (whole.artifact, whole.facts)
    assert cached(there) == cached(here)
    assert any(name.endswith(".hsaco" if other else ".cubin") for name in cached(there))
    assert node.built == ["only=1"]
    assert not said


@pytest.mark.slow
def test_triton_finds_it_under_its_own_key(node, tmp_path):
    with cache_in(tmp_path / "cache"):
        one = request()
        assert not CacheSlot(one).filled
        result, _ = built_by([node], one)
        assert CacheSlot(one).filled
        assert CacheSlot(one).hash == result.artifact
        again, _ = built_by([node], one)
    assert again.status is Status.OK
    assert node.built == ["only=1"]  # the second time, Triton's cache had it


@pytest.mark.slow
def test_the_stages_of_both_machines_are_accounted_for_and_the_code_is_kept_here(node, tmp_path):
    result, _ = built_by([node], request(), keep=tmp_path / "ir")
    assert {"frontend", "ttir", "ttgir", "llir", "ptx", "cubin"} <= set(result.stages)
    assert result.seconds >= sum(result.stages.values()) * 0.9
    assert result.facts["ir"] == result.artifact
    assert list((tmp_path / "ir").iterdir())


@pytest.mark.slow
def test_too_large_a_config_fails_with_the_same_words(node):
    whole = built(request(tile=256, num_stages=4))
    divided, _ = built_by([node], request(tile=256, num_stages=4))
    assert divided.status is whole.status is Status.RESOURCES
    assert divided.error == whole.error


def test_what_the_frontend_refuses_reaches_no_machine(node):
    divided, _ = built_by([node], request(tile=33))
    assert divided.status is Status.BUILD_ERROR
    assert "power of 2" in divided.error
    assert not node.built


def test_a_compiler_that_somebody_looks_into_stays_here(node, monkeypatch):
    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", lambda *args: ("mine", "mine"))
    result, said = built_by([node], request())
    assert result.status is Status.OK
    [line] = said
    assert "compiled on this machine" in line
    assert "(add_stages_inspection_hook)" in line
    assert not node.built


@pytest.mark.slow
def test_a_machine_with_another_assembler_is_refused_and_builds_no_more(tmp_path, monkeypatch):
    other = tmp_path / "ptxas"
    other.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 11.0, V11.0.194'\n")
    other.chmod(0o755)
    variables = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
    for variable in variables:
        monkeypatch.setenv(variable, str(other))
    with WorkerNode("old") as old:
        old.start(0, Task(print)).result()  # its worker has started, with these variables
        for variable in variables:
            monkeypatch.delenv(variable)
        result, said = built_by([old], request())
    assert result.status is Status.OK
    assert said[0].startswith("old: ptxas 11.0.194, not ")
    assert len(said) == 2
    assert "building on this machine" in said[1]
    assert old.built == ["", "only=1"]


@pytest.mark.slow
def test_a_machine_that_builds_needs_no_torch(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch on this machine')\n")
    with WorkerNode() as node:
        with monkeypatch.context() as there:
            there.syspath_prepend(tmp_path)
            node.start(0, Task(print)).result()  # its worker has started, with that path
        result, said = built_by([node], request())
    assert result.status is Status.OK, result.error
    assert not said
    assert node.built == ["", "only=1"]


@pytest.mark.parametrize("variable", ["TRITON_ALWAYS_COMPILE", "TRITON_KERNEL_DUMP"])
def test_a_variable_that_is_for_this_machines_compiler_is_named(monkeypatch, variable):
    assert reason_to_stay(request()) == ""
    monkeypatch.setenv(variable, "1")
    assert reason_to_stay(request()) == f"{variable} is set"


def test_a_library_of_somebody_elses_or_a_value_of_this_process_keeps_a_kernel_here():
    one = request()
    own = dict(one.options["extern_libs"])
    assert own  # Triton's own, which lies elsewhere on every machine
    theirs = {**one.options, "extern_libs": (*own.items(), ("mine", "/opt/mine.bc"))}
    assert "mine (/opt/mine.bc)" in reason_to_stay(replace(one, options=theirs))
    options = {**one.options, "num_warps": object()}
    assert "'num_warps' is object" in reason_to_stay(replace(one, options=options))
