"""Kernels are really compiled, in forked workers, for devices that are not here."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import json
import subprocess
import sys

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton import knobs

import triton_kernels
import whet
from triton_kernels import cell
from whet.builds.builder import Builder
from whet.builds.job import Job
from whet.core.status import Status
from whet.targets.triton import device
from whet.targets.triton.compiler.capture import compile_request
from whet.targets.triton.compiler.compile import compile_kernel
from whet.testing.fake_triton import FakeTensor, fake_driver, told

VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])


def double_kernel():
    """A new one each time: a `JITFunction` remembers what it has compiled."""

    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    return double


def matmul_kernel():
    @triton.jit
    def matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
        a_tile = a + rows[:, None] * K + inner[None, :]
        b_tile = b + inner[:, None] * BN + columns[None, :]
        total = tl.zeros((BM, BN), tl.float32)
        for _ in range(0, K, BK):
            total = tl.dot(tl.load(a_tile), tl.load(b_tile), total)
            a_tile += BK
            b_tile += BK * BN
        tl.store(c + rows[:, None] * BN + columns[None, :], total)

    return matmul


def pair(n=4):
    return FakeTensor([0.0] * n), FakeTensor([1.0] * n)


def double_request(kernel, **keywords):
    keywords = {"BLOCK": 128, "grid": (1,), **keywords}
    return compile_request(kernel, (*pair(), 4), keywords, device.limits(0))


def matmul_request(tile, **keywords):
    half = [FakeTensor([1.0], "float16") for _ in range(2)]
    sizes = dict(zip(("BM", "BN", "BK"), tile, strict=True))
    arguments = (*half, FakeTensor([0.0]), 4096)
    return compile_request(
        matmul_kernel(), arguments, {**sizes, "grid": (1,), **keywords}, device.limits(0)
    )


def build(request):
    with Builder(1, "fork", limit_s=60) as builder:
        builder.submit(whet.Config(only=1), Job(compile_kernel, (request,)))
        (result,) = builder.ready()
    return result


def tuned(kernel, blocks=(128, 256), **options):
    configs = [triton.Config({"BLOCK": block}) for block in blocks]
    tuner = whet.autotune(configs=configs, key=["n"], **options)(kernel)
    tuner.whet_timer = told(lambda config: float(config.kwargs["BLOCK"]))
    return tuner


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arch", "stages", "binary"),
    [
        (80, ("ttir", "ttgir", "llir", "ptx", "cubin"), "cubin"),
        (90, ("ttir", "ttgir", "llir", "ptx", "cubin"), "cubin"),
        ("gfx942", ("ttir", "ttgir", "llir", "amdgcn", "hsaco"), "hsaco"),
    ],
)
def test_a_kernel_is_compiled_without_a_device_and_lands_in_tritons_cache(
    arch, stages, binary, cold
):
    with fake_driver(arch):
        result = build(double_request(double_kernel()))
    assert (result.status, result.error) == (Status.OK, "")
    assert cold.files(binary) == [f"double.{binary}"]
    assert {"frontend", "allocation", *stages} <= set(result.stages)
    assert all(seconds >= 0 for seconds in result.stages.values())
    assert result.facts["binary_bytes"] > 0
    assert result.facts["num_warps"] == 4


@pytest.mark.medium
@pytest.mark.parametrize("arch", [90, "gfx942"])
def test_an_oversized_config_is_refused_before_the_code_generator_runs(arch, cold):
    with fake_driver(arch, shared_bytes=65_536 if arch == "gfx942" else 232_448):
        result = build(matmul_request((256, 256, 256), num_warps=2, num_stages=5))
    assert result.status is Status.RESOURCES
    assert result.error.startswith("out of resource: shared memory, Required: ")
    assert result.error.endswith("Reducing block sizes or `num_stages` may help.")
    assert "allocation" in result.stages
    assert "llir" not in result.stages
    assert cold.files("llir") == []


@pytest.mark.slow
def test_the_memory_an_early_look_finds_is_what_triton_allocates(monkeypatch, tmp_path):
    with fake_driver():
        needed = build(matmul_request((64, 64, 32), num_stages=3)).facts["shared_bytes"]
    with fake_driver(shared_bytes=needed):
        fitting = build(matmul_request((64, 64, 32), num_stages=3))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "empty"))
    with fake_driver(shared_bytes=needed - 1):
        refused = build(matmul_request((64, 64, 32), num_stages=3))
    assert fitting.status is Status.OK
    assert f"Required: {needed}, Hardware limit: {needed - 1}" in refused.error


@pytest.mark.medium
def test_more_threads_than_a_block_may_have_are_refused_without_compiling():
    with fake_driver():
        result = build(double_request(double_kernel(), num_warps=64))
    assert result.status is Status.RESOURCES
    assert result.error.startswith("out of resource: threads, Required: 2048, Hardware limit: 1024")
    assert not result.stages


@pytest.mark.medium
def test_a_kernel_that_does_not_compile_says_what_triton_says():
    @triton.jit
    def broken(out, x, n, BLOCK: tl.constexpr):
        tl.static_assert(BLOCK > 1000, "too small a block")

    with fake_driver():
        result = build(double_request(broken))
    assert result.status is Status.BUILD_ERROR
    assert "CompileTimeAssertionFailure" in result.error
    assert "too small a block" in result.error


@pytest.mark.medium
def test_what_a_worker_compiled_is_loaded_and_not_compiled_again(compiled, cold):
    kernel = double_kernel()
    with fake_driver() as driver:
        result = build(double_request(kernel))
        assert compiled == []
        kernel[(1,)](*pair(), 4, BLOCK=128)
        assert len(driver.launches) == 1
    assert compiled == [("double", True)]
    assert cold.files("cubin") == ["double.cubin"]
    assert result.artifact == next(iter(kernel.device_caches[0][0].values())).hash


@pytest.mark.medium
def test_nothing_is_asked_for_what_is_in_memory_already():
    kernel = double_kernel()
    with fake_driver():
        kernel[(1,)](*pair(), 4, BLOCK=128)
        assert double_request(kernel) is None
        assert double_request(kernel, BLOCK=256) is not None


def test_looking_at_a_call_compiles_and_launches_nothing(compiled, cold):
    with fake_driver() as driver:
        double_request(double_kernel())
        assert driver.launches == []
    assert compiled == []
    assert cold.files("cubin") == []


def test_options_of_a_call_are_passed_on():
    with fake_driver():
        request = double_request(double_kernel(), num_ctas=2, maxnreg=64, num_warps=8)
    assert request.options["num_ctas"] == 2
    assert request.options["maxnreg"] == 64
    assert request.options["num_warps"] == 8
    assert request.constexprs == {(3,): 128}


@pytest.mark.medium
def test_a_users_stage_hook_is_called_in_the_worker_and_the_parents_stays(monkeypatch, tmp_path):
    seen = tmp_path / "seen"

    def hook(*args):
        if not args:
            return "mine", "mine"
        seen.write_text(",".join(args[1]))
        return None

    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", hook)
    with fake_driver():
        result = build(double_request(double_kernel()))
    assert result.status is Status.OK
    assert seen.read_text() == "ttir,ttgir,llir,ptx,cubin"
    assert knobs.runtime.add_stages_inspection_hook is hook


@pytest.mark.medium
def test_a_users_stage_hook_keeps_its_part_of_the_cache_key(monkeypatch, compiled):
    def hook(*args):
        return None if args else ("mine", "mine")

    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", hook)
    with fake_driver():
        kernel = double_kernel()
        build(double_request(kernel))
        kernel[(1,)](*pair(), 4, BLOCK=128)
        monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", None)
        double_kernel()[(1,)](*pair(), 4, BLOCK=128)
    keyed = VERSION >= (3, 7)
    assert compiled == [("double", True), ("double", not keyed)]


def of_a_cell():
    return cell(
        """
        import triton
        import triton.language as tl

        FACTOR = tl.constexpr(3)

        @triton.jit
        def helper(value):
            return value * FACTOR

        @triton.jit
        def scale(out, x, n, BLOCK: tl.constexpr):
            offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(out + offsets, helper(tl.load(x + offsets)), mask=offsets < n)
        """,
        "scale",
    )


def of_a_closure():
    factor = tl.constexpr(3)

    @triton.jit
    def helper(value):
        return value * factor

    @triton.jit
    def scale(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + offsets, helper(tl.load(x + offsets)), mask=offsets < n)

    return scale


def of_a_module():
    return triton.JITFunction(triton_kernels.copy.fn)


@pytest.mark.medium
@pytest.mark.parametrize("made", [of_a_cell, of_a_closure, of_a_module])
def test_a_kernel_is_tuned_from_the_workers_builds(made, compiled, cold):
    kernel = made()
    with fake_driver():
        tuned(kernel)[(1,)](*pair(), 4)
    assert cold.measured() == {128, 256}
    assert set(compiled) == {(kernel.__name__, True)}


SCRIPT = """
import json
import triton
import triton.language as tl
from triton import knobs
import whet
from whet.testing.fake_triton import FakeTensor, fake_driver, told

