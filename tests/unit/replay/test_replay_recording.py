"""Tables made from stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Summary, Timing
from whet.core.trial import Cost, Trial
from whet.core.workload import Workload
from whet.replay import Table, table_from_stores
from whet.store import MemoryStore
from whet.testing.samples import a_run, a_timing, a_trial, a_workload

SMALL, LARGE = a_workload(key={"M": 64}), a_workload(key={"M": 128})
ONE, TWO = {"BM": 16}, {"BM": 32}
BUILT = Cost(FrozenMap({"build": 0.5, "build.ttir": 0.2, "measure": 0.01, "warmup": 0.02}))
REUSED = Cost.of(measure=0.03, load=0.001)


def a_store(*trials: Trial, workloads: Sequence[Workload] = (SMALL, LARGE)) -> MemoryStore:
    store = MemoryStore()
    for workload in workloads:
        store.put_workload(workload)
    store.append(trials)
    return store


def timed(*samples: float, **more: Any) -> Timing:
    return a_timing(samples=samples, **more)


def recorded(*trials: Trial) -> Table:
    return table_from_stores([a_store(*trials)])


def test_each_store_is_one_visit() -> None:
    stores = [
        a_store(a_trial(SMALL, ONE, timing=timed(10, 11))),
        a_store(a_trial(SMALL, TWO, timing=timed(30))),
        a_store(a_trial(SMALL, ONE, timing=timed(12)), a_trial(SMALL, TWO, timing=timed(31))),
    ]
    table = table_from_stores(stores)
    assert table.configs == (Config(ONE), Config(TWO))
    (workload,) = table.workloads
    assert workload.samples(0) == ((10, 11), (12,))
    assert workload.samples(1) == ((30,), (31,))


def test_of_one_store_the_latest_trial_of_a_config_counts() -> None:
    first, later = (a_trial(SMALL, ONE, timing=timed(*ns)) for ns in ((10,), (10, 11, 12)))
    assert recorded(first, later).workloads[0].samples(0) == ((10, 11, 12),)


def test_all_keys_of_a_kernel_share_its_configs_and_come_by_size() -> None:
    table = recorded(a_trial(LARGE, TWO), a_trial(LARGE, ONE), a_trial(SMALL, ONE))
    assert [dict(workload.key) for workload in table.workloads] == [{"M": 64}, {"M": 128}]
    assert table.configs == (Config(ONE), Config(TWO))
    assert table.workloads[0].status(1) is None
    assert len(recorded(a_trial(SMALL, ONE)).workloads) == 1  # a key without trials is left out


def test_a_build_is_told_by_the_trial_that_built() -> None:
    (build,) = recorded(
        a_trial(SMALL, ONE, cost=REUSED, facts={}),
        a_trial(LARGE, ONE, cost=BUILT, facts={"registers": 96}),
    ).builds
    assert build.status is Status.OK
    assert build.seconds == 0.5
    assert build.stages == {"ttir": 0.2}
    assert build.facts == {"registers": 96}


def test_a_build_is_told_by_a_trial_that_was_superseded_where_only_that_one_built() -> None:
    built = recorded(a_trial(SMALL, ONE, cost=BUILT), a_trial(SMALL, ONE, cost=REUSED)).builds
    assert built[0].seconds == 0.5


def test_a_config_that_built_for_one_key_has_built() -> None:
    failed = a_trial(SMALL, ONE, status=Status.RESOURCES, error="too much shared memory")
    table = recorded(failed, a_trial(LARGE, ONE, cost=BUILT))
    assert table.builds[0].status is Status.OK
    assert table.workloads[0].status(0) is Status.RESOURCES
    assert table.workloads[0].error(0) == "too much shared memory"


def test_a_config_that_never_built_says_why() -> None:
    failed = a_trial(SMALL, ONE, status=Status.BUILD_ERROR, error="no such tile\nTraceback")
    (build,) = recorded(failed).builds
    assert (build.status, build.error) == (Status.BUILD_ERROR, "no such tile")


def test_what_an_evaluation_spent_is_kept_by_phase() -> None:
    table = recorded(a_trial(SMALL, ONE, cost=BUILT))
    assert table.workloads[0].seconds(0) == {"measure": 0.01, "warmup": 0.02}


def test_a_failure_at_one_visit_does_not_outweigh_the_samples_of_another() -> None:
    stores = [
        a_store(a_trial(SMALL, ONE, status=Status.RUN_ERROR)),
        a_store(a_trial(SMALL, ONE, timing=timed(10))),
    ]
    workload = table_from_stores(stores).workloads[0]
    assert workload.status(0) is Status.OK
    assert workload.samples(0) == ((10,),)


def test_only_the_cleanest_visits_are_kept() -> None:
    stores = [
        a_store(a_trial(SMALL, ONE, timing=timed(99, quality="contaminated"))),
        a_store(a_trial(SMALL, ONE, timing=timed(10))),
    ]
    workload = table_from_stores(stores).workloads[0]
    assert (workload.samples(0), workload.quality(0)) == (((10,),), "clean")
    workload = table_from_stores(stores[:1]).workloads[0]
    assert (workload.samples(0), workload.quality(0)) == (((99,),), "contaminated")


def test_of_a_foreign_benchmark_the_median_is_the_only_sample() -> None:
    foreign = Timing((), "do_bench", foreign=Summary(50.0, 40.0, 60.0, "do_bench"))
    table = recorded(a_trial(SMALL, ONE, timing=foreign))
    assert table.workloads[0].samples(0) == ((50,),)
    assert table.origin.timer == "do_bench"


def test_a_space_says_which_configs_and_in_which_order() -> None:
    store = a_store(a_trial(SMALL, TWO), a_trial(SMALL, ONE), a_trial(SMALL, {"BM": 7}))
    space = Space({"BM": [16, 32, 64]})
    table = table_from_stores([store], space=space)
    assert table.configs == (Config(ONE), Config(TWO))
    assert table.space.id == space.id


def test_how_it_was_measured_goes_into_the_table() -> None:
    store = a_store(a_trial(SMALL, ONE, timing=timed(10, timer="cuda", l2="cold")))
    store.save_run(a_run(SMALL, ONE, whet="0.7.1"))
    origin = table_from_stores([store]).origin
    assert (origin.timer, origin.l2, origin.whet) == ("cuda", "cold", "0.7.1")
    assert origin.date == "2023-11-14"


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (a_workload(key={"M": 9}, kernel="softmax"), "kernels: matmul; softmax"),
        (a_workload(key={"M": 9}, fingerprint="0"), "fingerprints"),
        (a_workload(key={"M": 9}, toolchain={"cc": "gcc 13"}), "toolchains: cc gcc 12.*cc gcc 13"),
    ],
)
def test_two_kernels_do_not_go_into_one_table(other: Workload, what: str) -> None:
    store = a_store(a_trial(SMALL, ONE), a_trial(other, ONE), workloads=[SMALL, other])
    with pytest.raises(UsageError, match=f"several {what}"):
        table_from_stores([store])
    assert table_from_stores([store], workloads=[SMALL]).workloads[0].key == SMALL.key


def test_one_of_several_kernels_is_picked_by_its_name() -> None:
    other = a_workload(kernel="softmax")
    store = a_store(a_trial(SMALL, ONE), a_trial(other, TWO), workloads=[SMALL, other])
    assert table_from_stores([store], kernel="softmax").configs == (Config(TWO),)
    with pytest.raises(UsageError, match="did you mean 'softmax'"):
        table_from_stores([store], kernel="softmaxx")


def test_times_taken_in_two_ways_do_not_go_into_one_table() -> None:
    cold, warm = timed(10, l2="cold"), timed(10, l2="warm")
    with pytest.raises(UsageError, match="L2 cold; cpu, L2 warm"):
        recorded(a_trial(SMALL, ONE, timing=cold), a_trial(SMALL, TWO, timing=warm))


@pytest.mark.parametrize("stores", [[], [MemoryStore()], [a_store()]])
def test_stores_without_trials_give_no_table(stores: list[MemoryStore]) -> None:
    with pytest.raises(UsageError, match=r"no (workload|trials)"):
        table_from_stores(stores)
