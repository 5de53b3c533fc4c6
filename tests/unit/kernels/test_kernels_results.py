"""The results that ship with the kernels are those of the kernels as they are.

Whoever edits a kernel, or what its calls are told apart by, measures again with
`benchmarks/kernel_results.py` and writes the new `SOURCES` down here.
"""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from whet.kernels import (  # noqa: E402
    fp8_triton,
    mlp,
    mlp_triton,
    norm_rope,
    norm_rope_triton,
    product,
    product_triton,
    sdpa,
    sdpa_triton,
    tiles,
)
from whet.kernels.checks import RESULTS  # noqa: E402
from whet.store.bundles.bundle import open_bundle  # noqa: E402
from whet.targets.choice import adapters  # noqa: E402
from whet.targets.choice.target import source_of_choice  # noqa: E402
from whet.targets.triton import source  # noqa: E402

KERNELS = {
    "gemm_kernel": product_triton.gemm_kernel,
    "gated_kernel": mlp_triton.gated_kernel,
    "row_kernel": product_triton.row_kernel,
    "rmsnorm_rope_kernel": norm_rope_triton.rmsnorm_rope_kernel,
    "attention_kernel": sdpa_triton.attention_kernel,
}
CHOICES = {
    one.name: one for one in (product.chosen, mlp.apart, mlp.stacked, norm_rope.chosen, sdpa.chosen)
}

# The choices that were measured, without the code of torch's that they call.
SOURCES = {
    "gemm": "24bf14f5d0b3c7d0365e10e6c8555be0",
    "gated_mlp": "d2bdd2c3158c4a04e63291ee58783d28",
    "gated_mlp_stacked": "62d1fe6b6e92cf3b976be93a81556192",
    "rmsnorm_rope": "ec03a673d8f02e852b66aad4f60e6b6e",
    "attention": "35b73210051245025781f1e70df9fc7e",
}


@pytest.fixture(scope="module")
def shipped():
    """Workloads by kernel."""
    found = {}
    for path in RESULTS.glob("*.whet"):
        with open_bundle(path) as bundle:
            bundle.check()
            for known in bundle.store.workloads():
                found.setdefault(known.workload.kernel, []).append(known.workload)
    return found


def now(choice):
    return source_of_choice(choice.name, choice.implementations).fingerprint


@pytest.mark.medium
def test_every_result_is_of_a_kernel_or_a_choice_that_there_is(shipped):
    assert shipped.keys() == KERNELS.keys() | CHOICES.keys()


@pytest.mark.medium
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_the_one_that_was_measured(name, shipped):
    measured = {one.fingerprint for one in shipped[name]}
    assert measured == {source.source_of(KERNELS[name]).fingerprint}


@pytest.mark.medium
def test_the_fingerprint_of_a_kernel_without_shipped_results():
    """It follows from the source alone, in every version of Python and Triton."""
    now = source.source_of(fp8_triton.fp8_gemm_kernel).fingerprint
    assert now == "733aad1b36988eb6f7d65f0d26b8147f"


@pytest.mark.skipif(bool(adapters.found()), reason="choices have more implementations here")
@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_the_one_that_was_measured(name, shipped, monkeypatch):
    assert len({one.fingerprint for one in shipped[name]}) == 1
    if str(torch.__version__).partition("+")[0] == shipped[name][0].toolchain["torch"]:
        assert now(CHOICES[name]) == shipped[name][0].fingerprint
    monkeypatch.setattr(source, "_TRITON", source._HOST)
    assert now(CHOICES[name]) == SOURCES[name]


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_the_same_after_its_kernels_were_used(name, monkeypatch):
    fresh = now(CHOICES[name])
    gpu = torch.device("cuda", 0)
    monkeypatch.setitem(tiles._by_stream, (gpu, 94023), torch.zeros(1))
    monkeypatch.setitem(tiles._for_graphs, gpu, [torch.zeros(1)])
    norm_rope_triton._sizes(3, 1, 80, 32, 32, False)
    assert now(CHOICES[name]) == fresh


def tensor(*sizes):
    return torch.empty(*sizes, device="meta", dtype=torch.bfloat16)


def gemm_call(key):
    return tensor(key["m"], key["k"]), tensor(key["n"], key["k"]).t()


def apart_call(key):
    weight = tensor(key["n"], key["k"])
    return tensor(key["m"], key["k"]), weight, weight, key["activation"]


def stacked_call(key):
    return tensor(key["m"], key["k"]), tensor(2 * key["n"], key["k"]), key["activation"]


def norm_call(key):
    half, width, whole = key["half"], key["width"], key["whole_row"]
    row = key["heads"] * width
    x = tensor(1, key["tokens"], *((row,) if whole else (key["heads"], width)))
    table, weight = tensor(key["tokens"], half), tensor(row if whole else width)
    residual = tensor(1, key["tokens"], row) if key["residual"] else None
    second = tensor(1, key["tokens"], key["key_heads"], width) if key["key_heads"] else None
    other, head_dim = None if second is None else weight, width if whole else None
    return x, weight, table, table, 1e-6, head_dim, 2 * half, False, residual, second, other


def attention_call(key):
    other = tensor(key["batch"], key["key_heads"], key["keys"], key["dim"])
    first = tensor(key["batch"], key["heads"], key["queries"], key["dim"])
    return first, other, other, key["causal"], None


CALLS = {
    "gemm": gemm_call,
    "gated_mlp": apart_call,
    "gated_mlp_stacked": stacked_call,
    "rmsnorm_rope": norm_call,
    "attention": attention_call,
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_call_of_each_size_has_the_key_it_was_measured_by(name, shipped):
    keys = CHOICES[name].keys
    for workload in shipped[name]:
        assert {workload.key["cost"], workload.key["grad"]} <= {"eager", "graph", False}
        described = keys.described(CALLS[name](workload.key), {})
        beside = {"cost": workload.key["cost"], "grad": False}
        assert {**keys.entries(described), **beside} == dict(workload.key)
