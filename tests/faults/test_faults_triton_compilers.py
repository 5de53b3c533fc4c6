"""A `ptxas` that never ends is killed at the limit, with everything it has started."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

from pathlib import Path

import pytest
from faults_compilers import numbers_in, stuck_compiler
from faults_processes import alive, check_nothing_left

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.builds.builder import Builder
from whet.builds.job import Job
from whet.core.status import Limit, Status
from whet.targets.triton import device
from whet.targets.triton.compiler.capture import compile_request
from whet.targets.triton.compiler.compile import compile_kernel
from whet.testing.fake_triton import FakeTensor, fake_driver

LIMIT_S = 8.0


@triton.jit
def double(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, 2 * tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


@pytest.mark.medium
def test_a_stuck_ptxas_is_killed_with_its_family_and_the_next_kernel_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scratch: Path
) -> None:
    pids = tmp_path / "pids"
    real = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    ptxas = stuck_compiler(tmp_path / "ptxas", str(real), "gpu-name=sm_90", pids)
    for name in ("PTXAS", "PTXAS_BLACKWELL"):  # which of them depends on Triton's version
        monkeypatch.setenv(f"TRITON_{name}_PATH", str(ptxas))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    with Builder(1, "fork", limit_s=LIMIT_S) as builder:
        results = []
        for arch in (90, 80):
            with fake_driver(arch):
                arguments = (FakeTensor([0.0] * 4), FakeTensor([1.0] * 4), 4)
                keywords = {"BLOCK": 128, "grid": (1,)}
                request = compile_request(double, arguments, keywords, device.limits(0))
            builder.submit(whet.Config(arch=arch), Job(compile_kernel, (request,)))
            results += builder.ready()
    stuck, next_one = results
    assert (stuck.status, stuck.limit) == (Status.BUILD_TIMEOUT, Limit("build_s", LIMIT_S))
    assert (next_one.status, next_one.error) == (Status.OK, "")
    assert len(numbers_in(pids)) == 4
    assert not any(alive(pid) for pid in numbers_in(pids))
    check_nothing_left(scratch)
