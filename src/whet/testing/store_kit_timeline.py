"""What a `Store` owes on the timelines of runs, as tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from whet.core.config import Config
from whet.core.run import Outcome
from whet.core.timeline import Span, Timeline
from whet.testing.samples import a_run, a_trial, a_workload
from whet.testing.store_kit_base import StoreMaker, in_child, refusal

SOME = Timeline(
    (
        Span("worker 0", "build", 0.0, 1.25, Config(BM=1).id),
        Span("worker 0", "llir", 0.25, 0.75, Config(BM=1).id, depth=1),
        Span("device", "round of 2 configs", 1.25, 0.000125),
    )
)
OTHER = Timeline((Span("engine", "duel", 3.0, 0.5),))


class TimelineObligations(StoreMaker):
    def test_a_timeline_comes_back_as_it_was(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        one, two, without = (a_run(workload) for _ in range(3))
        for run in (one, two, without):
            store.save_run(run)
        store.save_timeline(one.id, SOME)
        store.save_timeline(two.id, Timeline())
        assert store.timeline(one.id) == SOME
        assert store.timeline(two.id) == Timeline()
        assert store.timeline(without.id) is None
        assert store.timeline("nowhere") is None

    def test_a_timeline_saved_again_replaces(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        run = a_run(workload)
        store.save_run(run)
        store.save_timeline(run.id, OTHER)
        store.save_timeline(run.id, SOME)
        assert store.timeline(run.id) == SOME

    def test_a_run_saved_again_keeps_its_timeline(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        run = a_run(workload, outcome=Outcome.RUNNING)
        store.save_run(run)
        store.save_timeline(run.id, SOME)
        store.save_run(replace(run, outcome=Outcome.FINISHED))
        assert store.timeline(run.id) == SOME

    def test_a_timeline_of_an_unknown_run_is_refused(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        assert "nobody" in refusal(lambda: store.save_timeline("nobody", SOME))

    def test_a_timeline_goes_with_its_run(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {})
        run = a_run(workload)
        store.save_run(run)
        store.save_timeline(run.id, SOME)
        store.gc(kernel=workload.kernel)
        assert store.timeline(run.id) is None
        store.save_run(run)
        assert store.timeline(run.id) is None

    def test_superseded_trials_go_without_the_timeline(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {}, {})
        run = a_run(workload)
        store.save_run(run)
        store.save_timeline(run.id, SOME)
        store.gc(superseded=True)
        assert store.timeline(run.id) == SOME

    def test_a_merge_brings_timelines_and_keeps_those_that_are_there(self, tmp_path: Path) -> None:
        folders = tmp_path / "mine", tmp_path / "theirs"
        for folder in folders:
            folder.mkdir()
        mine, theirs = (self.make_store(folder) for folder in folders)
        both, new = a_run(a_workload()), a_run(a_workload(key={"M": 1}))
        for store in (mine, theirs):
            store.save_run(both)
        theirs.save_run(new)
        mine.save_timeline(both.id, SOME)
        theirs.save_timeline(both.id, OTHER)
        theirs.save_timeline(new.id, OTHER)
        mine.merge(theirs)
        assert mine.timeline(both.id) == SOME
        assert mine.timeline(new.id) == OTHER

    def test_a_forked_child_reads_and_writes_timelines(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        run = a_run(workload)
        store.save_run(run)
        store.save_timeline(run.id, SOME)

        def check() -> bool:
            was_there = store.timeline(run.id) == SOME
            store.save_timeline(run.id, OTHER)
            return was_there and store.timeline(run.id) == OTHER

        assert in_child(check)
        assert store.append([a_trial(workload)]) == 1
