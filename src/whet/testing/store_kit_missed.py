"""What a `Store` owes on keys that were missed, as tests."""

from __future__ import annotations

from pathlib import Path

from whet.core.miss import Argument, Miss
from whet.core.run import Outcome
from whet.testing.samples import a_run, a_trial, a_workload
from whet.testing.store_kit_base import StoreMaker, in_child, refusal

SOME = Miss(
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
OTHER = Miss(a_workload(kernel="softmax", key={"N": 5}), at=1_700_000_009.0)


class MissedObligations(StoreMaker):
    def test_a_miss_comes_back_as_it_was_in_the_order_they_were_met(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        assert store.missed() == []
        store.miss(SOME)
        store.miss(OTHER)
        assert store.missed() == [SOME, OTHER]
        assert store.missed("softmax") == [OTHER]
        assert store.missed("soft") == []

    def test_a_key_is_written_down_once(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        assert store.miss(SOME)
        assert not store.miss(Miss(SOME.workload, at=1.0))
        assert store.missed() == [SOME]

    def test_a_miss_makes_no_workload_known(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.miss(SOME)
        assert store.workloads() == []
        assert store.match(SOME.workload) is None

    def test_a_finished_run_takes_its_workload_off_the_list(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.miss(SOME)
        store.miss(OTHER)
        store.save_run(a_run(SOME.workload, None))
        store.save_run(a_run(SOME.workload, {"BM": 1}, outcome=Outcome.RUNNING))
        assert store.missed() == [SOME, OTHER]
        store.save_run(a_run(SOME.workload, {"BM": 1}))
        assert store.missed() == [OTHER]

    def test_what_was_recorded_of_a_call_stays_once_it_is_tuned(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.miss(SOME)
        store.miss(OTHER)
        store.save_run(a_run(SOME.workload, {"BM": 1}))
        assert store.missed(tuned=True) == [SOME, OTHER]
        assert store.missed(SOME.workload.kernel, tuned=True) == [SOME]
        assert not store.miss(SOME)
        assert store.missed() == [OTHER]

    def test_what_is_forgotten_is_gone(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.miss(SOME)
        store.miss(OTHER)
        assert store.forget_missed([SOME.workload.id, "nowhere"]) == 1
        assert store.missed() == [OTHER]

    def test_a_collection_takes_the_missed_keys_of_a_kernel(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.miss(SOME)
        store.miss(OTHER)
        store.gc(kernel="softmax", dry_run=True)
        store.gc(superseded=True)
        assert store.missed() == [SOME, OTHER]
        store.gc(kernel="softmax")
        assert store.missed() == [SOME]
        store.gc(older_than_s=60.0)
        assert store.missed() == []

    def test_a_merge_brings_what_is_missed_and_not_known_here(self, tmp_path: Path) -> None:
        folders = tmp_path / "mine", tmp_path / "theirs"
        for folder in folders:
            folder.mkdir()
        mine, theirs = (self.make_store(folder) for folder in folders)
        mine.put_workload(OTHER.workload)
        mine.append([a_trial(OTHER.workload)])
        theirs.miss(SOME)
        theirs.miss(OTHER)
        mine.merge(theirs)
        assert mine.missed() == [SOME]

    def test_a_merge_that_brings_the_result_takes_the_miss_off(self, tmp_path: Path) -> None:
        folders = tmp_path / "mine", tmp_path / "theirs"
        for folder in folders:
            folder.mkdir()
        mine, theirs = (self.make_store(folder) for folder in folders)
        mine.miss(SOME)
        theirs.save_run(a_run(SOME.workload, {"BM": 64, "BN": 32}))
        theirs.append([a_trial(SOME.workload)])
        mine.merge(theirs)
        assert mine.missed() == []

    def test_a_closed_store_misses_nothing(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.close()
        refusal(lambda: store.miss(SOME))
        refusal(store.missed)

    def test_a_forked_child_can_write_one_down(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.miss(SOME)
        assert in_child(lambda: store.miss(OTHER) and len(store.missed()) == 2)
        assert SOME in store.missed()
