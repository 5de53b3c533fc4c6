"""Broken and hostile payloads: each is refused in a sentence, or computed right.

    python benchmarks/fuzz_payloads.py                # 500 of them
    python benchmarks/fuzz_payloads.py --first 40 --count 10 --show

Exit code 1: one is wrong, crashed while it was read, or took longer than 5 s of processor time.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "faults"))

_PLACE = re.compile(r"\bp\.mlir:\d+:\d+: ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--show", action="store_true", help="what was said of each")
    given = parser.parse_args()
    from fuzzing.payloads import LONGEST_S, attempt, made

    seeds = range(given.first, given.first + given.count)
    found = {}
    for seed in seeds:
        found[seed] = one = attempt(made(seed))
        bad = one.kind in ("wrong", "crashed", "killed") or one.seconds > LONGEST_S
        if given.show or bad:
            print(f"{seed}: {one.kind} after {one.seconds:.2f} s: {one.said[:400]}", flush=True)
    kinds = Counter(one.kind for one in found.values())
    refused = [one for one in found.values() if one.kind == "refused"]
    placed = sum(bool(_PLACE.search(one.said)) for one in refused)
    longest = max(found, key=lambda seed: found[seed].seconds)
    print(", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    print(f"{placed} of {len(refused)} refusals name a place")
    print(f"the longest, {longest}, took {found[longest].seconds:.2f} s of processor time")
    return 1 if kinds["wrong"] or kinds["crashed"] or kinds["killed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
