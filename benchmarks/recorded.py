"""Kernels of libraries, recorded in one process, tuned in another without the program, then used.

    python benchmarks/recorded.py FOLDER [PROGRAM …]

FOLDER is as for libraries.py; the programs are gla and mamba2 unless others are named. In turn:

    record    one step with first configs, under WHET_MODE=record
    tune      `whet tune --missed` in a process that never runs the program
    require   one step under WHET_MODE=require, which fails where anything is not tuned
    live      one step with a store of its own that tunes as it goes, to compare the picks

It prints how many keys were recorded, tuned and left with their reasons, and how many picks are
those of the live tuning.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.step:
        step(asked.folder, asked.step)
        return 0
    for program in asked.programs or ("gla", "mamba2"):
        compare(asked.folder.resolve(), program)
    return 0


def compare(folder: Path, program: str) -> None:
    import whet

    with tempfile.TemporaryDirectory() as place:
        mine, live = f"{place}/recorded.db", f"{place}/live.db"
        cache = f"{place}/triton"
        record_s = process(folder, program, mine, cache, "record")
        with whet.open_store(mine) as store:
            recorded = len(store.missed())
        words = ["-m", "whet", "tune", "--missed", "--json", "-q", "--store", mine]
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *words], env=environment(folder, mine, cache), stdout=subprocess.PIPE
        )
        tune_s = time.perf_counter() - start
        told: dict[str, Any] = json.loads(done.stdout)
        print(
            f"{program}: {recorded} keys recorded in {record_s:.1f} s, {len(told['tuned'])} tuned "
            f"without the program in {tune_s:.1f} s, {len(told['left'])} left"
        )
        for one in told["left"]:
            print(f"  left: {one['workload']['kernel']}: {one['why']}")
        if not told["left"]:
            require_s = process(folder, program, mine, cache, "require")
            print(f"  require: everything is tuned; the step took {require_s:.1f} s")
        process(folder, program, live, cache, "tune")
        same, others = picks_alike(mine, live)
        print(f"  picks: {same} as tuned live, {len(others)} others")
        for line in others:
            print(f"    {line}")


def picks_alike(mine: str, live: str) -> tuple[int, list[str]]:
    import whet

    with whet.open_store(mine) as one, whet.open_store(live) as two:
        found = {known.workload.id: known for known in two.workloads()}
        same, others = 0, []
        for known in one.workloads():
            other = found.get(known.workload.id)
            if known.best is None or other is None or other.best is None:
                continue
            if known.best.config == other.best.config:
                same += 1
                continue
            beside = one.latest(known.workload.id, other.best.config.id)
            ours, theirs = known.best.median_ns, None if beside is None else beside.median_ns
            others.append(f"{known.workload}: {ours} ns here, the live pick {theirs} ns here")
    return same, others


def environment(folder: Path, store: str, cache: str) -> dict[str, str]:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "WHET_STORE": store, "TRITON_CACHE_DIR": cache}


def process(folder: Path, program: str, store: str, cache: str, mode: str) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, __file__, str(folder), "--step", program],
        env={**environment(folder, store, cache), "WHET_MODE": mode},
        check=True,
    )
    return time.perf_counter() - start


def step(folder: Path, program: str) -> None:
    sys.path.insert(0, str(folder))
    import torch

    import whet
    from library_programs import PROGRAMS, made_step

    whet.install()
    made_step(PROGRAMS[program], torch)[1]()
    torch.cuda.synchronize()


if __name__ == "__main__":
    raise SystemExit(main())
