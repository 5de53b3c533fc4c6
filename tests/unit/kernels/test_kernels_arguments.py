"""What the kernels take, and the one error each mistake gets; on the CPU they are plain torch."""

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from whet.kernels import (  # noqa: E402
    attention,
    fp8_gemm,
    fused_gated_mlp,
    fused_rmsnorm_rope,
    gated_mlp,
    gemm,
    quantize_fp8,
    rmsnorm_rope,
)
from whet.kernels.checks import ShapeError  # noqa: E402


def t(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


ONE = torch.ones(())


def e4(*shape):
    return t(*shape, dtype=torch.float8_e4m3fn)


def e5(*shape):
    return t(*shape, dtype=torch.float8_e5m2)


def test_each_has_both_names():
    assert fused_rmsnorm_rope is rmsnorm_rope
    assert fused_gated_mlp is gated_mlp


def test_rows_are_normed_and_heads_rotated():
    x, weight, angles = t(3, 8), t(8), t(3, 2)
    y = rmsnorm_rope(x, weight, angles.cos(), angles.sin(), head_dim=4, eps=1e-6)
    normed = torch.nn.functional.rms_norm(x, (8,), weight, 1e-6).view(3, 2, 4)
    a, b = normed[..., :2], normed[..., 2:]
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    expected = torch.cat([a * cos - b * sin, b * cos + a * sin], -1).view(3, 8)
    assert torch.allclose(y, expected, atol=1e-5)


def test_a_residual_is_added_first_and_returned():
    x, residual, weight, angles = t(3, 8), t(3, 8), t(8), t(3, 2)
    tables = angles.cos(), angles.sin()
    y, summed = rmsnorm_rope(x, weight, *tables, head_dim=4, residual=residual)
    assert torch.equal(summed, x + residual)
    assert torch.allclose(y, rmsnorm_rope(x + residual, weight, *tables, head_dim=4), atol=1e-6)


def test_queries_and_keys_are_done_together():
    q, k, wq, wk, angles = t(2, 3, 4, 6), t(2, 3, 2, 6), t(6), t(6), t(3, 3)
    tables = angles.cos(), angles.sin()
    both = rmsnorm_rope(q, wq, *tables, key=k, key_weight=wk)
    assert torch.equal(both[0], rmsnorm_rope(q, wq, *tables))
    assert torch.equal(both[1], rmsnorm_rope(k, wk, *tables))


def test_a_gated_mlp_is_that_of_its_three_layers():
    x, gate, up, down = t(2, 3, 4), t(6, 4), t(6, 4), t(5, 6)
    linear, silu = torch.nn.functional.linear, torch.nn.functional.silu
    expected = linear(silu(linear(x, gate)) * linear(x, up), down)
    assert torch.allclose(gated_mlp(x, gate, up, down), expected, atol=1e-5)
    stacked = torch.cat([gate, up])
    assert torch.allclose(gated_mlp(x, stacked, None, down), expected, atol=1e-5)


def test_products_and_attention_are_torchs():
    a, b = t(2, 3, 4), t(4, 5)
    assert torch.allclose(gemm(a, b), a @ b)
    q, k, v = t(1, 4, 3, 8), t(1, 2, 5, 8), t(1, 2, 5, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert torch.allclose(attention(q, k, v), expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gemm(t(2, 3), t(4, 5)), "a is 2×3 and b 4×5"),
        (lambda: gemm(t(2, 3), t(3)), "b is 3; give K×N"),
        (lambda: gemm(t(2, 3), t(3, 4, dtype=torch.float16)), "b is torch.float16 and a is"),
        (lambda: gemm(t(2, 3).long(), t(3, 4)), "give float16, bfloat16 or float32"),
        (lambda: gemm([1], t(3, 4)), "a is a list; give a tensor"),
        (lambda: gemm(t(2, 3).to("meta"), t(3, 4)), "b is on cpu and a on meta"),
        (lambda: gated_mlp(t(2, 3), t(4, 5), t(4, 5)), "gate_weight is 4×5; give inner×3"),
        (lambda: gated_mlp(t(2, 3), t(4, 3), t(5, 3)), "up_weight is 5×3 and gate_weight 4×3"),
        (lambda: gated_mlp(t(2, 3), t(5, 3)), "5 rows, which are not two halves"),
        (lambda: gated_mlp(t(2, 3), t(4, 3), t(4, 3), t(2, 2)), "down_weight is 2×2; give out×4"),
        (lambda: gated_mlp(t(2, 3), t(4, 3), activation="relu"), "activation is 'relu'"),
        (lambda: attention(t(2, 3), t(2, 3), t(2, 3)), "q is 2×3; give batch×heads×tokens×dim"),
        (
            lambda: attention(t(1, 3, 2, 4), t(1, 2, 2, 4), t(1, 2, 2, 4)),
            "q has 3 heads and k 2, which does not divide them",
        ),
        (
            lambda: attention(t(1, 2, 2, 4), t(1, 2, 2, 4), t(1, 2, 3, 4)),
            "k is 1×2×2×4 and v 1×2×3×4",
        ),
        (
            lambda: attention(*[t(1, 1, 2, 300)] * 3),
            "dim is 300; it may be 1 to 256",
        ),
        (lambda: quantize_fp8(t(2, 3).long()), "x is torch.int64; give float16"),
        (lambda: quantize_fp8(t(2, 3), dtype=torch.int8), "dtype is torch.int8; give torch.float8"),
        (lambda: quantize_fp8(t(2, 3), scaling="rows"), "scaling is 'rows'; give one of tensor"),
        (lambda: quantize_fp8(t(2, 3, 4), scaling="block"), "blocks are of a matrix"),
        (lambda: quantize_fp8(t(2, 3), scale=0.5), "scale must be one number in a tensor"),
        (lambda: quantize_fp8(t(2, 3), gate=t(2, 4)), "gate is 2×4 of torch.float32; give one"),
        (lambda: fp8_gemm(t(2, 3), t(3, 4), ONE, ONE), "a is torch.float32; give fp8"),
        (lambda: fp8_gemm(e4(2, 3), e4(4, 5), ONE, ONE), "a is 2×3 and b 4×5"),
        (lambda: fp8_gemm(e5(2, 3), e5(3, 4), ONE, ONE), "one of them must be float8_e4m3fn"),
        (lambda: fp8_gemm(e4(2, 3), e4(3, 4), t(3), ONE), "scale_a is 3; give 1, 2×1, 2×1 or 1×1"),
        (lambda: fp8_gemm(e4(2, 3), e4(3, 4), ONE, t(2, 2)), "scale_b is 2×2; give 1, 1×4 or 1×1"),
        (
            lambda: fp8_gemm(e4(2, 300), e4(300, 4), t(2, 3), t(1, 4)),
            "one scale is of blocks and the other is not",
        ),
        (
            lambda: fp8_gemm(e4(2, 3), e4(3, 4), ONE, ONE, activation="relu"),
            "activation is 'relu'; give None or one of silu",
        ),
        (lambda: fp8_gemm(e4(2, 3), e4(3, 4), ONE, ONE, bias=t(3)), "bias is 3 of torch.float32"),
        (
            lambda: fp8_gemm(e4(2, 3), e4(3, 4), ONE, ONE, out_dtype=torch.int8),
            "out_dtype is torch.int8",
        ),
        (lambda: rmsnorm_rope(t(3, 8), t(8), t(3, 2), t(3, 2)), "or head_dim= and"),
        (
            lambda: rmsnorm_rope(t(3, 8), t(8), t(3, 2), t(3, 2), head_dim=3),
            "head_dim is 3, which does not divide the 8",
        ),
        (
            lambda: rmsnorm_rope(t(3, 8), t(4), t(3, 2), t(3, 2), head_dim=4),
            "weight is 4; it needs the 8 elements",
        ),
        (
            lambda: rmsnorm_rope(t(3, 8), t(8), t(3, 3), t(3, 3), head_dim=4),
            "cos is 3×3 on cpu; give 3×2 or 3×4",
        ),
        (
            lambda: rmsnorm_rope(t(3, 8), t(8), t(3, 2), t(3, 2), head_dim=4, rotary_dim=3),
            "rotary_dim is 3; give an even number up to head_dim",
        ),
        (
            lambda: rmsnorm_rope(t(3, 2, 4), t(4), t(3, 2), t(3, 2), residual=t(3, 2, 4)),
            "residual needs head_dim=",
        ),
        (
            lambda: rmsnorm_rope(t(3, 2, 4), t(4), t(3, 2), t(3, 2), key=t(3, 1, 4)),
            "key needs key_weight",
        ),
        (
            lambda: rmsnorm_rope(
                t(3, 2, 4), t(4), t(3, 2), t(3, 2), key=t(2, 1, 4), key_weight=t(4)
            ),
            "may differ in the number of heads only",
        ),
    ],
)
def test_a_mistake_gets_one_clear_error(call, message):
    with pytest.raises(ShapeError) as found:
        call()
    assert message in str(found.value)
    assert str(found.value).count("\n") == 0


