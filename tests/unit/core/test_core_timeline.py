"""`Timeline`: packed small and read back, refused when damaged, and shown by Perfetto."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.core.config import Config
from whet.core.timeline import Span, Timeline

CONFIG = Config(BM=64)

BUILD = Span("worker 1", "build", 0.5, 1.0, CONFIG.id)
STAGE = Span("worker 1", "llir", 0.5, 0.75, CONFIG.id, depth=1)
VISIT = Span("device", "look", 1.5, 0.25, CONFIG.id)
ROUND = Span("device", "round of 3 configs", 2.0, 0.5)
DUEL = Span("engine", "duel", 2.0, 1.0)
TIMELINE = Timeline((BUILD, STAGE, VISIT, ROUND, DUEL))

microseconds = st.integers(0, 10**12).map(lambda number: number / 1e6)
spans = st.builds(
    Span,
    lane=st.sampled_from(["engine", "device", "worker 0", "worker 17"]),
    name=st.text(max_size=8),
    start_s=microseconds,
    seconds=microseconds,
    config_id=st.sampled_from(["", "0123456789abcdef", "fedcba9876543210"]),
    depth=st.integers(0, 3),
)


def slices(timeline: Timeline, **options: Any) -> dict[str, dict[str, Any]]:
    """The spans of a trace, by what they say they are."""
    trace = timeline.to_perfetto({CONFIG.id: str(CONFIG)}, **options)
    found = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    return {event["args"]["what"]: event for event in found}


def labels(trace: dict[str, Any], kind: str) -> dict[int, Any]:
    events = [event for event in trace["traceEvents"] if event["name"] == kind]
    return {event["tid"]: event["args"] for event in events}


@pytest.mark.medium
@given(st.lists(spans, max_size=20))
def test_to_the_microsecond_a_packed_timeline_comes_back_as_it_was(many: list[Span]) -> None:
    back = Timeline.from_packed(Timeline(tuple(many)).packed()).spans
    assert [(s.lane, s.name, s.config_id, s.depth) for s in back] == [
        (s.lane, s.name, s.config_id, s.depth) for s in many
    ]
    assert [round(s.start_s * 1e6) for s in back] == [round(s.start_s * 1e6) for s in many]
    assert [s.seconds for s in back] == pytest.approx([s.seconds for s in many], abs=1.1e-6)


def test_spans_that_touch_still_touch_once_packed() -> None:
    third = 1 / 3
    touching = Timeline((Span("device", "a", 0.1, third), Span("device", "b", 0.1 + third, third)))
    first, second = Timeline.from_packed(touching.packed()).spans
    assert round(first.end_s * 1e6) == round(second.start_s * 1e6)


def test_a_thousand_spans_take_a_dozen_bytes_each() -> None:
    many = [
        Span(f"worker {n % 16}", "build", n * 0.0123457, 0.1 + n % 7 / 97, Config(n=n // 5).id)
        for n in range(1000)
    ]
    assert len(Timeline(tuple(many)).packed()) < 12_000


@pytest.mark.parametrize(
    "data",
    [b"", b"wtl", b"wtl\x01garbage", TIMELINE.packed()[:-9], b"wtl\x02" + TIMELINE.packed()[4:]],
)
def test_what_is_no_packed_timeline_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="timeline"):
        Timeline.from_packed(data)


def test_perfetto_gets_one_track_for_each_lane_the_workers_last() -> None:
    trace = Timeline((Span("worker 10", "build", 0, 1), *TIMELINE.spans)).to_perfetto({})
    names = {track: label["name"] for track, label in labels(trace, "thread_name").items()}
    assert names == {1: "engine", 2: "device", 3: "worker 1", 4: "worker 10"}
    order = labels(trace, "thread_sort_index")
    assert [order[track]["sort_index"] for track in (1, 2, 3, 4)] == [1, 2, 3, 4]


def test_perfetto_gets_microseconds() -> None:
    found = slices(TIMELINE)
    assert (found["build"]["ts"], found["build"]["dur"]) == (500_000, 1_000_000)
    assert (found["look"]["ts"], found["look"]["dur"]) == (1_500_000, 250_000)


def test_a_build_and_a_visit_are_called_by_their_config_and_a_stage_by_its_name() -> None:
    found = slices(TIMELINE)
    assert found["build"]["name"] == "BM=64"
    assert found["look"]["name"] == "BM=64"
    assert found["llir"]["name"] == "llir"
    assert found["round of 3 configs"]["name"] == "round of 3 configs"
    assert found["llir"]["args"]["config"] == "BM=64"


def test_what_is_around_comes_before_what_is_inside() -> None:
    found = list(slices(Timeline((STAGE, BUILD))))
    assert found == ["build", "llir"]


def test_a_config_without_a_name_is_called_by_its_id() -> None:
    trace = Timeline((BUILD,)).to_perfetto({})
    assert trace["traceEvents"][-1]["name"] == CONFIG.id


def test_several_runs_can_share_a_file() -> None:
    trace = TIMELINE.to_perfetto({}, process="matmul(M=1)", number=2, offset_s=10.0)
    assert {event["pid"] for event in trace["traceEvents"]} == {2}
    assert labels(trace, "process_name")[0] == {"name": "matmul(M=1)"}
    assert slices(TIMELINE, offset_s=10.0)["build"]["ts"] == 10_500_000


def test_a_trace_is_json() -> None:
    assert json.loads(json.dumps(TIMELINE.to_perfetto({})))["displayTimeUnit"] == "ms"
