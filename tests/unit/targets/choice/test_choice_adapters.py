"""Libraries are found when they are installed; here with stand-ins of their published names."""

import sys

import pytest

import whet
from whet.targets.choice import adapters

torch = pytest.importorskip("torch")


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Writes packages that Python imports like installed ones."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name in {name.split("/")[0] for name in files}:
            for loaded in [one for one in sys.modules if one.split(".")[0] == name]:
                monkeypatch.delitem(sys.modules, loaded)

    return installed


FLASHINFER = {
    "flashinfer/__init__.py": (
        "import torch\n"
        "def single_prefill_with_kv_cache(q, k, v, causal=False, sm_scale=None):\n"
        "    q, k, v = (one.transpose(0, 1) for one in (q, k, v))\n"
        "    return torch.nn.functional.scaled_dot_product_attention(\n"
        "        q, k, v, is_causal=causal, scale=sm_scale).transpose(0, 1)\n"
    ),
    "flashinfer/norm.py": (
        "import torch\n"
        "def rmsnorm(x, weight, eps):\n"
        "    assert x.ndim == 2\n"
        "    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)\n"
    ),
    "flashinfer/activation.py": (
        "import torch\n"
        "def silu_and_mul(x):\n"
        "    gate, up = x.chunk(2, -1)\n"
        "    return torch.nn.functional.silu(gate) * up\n"
        "def gelu_tanh_and_mul(x):\n"
        "    gate, up = x.chunk(2, -1)\n"
        "    return torch.nn.functional.gelu(gate, approximate='tanh') * up\n"
    ),
}

LIGER = {
    "liger_kernel/__init__.py": "",
    "liger_kernel/transformers/__init__.py": "",
    "liger_kernel/transformers/functional.py": (
        "import torch\n"
        "def liger_rms_norm(X, W, eps, offset=0.0, casting_mode='llama', in_place=True):\n"
        "    assert not in_place\n"
        "    return torch.nn.functional.rms_norm(X, X.shape[-1:], W, eps)\n"
        "def liger_swiglu(a, b):\n"
        "    return torch.nn.functional.silu(a) * b\n"
        "def liger_geglu(a, b):\n"
        "    return torch.nn.functional.gelu(a, approximate='tanh') * b\n"
    ),
}

CUTLASS = {
    "cutlass/__init__.py": ("from . import op\nclass LayoutType:\n    RowMajor = 'row'\n"),
    "cutlass/op.py": (
        "class Gemm:\n"
        "    def __init__(self, element, layout, element_accumulator):\n"
        "        assert layout == 'row'\n"
        "    def run(self, A, B, C, D, sync=True):\n"
        "        D.copy_(A @ B)\n"
    ),
}


def test_nothing_is_installed_and_nothing_is_missed():
    assert adapters.found() == ()
    assert adapters.matmul() == adapters.rms_norm() == adapters.attention() == {}


@pytest.mark.medium
def test_what_is_installed_agrees_with_torch(install):
    install({**FLASHINFER, **LIGER, **CUTLASS})
    assert adapters.found() == ("cutlass", "flashinfer", "liger")
    x, weight = torch.randn(2, 3, 8), torch.randn(8)
    norm = whet.choice(
        {
            "torch": lambda x, w, eps: torch.nn.functional.rms_norm(x, (8,), w, eps),
            **adapters.rms_norm(),
        },
        name="norm",
    )
    norm(x, weight, 1e-6)
    result = whet.tune(norm.target(x, weight, 1e-6), store=whet.open_store(":memory:"))
    assert {str(one.config["implementation"]) for one in result.trials} == set(norm.implementations)
    assert all(one.status.measured for one in result.trials)
    gate, up = torch.randn(4, 6), torch.randn(4, 6)
    for made in adapters.swiglu().values():
        assert torch.allclose(made(gate, up), torch.nn.functional.silu(gate) * up, atol=1e-6)
    for made in adapters.geglu().values():
        expected = torch.nn.functional.gelu(gate, approximate="tanh") * up
        assert torch.allclose(made(gate, up), expected, atol=1e-6)
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    for made in adapters.attention().values():
        assert torch.allclose(made(q, k, v, causal=True), expected, atol=1e-6)
    for made in adapters.matmul().values():
        a, b = torch.randn(4, 6), torch.randn(6, 5)
        assert torch.allclose(made(a, b), a @ b)


def test_a_library_that_cannot_be_imported_is_left_out_and_said(install):
    install({"flashinfer/__init__.py": "raise OSError('libcudart.so.12 is missing')\n"})
    with pytest.warns(RuntimeWarning, match="flashinfer is installed but is left out.*libcudart"):
        assert adapters.attention() == {}


def test_a_cutlass_without_the_operation_is_left_out(install):
    install({"cutlass/__init__.py": "class cute: pass\n"})
    with pytest.warns(RuntimeWarning, match="install nvidia-cutlass"):
        assert adapters.matmul() == {}
