"""`whet show cost` on stores made by hand: which run it tells of, how, and what it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, refused
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Run
from whet.core.status import Status
from whet.core.timeline import Span, Timeline
from whet.core.trial import Cost
from whet.core.workload import Workload
from whet.store import Store, open_store
from whet.testing.samples import a_run, a_trial, a_workload

STARTED = 1_700_000_000.0
WALL = {"measure": 1.0, "load": 0.25, "check": 0.1, "search": 0.15, "waiting": 2.0, "idle": 0.5}
BUILT = {"build": 1.0, "build.ttir": 0.25, "build.llir": 0.5, "measure": 0.5, "warmup": 0.25}
CONFIG = {"BM": 64, "BN": 32}


def triton(m: int, **changes: Any) -> Workload:
    key = {"M": m, "dtype": "float16"}
    return a_workload(**{"key": key, "toolchain": {"triton": "3.6.0"}, **changes})


def tuned(store: Store, workload: Workload, later_s: float = 0.0, wall_s: float = 4.0) -> Run:
    """A run with a slower first config, a best one, and one of each kind that did not work."""
    scale = wall_s / 4.0
    wall = FrozenMap({phase: scale * seconds for phase, seconds in WALL.items()})
    run = a_run(
        workload,
        CONFIG,
        started=STARTED + later_s,
        wall_s=wall_s,
        space_size=100,
        trials=4,
        cost=Cost(FrozenMap({"build": 8.0, "build.ttir": 1.0, "build.llir": 6.5}), wall),
    )
    store.save_run(run)
    made: dict[str, Any] = {"run_id": run.id, "created": run.started}
    early, cut = {"build": 0.25, "build.ttir": 0.25}, {"build": 6.0, "build.llir": 5.0}
    store.append(
        [
            a_trial(workload, {"BM": 16, "BN": 16}, 3000.0, cost=spent(BUILT), **made),
            a_trial(workload, CONFIG, 1000.0, cost=spent(BUILT), **made),
            a_trial(workload, {"BM": 256}, status=Status.RESOURCES, cost=spent(early), **made),
            a_trial(workload, {"BM": 512}, status=Status.BUILD_TIMEOUT, cost=spent(cut), **made),
        ]
    )
    return run


def spent(work: dict[str, float]) -> Cost:
    return Cost(FrozenMap(work))


@pytest.fixture
def store() -> Store:
    return open_store("s.db")


def rows(text: str, start: str) -> list[str]:
    """The lines that say so, blanks squeezed."""
    found = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in found if line.startswith(start)]


def test_a_store_without_a_run_says_so(whet: Whet, store: Store) -> None:
    store.put_workload(triton(1))
    store.append([a_trial(triton(1))])
    ran = whet("show", "cost", "matmul", "--store", "s.db")
    assert ran.code == 1
    assert "run of matmul" in ran.err


@pytest.mark.parametrize(
    "rows_told",
    [
        pytest.param(
            (
                "run r",
                "measuring 1.00 s 25.0% █",
                "waiting for builds 2.00 s 50.0% █",
                "overhead 500 ms 12.5% █",
                "in all 4.00 s",
            ),
            id="wall time by phase with shares",
        ),
        pytest.param(
            ("building 8.00 s 100.0%", "llir 6.50 s 81.2%", "the rest 500 ms"),
            id="building by stage, and what no stage claims",
        ),
        pytest.param(
            (
                "6.00 s llir 83% – build_timeout BM=512",
                "1.00 s llir 50% 750 ms ok BM=",
                "and 2 more configs for",
            ),
            id="the most expensive configs with their costliest stage",
        ),
    ],
)
def test_where_the_time_went_is_told(whet: Whet, store: Store, rows_told: tuple[str, ...]) -> None:
    run = tuned(store, triton(1))
    ran = whet("show", "cost", "matmul", "--top", "2", "--store", "s.db")
    assert ran.code == 0
    for row in rows_told:
        assert rows(ran.out, row.replace("run r", f"run {run.id}")), row


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(
            (
                "250 ms: at least 750 ms",
                "estimated (",
                "median of 1.00 s",
                "1 build after 6.00 s",
                "8.00 s of building",
                "building in 2.00 s",
                "each of 2 configs",
                "cache nothing",
            ),
            id="what was saved, and what of it is estimated",
        ),
        # Builds of 1, 1 and 6 s, a refused one as the median of 1 s, two benchmarks of 0.12 s.
        pytest.param(("9.24 s, estimated, 2.31×",), id="stock beside this run"),
        pytest.param(
            ("after 2,000,000 calls: 2.00 µs", "after 36,000,000 calls, at 1.00 µs"),
            id="after how many calls it has paid",
        ),
    ],
)
def test_what_it_was_good_for_is_told(whet: Whet, store: Store, parts: tuple[str, ...]) -> None:
    tuned(store, triton(1))
    said = whet("show", "cost", "matmul", "--store", "s.db").said
    assert [part for part in parts if part not in said] == []


def test_seconds_in_the_kernels_are_told_where_they_are_known(whet: Whet, store: Store) -> None:
    run = tuned(store, triton(1))
    work = FrozenMap({"measure": 2.0, "measure.kernel": 0.5, "build": 2.0})
    store.save_run(replace(run, cost=Cost(work, run.cost.wall)))
    ran = whet("show", "cost", "matmul", "--store", "s.db")
    assert rows(ran.out, "in the kernels 500 ms 12.5%")


def test_long_configs_are_told_apart_by_their_values(whet: Whet, store: Store) -> None:
    run = tuned(store, triton(1))
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "num_stages")
    configs = [dict(zip(names, (128, 64, 32, 4, stages), strict=True)) for stages in (3, 4)]
    store.append(
        a_trial(run.workload, config, cost=spent({"build": 60.0}), run_id=run.id)
        for config in configs
    )
    ran = whet("show", "cost", "matmul", "--top", "2", "--store", "s.db")
    title = "most expensive configs, by num_stages; all with BLOCK_SIZE_M=128 BLOCK_SIZE_N=64"
    assert title in " ".join(ran.out.split())
    assert [line.split()[-1] for line in rows(ran.out, "1 min 00 s")] == ["3", "4"]


def test_what_was_imported_cost_nothing_here(whet: Whet, store: Store) -> None:
    ours = tuned(store, triton(1))
    tuned(store, triton(1, fingerprint="", toolchain={"timer": "vllm"}), later_s=100.0)
    ran = whet("show", "cost", "matmul", "--store", "s.db")
    assert f"run {ours.id}" in ran.out
    assert "not included" not in ran.out


def test_a_race_that_took_more_than_ten_samples_each_has_saved_nothing(
    whet: Whet, store: Store
) -> None:
    run = tuned(store, triton(1))
    work = {"measure": 0.5, "measure.kernel": 0.25}
    store.append([a_trial(triton(1), CONFIG, 1000.0, cost=spent(work), run_id=run.id)])
    ran = whet("show", "cost", "--store", "s.db")
    said = " ".join(ran.out.split())
    assert "racing saved nothing" in said
    assert "took 250 ms" in said


def test_a_kernel_without_triton_is_not_compared_with_stock(whet: Whet, store: Store) -> None:
    tuned(store, a_workload())
    assert "autotune" not in whet("show", "cost", "matmul", "--store", "s.db").out


def test_a_tuning_without_gain_never_pays(whet: Whet, store: Store) -> None:
    run = tuned(store, triton(1))
    store.save_run(replace(run, best=a_trial(run.workload, {"BM": 16, "BN": 16}).config))
    said = whet("show", "cost", "matmul", "--store", "s.db").out
    assert "never:" in said


def test_without_a_name_the_most_recent_run_is_told(whet: Whet, store: Store) -> None:
    tuned(store, triton(1))
    newest = tuned(store, triton(2), later_s=500.0)
    tuned(store, triton(3), later_s=250.0)
    assert newest.id in whet("show", "cost", "--store", "s.db").out


def test_a_workload_that_was_tuned_again_is_told_by_its_latest_run_that_did_work(
    whet: Whet, store: Store
) -> None:
    tuned(store, triton(1))
    latest = tuned(store, triton(1), later_s=100.0)
    store.save_run(a_run(triton(1), started=STARTED + 200.0, trials=0))
    assert latest.id in whet("show", "cost", "matmul", "--store", "s.db").out


def test_a_run_can_be_named_by_the_start_of_its_id(whet: Whet, store: Store) -> None:
    earlier = tuned(store, triton(1))
    tuned(store, triton(1), later_s=100.0)
    assert earlier.id in whet("show", "cost", "--run", earlier.id[:12], "--store", "s.db").out


def test_a_run_that_is_not_there_or_not_the_only_one_is_an_error(whet: Whet, store: Store) -> None:
    for id in ("aa1", "aa2"):
        store.save_run(a_run(triton(1), id=id))
    err = refused(whet("show", "cost", "--run", "zz", "--store", "s.db"))
    assert "'zz'" in err
    assert "the newest is aa" in err
    assert "matches 2 runs" in refused(whet("show", "cost", "--run", "aa", "--store", "s.db"))


def test_a_killed_run_is_told_as_far_as_it_got(whet: Whet, store: Store) -> None:
    run = a_run(triton(1), outcome=Outcome.RUNNING, cost=Cost(), wall_s=0.0, trials=0)
    store.save_run(run)
    store.append([a_trial(triton(1), cost=spent(BUILT), run_id=run.id)])
    ran = whet("show", "cost", "matmul", "--store", "s.db")
    assert ran.code == 0
    assert "killed: 1 config" in ran.out
    assert "time: unknown" in ran.out
    assert rows(ran.out, "building 1.00 s")
    assert rows(ran.out, "unknown: no run was timed to completion")


def test_several_keys_are_told_in_a_table_and_summed(whet: Whet, store: Store) -> None:
    for m, wall_s in ((512, 2.0), (1024, 6.0)):
        tuned(store, triton(m), wall_s=wall_s)
    ran = whet("show", "cost", "matmul", "--store", "s.db")
    ids = {m: triton(m).id[:8] for m in (512, 1024)}
    assert rows(ran.out, f"6.00 s 75.0% 4 4 2 {ids[1024]} M=1024")
    assert rows(ran.out, f"2.00 s 25.0% 4 4 2 {ids[512]} M=512")
    assert rows(ran.out, "8.00 s 100.0% 8 8 4 all 2 keys")
    assert rows(ran.out, "waiting for builds 4.00 s 50.0%")
    assert "each of 2 keys" in " ".join(ran.out.split())


def test_keys_beyond_the_top_are_counted(whet: Whet, store: Store) -> None:
    for m in (1, 2, 3):
        tuned(store, triton(m))
    ran = whet("show", "cost", "matmul", "--top", "1", "--store", "s.db")
    assert "2 keys not shown (--top 0)" in ran.out
    assert rows(ran.out, "12.0 s 100.0%")


def test_another_version_of_the_kernel_is_left_out_and_said(whet: Whet, store: Store) -> None:
    old = triton(1, fingerprint="old")
    tuned(store, old)
    new = tuned(store, triton(1), later_s=100.0)
    ran = whet("show", "cost", "matmul", "--store", "s.db")
    assert new.id in ran.out
    assert "not included: 1 workload" in ran.out
    assert old.id[:8] in ran.out


@pytest.mark.parametrize("arguments", [(), ("matmul",), ("matmul", "--top", "0")])
def test_everything_fits_a_page(whet: Whet, store: Store, arguments: tuple[str, ...]) -> None:
    for m in (512, 1024):
        tuned(store, triton(m))
    assert whet("show", "cost", *arguments, "--store", "s.db").widest <= 80


def test_json_has_every_number(whet: Whet, store: Store) -> None:
    run = tuned(store, triton(1))
    data = json.loads(whet("show", "cost", "matmul", "--json", "--store", "s.db").out)
    assert data["v"] == 1
    assert data["wall_s"] == pytest.approx(4.0)
    assert data["wall"]["waiting"] == 2.0
    assert data["work"]["build.llir"] == 6.5
    assert len(data["configs"]) == 4
    assert data["keys"][0]["run"] == run.id
    assert data["saved"]["cutting"] == {"builds": 1, "build_s": 6.0, "runs": 0, "run_s": 0.0}
    assert data["stock"]["total_s"] == pytest.approx(9.24)
    assert data["payback"]["calls"] == 2_000_000
    assert set(data["saved"]) == {"racing", "early_refusal", "cutting", "overlap", "cache"}


def test_json_lists_no_more_than_the_top_keys_and_configs(whet: Whet, store: Store) -> None:
    for m in (512, 1024, 2048):
        tuned(store, triton(m))
    data = json.loads(whet("show", "cost", "matmul", "--json", "--top", "2", "--store", "s.db").out)
    assert (len(data["keys"]), len(data["configs"])) == (2, 2)
    assert data["wall_s"] == pytest.approx(12.0)


TIMELINE = Timeline(
    (
        Span("worker 0", "build", 0.0, 1.0, a_trial(triton(1), CONFIG).config.id),
        Span("device", "look", 1.0, 0.5, a_trial(triton(1), CONFIG).config.id),
    )
)


def test_a_timeline_is_written_for_perfetto(whet: Whet, store: Store) -> None:
    run = tuned(store, triton(1))
    store.save_timeline(run.id, TIMELINE)
    ran = whet("show", "cost", "matmul", "--timeline", "t.json", "--store", "s.db")
    assert (ran.code, ran.out) == (0, "")
    assert "wrote t.json" in ran.err
    assert "https://ui.perfetto.dev\n" in ran.err
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"]) for e in spans] == [
        ("BM=64 BN=32", 0, 1_000_000),
        ("BM=64 BN=32", 1_000_000, 500_000),
    ]
    tracks = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert tracks == ["device", "worker 0"]


def test_the_timelines_of_several_keys_share_a_file_each_from_when_it_began(
    whet: Whet, store: Store
) -> None:
    for m, later_s in ((1, 100.0), (2, 107.0), (3, 120.0)):
        run = tuned(store, triton(m), later_s=later_s)
        if m < 3:
            store.save_timeline(run.id, TIMELINE)
    ran = whet("show", "cost", "matmul", "--timeline", "t.json", "--store", "s.db")
    assert "1 run without" in ran.err
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    starts = {event["pid"]: event["ts"] for event in events if event.get("dur") == 1_000_000}
    assert starts == {1: 0, 2: 7_000_000}


def test_a_run_without_a_timeline_is_an_error_and_no_file(whet: Whet, store: Store) -> None:
    run = tuned(store, triton(1))
    ran = whet("show", "cost", "matmul", "--timeline", "t.json", "--store", "s.db")
    assert ran.code == 1
    assert f"run {run.id}" in ran.err
    assert ran.out == ""
    assert not Path("t.json").exists()


def test_a_place_that_cannot_be_written_is_an_error(whet: Whet, store: Store) -> None:
    store.save_timeline(tuned(store, triton(1)).id, TIMELINE)
    assert "no/such/folder.json" in refused(
        whet("show", "cost", "matmul", "--timeline", "no/such/folder.json", "--store", "s.db")
    )
