"""Whet against stock, judged by the referee: the parts that the benchmarks put together.

Each side runs in a process of its own (`sides.py`) with empty folders for Triton's, CUDA's and
whet's results. What stock was not given the time for is worked out from what it did, and marked.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cold import Answer, child
from problems import Problem
from referee import EVENTS_US

Kind = str
USABLE, OVERSIZED, CUT, BROKEN = "usable", "oversized", "cut", "broken"

_KINDS = {
    "ok": USABLE,
    "outraced": USABLE,
    "wrong_result": BROKEN,
    "run_error": BROKEN,
    "run_timeout": BROKEN,
    "resources": OVERSIZED,
    "constraint": OVERSIZED,
    "build_timeout": CUT,
    "build_error": BROKEN,
}


def side(
    name: str,
    asked: Problem,
    payload: Mapping[str, Any],
    folder: Path,
    limit_s: float,
    **more: Any,
) -> Answer:
    arguments = [name, "--problem", asked.name, "--payload", json.dumps(payload)]
    return child("sides.py", arguments, folder, limit_s, **more)


def kinds_of(asked: Problem, tuned: Mapping[str, Any]) -> dict[int, Kind]:
    """What became of each config by whet's store; the best that it came to at any size."""
    order = [USABLE, CUT, BROKEN, OVERSIZED]
    kinds: dict[int, Kind] = {}
    for run in tuned.get("runs", []):
        for index, trial in run["trials"].items():
            kind = _KINDS[trial["status"]]
            known = kinds.get(int(index), OVERSIZED)
            kinds[int(index)] = min(kind, known, key=order.index)
    return {index: kinds.get(index, BROKEN) for index in range(len(asked.configs))}


@dataclass(frozen=True)
class Patience:
    """Seconds for one compile, for all of them, and for stock's benchmarks."""

    compile_s: float = 30.0
    compiles_s: float = 150.0
    benches_s: float = 60.0


def compile_order(kinds: Mapping[int, Kind], wanted: int, others: int = 2) -> list[int]:
    """First `wanted` usable ones, then a few of the others, then the rest: every kind is
    represented when time runs out. Within a kind in the order of the list."""
    by_kind: dict[Kind, list[int]] = {kind: [] for kind in (USABLE, OVERSIZED, CUT, BROKEN)}
    for index, kind in sorted(kinds.items()):
        by_kind[kind].append(index)
    heads = {kind: wanted if kind == USABLE else others for kind in by_kind}
    first = [index for kind, found in by_kind.items() for index in found[: heads[kind]]]
    rest = [index for kind, found in by_kind.items() for index in found[heads[kind] :]]
    return first + rest


def stock_compiles(
    asked: Problem, order: Sequence[int], folder: Path, patience: Patience
) -> dict[int, dict[str, Any]]:
    """Seconds of each config that stock came to, one after another.

    A compile that takes longer than it may is killed with its process and marked unfinished; the
    next process goes on behind it. Starting a process is not counted.
    """
    left, done = list(order), dict[int, dict[str, Any]]()
    end = time.perf_counter() + patience.compiles_s

    def overdue(noted: Answer) -> bool:
        return "since" in noted and time.time() - noted["since"] > patience.compile_s

    while left and (limit_s := end - time.perf_counter()) > 0:
        answer = side("stock-compile", asked, {"configs": left}, folder, limit_s, stop=overdue)
        done |= {int(index): row for index, row in answer.get("done", {}).items()}
        stuck = answer.get("at")
        if answer["exit_code"] is None and stuck is not None and stuck not in done:
            spent = time.time() - answer["since"]
            done[stuck] = {"s": spent, "finished": False, "problem": "unfinished"}
        elif answer["exit_code"] is not None:
            break
        left = [index for index in left if index not in done]
    return done


def side_by_side(
    asked: Problem,
    configs: Sequence[int],
    alone: Mapping[int, Mapping[str, Any]],
    folder: Path,
    limit_s: float,
    jobs: int,
) -> dict[int, dict[str, Any]]:
    """The compiles for which one after another there is no time: several at once, each in a
    process of its own, and killed at the limit, when only the time spent counts.

    Next to others a compile takes longer than alone. How much longer is seen from a few of those
    that were measured `alone`, which go along; all times are divided by that.
    """
    known = [i for i, row in alone.items() if row["finished"] and row["s"] > 0.2][: 2 * jobs]

    def compiled(index: int) -> tuple[int, float, bool] | None:
        answer = side("compile", asked, {"configs": [index]}, folder / f"one-{index}", limit_s)
        if answer.get("done"):
            return index, float(answer["seconds"][str(index)]), True
        return None if "since" not in answer else (index, time.time() - answer["since"], False)

    # The slowest are likely among those asked for; what is known fills the gaps.
    with ThreadPoolExecutor(jobs) as threads:
        taken = [found for found in threads.map(compiled, [*configs, *known]) if found]
    ratios = [seconds / alone[i]["s"] for i, seconds, done in taken if i in known and done]
    slowed = max(1.0, statistics.median(ratios)) if ratios else 1.0
    return {
        index: {
            "s": seconds / slowed,
            "finished": done,
            "problem": "" if done else "unfinished",
            "slowed": slowed,
        }
        for index, seconds, done in taken
        if index not in known
    }


