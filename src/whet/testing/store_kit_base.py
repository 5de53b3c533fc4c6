"""What a `Store` owes on trials, runs, timelines, marks and missed keys, as tests; and what the
tests of stores have in common."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.core.config import Config
from whet.core.errors import StoreError
from whet.core.miss import Argument, Miss
from whet.core.process import Mark, ProcessName
from whet.core.run import Outcome
from whet.core.status import Limit, Status
from whet.core.timeline import Span, Timeline
from whet.core.timing import Summary, Timing
from whet.core.trial import Cost
from whet.core.workload import Origin, Workload
from whet.store.protocol import Store
from whet.testing.samples import a_run, a_timing, a_trial, a_workload

WORKLOAD = a_workload()


class StoreMaker:
    def make_store(self, folder: Path) -> Store:
        raise NotImplementedError("implement make_store to create an empty store")

    def filled(self, folder: Path, *trials: Any, **changes: Any) -> tuple[Store, Workload]:
        """A store that knows `a_workload(**changes)` and its trials, each given as arguments of
        `a_trial`: a dict of keywords."""
        store, workload = self.make_store(folder), a_workload(**changes)
        store.put_workload(workload)
        store.append(a_trial(workload, **trial) for trial in trials)
        return store, workload

    def pair(self, folder: Path) -> tuple[Store, Store]:
        mine, theirs = folder / "mine", folder / "theirs"
        mine.mkdir()
        theirs.mkdir()
        return self.make_store(mine), self.make_store(theirs)


def refusal(call: Callable[[], Any], kind: type[Exception] = StoreError) -> str:
    """The message of the error that `call` must end in."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} was raised")


def best_config(store: Store, workload: Workload) -> Config | None:
    best = store.best(workload.id)
    return None if best is None else best.config


def matched(store: Store, workload: Workload) -> Workload | None:
    found = store.match(workload)
    return None if found is None else found.workload


