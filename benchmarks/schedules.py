"""What tuned schedules reach, and what the search finds, on this machine's CPU.

    python benchmarks/schedules.py [matmul] [fuse] [softmax] [sketches] [search] [mutations]
                                   [--iree PYTHON] [--only WORD]
                                   [--budget 120s] [--table FILE] [--mutants 200] [--json]

matmul     max(a @ b + bias, 0) of 512³ and 1024³ on one and two threads, beside NumPy with as many
           and, for 512³, beside the loops without a schedule
fuse       a chain of operations on 64 MB and more: fused and apart, and which one the search takes
softmax    softmax and layernorm in three sizes each, beside NumPy
sketches   the programs of linalg_programs.py without a script, beside torch on one thread; those
           that have a script of their own beside that as well; --only has those with a word in
           their names
search     500 random schedules recorded in a table; how close 60 evaluations come to its best, by
           five seeds; and whether the winner is among the first three of a second tuning
mutations  scripts with random mistakes: refused with a place, or right

Every pair is timed in turns in a process of its own, which has so many BLAS threads from the start.
With --iree or $IREE_PYTHON, an interpreter with iree-base-compiler and iree-base-runtime, matmul
and softmax on one thread have IREE's default beside them, in the same turns and checked.
The exit code is 1 where a figure is short of what is asked of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import whet
from iree_beside import iree_call
from linalg_programs import CASES
from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.engine import Plan
from whet.engine.settings import resolve_settings
from whet.replay import read_table, table_from_stores, write_table
from whet.replay.lab import cases_of
from whet.replay.simulation import simulate
from whet.store import open_store
from whet.targets.native.loader import NativeLoader
from whet.targets.schedule import payloads
from whet.targets.schedule.compile import compile_schedule
from whet.targets.schedule.payloads import Payload
from whet.targets.schedule.sketches import sketch
from whet.targets.schedule.target import ScheduleTarget

Row = dict[str, Any]
PAUSE_S = 0.5
ROUNDS = 41
PLAIN = """\
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %none = transform.tune.knob<"none"> options = [0] -> !transform.param<i64>
    %module = transform.bufferization.one_shot_bufferize %root
      {bufferize_function_boundaries = true} : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""


def payload_of(name: str, sizes: Sequence[int]) -> Payload:
    made: Payload = getattr(payloads, name)(*sizes)
    return made


def has_avx512() -> bool:
    try:
        return "avx512f" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


# Of NumPy's speed, by (size, threads): with AVX-512, and with NEON or AVX2.
ASKED = {(512, 1): (0.70, 0.85), (1024, 1): (0.65, 0.80)}
ASKED_OF_TWO = (0.60, 0.75)


def matmul(budget: str, iree: str, **_: Any) -> list[Row]:
    rows = []
    for n in (512, 1024):
        for threads in (1, 2):
            target = whet.schedule(
                payload_of("matmul_bias_relu", (n, n, n)), threads=threads, name=f"mbr{n}"
            )
            best = whet.tune(target, store=":memory:", budget=budget, mode="tune").config
            configs = {"best": dict(best)}
            beside = iree if threads == 1 else ""
            timed = in_turns("matmul_bias_relu", (n, n, n), configs, threads, iree=beside)
            of_numpy = timed["numpy"] / timed["best"]
            asked = ASKED[n, 1] if threads == 1 else ASKED_OF_TWO
            asked_here = asked[0] if has_avx512() else asked[1]
            row = {
                "case": f"matmul+bias+relu {n}³, {threads} thread{'s' * (threads > 1)}",
                "ms": timed["best"],
                "numpy ms": timed["numpy"],
                "of numpy": of_numpy,
                "asked": f"≥ {asked_here}",
                "ok": of_numpy >= asked_here,
                "config": str(best),
                **beside_iree(timed),
            }
            rows.append(row)
            if (n, threads) == (512, 1):
                rows.append(beside_plain(timed["best"]))
    return rows


def beside_plain(best_ms: float) -> Row:
    timed = in_turns(
        "matmul_bias_relu", (512,) * 3, {"plain": {"none": 0}}, 1, rounds=3, plain=True
    )
    times = timed["plain"] / best_ms
    return {
        "case": "the same, times the loops without a schedule",
        "ms": timed["plain"],
        "of numpy": times,
        "asked": "≥ 25",
        "ok": times >= 25,
    }


