"""The layer of examples/transformer_layer.py on a CPU: each form computes the same."""

import importlib.util
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

EXAMPLE = Path(__file__).parents[3] / "examples" / "transformer_layer.py"

pytestmark = [pytest.mark.medium, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def layer():
    spec = importlib.util.spec_from_file_location("transformer_layer", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=["prefill", "decode"])
def found(request, layer):
    sizes = layer.SIZES["tiny"]
    if request.param == "decode":
        sizes = layer.Sizes(**{**vars(sizes), "batch": 1, "tokens": 1, "cached": 40})
    with torch.no_grad():
        return layer.compared(sizes, "cpu", torch.float32)


@pytest.mark.slow
def test_every_form_computes_the_layer(found):
    errors = {one.name: one.error for one in found}
    assert errors.keys() == {
        "torch, eager",
        "torch.compile, eager",
        "whet, eager",
        "whet, fp8, eager",
    }
    assert all(error < 1e-5 for name, error in errors.items() if "fp8" not in name)
    # Three bits of mantissa in four products, and a residual that has all of its own.
    assert 1e-4 < errors["whet, fp8, eager"] < 0.08


@pytest.mark.slow
def test_the_table_fits_and_the_picture_is_one(layer, found):
    lines = layer.table(found).splitlines()
    assert len(lines) == len(found) + 1
    assert max(map(len, lines)) <= 80
    drawing = ElementTree.fromstring(layer.picture(found))
    assert len(drawing.findall("{http://www.w3.org/2000/svg}rect")) == sum(
        one.launches for one in found
    )