def die_if_stuck(seconds: int = 30) -> None:
    """For forked children: a lock that is never freed shall fail a test, not hang it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)


def in_child(check: Callable[[], bool]) -> bool:
    """What `check` says in a forked child; False as well where it raises."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_if_stuck()
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class TrialObligations(StoreMaker):
    def test_a_trial_comes_back_as_it_was(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        foreign = Timing((), "do_bench", foreign=Summary(5.0, 4.0, 6.0, "triton"))
        trials = [
            a_trial(workload, {"order": ["i", "j"], "unroll": True, "alpha": 1.0, "pad": None}),
            a_trial(workload, {"BM": 1}, timing=a_timing(0.1 + 0.2, l2="cold", discarded=3)),
            a_trial(workload, {"BM": 2}, timing=foreign, run_id="r1", created=12.25),
            a_trial(workload, {"BM": 3}, status=Status.BUILD_TIMEOUT, limit=Limit("build_s", 30.0)),
            a_trial(workload, {"BM": 4}, status=Status.BUILD_ERROR, error="añb\n'\0\";"),
            a_trial(workload, {"BM": 5}, cost=Cost(), facts={}, timing=None),
            a_trial(workload, {}, facts={"stages": ((1, 2), (3,)), "sha": "x" * 64}),
        ]
        store.append(trials)
        assert store.trials(workload.id) == trials

    def test_output_that_is_not_text_can_be_stored(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        garbled = b"cc: \xff\xfe".decode(errors="surrogateescape")
        store.append([a_trial(workload, status=Status.BUILD_ERROR, error=garbled)])
        assert store.trials(workload.id)[0].error.startswith("cc: ")

    def test_an_unknown_workload_is_refused_and_nothing_of_the_batch_is_kept(
        self, tmp_path: Path
    ) -> None:
        store, workload = self.filled(tmp_path)
        stranger = a_workload(kernel="stranger")
        message = refusal(lambda: store.append([a_trial(workload), a_trial(stranger)]))
        assert stranger.id in message
        assert store.trials(workload.id, all=True) == []

    def test_appending_says_how_many_trials_were_new(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        one, two, three = (a_trial(workload, {"BM": n}) for n in (1, 2, 3))
        assert store.append([one, two, one]) == 2
        assert store.append([two, three]) == 1
        assert store.append([]) == 0
        assert store.trials(workload.id, all=True) == [one, two, three]

    def test_a_trial_seen_again_does_not_supersede_a_later_one(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        early, late = a_trial(workload, median_ns=5.0), a_trial(workload, median_ns=9.0)
        store.append([early])
        store.append([late])
        store.append([early])
        assert store.trials(workload.id) == [late]

    def test_an_iterator_can_be_appended(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        assert store.append(a_trial(workload, {"BM": n}) for n in range(3)) == 3

    def test_a_workload_can_be_put_twice(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {})
        store.put_workload(workload)
        assert [summary.trials for summary in store.workloads()] == [1]

    def test_an_origin_is_added_to_a_workload_that_is_known(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {})
        first, second = Origin("c0de", places=("a.py:f",)), Origin("c0de", places=("b.py:g",))
        store.put_workload(replace(workload, origin=first))
        store.save_run(a_run(replace(workload, origin=second), {"BM": 64}))
        [known] = store.workloads()
        assert known.workload.origin == Origin("c0de", places=("b.py:g", "a.py:f"))
        assert known.trials == 1

    def test_the_latest_trial_of_each_config_in_order_of_first_appearance(
        self, tmp_path: Path
    ) -> None:
        store, workload = self.filled(tmp_path)
        a1, b1, c1 = (a_trial(workload, {"BM": name}) for name in "abc")
        c2, a2 = c1.superseded_by(error="again"), a1.superseded_by(error="again")
        store.append([a1, b1, c1])
        store.append([c2, a2])
        assert store.trials(workload.id) == [a2, b1, c2]
        assert store.trials(workload.id, all=True) == [a1, b1, c1, c2, a2]

    def test_the_latest_is_the_last_appended_whatever_the_clock_says(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        trial = a_trial(workload, created=100.0)
        later = trial.superseded_by(created=50.0)
        store.append([trial, later])
        assert store.latest(workload.id, trial.config.id) == later

    def test_latest_finds_one_config(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {"config": {"BM": 1}}, {"config": {"BM": 2}})
        found = store.latest(workload.id, Config(BM=2).id)
        assert found is not None
        assert found.config == Config(BM=2)

    def test_what_is_not_there_is_none_or_empty(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        assert store.latest(workload.id, Config(BM=1).id) is None
        assert store.latest("nowhere", Config(BM=1).id) is None
        assert store.best(workload.id) is None
        assert store.best("nowhere") is None
        assert store.trials("nowhere") == []
        assert store.runs("nowhere") == []
        assert store.run("nowhere") is None

    def test_workloads_do_not_see_each_others_trials(self, tmp_path: Path) -> None:
        store, one = self.filled(tmp_path, {"median_ns": 1.0})
        two = a_workload(key={"M": 1})
        store.put_workload(two)
        assert store.trials(two.id) == []
        assert store.best(two.id) is None
        assert len(store.trials(one.id)) == 1


class BestObligations(StoreMaker):
    def test_the_best_is_the_ok_trial_with_the_lowest_median(self, tmp_path: Path) -> None:
        store, workload = self.filled(
            tmp_path,
            {"config": {"BM": 1}, "median_ns": 30.0},
            {"config": {"BM": 2}, "median_ns": 20.0},
            {"config": {"BM": 3}, "median_ns": 5.0, "status": Status.OUTRACED},
            {"config": {"BM": 4}, "status": Status.WRONG_RESULT, "timing": a_timing(1.0)},
        )
        assert best_config(store, workload) == Config(BM=2)

    def test_of_equal_medians_the_config_that_came_first_is_best(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {"config": {"BM": 9}}, {"config": {"BM": 1}})
        assert best_config(store, workload) == Config(BM=9)

    def test_without_an_ok_trial_there_is_no_best(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {"status": Status.RUN_ERROR})
        assert store.best(workload.id) is None

    def test_a_trial_without_samples_cannot_be_the_fastest(self, tmp_path: Path) -> None:
        store, workload = self.filled(
            tmp_path,
            {"config": {"BM": 1}, "timing": None},
            {"config": {"BM": 2}, "timing": Timing((), "cpu")},
            {"config": {"BM": 3}, "timing": Timing((float("nan"),), "cpu")},
            {"config": {"BM": 4}, "median_ns": 7.0},
        )
        assert best_config(store, workload) == Config(BM=4)

    def test_what_is_no_time_cannot_be_the_best_even_if_a_run_chose_it(
        self, tmp_path: Path
    ) -> None:
        odd = (0.0, -5.0, 1e-300, 1e300, float("inf"))
        store, workload = self.filled(
            tmp_path,
            *({"config": {"BM": ns}, "timing": Timing((ns,) * 3, "cpu")} for ns in odd[:4]),
            {"config": {"BM": 1}, "timing": Timing((odd[4],), "cpu")},
            {"config": {"BM": 2}, "median_ns": 7.0},
        )
        for chosen in (*odd[:4], 1):
            store.save_run(a_run(workload, {"BM": chosen}))
            assert best_config(store, workload) == Config(BM=2)

    def test_a_superseded_trial_no_longer_counts(self, tmp_path: Path) -> None:
        store, workload = self.filled(
            tmp_path,
            {"config": {"BM": 1}, "median_ns": 1.0},
            {"config": {"BM": 2}, "median_ns": 10.0},
            {"config": {"BM": 1}, "median_ns": 15.0},
        )
        assert best_config(store, workload) == Config(BM=2)

    def test_a_config_that_failed_later_is_no_longer_best(self, tmp_path: Path) -> None:
        store, workload = self.filled(
            tmp_path,
            {"config": {"BM": 1}, "median_ns": 1.0},
            {"config": {"BM": 1}, "status": Status.WRONG_RESULT},
        )
        assert store.best(workload.id) is None

    def test_what_the_newest_finished_run_chose_comes_before_the_lowest_median(
        self, tmp_path: Path
    ) -> None:
        store, workload = self.filled(
            tmp_path,
            {"config": {"BM": 1}, "median_ns": 10.0},
            {"config": {"BM": 2}, "median_ns": 10.1},
            {"config": {"BM": 3}, "median_ns": 10.2},
        )
        store.save_run(a_run(workload, {"BM": 3}, started=300.0))
        store.save_run(a_run(workload, {"BM": 2}, started=200.0))
        assert best_config(store, workload) == Config(BM=3)

    def test_the_latest_trial_of_the_chosen_config_is_returned(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {"config": {"BM": 1}}, {"config": {"BM": 2}})
        store.save_run(a_run(workload, {"BM": 2}))
        again = a_trial(workload, {"BM": 2}, median_ns=2000.0)
        store.append([again])
        assert store.best(workload.id) == again

    def test_a_choice_that_failed_later_gives_way_to_the_lowest_median(
        self, tmp_path: Path
    ) -> None:
        store, workload = self.filled(
            tmp_path,
            {"config": {"BM": 1}, "median_ns": 10.0},
            {"config": {"BM": 2}, "median_ns": 11.0},
            {"config": {"BM": 3}, "median_ns": 12.0},
            {"config": {"BM": 3}, "status": Status.RUN_ERROR},
        )
        store.save_run(a_run(workload, {"BM": 2}, started=1.0))
        store.save_run(a_run(workload, {"BM": 3}, started=2.0))
        assert best_config(store, workload) == Config(BM=1)

    def test_runs_that_did_not_finish_or_chose_nothing_have_no_say(self, tmp_path: Path) -> None:
        store, workload = self.filled(
            tmp_path,
            {"config": {"BM": 1}, "median_ns": 10.0},
            {"config": {"BM": 2}, "median_ns": 11.0},
            {"config": {"BM": 3}, "median_ns": 12.0},
        )
        store.save_run(a_run(workload, {"BM": 2}, started=1.0))
        store.save_run(a_run(workload, None, started=2.0))
        for outcome in (Outcome.RUNNING, Outcome.INTERRUPTED, Outcome.FAILED):
            store.save_run(a_run(workload, {"BM": 3}, started=3.0, outcome=outcome))
        assert best_config(store, workload) == Config(BM=2)


class RunObligations(StoreMaker):
    def test_a_run_comes_back_as_it_was(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, key={"shape": (8, (2, 3)), "dtype": "f16"})
        run = a_run(workload, {"order": ["i", "j"]}, equals=(Config(BM=1), Config(BM=2)))
        store.save_run(run)
        assert store.run(run.id) == run
        assert store.runs(workload.id) == [run]

    def test_saving_again_replaces(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        run = a_run(workload, outcome=Outcome.RUNNING)
        store.save_run(run)
        ended = replace(run, outcome=Outcome.FINISHED, best=Config(BM=1), wall_s=9.0)
        store.save_run(ended)
        assert store.runs(workload.id) == [ended]

    def test_runs_are_listed_newest_first(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        runs = [a_run(workload, started=started) for started in (2.0, 3.0, 1.0, 3.0)]
        for run in runs:
            store.save_run(run)
        assert store.runs(workload.id) == [runs[3], runs[1], runs[0], runs[2]]

    def test_saving_a_run_makes_its_workload_known(self, tmp_path: Path) -> None:
        store, workload = self.make_store(tmp_path), a_workload()
        store.save_run(a_run(workload))
        assert store.append([a_trial(workload)]) == 1


SOME_TIMELINE = Timeline(
    (
        Span("worker 0", "build", 0.0, 1.25, Config(BM=1).id),
        Span("worker 0", "llir", 0.25, 0.75, Config(BM=1).id, depth=1),
        Span("device", "round of 2 configs", 1.25, 0.000125),
    )
)
OTHER_TIMELINE = Timeline((Span("engine", "duel", 3.0, 0.5),))


class TimelineObligations(StoreMaker):
    def test_a_timeline_comes_back_as_it_was(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        one, two, without = (a_run(workload) for _ in range(3))
        for run in (one, two, without):
            store.save_run(run)
        store.save_timeline(one.id, SOME_TIMELINE)
        store.save_timeline(two.id, Timeline())
        assert store.timeline(one.id) == SOME_TIMELINE
        assert store.timeline(two.id) == Timeline()
        assert store.timeline(without.id) is None
        assert store.timeline("nowhere") is None

    def test_a_timeline_saved_again_replaces(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        run = a_run(workload)
        store.save_run(run)
        store.save_timeline(run.id, OTHER_TIMELINE)
        store.save_timeline(run.id, SOME_TIMELINE)
        assert store.timeline(run.id) == SOME_TIMELINE

    def test_a_run_saved_again_keeps_its_timeline(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        run = a_run(workload, outcome=Outcome.RUNNING)
        store.save_run(run)
        store.save_timeline(run.id, SOME_TIMELINE)
        store.save_run(replace(run, outcome=Outcome.FINISHED))
        assert store.timeline(run.id) == SOME_TIMELINE

    def test_a_timeline_of_an_unknown_run_is_refused(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        assert "nobody" in refusal(lambda: store.save_timeline("nobody", SOME_TIMELINE))

    def test_a_timeline_goes_with_its_run(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {})
        run = a_run(workload)
        store.save_run(run)
        store.save_timeline(run.id, SOME_TIMELINE)
        store.gc(kernel=workload.kernel)
        assert store.timeline(run.id) is None
        store.save_run(run)
        assert store.timeline(run.id) is None

    def test_superseded_trials_go_without_the_timeline(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {}, {})
        run = a_run(workload)
        store.save_run(run)
        store.save_timeline(run.id, SOME_TIMELINE)
        store.gc(superseded=True)
        assert store.timeline(run.id) == SOME_TIMELINE

    def test_a_merge_brings_timelines_and_keeps_those_that_are_there(self, tmp_path: Path) -> None:
        mine, theirs = self.pair(tmp_path)
        both, new = a_run(a_workload()), a_run(a_workload(key={"M": 1}))
        for store in (mine, theirs):
            store.save_run(both)
        theirs.save_run(new)
        mine.save_timeline(both.id, SOME_TIMELINE)
        theirs.save_timeline(both.id, OTHER_TIMELINE)
        theirs.save_timeline(new.id, OTHER_TIMELINE)
        mine.merge(theirs)
        assert mine.timeline(both.id) == SOME_TIMELINE
        assert mine.timeline(new.id) == OTHER_TIMELINE

    def test_a_forked_child_reads_and_writes_timelines(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        run = a_run(workload)
        store.save_run(run)
        store.save_timeline(run.id, SOME_TIMELINE)

        def check() -> bool:
            was_there = store.timeline(run.id) == SOME_TIMELINE
            store.save_timeline(run.id, OTHER_TIMELINE)
            return was_there and store.timeline(run.id) == OTHER_TIMELINE

        assert in_child(check)
        assert store.append([a_trial(workload)]) == 1


SOME_MISS = Miss(
    a_workload(key={"M": 3, "x.dtype": "torch.float16"}),
    "/srv/kernels.py:matmul",
    (
        Argument("x", "Tensor", "torch.float16", (3, 64)),
        Argument("M", "int", value=3),
        Argument("strides", "tuple", value=(64, 1)),
        Argument("bias", "NoneType"),
    ),
    at=1_700_000_000.25,
)
OTHER_MISS = Miss(a_workload(kernel="softmax", key={"N": 5}), at=1_700_000_009.0)


class MissedObligations(StoreMaker):
    def test_a_miss_comes_back_as_it_was_in_the_order_they_were_met(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        assert store.missed() == []
        store.miss(SOME_MISS)
        store.miss(OTHER_MISS)
        assert store.missed() == [SOME_MISS, OTHER_MISS]
        assert store.missed("softmax") == [OTHER_MISS]
        assert store.missed("soft") == []

    def test_a_key_is_written_down_once(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        assert store.miss(SOME_MISS)
        assert not store.miss(Miss(SOME_MISS.workload, at=1.0))
        assert store.missed() == [SOME_MISS]

    def test_a_miss_makes_no_workload_known(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.miss(SOME_MISS)
        assert store.workloads() == []
        assert store.match(SOME_MISS.workload) is None

    def test_a_finished_run_takes_its_workload_off_the_list(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.miss(SOME_MISS)
        store.miss(OTHER_MISS)
        store.save_run(a_run(SOME_MISS.workload, None))
        store.save_run(a_run(SOME_MISS.workload, {"BM": 1}, outcome=Outcome.RUNNING))
        assert store.missed() == [SOME_MISS, OTHER_MISS]
        store.save_run(a_run(SOME_MISS.workload, {"BM": 1}))
        assert store.missed() == [OTHER_MISS]

    def test_what_was_recorded_of_a_call_stays_once_it_is_tuned(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.miss(SOME_MISS)
        store.miss(OTHER_MISS)
        store.save_run(a_run(SOME_MISS.workload, {"BM": 1}))
        assert store.missed(tuned=True) == [SOME_MISS, OTHER_MISS]
        assert store.missed(SOME_MISS.workload.kernel, tuned=True) == [SOME_MISS]
        assert not store.miss(SOME_MISS)
        assert store.missed() == [OTHER_MISS]

    def test_what_is_forgotten_is_gone(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.miss(SOME_MISS)
        store.miss(OTHER_MISS)
        assert store.forget_missed([SOME_MISS.workload.id, "nowhere"]) == 1
        assert store.missed() == [OTHER_MISS]

    def test_a_collection_takes_the_missed_keys_of_a_kernel(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.miss(SOME_MISS)
        store.miss(OTHER_MISS)
        store.gc(kernel="softmax", dry_run=True)
        store.gc(superseded=True)
        assert store.missed() == [SOME_MISS, OTHER_MISS]
        store.gc(kernel="softmax")
        assert store.missed() == [SOME_MISS]
        store.gc(older_than_s=60.0)
        assert store.missed() == []

    def test_a_merge_brings_what_is_missed_and_not_known_here(self, tmp_path: Path) -> None:
        mine, theirs = self.pair(tmp_path)
        mine.put_workload(OTHER_MISS.workload)
        mine.append([a_trial(OTHER_MISS.workload)])
        theirs.miss(SOME_MISS)
        theirs.miss(OTHER_MISS)
        mine.merge(theirs)
        assert mine.missed() == [SOME_MISS]

    def test_a_merge_that_brings_the_result_takes_the_miss_off(self, tmp_path: Path) -> None:
        mine, theirs = self.pair(tmp_path)
        mine.miss(SOME_MISS)
        theirs.save_run(a_run(SOME_MISS.workload, {"BM": 64, "BN": 32}))
        theirs.append([a_trial(SOME_MISS.workload)])
        mine.merge(theirs)
        assert mine.missed() == []

    def test_a_closed_store_misses_nothing(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.close()
        refusal(lambda: store.miss(SOME_MISS))
        refusal(store.missed)

    def test_a_forked_child_can_write_one_down(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.miss(SOME_MISS)
        assert in_child(lambda: store.miss(OTHER_MISS) and len(store.missed()) == 2)
        assert SOME_MISS in store.missed()


MARK = Mark(
    workload_id=WORKLOAD.id,
    run_id="r1",
    configs=(Config(BM=64, order=("i", "j")), Config(BM=32, order=("j", "i"))),
    process=ProcessName("node7", "0c9b", 4711, 123_456),
    at=1_700_000_000.25,
)


class MarkObligations(StoreMaker):
    def test_a_mark_comes_back_as_it_was(self, tmp_path: Path) -> None:
        store, _ = self.filled(tmp_path)
        spoiled = replace(MARK, run_id="r2", spoiled=True)
        store.mark(MARK)
        store.mark(spoiled)
        assert store.marks(WORKLOAD.id) == [MARK, spoiled]

    def test_a_run_has_one_mark_and_the_last_one_counts(self, tmp_path: Path) -> None:
        store, _ = self.filled(tmp_path)
        later = replace(MARK, configs=(Config(BM=8),), at=MARK.at + 1)
        store.mark(MARK)
        store.mark(later)
        assert store.marks(WORKLOAD.id) == [later]

    def test_a_mark_that_is_removed_is_gone_and_others_stay(self, tmp_path: Path) -> None:
        store, _ = self.filled(tmp_path)
        other = replace(MARK, run_id="r2")
        store.mark(MARK)
        store.mark(other)
        store.unmark("r1")
        store.unmark("r1")
        store.unmark("nobody")
        assert store.marks(WORKLOAD.id) == [other]

    def test_marks_are_kept_by_workload(self, tmp_path: Path) -> None:
        store, _ = self.filled(tmp_path)
        stranger = a_workload(kernel="stranger")
        store.mark(MARK)
        assert store.marks(stranger.id) == []
        assert stranger.id in refusal(
            lambda: store.mark(replace(MARK, run_id="r2", workload_id=stranger.id))
        )

    def test_a_mark_goes_with_its_workload(self, tmp_path: Path) -> None:
        store, _ = self.filled(tmp_path, {})
        store.mark(MARK)
        store.gc(superseded=True)
        assert store.marks(WORKLOAD.id) == [MARK]
        store.gc(kernel=WORKLOAD.kernel)
        assert store.marks(WORKLOAD.id) == []

    def test_a_merge_brings_no_marks(self, tmp_path: Path) -> None:
        mine, theirs = self.pair(tmp_path)
        theirs.put_workload(WORKLOAD)
        theirs.append([a_trial(WORKLOAD)])
        theirs.mark(MARK)
        mine.merge(theirs)
        assert len(mine.trials(WORKLOAD.id)) == 1
        assert mine.marks(WORKLOAD.id) == []

    def test_a_closed_store_takes_and_gives_no_marks(self, tmp_path: Path) -> None:
        store, _ = self.filled(tmp_path)
        store.close()
        refusal(lambda: store.mark(MARK))
        refusal(lambda: store.unmark(MARK.run_id))
        refusal(lambda: store.marks(WORKLOAD.id))

    def test_a_forked_child_can_make_one(self, tmp_path: Path) -> None:
        store, _ = self.filled(tmp_path)

        def marked() -> bool:
            store.mark(MARK)
            return store.marks(WORKLOAD.id) == [MARK]

        assert in_child(marked)


class SummaryObligations(StoreMaker):
    def test_a_summary_counts_rows_configs_and_what_works(self, tmp_path: Path) -> None:
        store, workload = self.filled(
            tmp_path,
            {"config": {"BM": 1}, "median_ns": 9.0, "created": 10.0},
            {"config": {"BM": 2}, "status": Status.RESOURCES, "created": 30.0},
            {"config": {"BM": 1}, "median_ns": 8.0, "created": 20.0},
        )
        (summary,) = store.workloads()
        assert summary.workload == workload
        assert (summary.trials, summary.configs, summary.ok) == (3, 2, 1)
        assert summary.active == 30.0
        assert summary.best == store.best(workload.id)
        assert summary.best_config == Config(BM=1)
        assert summary.median_ns == 8.0

    def test_a_run_is_activity_until_its_end(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {"created": 10.0})
        store.save_run(a_run(workload, started=100.0, wall_s=5.0))
        assert [summary.active for summary in store.workloads()] == [105.0]

    def test_a_workload_without_trials_is_listed_as_active_when_it_was_put(
        self, tmp_path: Path
    ) -> None:
        before = time.time()
        store, _ = self.filled(tmp_path)
        (summary,) = store.workloads()
        assert before <= summary.active <= time.time()
        assert (summary.trials, summary.configs, summary.ok) == (0, 0, 0)
        assert (summary.best, summary.best_config, summary.median_ns) == (None, None, None)

    def test_the_most_recently_active_workload_is_listed_first(self, tmp_path: Path) -> None:
        store, old = self.filled(tmp_path, {"created": 10.0}, key={"M": 1})
        new, middle = a_workload(key={"M": 2}), a_workload(key={"M": 3})
        for workload, created in ((new, 30.0), (middle, 20.0)):
            store.put_workload(workload)
            store.append([a_trial(workload, created=created)])
        assert [summary.workload for summary in store.workloads()] == [new, middle, old]

    def test_workloads_of_one_kernel_can_be_asked_for(self, tmp_path: Path) -> None:
        store, matmul = self.filled(tmp_path, {})
        store.put_workload(a_workload(kernel="softmax"))
        assert [summary.workload for summary in store.workloads("matmul")] == [matmul]
        assert store.workloads("mat") == []


class LifeObligations(StoreMaker):
    def test_it_says_where_it_is(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        assert store.location
        assert not store.read_only

    def test_it_says_where_to_take_turns_and_keeps_models_or_goes_without(
        self, tmp_path: Path
    ) -> None:
        with self.make_store(tmp_path) as store:
            assert store.lock_folder is None or isinstance(store.lock_folder, Path)
            assert store.models.get("unknown") is None
            store.models["known"] = "text"
            assert store.models.get("known") in (None, "text")
            assert not store.replaced

    def test_a_closed_store_refuses_and_can_be_closed_again(self, tmp_path: Path) -> None:
        with self.make_store(tmp_path) as store:
            store.put_workload(a_workload())
        store.close()
        assert store.location in refusal(lambda: store.trials(a_workload().id))
        refusal(lambda: store.put_workload(a_workload()))

    def test_threads_can_append_at_once(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)

        def work(worker: int) -> None:
            for n in range(25):
                store.append([a_trial(workload, {"worker": worker, "n": n})])
                store.best(workload.id)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({trial.id for trial in store.trials(workload.id, all=True)}) == 100

    def test_a_forked_child_can_use_it_and_the_parent_still_can(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {"config": {"BM": 1}})
        assert in_child(
            lambda: (
                store.append([a_trial(workload, {"BM": 2})]) == 1
                and len(store.trials(workload.id)) == 2
            )
        )
        assert store.append([a_trial(workload, {"BM": 3})]) == 1
        assert Config(BM=3) in [trial.config for trial in store.trials(workload.id)]