def fuse(budget: str, **_: Any) -> list[Row]:
    sizes = (4096, 4096)  # 64 MB an array
    rows = []
    for name in ("elementwise_chain", "layernorm"):
        target = whet.schedule(payload_of(name, sizes))
        best = whet.tune(target, store=":memory:", budget=budget, mode="tune").config
        apart = whet.schedule(payload_of(name, sizes), constraints=["fuse == 'apart'"])
        other = whet.tune(apart, store=":memory:", budget=budget, mode="tune").config
        timed = in_turns(name, sizes, {"best": dict(best), "apart": dict(other)}, 1, rounds=15)
        pays = timed["apart"] / timed["best"]
        asked = name == "elementwise_chain"
        rows.append(
            {
                "case": f"{name} {sizes[0]}×{sizes[1]}: chosen {best['fuse']}; best apart / best",
                "ms": timed["best"],
                "numpy ms": timed["numpy"],
                "of numpy": pays,
                "asked": "≥ 1.8, fused" if asked else "",
                "ok": not asked or (pays >= 1.8 and best["fuse"] == "rows"),
                "config": str(best),
            }
        )
    return rows


def beside_iree(timed: Mapping[str, float]) -> Row:
    """Reported; nothing is asked of it."""
    if "iree" not in timed:
        return {}
    return {"iree ms": timed["iree"], "of iree": timed["iree"] / timed["best"]}


def softmax(budget: str, iree: str, **_: Any) -> list[Row]:
    rows = []
    for name in ("softmax", "layernorm"):
        for sizes in ((256, 256), (1024, 1024), (4096, 2048)):
            target = whet.schedule(payload_of(name, sizes))
            best = whet.tune(target, store=":memory:", budget=budget, mode="tune").config
            timed = in_turns(name, sizes, {"best": dict(best)}, 1, iree=iree)
            of_numpy = timed["numpy"] / timed["best"]
            row = {
                "case": f"{name} {sizes[0]}×{sizes[1]}",
                "ms": timed["best"],
                "numpy ms": timed["numpy"],
                "of numpy": of_numpy,
                "asked": "> 1",
                "ok": of_numpy > 1,
                "config": str(best),
                **beside_iree(timed),
            }
            rows.append(row)
    return rows


def sketches(budget: str, only: str, **_: Any) -> list[Row]:
    rows = []
    for name, make in CASES.items():
        if only not in name:
            continue
        case = make()
        derived = sketch(case.payload)
        scripts: dict[str, str | None] = {"sketch": derived}
        if case.payload.pattern and "³" in name and "batch" not in name:
            scripts["script"] = None
        best = {}
        for which, script in scripts.items():
            target = whet.schedule(case.payload, script, args=case.arguments, name=which)
            best[which] = dict(
                whet.tune(target, store=":memory:", budget=budget, mode="tune").config
            )
        asked = {"case": name, "configs": best, "rounds": ROUNDS}
        timed = in_a_process("--beside-torch", asked, threads=1)
        of_torch = timed["torch"] / timed["sketch"]
        row = {
            "case": name,
            "ms": timed["sketch"],
            "torch ms": timed["torch"],
            "of torch": of_torch,
            "asked": "≥ 0.90",
            "ok": of_torch >= 0.90,
            "config": str(Config(best["sketch"])),
        }
        if "script" in timed:
            of_script = timed["script"] / timed["sketch"]
            row |= {"script ms": timed["script"], "of script": of_script}
            row["ok"] = row["ok"] and of_script >= 0.90
        rows.append(row)
        show([row])
    return rows


def time_beside_torch(asked: Mapping[str, Any]) -> dict[str, float]:
    """One call of each in turns. Torch's arrays are the same."""
    import torch

    torch.set_num_threads(1)
    case = CASES[asked["case"]]()
    calls: dict[str, Callable[[], Any]] = {}
    for which, values in asked["configs"].items():
        script = sketch(case.payload) if which == "sketch" else None
        target = whet.schedule(case.payload, script, args=case.arguments)
        loader = NativeLoader(target.args, target.expected, target.rtol, target.atol)
        calls[which] = clocked(loaded(target, loader, values))
    given = {name: torch.from_numpy(array) for name, array in case.arguments.items()}
    with torch.inference_mode():
        calls["torch"] = clocked(lambda: case.call(torch, given))
        times: dict[str, list[float]] = {one: [] for one in calls}
        for _ in range(asked["rounds"] + 1):
            for one, call in calls.items():
                times[one].append(call())
    return {one: median(taken[1:]) for one, taken in times.items()}


