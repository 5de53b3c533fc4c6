"""`timeline_of`: from a run's events to who was busy with what."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from whet.core.config import Config
from whet.core.event import (
    BestChanged,
    BuildFinished,
    BuildStarted,
    DuelEnded,
    DuelStarted,
    Event,
    Measured,
    MeasureStarted,
    Noted,
    RaceAdvanced,
    RunStarted,
    TrialFinished,
    Waited,
)
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timeline import Span, Timeline
from whet.engine import tune
from whet.engine.steps.record import timeline_of
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget
from whet.testing.samples import a_run, a_trial, a_workload

A, B = Config(BM=1), Config(BM=2)


def built(started: float, seconds: float, **more: object) -> BuildFinished:
    return BuildFinished(A, seconds, True, **{"started": started, **more})  # type: ignore[arg-type]


def kept(*events: BuildFinished | Measured | Waited) -> tuple[Span, ...]:
    """What becomes of them in a run that began at 100."""
    return timeline_of(100.0, [(0.0, event) for event in events]).spans


def test_a_build_is_on_its_worker_with_its_stages_inside() -> None:
    stages = FrozenMap({"frontend": 0.25, "llir": 1.5})
    assert kept(built(101.0, 2.0, worker=3, stages=stages)) == (
        Span("worker 3", "build", 1.0, 2.0, A.id),
        Span("worker 3", "frontend", 1.0, 0.25, A.id, depth=1),
        Span("worker 3", "llir", 1.25, 1.5, A.id, depth=1),
    )


def test_stages_that_claim_more_than_the_build_share_its_time() -> None:
    _, one, two = kept(built(100.0, 1.0, stages=FrozenMap({"ttir": 1.0, "llir": 3.0})))
    assert (one.seconds, two.start_s, two.seconds) == (0.25, 0.25, 0.75)


def test_a_build_that_failed_says_how() -> None:
    (span,) = kept(BuildFinished(A, 0.5, False, started=100.5, status=Status.RESOURCES))
    assert span.name == "build, resources"


def test_a_build_with_no_known_start_is_left_out() -> None:
    assert kept(BuildFinished(A, 0.5, True)) == ()


def test_a_visit_is_on_the_device_with_its_phases_in_the_order_they_ran() -> None:
    seconds = FrozenMap({"measure": 0.5, "measure.kernel": 0.25, "load": 0.125, "warmup": 0.25})
    assert kept(Measured("look", (A,), 104.0, 105.0, seconds)) == (
        Span("device", "look", 4.0, 1.0, A.id),
        Span("device", "load", 4.0, 0.125, A.id, depth=1),
        Span("device", "warmup", 4.125, 0.25, A.id, depth=1),
        Span("device", "measure", 4.375, 0.5, A.id, depth=1),
    )


def test_a_visit_of_many_configs_counts_them() -> None:
    assert kept(Measured("round", (A, B), 104.0, 104.5, FrozenMap())) == (
        Span("device", "round of 2 configs", 4.0, 0.5),
    )


def test_spans_are_in_the_order_of_their_starts() -> None:
    visit = Measured("look", (A,), 101.0, 102.0, FrozenMap())
    assert [span.start_s for span in kept(visit, built(100.5, 3.0))] == [0.5, 1.0]


def test_what_began_before_the_run_is_cut_at_its_beginning() -> None:
    stages = FrozenMap({"ttir": 2.0, "llir": 2.0})
    assert kept(built(97.0, 4.0, stages=stages), built(90.0, 5.0)) == (
        Span("worker 0", "build", 0.0, 1.0, A.id),
        Span("worker 0", "llir", 0.0, 1.0, A.id, depth=1),
    )


def test_a_duel_is_on_the_engines_lane() -> None:
    heard = [(102.0, DuelStarted((A, B))), (105.0, DuelEnded(A, (), 7))]
    assert timeline_of(100.0, heard).spans == (Span("engine", "duel", 2.0, 3.0),)


def test_all_other_events_are_ignored() -> None:
    workload = a_workload()
    events = (
        RunStarted(a_run(workload), None, 0),
        BuildStarted(A),
        MeasureStarted(A),
        TrialFinished(a_trial(workload)),
        BestChanged(a_trial(workload)),
        RaceAdvanced(1, 2),
        DuelEnded(A, (), 1),
        Noted("hello"),
    )
    assert timeline_of(100.0, [(101.0, event) for event in events]) == Timeline()


def micros(config: Config) -> float:
    return 1000.0 * int(str(config["t"]))


@pytest.mark.slow
def test_a_real_tuning_leaves_builds_and_visits_that_do_not_overlap_in_their_lane() -> None:
    began, heard = time.monotonic(), list[tuple[float, Event]]()
    target = FakeTarget([{"t": t} for t in range(50, 60)], micros, building=True)
    result = tune(
        target,
        store=MemoryStore(),
        jobs=2,
        on_event=lambda event: heard.append((time.monotonic(), event)),
    )
    spans = [span for span in timeline_of(began, heard).spans if span.depth == 0]
    built = [span.config_id for span in spans if span.name == "build"]
    assert sorted(built) == sorted(trial.config.id for trial in result.trials)
    assert {span.lane for span in spans} >= {"device", "worker 0"}
    assert min(span.start_s for span in spans) >= 0.0
    for lane in {span.lane for span in spans}:
        mine = [span for span in spans if span.lane == lane]
        assert all(a.end_s <= b.start_s + 1e-6 for a, b in pairwise(mine))


def test_a_wait_for_another_process_is_on_the_engines_lane() -> None:
    assert kept(Waited(101.0, 103.5)) == (Span("engine", "wait for others", 1.0, 2.5),)
