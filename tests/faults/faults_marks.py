"""A program that tunes in its own process, where some configs end it; run by `test_faults_marks`.

    python faults_marks.py STORE CONFIGS SEED CULPRIT=KIND…

Prints the best and what is known of every config, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

import whet


def end_this_process(kind: str) -> None:
    if kind == "segfault":
        ctypes.string_at(0)
    elif kind == "abort":
        os.abort()
    elif kind == "exit":
        os._exit(3)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def main(store: str, configs: int, seed: int, culprits: dict[int, str]) -> None:
    def kernel(n: int) -> int:
        if n in culprits:
            end_this_process(culprits[n])
        # The lower, the faster; and short, so that many are looked at together.
        return sum(range(20 * (n + 1)))

    target = whet.function(kernel, {"n": list(range(configs))}, isolate=False, name="kernel")
    result = whet.tune(target, store=store, seed=seed)
    with whet.open_store(store) as opened:
        workload = result.run.workload.id
        trials = {t.config["n"]: [str(t.status), t.error] for t in opened.trials(workload)}
        runs = [str(run.outcome) for run in opened.runs(workload)]
        marks = len(opened.marks(workload))
    told = {"best": result.config["n"], "trials": trials, "runs": runs, "marks": marks}
    print(json.dumps({**told, "notes": list(result.notes)}))


if __name__ == "__main__":
    pairs = (text.split("=") for text in sys.argv[4:])
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), {int(n): kind for n, kind in pairs})
