"""A program that measures outside of a tuning, where a config ends it; run by `test_faults_marks`.

    python faults_review.py refine|verify|tune STORE VERSION [CULPRIT]

VERSION is part of the kernel's source; CULPRIT is the config that ends this process. Prints the
config in use, the verdict and what is known of every config, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import whet
from whet.engine.fallback.background import TimeBudget
from whet.engine.review.verify import verify


def number(config: whet.Config) -> int:
    n = config["n"]
    assert isinstance(n, int)
    return n


def main(how: str, store: str, version: str) -> None:
    def kernel(n: int) -> tuple[int, str]:
        if sys.argv[4:] == [str(n)]:
            os.kill(os.getpid(), signal.SIGKILL)
        return sum(range(2000 * (6 - n))), version

    target = whet.function(kernel, {"n": list(range(4))}, isolate=False, name="kernel")
    used, verdict = -1, ""
    with whet.open_store(store) as opened:
        if how == "refine":
            refinement = whet.refine(target, store=opened, allowance=TimeBudget(0.9))
            while not refinement.done:
                kernel(number(refinement.choice.config))
                refinement.after_call()
            used = number(refinement.choice.config)
        elif how == "verify":
            done = verify(target, opened)
            assert done is not None
            verdict = f"{done.verdict}: {done.reason}"
        else:
            used = number(whet.tune(target, store=opened).config)
        workload = target.workload().id
        trials = {t.config["n"]: [str(t.status), t.error] for t in opened.trials(workload)}
        marks = len(opened.marks(workload))
    print(json.dumps({"used": used, "verdict": verdict, "trials": trials, "marks": marks}))


if __name__ == "__main__":
    main(*sys.argv[1:4])
