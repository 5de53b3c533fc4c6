"""Does the check of `whet.choice` tell right implementations from wrong ones?

    python benchmarks/choice_checks.py [--seeds 20] [--only WORDS] [--json FILE]

Each pair of `choice_cases.py` is checked as a tuning checks it, untimed: in every dtype it is meant
for, with gradients and without, on the inputs of each seed. A right one must never be rejected; a
wrong one must be found with every seed, by its output, by its gradients or by both.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

import whet
from choice_cases import RIGHT, WRONG, Case
from whet.core.config import Config


def arguments(case: Case, dtype: str, seed: int, grad: bool) -> list[Any]:
    torch.manual_seed(seed)
    made = [
        one.to(getattr(torch, dtype)) if one.is_floating_point() else one for one in case.make()
    ]
    return [one.requires_grad_(grad and one.is_floating_point()) for one in made]


def verdict(case: Case, dtype: str, seed: int, grad: bool) -> str:
    """What is wrong with the other implementation; empty where nothing is."""
    chosen = whet.choice(
        {"first": case.first, "other": case.other}, name=case.name, key=lambda *_: 0
    )
    target = chosen.target(*arguments(case, dtype, seed, grad))
    said = target.load(Config({"implementation": "other"}), None).check()
    target.let_go()
    return said.message


def rejected(case: Case, seeds: int) -> dict[str, dict[str, list[str]]]:
    """By dtype, what was said without gradients and with them, seed by seed."""
    return {
        dtype: {
            "inference": [verdict(case, dtype, seed, False) for seed in range(seeds)],
            "training": [verdict(case, dtype, seed, True) for seed in range(seeds)],
        }
        for dtype in case.dtypes
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="", help="cases whose names have these words")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    os.environ["WHET_STORE"] = ":memory:"
    torch.set_num_threads(1)  # small operations: threads would wait for each other
    began, found = time.monotonic(), {}
    totals = {"right": [0, 0, 0], "wrong": [0, 0, 0]}
    for kind, cases in (("right", RIGHT), ("wrong", WRONG)):
        for case in cases:
            if asked.only not in case.name:
                continue
            said = rejected(case, asked.seeds)
            found[f"{kind}: {case.name}"] = said
            for dtype, by_use in said.items():
                if kind == "right":
                    failed = [text for texts in by_use.values() for text in texts if text]
                    checks = 2 * asked.seeds
                else:
                    failed = [""] * by_use["training"].count("")
                    checks = asked.seeds
                totals[kind][1] += checks
                totals[kind][2] += len(failed)
                if failed:
                    what = "rejected" if kind == "right" else "not found"
                    print(f"{case.name}, {dtype}: {what} {len(failed)} of {checks}: {failed[0]}")
            totals[kind][0] += 1
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2))
    print(f"\n{asked.seeds} seeds, {time.monotonic() - began:.0f} s")
    print(f"{'pairs':8} {'cases':>6} {'checks':>7}  failed")
    for kind, (cases, checks, failed) in totals.items():
        what = "rejected" if kind == "right" else "not found"
        print(f"{kind:8} {cases:6} {checks:7}  {failed} {what}")
    sys.exit(any(failed for _, _, failed in totals.values()))


if __name__ == "__main__":
    main()
