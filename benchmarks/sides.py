"""What runs in a process of its own, on the device: one side of a comparison.

    python benchmarks/sides.py SIDE --problem gemm:0 --payload '{"sizes": [0, 21]}' --out FILE

`contest.py` starts these. Configs and sizes go by their place in the problem's lists; a payload
that names none means all. Each side writes what it has after every part.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cold import Notes
from contest import CUT, USABLE, compile_cut, kinds_of
from problems import Bound, Problem, problem, triton_config
from referee import time_many, trimmed_mean

Payload = dict[str, Any]

# A launch among others varies by 3 or 4 %, so that 30 samples leave a config off by 0.7 %, and the
# best of sixty is partly luck. So many further ones halve that. Where a fifth of a microsecond
# matters, so many others run between them that no multiprocessor still has their code.
FINALISTS = 12
MORE_SAMPLES = 120
OTHERS_BETWEEN = 20
SHORT_US = 50.0


def tune_with_whet(asked: Problem, payload: Payload, notes: Notes) -> None:
    """Cold, size after size, as a program that calls the kernel would; then what the store says."""
    import torch

    from triton_kernels import wake_device

    wake_device()
    configs, sizes = _wanted(asked, payload)
    bind = asked.bind()
    calls = [bind(asked.sizes[size]) for size in sizes]
    torch.cuda.synchronize()
    before = time.perf_counter()
    import whet

    imported = time.perf_counter()
    key = list(asked.key)
    listed = [triton_config(asked.configs[index]) for index in configs]
    budget = payload.get("budget")
    tuned: Any = whet.autotune(configs=listed, key=key, budget=budget)(calls[0].kernel)
    answer: dict[str, Any] = {"import_s": imported - before, "device": _device(), "calls": []}
    builds = _watch_builds(tuned, notes if payload.get("note_builds") else None)
    for size, call in zip(sizes, calls, strict=True):
        start = time.perf_counter()
        tuned[call.grid](*call.arguments)
        torch.cuda.synchronize()
        end = time.perf_counter()
        pick = asked.index_of(tuned.best_config.all_kwargs())
        answer["calls"].append({"size": size, "s": end - start, "pick": pick})
        # Writing the notes takes time that is not whet's: only now and then.
        if len(answer["calls"]) % 8 == 0:
            notes.write({**answer, "wall_s": end - imported})
    answer["wall_s"] = end - imported
    answer["builds"] = builds()
    for row, call in zip(answer["calls"], calls, strict=True):
        tuned[call.grid](*call.arguments)
        row["error"] = call.error()
    # Not "any above": a NaN is above nothing.
    answer["right"] = all(row["error"] <= asked.wrong_above for row in answer["calls"])
    answer |= _stored(asked)
    notes.write(answer)
    if payload.get("judge"):
        answer["judged"] = {}
        _judge_here(asked, payload["judge"], dict(zip(sizes, calls, strict=True)), answer, notes)


def _judge_here(
    asked: Problem,
    payload: Payload,
    calls: dict[int, Bound],
    answer: dict[str, Any],
    notes: Notes,
) -> None:
    """The referee, in the process that tuned and on the very tensors it was tuned on: where these
    lie in memory changes the order of close configs by several percent."""
    kinds = kinds_of(asked, answer)
    cut = [index for index, kind in kinds.items() if kind == CUT]
    late = compile_cut(asked, cut, Path(os.environ["TRITON_HOME"]), payload.get("cut_limit", 0))
    usable = sorted([*(index for index, kind in kinds.items() if kind == USABLE), *late])
    picks = {row["size"]: [row["pick"]] for row in answer["calls"]}
    judged: dict[str, Any] = {"usable": len(usable), "late": late, "sizes": []}
    judged["not_compiled"] = sorted(set(cut) - set(late))
    answer["judged"] = judged
    launchable = _launchable(next(iter(calls.values())), asked, usable)
    start = time.perf_counter()
    judged["sizes"] = _judged(asked, calls, launchable, picks, payload)
    judged["s"] = time.perf_counter() - start
    notes.write(answer)


def _watch_builds(tuned: Any, notes: Notes | None) -> Callable[[], dict[str, Any]]:
    """When the first build began and the last one ended, from the engine's own events. With
    `notes`, after every build, for whoever may have to kill this process."""
    began: list[float] = []
    ended: list[float] = []
    good: list[bool] = []

    def listen(event: Any) -> None:
        kind = type(event).__name__
        if kind == "BuildStarted":
            began.append(time.perf_counter())
        elif kind == "BuildFinished":
            ended.append(time.perf_counter())
            good.append(event.ok)
            if notes is not None:
                notes.write({"builds": summary()})

    tuned.whet_events = listen

    def summary() -> dict[str, Any]:
        if not ended:
            return {"count": 0}
        wall_s = max(ended) - min(began or ended)
        return {"count": len(ended), "ok": sum(good), "wall_s": wall_s}

    return summary


def _stored(asked: Problem) -> dict[str, Any]:
    """The ledgers added up, and for each size the pick, its equals and every config's trial."""
    import whet

    wall: Counter[str] = Counter()
    work: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    runs = []
    with whet.open_store(read_only=True) as store:
        for summary in store.workloads():
            workload = summary.workload
            trials = store.trials(workload.id)
            statuses.update(str(trial.status) for trial in trials)
            for run in store.runs(workload.id):
                wall.update(run.cost.wall)
                work.update(run.cost.work)
                runs.append(
                    {
                        "size": asked.sizes.index(tuple(workload.key[name] for name in asked.key)),
                        "outcome": str(run.outcome),
                        "wall_s": run.wall_s,
                        "best": None if run.best is None else asked.index_of(run.best),
                        "equals": [asked.index_of(config) for config in run.equals],
                        "trials": {asked.index_of(trial.config): _brief(trial) for trial in trials},
                    }
                )
    return {
        "ledger": {"wall_s": dict(wall), "work_s": dict(work)},
        "statuses": dict(statuses),
        "runs": runs,
    }


