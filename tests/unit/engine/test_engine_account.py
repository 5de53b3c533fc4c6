"""`account`: from runs and trials made by hand to numbers worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Run
from whet.core.status import Status
from whet.core.timing import Summary, Timing
from whet.core.trial import Cost, Trial
from whet.core.workload import Workload
from whet.engine import tune
from whet.engine.account import Account, Stock, Tuning, account
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget
from whet.testing.samples import a_run, a_trial, a_workload

WORKLOAD = a_workload(toolchain={"triton": "3.6.0"})
START = 1_700_000_100.0
WALL = {"measure": 1.0, "load": 0.25, "check": 0.0, "search": 0.0, "waiting": 2.5, "idle": 0.25}
RUN = a_run(
    WORKLOAD,
    {"BM": 1},
    started=START,
    wall_s=4.0,
    space_size=100,
    cost=Cost(FrozenMap(), FrozenMap(WALL)),
)


def trial(
    bm: int,
    status: Status = Status.OK,
    work: dict[str, float] | None = None,
    workload: Workload = WORKLOAD,
    **changes: Any,
) -> Trial:
    """Of `RUN`, measured with four samples of two executions of 100 ns each, if measured."""
    timing = None if status.failed else Timing((100.0,) * 4, "cuda", loops=2)
    made = {"timing": timing, "run_id": RUN.id, "created": START + bm, **changes}
    return a_trial(workload, {"BM": bm}, status=status, cost=spending(work), **made)


def spending(work: dict[str, float] | None) -> Cost:
    return Cost(FrozenMap(work if work is not None else built(1.0)))


def built(seconds: float, **more: float) -> dict[str, float]:
    """A whole build, most of it in `llir`, and a measurement."""
    return {
        "build": seconds,
        "build.ttir": 0.25 * seconds,
        "build.llir": 0.75 * seconds,
        "measure": 0.5,
        **more,
    }


def refused(bm: int, **changes: Any) -> Trial:
    return trial(bm, Status.RESOURCES, {"build": 0.125, "build.ttir": 0.125}, **changes)


def cost_of(*trials: Trial, run: Run = RUN, first: Config | None = None) -> Account:
    return account([Tuning(run, trials, first)])


def test_wall_time_is_the_runs_own_and_sums_to_its_length() -> None:
    told = cost_of(trial(1))
    assert dict(told.wall) == WALL
    assert told.wall_s == 4.0


def test_work_is_what_the_run_wrote_down() -> None:
    run = replace(RUN, cost=Cost(FrozenMap({"build": 7.0, "search": 0.5}), FrozenMap(WALL)))
    assert dict(cost_of(trial(1), run=run).work) == {"build": 7.0, "search": 0.5}


def test_the_work_of_a_run_that_was_killed_is_that_of_its_trials() -> None:
    killed = replace(RUN, outcome=Outcome.RUNNING, cost=Cost(), wall_s=0.0)
    told = cost_of(trial(1, work=built(1.0)), trial(2, work=built(3.0)), run=killed)
    assert told.work["build"] == 4.0
    assert told.work["build.llir"] == 3.0
    assert not told.wall
    assert told.overlap is None
    assert set(told.unknown) == {"wall", "payback"}


def test_configs_are_listed_with_their_costliest_stage_the_most_expensive_first() -> None:
    slow = {"build": 2.0, "build.ttir": 0.5, "build.ptx": 1.5, "load": 0.25, "measure": 0.5}
    costs = cost_of(trial(1, work=built(1.0, warmup=0.25)), trial(2, work=slow)).configs
    assert [cost.config for cost in costs] == [Config(BM=2), Config(BM=1)]
    assert (costs[0].build_s, costs[0].stage, costs[0].stage_s) == (2.0, "ptx", 1.5)
    assert [cost.measure_s for cost in costs] == [0.75, 0.75]
    assert dict(costs[0].statuses) == {"ok": 1}


def test_only_the_last_outcome_of_a_config_counts() -> None:
    early = trial(1, work=built(1.0))
    late = early.superseded_by(cost=spending(built(1.0, check=0.5)))
    assert [cost.total_s for cost in cost_of(early, late).configs] == [2.0]


def test_racing_is_the_kernel_time_of_the_samples_against_ten_for_each() -> None:
    racing = cost_of(trial(1), trial(2, Status.OUTRACED), refused(3)).racing
    assert racing is not None
    # Each config: 4 samples × 2 executions × 100 ns, against 10 × 2 × 100 ns.
    assert racing.configs == 2
    assert racing.taken_s == pytest.approx(2 * 800e-9)
    assert racing.full_s == pytest.approx(2 * 2000e-9)


def test_racing_counts_the_devices_own_seconds_where_they_are_known() -> None:
    racing = cost_of(trial(1, work=built(1.0, **{"measure.kernel": 0.25})), trial(2)).racing
    assert racing is not None
    assert racing.taken_s == pytest.approx(0.25 + 800e-9)


def test_a_twin_that_was_not_sampled_counts_on_neither_side_of_the_race() -> None:
    racing = cost_of(trial(1), trial(2, work={"build": 1.0, "build.llir": 1.0})).racing
    assert racing is not None
    assert racing.configs == 1


def test_somebody_elses_benchmark_says_nothing_about_racing() -> None:
    foreign = Timing((), "do_bench", foreign=Summary(5.0, 4.0, 6.0, "triton"))
    told = cost_of(trial(1, timing=foreign))
    assert told.racing is None
    assert "timer" in told.unknown["racing"]


def test_an_early_refusal_saves_at_least_a_build_of_the_median_length() -> None:
    told = cost_of(*(trial(n, work=built(n)) for n in (1, 2, 6)), refused(7), refused(8))
    assert (told.refusal.configs, told.refusal.spent_s, told.refusal.typical_s) == (2, 0.25, 2.0)
    assert told.refusal.saved_s == 3.75


def test_a_refusal_after_code_generation_is_not_early() -> None:
    late = trial(2, Status.RESOURCES, {"build": 1.0, "build.llir": 0.75, "load": 0.25})
    told = cost_of(trial(1), late)
    assert told.refusal.configs == 0
    assert told.refusal.typical_s == 1.0


def test_a_config_that_failed_its_targets_constraint_was_refused_for_nothing() -> None:
    told = cost_of(trial(1, work=built(3.0)), trial(2, Status.CONSTRAINT, {}))
    assert (told.refusal.configs, told.refusal.spent_s, told.refusal.saved_s) == (1, 0.0, 3.0)


def test_what_a_refusal_saved_is_unknown_where_nothing_was_built() -> None:
    told = cost_of(trial(1, work={"measure": 0.5}), trial(2, Status.CONSTRAINT, {}))
    assert told.refusal.configs == 1
    assert told.refusal.saved_s is None


def test_what_was_cut_is_counted_with_what_it_had_taken() -> None:
    cut = cost_of(
        trial(1),
        trial(2, Status.BUILD_TIMEOUT, {"build": 6.0, "build.llir": 5.5}),
        trial(3, Status.BUILD_TIMEOUT, {"build": 5.0}),
        trial(4, Status.RUN_TIMEOUT, built(1.0, measure=2.0)),
    ).cutting
    assert (cut.builds, cut.build_s, cut.runs, cut.run_s) == (2, 11.0, 1, 2.0)


def test_overlap_is_building_against_waiting() -> None:
    overlap = cost_of(trial(1, work=built(3.0)), trial(2, work=built(5.0))).overlap
    assert overlap is not None
    assert (overlap.build_s, overlap.waiting_s) == (8.0, 2.5)


def test_a_measured_config_without_a_whole_build_was_built_before() -> None:
    told = cost_of(
        trial(1, work=built(2.0)),
        trial(2, work={"measure": 0.5}),
        trial(3, work={"build": 0.5, "build.ttir": 0.5, "measure": 0.5}),
    )
    assert (told.cache.built, told.cache.built_s) == (2, 2.0 + 1.5)


def test_where_nothing_is_ever_built_nothing_was_built_before() -> None:
    told = cost_of(trial(1, work={"measure": 0.5}))
    assert (told.cache.built, told.cache.built_s) == (0, None)


def test_what_an_earlier_run_knew_cost_what_it_cost_then() -> None:
    earlier: dict[str, Any] = {"run_id": "earlier", "created": START - 50}
    told = cost_of(trial(1), trial(2, work=built(3.0), **earlier), refused(3, **earlier))
    assert (told.cache.known, told.cache.known_s) == (2, 3.5 + 0.125)
    assert [cost.config for cost in told.configs] == [Config(BM=1)]


def test_a_config_that_was_tried_again_was_not_known() -> None:
    told = cost_of(trial(1, run_id="earlier", created=START - 50), trial(1, work=built(2.0)))
    assert told.cache.known == 0
    assert [cost.build_s for cost in told.configs] == [2.0]


def test_a_known_config_that_was_only_judged_anew_costs_this_run_nothing() -> None:
    stored = trial(2, work=built(9.0), run_id="earlier", created=START - 50)
    judged = stored.superseded_by(status=Status.OUTRACED, run_id=RUN.id, created=START + 1)
    told = cost_of(trial(1), stored, judged)
    assert [cost.config for cost in told.configs] == [Config(BM=1)]
    assert (told.cache.known, told.cache.known_s) == (1, 9.5)


def test_trials_of_a_later_run_are_left_out() -> None:
    told = cost_of(trial(1), trial(2, run_id="later", created=START + 500))
    assert (told.keys[0].tried, told.cache.known) == (1, 0)


def test_more_known_configs_than_the_space_has_save_nobody_knows_what() -> None:
    earlier: dict[str, Any] = {"run_id": "earlier", "created": START - 50}
    told = cost_of(trial(1), trial(2, **earlier), run=replace(RUN, space_size=1))
    assert (told.cache.known, told.cache.known_s) == (1, None)


def test_stock_builds_one_after_another_and_benchmarks_what_works() -> None:
    slow = Timing((30e6,) * 3, "cuda")  # 8 × (30 ms + 0.07 ms) is more than its fixed time
    told = cost_of(
        trial(1, work=built(1.0)),
        trial(2, Status.OUTRACED, built(3.0), timing=slow),
        trial(3, work=built(2.0)),
        refused(4),
        trial(5, Status.BUILD_TIMEOUT, {"build": 6.0, "build.llir": 5.5}),
    )
    assert told.stock is not None
    assert told.stock.build_s == 1.0 + 3.0 + 2.0 + 2.0 + 6.0
    assert told.stock.benchmarks == 3
    assert told.stock.benchmark_s == pytest.approx(0.12 + 8 * 0.03007 + 0.12)
    assert told.stock.total_s == pytest.approx(14.0 + 0.48056)


def test_stock_is_told_of_triton_kernels_only() -> None:
    workload = a_workload()
    told = cost_of(trial(1, workload=workload), run=replace(RUN, workload=workload))
    assert told.stock is None
    assert "Triton" in told.unknown["stock"]


def test_the_gain_over_the_authors_first_config_pays_the_tuning_back() -> None:
    first = trial(2, Status.OUTRACED, timing=Timing((300.0,) * 3, "cuda"))
    payback = cost_of(trial(1), first, first=Config(BM=2)).payback
    assert payback is not None
    assert payback.is_first
    assert payback.calls == 20_000_000  # 4 s at 200 ns a call
    assert payback.calls_to_tenth == 360_000_000  # 36 s at 100 ns a call


def test_without_a_gain_the_tuning_never_pays() -> None:
    payback = cost_of(trial(1), first=Config(BM=1)).payback
    assert payback is not None
    assert payback.calls is None
    assert payback.calls_to_tenth == 360_000_000


def test_where_the_first_config_is_not_known_the_one_measured_first_stands_in() -> None:
    slower = trial(2, Status.OUTRACED, timing=Timing((200.0,) * 3, "cuda"))
    payback = cost_of(refused(3), slower, trial(1)).payback
    assert payback is not None
    assert (payback.is_first, payback.gain_ns) == (False, 100.0)


def test_without_a_best_config_there_is_no_payback() -> None:
    told = cost_of(refused(1), run=replace(RUN, best=None, outcome=Outcome.FAILED))
    assert told.payback is None
    assert "best config" in told.unknown["payback"]


OTHER = a_workload(toolchain={"triton": "3.6.0"}, key={"M": 4096})


def two_keys() -> Account:
    """The second key finds its binaries built, and refuses the same config again."""
    other = replace(RUN, id="other", workload=OTHER)
    here = (trial(1, work=built(2.0)), refused(2))
    there = (
        trial(1, work={"measure": 0.5}, workload=OTHER, run_id="other"),
        refused(2, workload=OTHER, run_id="other"),
    )
    return account([Tuning(RUN, here), Tuning(other, there)])


def test_keys_are_summed_and_told_one_by_one() -> None:
    told = two_keys()
    assert told.wall_s == 8.0
    assert told.wall["waiting"] == 5.0
    shown = [(k.workload, k.run_id, k.wall_s, k.tried, k.builds, k.measured) for k in told.keys]
    assert shown == [(WORKLOAD, RUN.id, 4.0, 2, 2, 1), (OTHER, "other", 4.0, 2, 1, 1)]


def test_a_config_of_several_keys_is_listed_once_with_all_it_took() -> None:
    costs = {cost.config: cost for cost in two_keys().configs}
    assert costs[Config(BM=1)].total_s == 3.0
    assert dict(costs[Config(BM=1)].statuses) == {"ok": 2}


def test_what_one_key_built_is_built_before_for_the_other() -> None:
    assert (two_keys().cache.built, two_keys().cache.built_s) == (1, 2.0)


def test_a_config_refused_for_several_keys_would_have_been_built_once() -> None:
    told = two_keys()
    assert (told.refusal.configs, told.refusal.spent_s, told.refusal.saved_s) == (1, 0.25, 1.75)
    assert told.stock == Stock(build_s=4.0, benchmarks=2, benchmark_s=0.24)


def test_payback_of_several_keys_is_in_calls_of_each() -> None:
    payback = two_keys().payback
    assert payback is not None
    assert (payback.keys, payback.wall_s, payback.best_ns) == (2, 8.0, 200.0)


def test_an_account_is_json_and_says_what_is_estimated_and_what_unknown() -> None:
    data = json.loads(json.dumps(cost_of(trial(1), refused(2)).to_json(), allow_nan=False))
    assert data["v"] == 1
    assert data["saved"]["early_refusal"] == {
        "configs": 1,
        "spent_s": 0.125,
        "full_build_s": 1.0,
        "saved_at_least_s": 0.875,
        "estimated": True,
    }
    assert data["stock"]["estimated"] is True
    assert data["unknown"] == {}
    assert data["payback"]["against"] == "measured_first"


def test_a_run_that_tried_nothing_has_an_account_too() -> None:
    told = cost_of(run=replace(RUN, best=None))
    assert told.configs == ()
    assert set(told.unknown) == {"racing", "stock", "payback"}


def micros(config: Config) -> float:
    return 1000.0 * int(str(config["t"]))


def test_of_a_real_tuning_nothing_is_lost_and_what_was_known_is_not_counted_again() -> None:
    store = MemoryStore()

    def tuned(times: range) -> Tuning:
        target = FakeTarget([{"t": t} for t in times], micros)
        run = tune(target, store=store).run
        return Tuning(run, tuple(store.trials(run.workload.id, all=True)))

    small, large = tuned(range(50, 55)), tuned(range(40, 55))
    assert len(small.tried) == small.run.trials == 5
    assert len(large.tried) == large.run.trials
    assert len(large.tried) + len(large.known) == 15
    told = account([large])
    assert told.wall_s == pytest.approx(large.run.wall_s)
    assert sum(cost.measure_s for cost in told.configs) == pytest.approx(
        sum(s for phase, s in told.work.items() if "." not in phase and phase != "search")
    )
