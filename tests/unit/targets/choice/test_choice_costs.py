"""Eager and graph-captured cost, where there is a GPU only by name.

Tensors are on the CPU and said to be on device 0; captures are said to go on. What is chosen, when,
and under which key is the code that runs on a device; `tests/gpu/test_gpu_kernels.py` has that.
"""

import time

import pytest

import whet
from whet.core.errors import ConfigFailure
from whet.core.timing import Method
from whet.core.workload import Device
from whet.targets.choice import choice, keys, loaded, target
from whet.targets.choice.target import EagerTimer

torch = pytest.importorskip("torch")


class GraphTimer(EagerTimer):
    """Reads a sleep as launches that a graph does not have."""

    name = "graph"


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """What a device would answer; `capturing` can be set."""
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    state = {"capturing": False, "timers": []}
    monkeypatch.setattr(choice, "device_index", lambda values: 0)
    monkeypatch.setattr(keys, "has_gpu", lambda: True)
    for module in (choice, keys, loaded):
        monkeypatch.setattr(module, "capturing", lambda: state["capturing"])
    device = Device("H200", "nvidia", "sm_90")
    monkeypatch.setattr(target.device, "describe", lambda index: device)
    monkeypatch.setattr(
        target.device, "timing_lock_path", lambda index, folder: tmp_path / "gpu.lock"
    )

    def timer(index, l2, l2_bytes, graph):
        state["timers"].append(graph)
        return GraphTimer()

    monkeypatch.setattr(target.device, "timer", timer)
    monkeypatch.setattr(target.device, "method", lambda *_: Method("graph"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda *_: torch.zeros(1, dtype=torch.uint8))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *_: None)
    return state


def eagerly_slow(x):
    """Slow only where the host counts, as many small kernels are."""
    if keys.asked_cost.get() != "graph":
        time.sleep(0.004)
    return x * 2


def steady(x):
    time.sleep(0.001)
    return x + x


def double(**options):
    return whet.choice({"steady": steady, "launches": eagerly_slow}, name="double", **options)


@pytest.mark.medium
@pytest.mark.usefixtures("gpu")
def test_each_cost_has_its_own_winner_and_key():
    made, x = double(), torch.ones(4)
    made(x)
    with whet.cost("graph"):
        made(x)
    by_cost = {key.split("cost=")[1].split(",")[0]: name for key, name in made.picks.items()}
    assert by_cost["eager"] == "steady"
    assert set(by_cost) == {"eager", "graph"}


@pytest.mark.medium
def test_graphs_are_timed_by_the_timer_of_graphs(gpu):
    with whet.cost("graph"):
        double()(torch.ones(4))
    assert gpu["timers"]
    assert all(gpu["timers"])


def test_a_choice_may_say_itself_what_counts(gpu):
    made = double(cost="graph")
    made(torch.ones(4))
    assert [("cost=graph" in key) for key in made.picks] == [True]


def test_nothing_is_tuned_during_a_capture(gpu):
    made, x = double(), torch.ones(4)
    gpu["capturing"] = True
    with pytest.warns(RuntimeWarning, match="cannot be tuned during CUDA graph capture"):
        assert torch.equal(made(x), x * 2)
    assert made.picks == {}
    assert gpu["timers"] == []


@pytest.mark.medium
def test_a_capture_uses_what_was_tuned_for_graphs(gpu):
    made, x = double(), torch.ones(4)
    with whet.cost("graph"):
        made(x)
    timers = len(gpu["timers"])
    gpu["capturing"] = True
    made(x)
    assert len(gpu["timers"]) == timers
    assert len(made.picks) == 1


@pytest.mark.medium
def test_a_capture_prefers_the_eager_result_to_the_first(gpu):
    calls = []
    made = whet.choice(
        {
            "first": lambda x: (time.sleep(0.004), calls.append("first"), x * 2)[2],
            "fast": lambda x: (calls.append("fast"), x * 2)[1],
        },
        name="watched",
    )
    x = torch.ones(4)
    made(x)
    gpu["capturing"] = True
    calls.clear()
    with pytest.warns(RuntimeWarning, match="using 'fast'"):
        made(x)
    assert calls == ["fast"]


def test_a_mode_that_requires_results_does_so_for_each_cost(gpu):
    x = torch.ones(4)
    double()(x)
    made = double()
    with whet.mode("require"):
        made(x)
        with whet.cost("graph"), pytest.raises(whet.NotTunedError, match="cost=graph"):
            made(x)


def test_what_fails_in_a_capture_says_what_to_do(gpu):
    state = loaded.CallState((torch.ones(2),), {}, {}, "graph", False, True)

    def waits(x):
        raise RuntimeError("operation not permitted when stream is capturing")

    one = loaded.LoadedImplementation(state, waits, None, None, None)
    gpu["capturing"] = True
    with pytest.raises(ConfigFailure, match='cost="eager" compares without graphs'):
        one.repeat(1)


def test_on_the_cpu_there_is_one_cost(monkeypatch, tmp_path):
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    made = double()
    with whet.cost("graph"):
        made(torch.ones(4))
    assert all("cost=eager" in key for key in made.picks)


def test_arrays_in_lists_are_saved_and_put_back():
    held = [torch.ones(2), torch.zeros(2)]
    saved = loaded.Saved({"states": held}, loaded.DeviceRoom())
    saved.save()
    held[1].add_(1)
    assert list(saved.changed()) == ["states[1]"]
    saved.restore()
    assert torch.equal(held[1], torch.zeros(2))