def test_the_class_api_has_the_spaces_of_these_kernels():
    import whet
    from whet.kernels.spaces import GATED_MLP_SPACE, RMSNORM_ROPE_SPACE

    for space, configs in (
        (RMSNORM_ROPE_SPACE, whet.RMSNORM_ROPE_CONFIGS),
        (GATED_MLP_SPACE, whet.GATED_MLP_CONFIGS),
    ):
        values = {one.name: sorted(one.values) for one in space.parameters}
        assert all(values[name] == listed for name, listed in configs.items())


def test_the_default_of_every_space_is_allowed_by_its_constraints():
    from whet.core.space import Space
    from whet.kernels import spaces

    every = [one for one in vars(spaces).values() if isinstance(one, Space)]
    assert len(every) >= 6
    for space in every:
        names = [parameter.name for parameter in space.parameters]
        assert spaces.default_of(space, *names) == dict(space.first)


def test_fp8_products_come_near_those_of_the_numbers_they_stand_for():
    torch.manual_seed(0)
    x, weight = t(2, 5, 300), t(40, 300)
    exact = x @ weight.t()
    for scaling in ("tensor", "row", "block"):
        q, scale = quantize_fp8(weight, scaling=scaling)
        a, scale_a = quantize_fp8(x, scaling="group" if scaling == "block" else scaling)
        found = fp8_gemm(a, q.t(), scale_a, scale.t(), out_dtype=torch.float32)
        assert found.shape == exact.shape
        assert (found - exact).norm() < 0.06 * exact.norm()