def _brief(trial: Any) -> dict[str, Any]:
    timing = trial.timing
    if timing is None:
        return {"status": str(trial.status)}
    interval = timing.interval_ns
    return {
        "status": str(trial.status),
        "median_us": timing.median_ns / 1000,
        "interval_us": None if interval is None else [bound / 1000 for bound in interval],
        "samples": len(timing.samples),
        "quality": timing.quality,
        "l2": timing.l2,
    }


def compile_with_stock(asked: Problem, payload: Payload, notes: Notes) -> None:
    """Configs one after another by their first launch, as stock's benchmark comes to them.

    `at` and `since` are of the one in progress, for whoever may have to kill this process.
    """
    import torch
    from triton.runtime.errors import OutOfResources

    from triton_kernels import wake_device

    wake_device()
    configs, _ = _wanted(asked, payload)
    call = asked.bind()(asked.sizes[0])
    done: dict[str, Any] = {}
    for index in configs:
        notes.write({"done": done, "at": index, "since": time.time()})
        launch = call.launcher(triton_config(asked.configs[index]).all_kwargs())
        start = time.perf_counter()
        problem_met = ""
        try:
            launch()
            torch.cuda.synchronize()
        except OutOfResources:
            problem_met = "oversized"
        except Exception as error:
            problem_met = type(error).__name__
        spent = time.perf_counter() - start
        done[str(index)] = {"s": spent, "finished": True, "problem": problem_met}
    notes.write({"done": done})


class _OutOfTimeError(Exception):
    pass


def tune_with_stock(asked: Problem, payload: Payload, notes: Notes) -> None:
    """Stock's benchmark of every config at each size, its kernels loaded before the clock starts.

    `seconds` is the time to do it in; the size it ends in is left unfinished. `clear` is what
    `clear_as` takes.
    """
    import triton

    from triton_kernels import wake_device

    wake_device()
    configs, sizes = _wanted(asked, payload)
    bind = asked.bind()
    listed = [triton_config(asked.configs[index]) for index in configs]
    first = bind(asked.sizes[sizes[0]])
    _launchable(first, asked, configs)
    clear_as(payload.get("clear", "256 MB"))
    tuner = triton.autotune(configs=listed, key=list(asked.key))(first.kernel)
    answer: dict[str, Any] = {"sizes": [], "device": _device()}
    seconds = _timed_benches(tuner, time.perf_counter() + payload.get("seconds", 1e9))
    for size in sizes:
        call = bind(asked.sizes[size])
        seconds.clear()
        try:
            tuner[call.grid](*call.arguments)
        except _OutOfTimeError:
            answer["sizes"].append({"size": size, "finished": False, "benches_s": list(seconds)})
            break
        pick = configs[listed.index(tuner.best_config)]
        row = {"size": size, "finished": True, "benches_s": list(seconds), "pick": pick}
        answer["sizes"].append({**row, "s": tuner.bench_time})
        notes.write(answer)
    notes.write(answer)


def _timed_benches(tuner: Any, end: float) -> list[float]:
    """Filled with what each config's benchmark takes, while there is time."""
    seconds: list[float] = []
    bench = tuner._bench

    def timed(*args: Any, **keywords: Any) -> Any:
        start = time.perf_counter()
        if start > end:
            raise _OutOfTimeError
        found = bench(*args, **keywords)
        seconds.append(time.perf_counter() - start)
        return found

    tuner._bench = timed
    return seconds


def clear_as(clearing: str) -> None:
    """Makes stock's `do_bench` clear 256 MB before each sample, as it does, the size of the L2
    ("L2"), or nothing ("off")."""
    import torch
    import triton

    active = triton.runtime.driver.active
    if clearing == "L2":
        size = torch.cuda.get_device_properties(0).L2_cache_size
        active.get_empty_cache_for_benchmark = lambda: torch.empty(
            size // 4, dtype=torch.int, device="cuda"
        )
    elif clearing == "off":
        active.clear_cache = lambda cache: None
    elif clearing != "256 MB":
        raise ValueError(f"'{clearing}' is no way of clearing")