FACTOR = tl.constexpr(3)

@triton.jit
def helper(value):
    return value * FACTOR

@whet.autotune(configs=[triton.Config({"BLOCK": b}) for b in (128, 256)], key=["n"])
@triton.jit
def scale(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, helper(tl.load(x + offsets)), mask=offsets < n)

hits = []
knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
scale.whet_timer = told(lambda config: float(config.kwargs["BLOCK"]))
with fake_driver():
    scale[(1,)](FakeTensor([0.0]), FakeTensor([1.0]), 1)
print(json.dumps({"hits": hits, "best": scale.best_config.kwargs["BLOCK"]}))
"""


@pytest.mark.slow
def test_a_kernel_of_a_script_is_tuned_from_the_workers_builds(tmp_path, cold):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    told_us = subprocess.run(
        [sys.executable, str(script)], check=True, text=True, capture_output=True, timeout=60
    )
    assert json.loads(told_us.stdout.splitlines()[-1]) == {"hits": [True, True], "best": 128}
    assert cold.measured() == {128, 256}


@pytest.mark.medium
@pytest.mark.parametrize("above", [True, False], ids=["above", "below"])
def test_heuristics_work_on_either_side(above, compiled, cold):
    @triton.jit
    def double(out, x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        if EVEN:
            tl.store(out + offsets, tl.load(x + offsets) * 2)
        else:
            tl.store(out + offsets, tl.load(x + offsets) * 2, mask=offsets < n)

    seen = []

    def even(arguments):
        seen.append("BLOCK" in arguments)
        return arguments["n"] % 256 == 0

    if above:
        kernel = triton.heuristics({"EVEN": even})(tuned(double))
    else:
        kernel = tuned(triton.heuristics({"EVEN": even})(double))
    with fake_driver() as driver:
        kernel[(1,)](*pair(), 512)
        assert driver.launches
    assert cold.measured() == {128, 256}
    assert set(compiled) == {("double", True)}
    assert set(seen) == {not above}
