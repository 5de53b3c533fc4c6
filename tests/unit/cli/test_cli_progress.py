"""Progress: events in, lines on stderr out."""

from __future__ import annotations

import io
import re
import threading

import pytest
from rich.console import Console

from whet.cli.terminal.live import frame, sparkline
from whet.cli.terminal.progress import PlainProgress, progress
from whet.cli.terminal.tally import Tally
from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.event import (
    BestChanged,
    BuildFinished,
    BuildStarted,
    DuelEnded,
    Event,
    MeasureStarted,
    Noted,
    RaceAdvanced,
    RunFinished,
    RunStarted,
    TrialFinished,
)
from whet.core.run import Result
from whet.core.status import Status
from whet.testing.samples import a_run, a_trial, a_workload

WORKLOAD = a_workload()
FIRST = Config(BM=1)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def started(planned: int | None = 20, **run: object) -> RunStarted:
    return RunStarted(a_run(WORKLOAD, **run), planned, known=3)  # type: ignore[arg-type]


def finished(bm: int, median_ns: float = 1000.0, status: Status = Status.OK) -> TrialFinished:
    return TrialFinished(a_trial(WORKLOAD, {"BM": bm}, median_ns, status=status))


def best(bm: int, median_ns: float) -> BestChanged:
    return BestChanged(a_trial(WORKLOAD, {"BM": bm}, median_ns))


def result(**changes: object) -> Result:
    trial = a_trial(WORKLOAD, {"BM": 2})
    return Result(a_run(WORKLOAD, {"BM": 2}), trial, None, (trial,), **changes)  # type: ignore[arg-type]


def plain(clock: Clock, *steps: Event | float) -> list[str]:
    """The lines that these events give; a number is seconds that pass."""
    stream = io.StringIO()
    subscriber = PlainProgress(stream, FIRST, clock)
    for step in steps:
        if isinstance(step, float):
            clock.now += step
        else:
            subscriber(step)
    return stream.getvalue().splitlines()


def test_the_start_says_what_is_planned(clock: Clock) -> None:
    lines = plain(clock, started(budget=Budget(30.0), space_size=132))
    assert lines[0] == "   0.0s  tuning matmul(M=512, N=512, dtype=f32) on Test CPU"
    assert "20 of 132 configs" in lines[1]
    assert "(3 known), budget 30 s, search grid, seed 7" in lines[1]


def test_an_open_ended_plan_is_said_to_be_open(clock: Clock) -> None:
    assert "unknown number" in plain(clock, started(planned=None))[1]


def test_every_new_best_is_a_line_with_its_gain_over_the_first(clock: Clock) -> None:
    lines = plain(clock, started(), best(1, 4000.0), 1.5, best(8, 1000.0))
    assert lines[2:] == [
        "   0.0s  best 4.00 µs  1.00× the first  BM=1",
        "   1.5s  best 1.00 µs  4.00× the first  BM=8",
    ]


def test_without_the_first_config_no_gain_is_claimed(clock: Clock) -> None:
    assert plain(clock, started(), best(8, 1000.0))[2:] == ["   0.0s  best 1.00 µs  BM=8"]


def test_counts_come_when_two_seconds_have_passed(clock: Clock) -> None:
    trials = [finished(1), 1.0, finished(2), 1.5, finished(3), finished(4)]
    lines = plain(clock, started(planned=None), *trials)
    assert lines[2:] == ["   2.5s  3 trials: 3 ok"]


def test_counts_come_with_every_tenth_of_a_quick_run(clock: Clock) -> None:
    steps = [step for bm in range(1, 21) for step in (0.3, finished(bm))]
    assert len(plain(clock, started(), *steps)) - 2 == 10


@pytest.mark.medium
def test_the_log_of_a_long_run_stays_short(clock: Clock) -> None:
    steps = [step for bm in range(1, 3601) for step in (1.0, finished(bm))]
    assert len(plain(clock, started(planned=None), *steps)) < 200


def test_builds_count_before_the_first_trial(clock: Clock) -> None:
    config = Config(BM=1)
    lines = plain(clock, started(), BuildStarted(config), 3.0, BuildFinished(config, 3.0, ok=True))
    assert lines[2:] == ["   3.0s  0/20 trials, 1 built"]


def test_a_later_outcome_of_a_config_replaces_the_earlier_one(clock: Clock) -> None:
    lines = plain(
        clock, started(), finished(1), finished(2), 2.0, finished(1, status=Status.OUTRACED)
    )
    assert lines[2:] == ["   2.0s  2/20 trials: 1 ok, 1 outraced"]


def test_a_note_is_given_whole_on_as_many_lines_as_it_takes(clock: Clock) -> None:
    text = "the clock of this machine is not steady; " * 4
    lines = plain(clock, started(), Noted(text.strip()))[2:]
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(line[9:].strip() for line in lines) == f"note: {text.strip()}"


def test_the_race_is_reported_when_it_gets_smaller(clock: Clock) -> None:
    rounds = [RaceAdvanced(1, 8), RaceAdvanced(2, 8), RaceAdvanced(3, 2)]
    lines = plain(clock, started(), *rounds, DuelEnded(Config(BM=2), (Config(BM=4),), 12))
    assert [line[9:13] for line in lines[2:]] == ["race", "race", "duel"]
    assert [re.findall(r"\d+", line[9:]) for line in lines[2:]] == [
        ["1", "8"],
        ["3", "2"],
        ["12", "1"],
    ]