def judge(asked: Problem, payload: Payload, notes: Notes) -> None:
    """Every config at every size, `samples` each; then the best few against the `picks`.

    `picks` are by size: `{"3": [12, 40]}`.
    """
    from triton_kernels import wake_device

    wake_device()
    configs, sizes = _wanted(asked, payload)
    bind = asked.bind()
    launchable = _launchable(bind(asked.sizes[sizes[0]]), asked, configs)
    answer: dict[str, Any] = {"sizes": [], "unlaunchable": sorted({*configs} - {*launchable})}
    picks = {size: payload.get("picks", {}).get(str(size), []) for size in sizes}
    calls = {size: bind(asked.sizes[size]) for size in sizes}
    answer["sizes"] = _judged(asked, calls, launchable, picks, payload)
    notes.write(answer)


def _judged(
    asked: Problem,
    calls: Mapping[int, Bound],
    launchable: Sequence[int],
    picks: Mapping[int, Sequence[int]],
    payload: Payload,
) -> list[dict[str, Any]]:
    """In visits to every size, seconds apart: within one a config may be off by 3 %.

    First `samples` of every config (`first_us`), then as many of the best and of the picks as tell
    them apart (`rematch_us`); `mean_us` and `median_us` are of both together, and `halves_us` of
    every other visit of the second kind, which tell how well the referee agrees with itself.
    """
    visits, samples = payload.get("visits", 6), payload.get("samples", 30)
    more = payload.get("more_samples", MORE_SAMPLES)
    launchers = {
        size: {str(index): call.launcher(asked.configs[index]) for index in launchable}
        for size, call in calls.items()
    }
    first = [
        {size: time_many(launchers[size], samples // visits) for size in calls}
        for _ in range(visits)
    ]
    finalists, others = {}, {}
    for size, every in launchers.items():
        found = centres_of([visit[size] for visit in first])
        ranked = sorted(found, key=found.__getitem__)
        picked = [name for name in map(str, picks[size]) if name in found]
        finalists[size] = dict.fromkeys([*ranked[:FINALISTS], *picked])
        short = found[ranked[0]] < SHORT_US
        rest = [name for name in ranked if short and name not in finalists[size]]
        others[size] = [every[name] for name in rest[:OTHERS_BETWEEN]]
    last = [
        {
            size: time_many(
                {name: launchers[size][name] for name in finalists[size]},
                more // visits,
                between=others[size],
            )
            for size in calls
        }
        for _ in range(visits)
    ]
    rows = []
    for size in calls:
        early, late = ([visit[size] for visit in phase] for phase in (first, last))
        rows.append(
            {
                "size": size,
                "mean_us": centres_of([*early, *late]),
                "median_us": centres_of([*early, *late], statistics.median),
                "first_us": centres_of(early),
                "rematch_us": centres_of(late),
                "halves_us": [centres_of(late[i::2]) for i in (0, 1)],
                "late_us": centres_of(late, list),
            }
        )
    return rows


def centres_of(
    visits: Iterable[Mapping[str, Sequence[float]]],
    centre: Callable[[Sequence[float]], Any] = trimmed_mean,
) -> dict[str, Any]:
    """By config, over all visits that have it."""
    times: dict[str, list[float]] = {}
    for visit in visits:
        for name, taken in visit.items():
            times.setdefault(name, []).extend(taken)
    return {name: centre(taken) for name, taken in times.items()}


def _launchable(call: Bound, asked: Problem, configs: Sequence[int]) -> list[int]:
    from triton.runtime.errors import OutOfResources

    good = []
    for index in configs:
        try:
            call.launcher(asked.configs[index])()
        except OutOfResources:
            continue
        good.append(index)
    return good


def compile_only(asked: Problem, payload: Payload, notes: Notes) -> None:
    """Into Triton's cache, without loading, and how long each took."""
    from triton_kernels import wake_device

    wake_device()
    configs, _ = _wanted(asked, payload)
    call = asked.bind()(asked.sizes[0])
    seconds: dict[str, float] = {}
    for index in configs:
        notes.write({"seconds": seconds, "at": index, "since": time.time()})
        start = time.perf_counter()
        call.kernel.warmup(*call.arguments, grid=call.grid, **asked.configs[index])
        seconds[str(index)] = time.perf_counter() - start
    notes.write({"done": configs, "seconds": seconds})


def _wanted(asked: Problem, payload: Payload) -> tuple[list[int], list[int]]:
    configs = payload.get("configs", range(len(asked.configs)))
    sizes = payload.get("sizes", range(len(asked.sizes)))
    if not configs or not sizes:
        raise SystemExit("nothing is left to run: no config or no size was finished before")
    return list(configs), list(sizes)


def _device() -> str:
    import torch
    import triton

    name = torch.cuda.get_device_name()
    return f"{name}, Triton {triton.__version__}, PyTorch {torch.__version__}"


SIDES = {
    "whet": tune_with_whet,
    "stock-compile": compile_with_stock,
    "stock-bench": tune_with_stock,
    "judge": judge,
    "compile": compile_only,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("--problem", required=True)
    parser.add_argument("--payload", type=json.loads, default={})
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    SIDES[asked.side](problem(asked.problem), asked.payload, Notes(asked.out))


if __name__ == "__main__":
    main()
