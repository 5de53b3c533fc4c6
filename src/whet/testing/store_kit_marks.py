"""What a `Store` owes on marks, as tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from whet.core.config import Config
from whet.core.process import Mark, ProcessName
from whet.testing.samples import a_workload
from whet.testing.store_kit_base import StoreMaker, in_child, refusal

WORKLOAD = a_workload()
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
        folders = tmp_path / "mine", tmp_path / "theirs"
        for folder in folders:
            folder.mkdir()
        mine = self.make_store(folders[0])
        theirs, _ = self.filled(folders[1], {})
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
