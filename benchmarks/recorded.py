"""Kernels of libraries, recorded in one process, tuned in another without the program, then used.

    python benchmarks/recorded.py FOLDER [PROGRAM …] [--limit 240] [--json OUT]

FOLDER is as for libraries.py; the programs are gla and mamba2 unless others are named. In turn,
each in a process of its own:

    record    one step with first configs, under WHET_MODE=record
    tune      `whet tune --missed`, which is given neither the program nor its file
    require   one step under WHET_MODE=require, which fails where anything is not tuned
    live      one step with a store of its own that tunes as it goes
    duel      the two picks of a key side by side, where they are not the same

The table has the keys that were recorded, tuned and left; the tunings of the third process; and of
the picks how many are those of the live tuning, called equal to them by a run or by the duel, and
other. `--limit` is in seconds for each program: `tune` and `live` end with what they have when half
and a quarter of it are spent.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

COLUMNS = ("recorded", "tuned", "left", "tunings", "same", "equal", "by duel", "other")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--duel", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.step:
        step(asked.folder, asked.step)
        return 0
    if asked.duel:
        print(json.dumps(duels(*asked.duel)))
        return 0
    found: dict[str, Any] = {}
    for program in asked.programs or ("gla", "mamba2"):
        try:
            found[program] = compare(asked.folder.resolve(), program, asked.limit)
        except (subprocess.SubprocessError, ValueError) as error:  # no answer is no JSON
            found[program] = {"failed": f"{type(error).__name__}: {error}"}
        if asked.json:
            asked.json.write_text(json.dumps(found, indent=1))
    print_table(found)
    return int(any("failed" in told for told in found.values()))


def compare(folder: Path, program: str, limit: float) -> dict[str, Any]:
    import whet

    told: dict[str, Any] = {"seconds": {}, "notes": []}
    with tempfile.TemporaryDirectory() as place:
        mine, live = f"{place}/recorded.db", f"{place}/live.db"
        run = Processes(folder, program, f"{place}/triton", told)
        run.step("record", mine, 0.25 * limit)
        with whet.open_store(mine) as store:
            told["recorded"] = len(store.missed())
        tuned = run.tune(mine, 0.5 * limit)
        told["tuned"], told["left"] = len(tuned["tuned"]), len(tuned["left"])
        told["notes"] += [f"left: {o['workload']['kernel']}: {o['why']}" for o in tuned["left"]]
        before = runs_in(mine)
        if not told["left"] and told["tuned"] == told["recorded"]:
            with noting("require", told):
                run.step("require", mine, 0.25 * limit)
        told["tunings"] = runs_in(mine) - before
        run.step("tune", live, 0.25 * limit, named="live", gently=True)
        told.update(alike(mine, live))
        if told["apart"]:
            with noting("duel", told):
                run.duel(mine, live, told["apart"], 0.25 * limit)
    return told


@contextmanager
def noting(what: str, told: dict[str, Any]) -> Iterator[None]:
    """What was found out before it is not lost with it."""
    try:
        yield
    except (subprocess.SubprocessError, ValueError) as error:
        told["notes"].append(f"{what} failed: {type(error).__name__}: {error}")


class Processes:
    """One after another, on the same Triton cache."""

    def __init__(self, folder: Path, program: str, cache: str, told: dict[str, Any]) -> None:
        self._folder, self._program, self._told = folder, program, told
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._environ = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": cache}
        self._environ["WHET_POLICY"] = "none"

    def step(
        self, mode: str, store: str, limit: float, named: str = "", gently: bool = False
    ) -> None:
        words = [__file__, str(self._folder), "--step", self._program]
        self._run(words, store, limit, named or mode, gently=gently, WHET_MODE=mode)

    def tune(self, store: str, limit: float) -> dict[str, Any]:
        words = ["-m", "whet", "tune", "--missed", "--json", "-q", "--store", store]
        found: dict[str, Any] = json.loads(self._run(words, store, limit, "tune", gently=True))
        return found

    def duel(self, mine: str, live: str, apart: dict[str, Any], limit: float) -> None:
        words = [__file__, str(self._folder), "--duel", mine, live]
        out = self._run(words, mine, limit, "duel")
        for id, verdict in json.loads(out.splitlines()[-1]).items():
            apart[id].update(verdict)
            self._told["by duel" if verdict["equal"] else "other"] += 1
            self._told["notes"].append(f"duel: {apart[id]['workload']}: {verdict['text']}")

    def _run(
        self,
        words: list[str],
        store: str,
        limit: float,
        named: str,
        gently: bool = False,
        **environ: str,
    ) -> str:
        """`gently`: at the limit it is interrupted, and has 30 s to say what it has."""
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *words],
            env={**self._environ, "WHET_STORE": store, **environ},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            out, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            if gently:
                process.send_signal(signal.SIGINT)
            try:
                out, _ = process.communicate(timeout=30 if gently else 0)
            except subprocess.TimeoutExpired:
                process.kill()
                out, _ = process.communicate()
            self._told["notes"].append(f"{named} was cut at {limit:.0f} s")
            if not gently:
                raise
        self._told["seconds"][named] = round(time.perf_counter() - start, 1)
        if process.returncode not in ((0, 1, 130, -signal.SIGINT) if gently else (0,)):
            raise subprocess.CalledProcessError(process.returncode, words)
        return out


def runs_in(path: str) -> int:
    """That tried anything."""
    import whet

    with whet.open_store(path) as store:
        return sum(
            run.trials > 0 for one in store.workloads() for run in store.runs(one.workload.id)
        )


def alike(mine: str, live: str) -> dict[str, Any]:
    """How many picks are the same, or equal by a run that had both in its duel."""
    import whet

    told: dict[str, Any] = {"same": 0, "equal": 0, "by duel": 0, "other": 0, "apart": {}}
    with whet.open_store(mine) as one, whet.open_store(live) as two:
        theirs = {known.workload.id: known for known in two.workloads()}
        for known in one.workloads():
            id, other = known.workload.id, theirs.get(known.workload.id)
            if known.best is None or other is None or other.best is None:
                continue
            ours, live_pick = known.best.config, other.best.config
            equals = {c for s in (one, two) for run in s.runs(id)[:1] for c in run.equals}
            if ours == live_pick:
                told["same"] += 1
            elif ours in equals or live_pick in equals:
                told["equal"] += 1
            else:
                told["apart"][id] = {
                    "workload": str(known.workload),
                    "recorded": str(ours),
                    "live": str(live_pick),
                }
    return told


def duels(mine: str, live: str) -> dict[str, Any]:
    """By workload: the two picks of a recorded call, measured in turns."""
    import whet
    from whet.cli.arguments.missed import MissLocator, making_again, recorded_files
    from whet.engine.review.verify import measure_beside
    from whet.engine.settings import resolve_settings
    from whet.measure.racing.duel import DuelPolicy
    from whet.measure.racing.stats import paired_ratio
    from whet.targets.triton.offline.kernel import make_inputs
    from whet.targets.triton.offline.tuning import with_target

    told: dict[str, Any] = {}
    policy, files = DuelPolicy(max_rounds=60), recorded_files(None)
    locator = MissLocator(None, None, "tune", files, lambda miss: f"store {mine}")
    apart = alike(mine, live)["apart"]
    with whet.open_store(mine) as one, whet.open_store(live) as two:
        for miss in one.missed(tuned=True):
            id = miss.workload.id
            picks = [best.config for store in (one, two) if (best := store.best(id)) is not None]
            kernel: Any = locator.locate(miss).found
            if id not in apart or kernel is None:
                continue

            def duel(target: Any, picks: Any = picks) -> Any:
                return measure_beside(target, picks, one, resolve_settings().settings, policy)

            with making_again(kernel, miss) as key:
                beside = with_target(kernel, *make_inputs(kernel, key), duel)
            rounds = [r for r in beside.rounds if len(r) == 2]
            ours, theirs = ([r[config.id] for r in rounds] for config in picks)
            ratio = paired_ratio(ours, theirs, policy.confidence)
            equal = ratio is not None and (
                ratio.low <= 1 <= ratio.high
                or max(ratio.high - 1, 1 - ratio.low) <= policy.equal_within
            )
            text = "not measured" if ratio is None else f"{ratio.mid:.4f} times the live pick's"
            if ratio is not None:
                text += f" time ({ratio.low:.4f} to {ratio.high:.4f} with 95 %)"
            told[id] = {"equal": equal, "text": text}
    return told


def step(folder: Path, program: str) -> None:
    sys.path.insert(0, str(folder))
    import torch

    import whet
    from library_programs import PROGRAMS, made_step

    whet.install()
    made_step(PROGRAMS[program], torch)[1]()
    torch.cuda.synchronize()


def print_table(found: dict[str, Any]) -> None:
    print(f"{'program':9}" + "".join(f"{title:>9}" for title in COLUMNS))
    for program, told in found.items():
        if "failed" in told:
            print(f"{program:9} failed: {told['failed']}")
            continue
        print(f"{program:9}" + "".join(f"{told[title]:9}" for title in COLUMNS))
        took = ", ".join(f"{name} {seconds} s" for name, seconds in told["seconds"].items())
        print(f"  {took}")
        for note in told["notes"]:
            print(f"  {note}")


if __name__ == "__main__":
    raise SystemExit(main())