def test_what_fp8_cannot_hold():
    x = torch.tensor([[1.0, -2.0, math.inf, -math.inf, math.nan, 0.0]])
    for dtype, most in ((torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57_344.0)):
        q, scale = quantize_fp8(x, dtype=dtype, scaling="row")
        assert scale.item() == pytest.approx(2.0 / most)
        assert q.float()[0, :4].tolist() == [most / 2, -most, most, -most]
        assert q.float()[0, 4].isnan()
        assert q.float()[0, 5] == 0
        held, _ = quantize_fp8(torch.tensor([1e6, 3.0]), dtype=dtype, scale=ONE)
        assert held.float().tolist() == [most, 3.0]
    nothing, scale = quantize_fp8(torch.zeros(2, 4), scaling="row")
    assert scale.tolist() == [[1.0], [1.0]]
    assert not nothing.float().any()


def test_what_shares_a_scale():
    x = t(2, 130, 300)
    shapes = {
        scaling: tuple(quantize_fp8(x, scaling=scaling)[1].shape)
        for scaling in ("tensor", "row", "group")
    }
    assert shapes == {"tensor": (), "row": (2, 130, 1), "group": (2, 130, 3)}
    assert quantize_fp8(x[0], scaling="block")[1].shape == (2, 3)


@pytest.mark.slow
def test_a_few_dozen_configs_are_left_for_any_shape(monkeypatch):
    from types import SimpleNamespace

    from whet.kernels.spaces import FP8_GEMM_SPACE, GATED_MLP_SPACE, GEMM_SPACE
    from whet.kernels.tiles import suited_for
    from whet.targets.triton.decorator import configs_of

    monkeypatch.setattr("whet.kernels.tiles.has_descriptors", lambda device: True)
    x = SimpleNamespace(is_cuda=False)
    for space, deep in ((GATED_MLP_SPACE, 64), (GEMM_SPACE, 64), (FP8_GEMM_SPACE, 128)):
        configs = configs_of(space)
        for m in (1, 16, 64, 65, 512, 4096, 100_000):
            for n, k in ((4096, 4096), (14336, 4096), (4096, 14336), (1, 1), (100, 30), (24, 4096)):
                for aligned in (True, False):
                    known = {"M": m, "N": n, "K": k, "x": x, "ALIGNED": aligned}
                    left = suited_for(configs, known, deep)
                    assert 1 <= len(left) <= 100
                    # There is room for parts of few rows only.
                    assert m <= 64 or all(one.kwargs["SPLIT_K"] == 1 for one in left)
                    assert aligned or not any(one.kwargs["DESCRIPTORS"] for one in left)


def test_parts_of_many_rows_are_refused_before_they_are_launched():
    from whet.kernels.product_triton import grid_of

    tile = {"BLOCK_M": 16, "BLOCK_N": 32, "SPLIT_K": 2, "PERSISTENT": False}
    assert grid_of(64, 64, 132)(tile) == (8, 2)
    with pytest.raises(ValueError, match="at most 64 rows, not 65"):
        grid_of(65, 64, 132)(tile)
