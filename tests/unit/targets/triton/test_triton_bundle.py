"""A bundle under a Triton kernel's store."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.store.bundles.writing import write_bundle
from whet.testing.fake_triton import FakeTensor, fake_driver, told


@pytest.fixture
def driver():
    with fake_driver() as fake:
        yield fake


def called():
    """What a new process's first call takes and finds."""

    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    configs = [triton.Config({"BLOCK": block}) for block in (256, 128)]
    kernel = whet.autotune(configs=configs, key=["n"])(double)
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    kernel[(1,)](FakeTensor([0.0] * 4), FakeTensor([1.0] * 4, address=8192), 4)
    return kernel


@pytest.fixture
def bundle(driver, cold, tmp_path, monkeypatch):
    called()
    path = tmp_path / "b.whet"
    with whet.open_store(cold.store, read_only=True) as store:
        write_bundle(path, store)
    monkeypatch.setenv("WHET_BUNDLE", str(path))
    return path


@pytest.mark.medium
def test_what_a_bundle_knows_is_not_tuned(bundle, tmp_path, monkeypatch):
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "new.db"))
    kernel = called()
    assert kernel.best_config.kwargs == {"BLOCK": 128}
    assert kernel.whet_result.source == "stored"


@pytest.mark.medium
def test_where_no_store_can_be_a_bundle_still_answers(bundle, tmp_path, monkeypatch):
    monkeypatch.setenv("WHET_STORE", str(tmp_path))  # a folder
    with pytest.warns(RuntimeWarning, match="results will not be saved"):
        kernel = called()
    assert kernel.whet_result.source == "stored"


@pytest.mark.medium
def test_a_bundle_that_is_none_does_not_stop_a_kernel(bundle, tmp_path, monkeypatch):
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "new.db"))
    bundle.write_bytes(b"not a bundle")
    with pytest.warns(RuntimeWarning, match="bundle will not be used"):
        kernel = called()
    assert kernel.whet_result.source == "tuned"
