"""What is heard of the compiler while it works, and where the time of a step goes."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")
sys.path.insert(0, str(Path(__file__).parent))

import doctor_models as models  # noqa: E402

from whet.doctor.modes.compiler import (  # noqa: E402
    CompilerWatch,
    by_layer,
    issued_ns,
    profiled,
)


@pytest.fixture
def watch() -> Any:
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    loggers = [logging.getLogger(name) for name in ("torch._inductor.codecache",)]
    before = [(one, one.level, one.propagate) for one in loggers]
    yield CompilerWatch()
    for one, level, propagate in before:
        one.setLevel(level)
        one.propagate = propagate


@pytest.mark.slow
def test_why_a_cuda_graph_was_skipped_is_heard_when_it_first_runs(watch: CompilerWatch) -> None:
    from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

    log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to mutated inputs\n at x.py:1")
    assert watch.facts()["cudagraph_skip"] == "skipping cudagraphs due to mutated inputs"


def test_hints_and_bypassed_caches_are_heard(watch: CompilerWatch) -> None:
    from torch._inductor import codecache, graph

    graph.perf_hint_log.info("Using FallbackKernel: %s", "aten.odd")
    codecache.log.info("Bypassing FX Graph Cache because '%s'", "Cannot cache it")
    assert "Using FallbackKernel: aten.odd" in str(watch.facts()["perf_hints"])
    assert watch.cache_facts()["warm_why"] == "Cannot cache it"
    assert watch.missing == []


def test_a_graph_from_the_cache_has_tuned_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch then counts again what was counted when the graph was compiled."""
    from torch._dynamo.utils import counters
    from torch._inductor.select_algorithm import get_algorithm_selector_cache

    monkeypatch.setitem(counters["inductor"], "select_algorithm_autotune", 2)
    watch = CompilerWatch()
    assert watch.cache_facts()["warm_autotune"] == 0
    for fn in get_algorithm_selector_cache().feedback_saver_fns:
        fn({}, "mm", [], [], dict)
    assert watch.cache_facts()["warm_autotune"] == 1


@pytest.mark.slow
def test_what_this_torch_lacks_is_not_heard_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.select_algorithm as selecting

    monkeypatch.delattr(selecting, "add_feedback_saver")
    told = CompilerWatch().facts()["not_heard"]
    assert str(told).startswith("autotune tables (ImportError")


def test_operations_are_counted_for_one_step() -> None:
    model, x = models.Mlp(), torch.ones(8, 32)

    def repeat(n: int) -> None:
        with torch.no_grad():
            for _ in range(n):
                model(x)

    told = profiled(repeat, gpu=False)
    assert isinstance(told["kernels"], str)
    calls = {name: count for name, count, _ in json.loads(told["kernels"])}
    assert calls["aten::addmm"] == 2
    assert "launches" not in told


def test_time_is_told_by_the_models_own_layers() -> None:
    model, x = models.SelectsByMask(), models.batch()

    def repeat(n: int) -> None:
        for _ in range(n):
            model(x)

    told = by_layer(repeat, gpu=False)
    assert isinstance(told["layers"], str)
    lines = Path(models.__file__).read_text().splitlines()
    begins = lines.index("class SelectsByMask(Layer):") + 4
    shown = [where for where, _ in json.loads(told["layers"])]
    assert f"Linear_0 in forward, doctor_models.py:{begins}" in shown
    assert all(where.endswith(f"doctor_models.py:{begins}") for where in shown)


def test_issuing_waits_for_nobody_in_between() -> None:
    said: list[str] = []
    assert issued_ns(lambda: said.append("step"), lambda: said.append("wait"), steps=3) > 0
    assert said[:5] == ["wait", "step", "step", "step", "wait"]
