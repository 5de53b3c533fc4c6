"""A choice under torch.compile: the pick is traced inline, the tuner is not."""

import time
import warnings

import pytest

import whet

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.medium


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def by_hand(a, b):
    time.sleep(0.004)
    return (a.unsqueeze(-1) * b).sum(-2)


def by_matmul(a, b):
    return a @ b


def product(**options):
    return whet.choice({"by_hand": by_hand, "matmul": by_matmul}, name="product", **options)


def graph_of(fn, *args):
    """What Dynamo made of it, in one graph or not at all."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    result = torch.compile(fn, backend=backend, fullgraph=True)(*args)
    return [str(node.target) for node in graphs[-1].graph.nodes], result


def test_the_tuned_pick_is_traced_inline():
    chosen, a, b = product(), torch.randn(4, 8), torch.randn(8, 3)
    chosen(a, b)
    nodes, result = graph_of(lambda x, y: chosen(x, y) + 1, a, b)
    assert any("matmul" in node for node in nodes)
    assert torch.allclose(result, a @ b + 1, atol=1e-5)


def test_a_stored_pick_is_found_by_a_process_that_has_tuned_nothing():
    a, b = torch.randn(4, 8), torch.randn(8, 3)
    product()(a, b)
    another = product()
    nodes, _ = graph_of(lambda x, y: another(x, y), a, b)
    assert any("matmul" in node for node in nodes)


def test_what_is_not_tuned_is_the_first_and_said():
    def unsleeping(a, b):
        return (a.unsqueeze(-1) * b).sum(-2)

    chosen = whet.choice({"by_hand": unsleeping, "matmul": by_matmul}, name="untuned")
    with pytest.warns(RuntimeWarning, match="outside torch.compile to tune it"):
        nodes, _ = graph_of(lambda x, y: chosen(x, y), torch.randn(4, 8), torch.randn(8, 3))
    assert not any("matmul" in node for node in nodes)


def test_each_size_has_its_own_pick_also_where_sizes_are_dynamic():
    chosen, b = product(), torch.randn(8, 3)
    for n in (4, 5, 6):
        chosen(torch.randn(n, 8), b)
    compiled = torch.compile(
        lambda x, y: chosen(x, y), backend="eager", fullgraph=True, dynamic=True
    )
    for n in (4, 5, 6):
        a = torch.randn(n, 8)
        assert torch.allclose(compiled(a, b), a @ b, atol=1e-5)


@pytest.mark.slow
def test_gradients_flow_through_what_was_compiled():
    chosen, a, b = product(), torch.randn(4, 8, requires_grad=True), torch.randn(8, 3)
    chosen(a, b)
    compiled = torch.compile(lambda x, y: chosen(x, y), backend="aot_eager", fullgraph=True)
    compiled(a, b).sum().backward()
    assert torch.allclose(a.grad, b.sum(-1).expand(4, 8), atol=1e-5)


def test_a_key_function_is_traced_too():
    chosen = product(key=lambda a, b: {"m": a.shape[0], "k": a.shape[1]})
    a, b = torch.randn(4, 8), torch.randn(8, 3)
    chosen(a, b)
    nodes, _ = graph_of(lambda x, y: chosen(x, y), a, b)
    assert any("matmul" in node for node in nodes)


def test_mode_off_compiles_the_first():
    chosen = whet.choice({"add": lambda x: x + x, "mul": lambda x: x * 2}, name="off", mode="off")
    nodes, _ = graph_of(lambda x: chosen(x), torch.ones(3))
    assert any("add" in node for node in nodes)


@pytest.mark.slow
def test_a_public_layer_with_its_attention_chosen():
    """torch's own encoder layer; its attention goes through a choice of SDPA's forms."""
    import torch.nn.functional as functional

    original = functional.scaled_dot_product_attention

    def written_out(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False):
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        if attn_mask is not None:
            scores = scores + attn_mask
        return torch.softmax(scores, -1) @ value

    attention = whet.choice({"sdpa": original, "written_out": written_out}, name="attention")
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    x = torch.randn(2, 16, 32)
    expected = layer(x)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(functional, "scaled_dot_product_attention", attention)
        eager = layer(x)
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)(x)
    assert attention.picks, "the layer must have gone through the choice"
    assert torch.allclose(eager, expected, atol=1e-5)
    assert torch.allclose(compiled, expected, atol=1e-5)