def stock_total(
    kinds: Mapping[int, Kind],
    compiles: Mapping[int, Mapping[str, Any]],
    benches: Sequence[Mapping[str, Any]],
    sizes: int,
) -> dict[str, Any]:
    """Stock on the whole problem: what was measured, and with the rest at the mean of its kind.

    Compiles that nobody of their kind represents count nothing.
    """
    spent = {index: row["s"] for index, row in compiles.items()}
    per_kind = {kind: [i for i in kinds if kinds[i] == kind] for kind in set(kinds.values())}
    missing_s = 0.0
    for members in per_kind.values():
        known = [spent[index] for index in members if index in spent]
        if known:
            missing_s += statistics.mean(known) * (len(members) - len(known))
    each = [seconds for row in benches for seconds in row["benches_s"]]
    each_s = statistics.mean(each) if each else 0.0
    usable = len(per_kind.get(USABLE, [])) + len(per_kind.get(CUT, []))
    benches_s = each_s * usable * sizes
    compiles_s = sum(spent.values())
    return {
        "compiles_measured_s": compiles_s,
        "compiles_measured": len(spent),
        "compiles_finished": sum(row["finished"] for row in compiles.values()),
        "compiles_extrapolated_s": compiles_s + missing_s,
        "bench_each_s": each_s,
        "benches_measured_s": sum(each),
        "benches_measured": len(each),
        "benches_extrapolated_s": benches_s,
        "usable": usable,
        # Every second of the first was really spent, or is the benchmark of one more config.
        "lower_s": compiles_s + benches_s,
        "extrapolated_s": compiles_s + missing_s + benches_s,
        "extrapolated": len(spent) < len(kinds) or len(each) < usable * sizes,
    }


def compile_cut(asked: Problem, configs: Iterable[int], folder: Path, limit_s: float) -> list[int]:
    """Those of the configs that compile within the limit, all at once, each in its own process."""
    wanted = list(configs)
    if not wanted or limit_s <= 0:
        return []

    def compiled(index: int) -> bool:
        answer = side("compile", asked, {"configs": [index]}, folder, limit_s)
        return bool(answer.get("done"))

    with ThreadPoolExecutor(len(wanted)) as threads:
        results = list(threads.map(compiled, wanted))
    return [index for index, done in zip(wanted, results, strict=True) if done]


@dataclass(frozen=True)
class Judging:
    """What the referee may take: seconds for configs that whet cut, and for all of it."""

    cut_s: float
    all_s: float
    samples: int = 30


def judged_elsewhere(
    asked: Problem,
    kinds: Mapping[int, Kind],
    picks: Mapping[str, Mapping[int, int]],
    folder: Path,
    judging: Judging,
) -> dict[str, Any]:
    """The referee in a new process, with the binaries that whet's left in Triton's cache and those
    that it had cut."""
    cut = [index for index, kind in kinds.items() if kind == CUT]
    late = compile_cut(asked, cut, folder, judging.cut_s)
    usable = sorted([*(i for i, kind in kinds.items() if kind == USABLE), *late])
    by_size: dict[int, list[int]] = {}
    for chosen in picks.values():
        for size, pick in chosen.items():
            by_size.setdefault(size, []).append(pick)
    payload = {"configs": usable, "samples": judging.samples, "picks": by_size}
    answer = side("judge", asked, payload, folder, judging.all_s)
    judged = answer.get("sizes", [])
    return {
        "usable": len(usable),
        "late": late,
        "not_compiled": sorted(set(cut) - set(late)),
        "unlaunchable": answer.get("unlaunchable"),
        "s": answer["process_s"],
        "sizes": judged,
        "quality": {name: quality(judged, chosen) for name, chosen in picks.items()},
    }


