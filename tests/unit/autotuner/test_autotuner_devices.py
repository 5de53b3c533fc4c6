"""`device=` names where the callable ran; what is not so is refused before anything runs."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from whet.autotuner import TritonAutoTuner
from whet.core.errors import UsageError


def tuner(ran: list[int] | None = None) -> TritonAutoTuner:
    def kernel(*args: Any, block: int) -> None:
        if ran is not None:
            ran.append(block)

    return TritonAutoTuner(kernel, {"block": [1, 2]}, 0, 1)


@pytest.fixture
def torch_without_cuda() -> Any:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    return torch


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_cuda_without_cuda_is_refused_with_the_remedy(torch_without_cuda: Any, device: str) -> None:
    ran: list[int] = []
    tuned = tuner(ran)
    with pytest.raises(UsageError, match=f"cannot use device='{device}': .*device='cpu'"):
        tuned.tune(torch_without_cuda.ones(8), problem_size=(8,), device=device)
    assert ran == []
    assert tuned.cache.get_all_keys() == []


@pytest.mark.slow
def test_a_torch_device_is_held_to_the_same(torch_without_cuda: Any) -> None:
    with pytest.raises(UsageError, match="cannot use device='cuda:0'"):
        tuner().tune(problem_size=(8,), device=torch_without_cuda.device("cuda:0"))


def test_cuda_without_torch_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match="torch is not installed"):
        tuner().tune(problem_size=(8,), device="cuda:0")


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda0", ""])
def test_what_is_no_device_is_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=f"no device '{device}'; valid: cpu"):
        tuner().tune(problem_size=(8,), device=device)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_the_host_is_always_a_device(device: str) -> None:
    tuned = tuner()
    result = tuned.tune(problem_size=(8,), device=device)
    assert result.device == device
    assert tuned.cache.get_all_keys() == [("kernel", (8,), device)]


def test_choosing_asks_the_cache_of_any_device() -> None:
    tuned = tuner()
    tuned.cache.set("kernel", (8,), "cuda:0", {"block": 2})
    assert tuned.choose(problem_size=(8,), device="cuda:0") == {"block": 2}