def search(budget: str, table: str | None, **_: Any) -> list[Row]:
    path = Path(table) if table else Path(tempfile.mkdtemp()) / "schedules.whet.json.gz"
    if not path.exists():
        record(path)
    recorded = read_table(path)
    case = cases_of(path.name, recorded)[0]
    optimum = case.workload.optimum
    if optimum is None:
        raise SystemExit(f"{path} has no config that was measured")
    fractions = []
    for seed in range(5):
        course = simulate(recorded, case.workload, case.strategy("auto", seed), 60, seed=seed)
        fractions.append(course.fraction(60, optimum.ns))
    reached = median(fractions)
    counted = Counter(str(case.workload.status(at)) for at in range(len(recorded.configs)))
    rows = [
        {
            "case": f"60 evaluations of {len(recorded.configs)} recorded, median of 5 seeds",
            "of numpy": reached,
            "asked": "≥ 0.95",
            "ok": reached >= 0.95,
            "config": f"{dict(counted)}; {path}",
        }
    ]
    return [*rows, second_tuning(budget)]


def record(path: Path) -> None:
    """500 random schedules of 512³, built in parallel within 6 s each."""
    target = whet.schedule(payload_of("matmul_bias_relu", (512,) * 3), name="mbr512")
    settings = replace(resolve_settings().settings, build_limit_s=6.0)
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/recorded.db"
        whet.tune(
            target,
            search="random",
            budget="500trials",
            store=place,
            plan=Plan.fixed(6),
            settings=settings,
            mode="tune",
        )
        with open_store(place) as store:
            write_table(table_from_stores([store]), str(path))


def second_tuning(budget: str) -> Row:
    """The winner of one tuning beside the first three of another."""
    sizes = (512,) * 3
    found = []
    for seed in (1, 2):
        target = whet.schedule(payload_of("matmul_bias_relu", sizes))
        result = whet.tune(target, store=":memory:", budget=budget, seed=seed, mode="tune")
        ranked = sorted(
            (one for one in result.trials if one.median_ns), key=lambda one: one.median_ns or 0
        )
        first_three = [result.best, *(one for one in ranked if one.config != result.config)][:3]
        found.append((result.config, [one.config for one in first_three]))
    winner, others = found[0][0], found[1][1]
    configs = {"winner": dict(winner)} | {f"other{i}": dict(one) for i, one in enumerate(others)}
    timed = in_turns("matmul_bias_relu", sizes, configs, 1)
    nearest = min(
        (timed[f"other{i}"] / timed["winner"] for i in range(len(others))),
        key=lambda times: abs(times - 1),
    )
    among = winner in others or abs(nearest - 1) <= 0.03
    return {
        "case": "the winner among the first three of a second tuning, or tied",
        "ms": timed["winner"],
        "of numpy": nearest,
        "asked": "0.97 to 1.03",
        "ok": among,
        "config": str(winner),
    }


def mutations(mutants: int, **_: Any) -> list[Row]:
    made = [
        payloads.matmul(32, 32, 16),
        payloads.matmul_bias_relu(32, 32, 16),
        payloads.batch_matmul(2, 16, 32, 16),
        payloads.softmax(16, 64),
        payloads.layernorm(16, 64),
        payloads.elementwise_chain(16, 64),
    ]
    texts = {one.name: whet.schedule(one).script.text for one in made}
    rng = random.Random(0)
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "faults"))
    from faults_scripts import fate, mutate_script

    fates: Counter[str] = Counter()
    longest = 0.0
    for number in range(mutants):
        payload = made[number % len(made)]
        mutant = mutate_script(texts[payload.name], rng)
        began = time.perf_counter()
        said = fate(payload, mutant)
        longest = max(longest, time.perf_counter() - began)
        fates[said if said in ("right", "refused", "stopped") else "other"] += 1
        if said not in ("right", "refused", "stopped"):
            print(f"mutant {number} of {payload.name}: {said}", file=sys.stderr)
    return [
        {
            "case": f"{mutants} mutated scripts: {dict(fates)}, longest {longest:.1f} s",
            "asked": "right or refused",
            "ok": fates["right"] + fates["refused"] == mutants,
        }
    ]


def in_turns(
    name: str,
    sizes: Sequence[int],
    configs: Mapping[str, Mapping[str, Any]],
    threads: int,
    rounds: int = ROUNDS,
    plain: bool = False,
    iree: str = "",
) -> dict[str, float]:
    """Medians in ms of each config, of NumPy and, by the interpreter of this name, of IREE: one
    call of each in turns, in a fresh process."""
    asked = {
        "name": name,
        "sizes": [*sizes],
        "configs": {one: dict(config) for one, config in configs.items()},
        "threads": threads,
        "rounds": rounds,
        "plain": plain,
        "iree": iree,
    }
    return in_a_process("--in-turns", asked, threads)