def test_the_end_is_a_count(clock: Clock) -> None:
    assert plain(clock, started(), finished(2), RunFinished(result()))[-1] == (
        "   0.0s  1/20 trials: 1 ok"
    )


def test_the_same_count_is_not_said_twice(clock: Clock) -> None:
    stream = io.StringIO()
    told = PlainProgress(stream, FIRST, clock)
    told(started())
    clock.now += 10
    for event in (finished(2), Noted("a note"), RunFinished(result())):
        told(event)
    assert stream.getvalue().count("1/20 trials: 1 ok") == 1


def test_an_answer_from_the_store_is_called_that(clock: Clock) -> None:
    lines = plain(clock, started(planned=0), RunFinished(result(source="stored")))
    assert lines[-1].endswith("answered from the store")


def test_long_configs_are_cut_at_80_columns(clock: Clock) -> None:
    config = {f"PARAMETER_{i}": i for i in range(20)}
    lines = plain(clock, started(), BestChanged(a_trial(WORKLOAD, config)))
    assert max(map(len, lines)) <= 80
    assert lines[-1].endswith("…")


def test_events_may_come_from_many_threads(clock: Clock) -> None:
    stream = io.StringIO()
    subscriber = PlainProgress(stream, FIRST, clock)
    subscriber(started(planned=None))
    threads = [
        threading.Thread(target=lambda k=k: [subscriber(finished(k * 100 + i)) for i in range(100)])
        for k in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock.now += 5
    subscriber(finished(1000))
    assert stream.getvalue().splitlines()[-1] == "   5.0s  801 trials: 801 ok"


def test_quiet_means_no_subscriber(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(quiet=True) as subscriber:
        assert subscriber is None
    assert capsys.readouterr().err == ""


def test_away_from_a_terminal_progress_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as subscriber:
        assert subscriber is not None
        subscriber(started())
    captured = capsys.readouterr()
    assert "tuning matmul" in captured.err
    assert "\x1b" not in captured.err
    assert captured.out == ""


def busy(clock: Clock) -> Tally:
    """A tally in the middle of a run."""
    tally = Tally(FIRST, clock)
    tally.add(started(budget=Budget(30.0, None)))
    for bm in range(1, 9):
        clock.now += 1.0
        tally.add(MeasureStarted(Config(BM=bm)))
        tally.add(finished(bm, 8000.0 / bm, Status.OK if bm != 5 else Status.BUILD_ERROR))
        tally.add(best(bm, 8000.0 / bm))
    tally.add(MeasureStarted(Config(BM=99)))
    for bm in (50, 51):
        tally.add(BuildStarted(Config(BM=bm)))
    return tally


def test_the_live_display_shows_what_there_is_to_know(clock: Clock) -> None:
    text = "\n".join(line.plain for line in frame(busy(clock), 80))
    for part in (
        "matmul(M=512, N=512, dtype=f32) on Test CPU",
        "8/20",
        "8 s · 22 s left",
        "1.00 µs  8.00× the first config's speed (8.00 µs)",
        "BM=8",
        "7 ok · 1 build_error",
        "measure BM=99",
        "build   BM=50 and 1 more",
        "8, the last 0 s ago",
    ):
        assert part in text


@pytest.mark.parametrize("width", [80, 60, 40, 200])
def test_the_live_display_fits_its_terminal(clock: Clock, width: int) -> None:
    tally = busy(clock)
    tally.add(BestChanged(a_trial(WORKLOAD, {f"PARAMETER_{i}": i for i in range(20)})))
    tally.add(MeasureStarted(Config({f"PARAMETER_{i}": i for i in range(20)})))
    lines = frame(tally, width)
    assert len(lines) <= 9
    assert max(line.cell_len for line in lines) <= min(width, 80)


def test_the_live_display_can_be_drawn_before_anything_happened(clock: Clock) -> None:
    lines = frame(Tally(clock=clock), 80)
    assert "0 trials" in lines[1].plain


def test_the_display_has_no_colour_where_none_is_wanted(clock: Clock) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, no_color=True, width=80)
    for line in frame(busy(clock), 80):
        console.print(line)
    assert "\x1b[32m" not in stream.getvalue()
    assert "\x1b[36m" not in stream.getvalue()


def test_a_sparkline_is_logarithmic() -> None:
    assert sparkline([8.0, 4.0, 2.0, 1.0]) == "█▆▃▁"
    assert sparkline([5.0, 5.0]) == "▁▁"


def test_a_name_that_would_steer_the_terminal_is_shown_without(clock: Clock) -> None:
    run = a_run(a_workload(kernel="k\x1b]0;owned\x07\x9b31m\u202e"))
    stream, tally = io.StringIO(), Tally(FIRST, clock)
    for event in (RunStarted(run, 20, known=3), Noted("a \x1b[31mnote")):
        PlainProgress(stream, FIRST, clock)(event)
        tally.add(event)
    drawn = "".join(line.plain for line in frame(tally, 80))
    for text in (stream.getvalue(), drawn):
        assert "k\ufffd]0;owned" in text
        assert text.replace("\n", "").isprintable()
