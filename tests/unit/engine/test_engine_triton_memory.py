"""Shapes of one kernel, tuned one after another in one process."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.core.event import BuildStarted
from whet.targets.triton import device
from whet.targets.triton.compiler.capture import identified_request
from whet.testing.fake_triton import FakeTensor, fake_driver, told

CONFIGS = [triton.Config({"BLOCK": 64 << i, "BROKEN": i == 2}) for i in range(4)]


def scaled():
    @triton.jit
    def scale(out, x, n, BLOCK: tl.constexpr, BROKEN: tl.constexpr):
        tl.static_assert(not BROKEN, "broken")
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)

    return scale


@pytest.fixture(autouse=True)
def _driver(monkeypatch, tmp_path):
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    with fake_driver():
        yield


def tensors():
    return FakeTensor([0.0] * 4), FakeTensor([1.0] * 4, address=8192)


def identity(kernel, n, **options):
    keywords = {"BLOCK": 64, "BROKEN": True, "grid": (1,), **options}
    found = identified_request(kernel, (*tensors(), n), keywords, device.limits(0))
    assert found is not None
    return found[1]


@pytest.mark.medium
def test_only_the_first_shape_starts_builds():
    kernel = whet.autotune(configs=CONFIGS, key=["n"])(scaled())
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    builds = []
    statuses = []
    for n in (160, 320, 640):
        events = []
        kernel.whet_events = events.append
        kernel[(1,)](*tensors(), n)
        builds.append(sum(isinstance(event, BuildStarted) for event in events))
        statuses.append(kernel.whet_result.statuses)
    assert builds == [4, 0, 0]
    assert statuses[0]["build_error"] == statuses[1]["build_error"] == 1


def test_shapes_that_need_the_same_binary_have_one_identity():
    kernel = scaled()
    assert identity(kernel, 160) == identity(kernel, 320)
    assert identity(kernel, 160) == identity(scaled(), 160)


def test_what_makes_another_binary_makes_another_identity(monkeypatch, tmp_path):
    kernel = scaled()
    found = {
        identity(kernel, 160),
        identity(kernel, 161),
        identity(kernel, 160, BLOCK=128),
        identity(kernel, 160, num_warps=8),
    }
    with fake_driver(arch=80):
        found.add(identity(scaled(), 160))
    with fake_driver(shared_bytes=1000):
        found.add(identity(scaled(), 160))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "elsewhere"))
    found.add(identity(kernel, 160))
    assert len(found) == 7


@pytest.mark.medium
def test_configs_that_were_changed_in_between_are_seen():
    configs = [triton.Config({"BLOCK": 64 << i, "BROKEN": False}) for i in range(2)]
    kernel = whet.autotune(configs=configs, key=["n"])(scaled())
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    kernel[(1,)](*tensors(), 160)
    assert kernel.best_config.kwargs["BLOCK"] == 64
    configs[0].kwargs["BLOCK"] = 512
    kernel[(1,)](*tensors(), 320)
    assert kernel.best_config.kwargs["BLOCK"] == 128
