"""What is heard of the compiler while it works."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")

from whet.doctor.modes.compiler import CompilerWatch  # noqa: E402


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
