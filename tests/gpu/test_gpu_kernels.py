"""`whet.kernels` and `whet.choice` on a real device.

The properties of tests/unit/kernels run here on 200 shapes each, larger ones, with what the device
has: bfloat16, tensor descriptors, atomics between programs that really run at once.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import whet

torch: Any = pytest.importorskip("torch")
triton: Any = pytest.importorskip("triton")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

PROPERTIES = Path(__file__).parents[1] / "unit" / "kernels" / "kernel_properties.py"
SHARDS, EACH = 8, 25
PARTS = (
    "rmsnorm_rope_of_rows",
    "rmsnorm_rope_of_heads",
    "gemm",
    "one_row",
    "gated_mlp",
    "attention",
    "fp8_gemm",
    "quantize_fp8",
)


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    return tmp_path / "store.db"


@pytest.fixture(scope="module")
def shards() -> dict[tuple[str, int], subprocess.CompletedProcess[str]]:
    """Every shape is compiled anew, so all cores are put to it. Nothing is tuned: the first config,
    or for products a config of every kind."""

    def run(one: tuple[str, int]) -> subprocess.CompletedProcess[str]:
        part, number = one
        words = [sys.executable, "-m", "pytest", "-W", "ignore", "-p", "no:cacheprovider"]
        asked = {"KERNEL_EXAMPLES": str(EACH), "KERNEL_SEED": str(number), "WHET_MODE": "off"}
        return subprocess.run(
            [*words, "--timeout=600", f"{PROPERTIES}::test_{part}"],
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            check=False,
        )

    wanted = [(part, number) for number in range(SHARDS) for part in PARTS]
    with ThreadPoolExecutor(os.cpu_count() or 4) as threads:
        return dict(zip(wanted, threads.map(run, wanted), strict=True))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", PARTS)
def test_two_hundred_shapes_agree_with_plain_torch(
    part: str, shards: dict[tuple[str, int], subprocess.CompletedProcess[str]]
) -> None:
    for number in range(SHARDS):
        ran = shards[part, number]
        assert ran.returncode == 0, ran.stdout[-4000:]


def quick(x: Any) -> Any:
    return x * 2


def many_launches(x: Any) -> Any:
    for _ in range(20):
        x = x + 0
    return x * 2


def test_eager_calls_and_graphs_have_results_of_their_own() -> None:
    double = whet.choice({"many": many_launches, "one": quick}, name="double")
    x = torch.randn(1024, device="cuda")
    double(x)
    with whet.cost("graph"):
        double(x)
    assert ["cost=eager" in key for key in double.picks] == [True, False]
    assert set(double.picks.values()) == {"one"}


def test_a_capture_uses_what_was_tuned_for_graphs_and_tunes_nothing(store: Path) -> None:
    double = whet.choice({"many": many_launches, "one": quick}, name="double")
    x = torch.randn(1024, device="cuda")
    with whet.cost("graph"):
        double(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = double(x)
    x.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, torch.full_like(x, 6))
    assert len(double.picks) == 1


def test_a_capture_without_a_result_uses_the_eager_one() -> None:
    double = whet.choice({"many": many_launches, "one": quick}, name="double")
    x = torch.randn(1024, device="cuda")
    double(x)
    graph = torch.cuda.CUDAGraph()
    with pytest.warns(RuntimeWarning, match="using 'one'"), torch.cuda.graph(graph):
        double(x)


def test_what_cannot_be_captured_fails_for_graphs_alone() -> None:
    def waits(x: Any) -> Any:
        return x * (2 if bool((x == x).all().item()) else 3)

    def slow(x: Any) -> Any:  # so that the other one is in the race when it is captured
        return [x * 2 for _ in range(200)][-1]

    double = whet.choice({"one": slow, "waits": waits}, name="waiting")
    x = torch.randn(64, device="cuda")
    torch.manual_seed(1)
    before = torch.randn(3, device="cuda").tolist()
    with whet.cost("graph"):
        result = whet.tune(double.target(x))
    failed = {str(one.config["implementation"]): one for one in result.trials}["waits"]
    assert failed.status.value == "run_error"
    assert torch.equal(double(x), x * 2)
    torch.manual_seed(1)
    assert torch.randn(3, device="cuda").tolist() == before


@pytest.mark.parametrize("grad", [False, True])
def test_every_public_function_is_chosen_and_right(grad: bool) -> None:
    from whet.kernels import attention, gated_mlp, gemm, rmsnorm_rope

    def made(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=grad)

    x, w = made(64, 256), made(512, 256)
    q, k = made(1, 8, 128, 64), made(1, 2, 128, 64)
    cos, sin = (torch.rand(64, 32, device="cuda") for _ in range(2))
    calls = {
        "gemm": lambda: gemm(x, w.t()),
        "mlp": lambda: gated_mlp(x, w, None, made(128, 256)),
        "attention": lambda: attention(q, k, k, causal=True),
        "norm": lambda: rmsnorm_rope(x, made(256), cos, sin, head_dim=64),
    }
    for call in calls.values():
        out = call()
        assert out.isfinite().all()
        if grad:
            out.float().square().mean().backward()
    assert x.grad is None or x.grad.isfinite().all()


def test_a_compiled_function_has_the_pick_inside() -> None:
    from whet.kernels import gated_mlp

    x = torch.randn(16, 256, device="cuda", dtype=torch.bfloat16)
    weights = torch.randn(512, 256, device="cuda", dtype=torch.bfloat16) / 16
    with torch.no_grad(), whet.cost("graph"):
        expected = gated_mlp(x, weights)
        compiled = torch.compile(lambda one: gated_mlp(one, weights), fullgraph=True)
        torch.testing.assert_close(compiled(x), expected, rtol=0.02, atol=0.02)


def test_a_replayed_graph_with_split_sums_is_right_every_time() -> None:
    from whet.kernels import product, product_triton

    blocks = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 1, "SPLIT_K": 8}
    config = triton.Config(
        {**blocks, "PERSISTENT": False, "DESCRIPTORS": False}, num_warps=4, num_stages=4
    )
    kernel, before = product_triton.gemm_kernel, product_triton.gemm_kernel.configs
    a, b = (torch.randn(*size, device="cuda").half() for size in ((16, 4096), (4096, 512)))
    kernel.configs = [config]
    try:
        product.by_triton(a, b)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            one, two = product.by_triton(a, b), product.by_triton(a, b)
    finally:
        kernel.configs = before
    for _ in range(50):
        one.zero_()
        graph.replay()
        torch.testing.assert_close(one, a @ b, rtol=0.02, atol=0.5)
        assert torch.equal(one, two), "parts are summed in one order, whoever comes last"


def test_a_layer_over_the_kernels_computes_what_plain_torch_does() -> None:
    example = Path(__file__).parents[2] / "examples" / "transformer_layer.py"
    spec = importlib.util.spec_from_file_location("transformer_layer", example)
    assert spec is not None
    assert spec.loader is not None
    layer = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = layer
    spec.loader.exec_module(layer)
    with torch.no_grad():
        found = layer.compared(layer.SIZES["small"], "cuda", torch.bfloat16)
    errors = {one.name: one.error for one in found}
    assert {name.rpartition(", ")[2] for name in errors} == {"eager", "graph"}
    assert all(error < 0.02 for name, error in errors.items() if "fp8" not in name)
    assert all(error < 0.08 for name, error in errors.items() if "fp8" in name)
    launches = {one.name: one.launches for one in found}
    assert launches["whet, graph"] < launches["torch, graph"]