def quality(judged: Sequence[Mapping[str, Any]], picks: Mapping[int, int]) -> dict[str, Any] | None:
    """How near the picks come to the best of all, by size: the best's mean time / the pick's.

    `medians` is the same of medians, `first` and `later` of those samples alone. `net` has the
    events' own time taken off both. `rematch` compares the config that the exhaustive samples call
    best with the pick by the later samples, which chose neither.
    """
    rows = []
    for row in judged:
        pick = picks.get(row["size"])
        means, medians = row["mean_us"], row["median_us"]
        if pick is None or str(pick) not in means:
            continue
        best = min(means, key=means.__getitem__)
        first, again = row["first_us"], row["rematch_us"]
        foremost = min(first, key=first.__getitem__)
        rows.append(
            {
                "size": row["size"],
                "best": int(best),
                "pick": pick,
                "share": means[best] / means[str(pick)],
                "medians": min(medians.values()) / medians[str(pick)],
                "first": first[foremost] / first[str(pick)],
                "later": min(again.values()) / again[str(pick)],
                "net": _net(means[best]) / _net(means[str(pick)]),
                "rematch": again[foremost] / again[str(pick)],
            }
        )
    if not rows:
        return None
    worst = min(rows, key=lambda row: row["share"])
    otherwise: dict[str, float] = {}
    for name in ("medians", "first", "later", "net", "rematch"):
        shares = [row[name] for row in rows]
        otherwise |= {
            f"{name}_geometric_mean": geometric_mean(shares),
            f"{name}_worst": min(shares),
        }
    return {
        "sizes": len(rows),
        "geometric_mean": geometric_mean([row["share"] for row in rows]),
        "worst": worst["share"],
        "worst_size": worst["size"],
        **otherwise,
        **_against_itself(judged),
        "rows": rows,
    }


def _against_itself(judged: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What the fastest config by half of the referee's later visits is worth by the other half, and
    the fastest by all later ones by the first samples alone: a pick that is as good as an
    exhaustive search can make it would get as much."""
    halves, ideal = [], []
    for row in judged:
        for one, other in itertools.permutations(row["halves_us"]):
            halves.append(_worth(one, other))
        ideal.append(_worth(row["rematch_us"], row["first_us"]))
    return {
        "itself_geometric_mean": geometric_mean(halves),
        "itself_worst": min(halves),
        "ideal_geometric_mean": geometric_mean(ideal),
        "ideal_worst": min(ideal),
    }


def _worth(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Of the fastest by one, by the other."""
    return min(other.values()) / other[min(one, key=one.__getitem__)]


def _net(reading_us: float) -> float:
    return max(reading_us - EVENTS_US, reading_us / 10)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def picks_of(tuned: Mapping[str, Any]) -> dict[int, int]:
    """Config by size, of an answer of whet's or stock's side."""
    rows = tuned.get("calls") or tuned.get("sizes") or []
    return {row["size"]: row["pick"] for row in rows if "pick" in row}


def agreement(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """On how many sizes the two tunings chose the same, or what the other calls equal.

    `equal`: either run declared the other's pick equal to its own. `samples`: neither did, but in
    one of them the medians of the two have overlapping intervals.
    """
    runs_one, runs_other = _by_size(one), _by_size(other)
    counts = {"same": 0, "equal": 0, "samples": 0, "differ": 0}
    differing = []
    for size in sorted(runs_one.keys() & runs_other.keys()):
        a, b = runs_one[size], runs_other[size]
        if a["best"] == b["best"]:
            verdict = "same"
        elif b["best"] in a["equals"] or a["best"] in b["equals"]:
            verdict = "equal"
        elif _overlap(a, b["best"]) or _overlap(b, a["best"]):
            verdict = "samples"
        else:
            verdict = "differ"
            differing.append(size)
        counts[verdict] += 1
    sizes = len(runs_one.keys() & runs_other.keys())
    return {"sizes": sizes, **counts, "differing": differing}


def _by_size(tuned: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    return {run["size"]: run for run in tuned.get("runs", []) if run["best"] is not None}


def _overlap(run: Mapping[str, Any], stranger: int) -> bool:
    best, rival = (run["trials"].get(str(index), {}) for index in (run["best"], stranger))
    if not best.get("interval_us") or not rival.get("interval_us"):
        return False
    low, high = best["interval_us"]
    return bool(rival["interval_us"][0] <= high and low <= rival["interval_us"][1])


def racing_share(
    tuned: Mapping[str, Any], judged: Sequence[Mapping[str, Any]]
) -> dict[str, float] | None:
    """Kernel time that whet's race took, beside what 10 samples of every config would take."""
    work = tuned.get("ledger", {}).get("work_s", {})
    if "measure.kernel" not in work or not judged:
        return None
    raced = work["measure.kernel"] + work.get("warmup.kernel", 0.0)
    ten = 10e-6 * sum(_net(us) for row in judged for us in row["median_us"].values())
    return {
        "kernel_s": raced,
        "without_warmup_s": work["measure.kernel"],
        "ten_samples_s": ten,
        "share": raced / ten,
        "share_without_warmup": work["measure.kernel"] / ten,
    }