def in_a_process(option: str, asked: Mapping[str, Any], threads: int) -> dict[str, float]:
    counts = ("OPENBLAS", "OMP", "MKL", "VECLIB")
    environ = os.environ | {f"{one}_NUM_THREADS": str(threads) for one in counts}
    done = subprocess.run(
        [sys.executable, __file__, option, json.dumps(asked)],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    timed: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return timed


def time_in_turns(asked: Mapping[str, Any]) -> dict[str, float]:
    payload = payload_of(asked["name"], asked["sizes"])
    script = PLAIN if asked["plain"] else None
    target = whet.schedule(payload, script, threads=asked["threads"])
    loader = NativeLoader(target.args, target.expected, target.rtol, target.atol)
    calls = {one: clocked(loaded(target, loader, c)) for one, c in asked["configs"].items()}
    calls["numpy"] = clocked(numpy_call(payload, loader.arrays))
    with ExitStack() as stack:
        if asked["iree"]:
            calls["iree"] = stack.enter_context(iree_call(asked["iree"], target))
        times: dict[str, list[float]] = {one: [] for one in calls}
        for _ in range(asked["rounds"] + 1):
            for one, call in calls.items():
                # OpenBLAS's threads wait busily for more than 100 ms, on cores that the next wants.
                time.sleep(PAUSE_S if asked["threads"] > 1 else 0.0)
                times[one].append(call())
    return {one: median(taken[1:]) for one, taken in times.items()}


def clocked(call: Callable[[], Any]) -> Callable[[], float]:
    """The call, giving its milliseconds."""

    def timed() -> float:
        began = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - began)

    return timed


def loaded(
    target: ScheduleTarget, loader: NativeLoader, values: Mapping[str, Any]
) -> Callable[[], None]:
    config, home = Config(values), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        built = compile_schedule(target.source, config)
        os.chdir(home)
        kernel = loader.load(config, built.artifact)
    verdict = kernel.check()
    if not verdict.ok:
        raise SystemExit(f"[{config}] is wrong: {verdict}")
    return lambda: kernel.repeat(1)


def numpy_call(payload: Payload, arrays: Mapping[str, Any]) -> Callable[[], Any]:
    """NumPy without arrays of its own where that is how one would write it."""
    given = FrozenMap({one: array.copy() for one, array in arrays.items()})
    if payload.name != "matmul_bias_relu":
        return lambda: payload.reference and payload.reference(**given)
    out = np.empty_like(given["c"])

    def call() -> None:
        np.matmul(given["a"], given["b"], out=out)
        np.add(out, given["bias"], out=out)
        np.maximum(out, 0, out=out)

    return call


PARTS: dict[str, Callable[..., list[Row]]] = {
    "matmul": matmul,
    "fuse": fuse,
    "softmax": softmax,
    "sketches": sketches,
    "search": search,
    "mutations": mutations,
}


def show(rows: Sequence[Row]) -> None:
    for row in rows:
        numbers = [
            f"{row[one]:9.3f} {one}" if one in row else ""
            for one in ("ms", "numpy ms", "torch ms", "script ms", "iree ms")
        ]
        shares = [row[one] for one in ("of numpy", "of torch") if one in row]
        share = f"{shares[0]:6.2f}×" if shares else ""
        if "of iree" in row:
            numbers.append(f"({row['of iree']:.2f}× its speed)")
        mark = "ok   " if row["ok"] else "SHORT"
        print(f"{mark}  {row['case']:<64}{share}  {row['asked']:<14}", *filter(None, numbers))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all by default")
    parser.add_argument("--budget", default="120s", help="of each tuning (default: 120s)")
    parser.add_argument("--table", help="recorded schedules; written where it is missing")
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument(
        "--iree",
        metavar="PYTHON",
        default=os.environ.get("IREE_PYTHON", ""),
        help="an interpreter with IREE, whose default is then timed as well ($IREE_PYTHON)",
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="of the sketches, those with this in the name")
    parser.add_argument("--in-turns", help=argparse.SUPPRESS)
    parser.add_argument("--beside-torch", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.beside_torch:
        print(json.dumps(time_beside_torch(json.loads(given.beside_torch))))
        return 0
    if given.in_turns:
        print(json.dumps(time_in_turns(json.loads(given.in_turns))))
        return 0
    rows: list[Row] = []
    for part in given.parts or PARTS:
        began = time.perf_counter()
        found = PARTS[part](
            budget=given.budget,
            table=given.table,
            mutants=given.mutants,
            iree=given.iree,
            only=given.only,
        )
        rows += [{"part": part, **row} for row in found]
        if not given.json and part != "sketches":
            print(f"{part} ({time.perf_counter() - began:.0f} s)")
            show(found)
    if given.json:
        print(json.dumps({"v": 1, "machine": platform.processor(), "rows": rows}, indent=1))
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
