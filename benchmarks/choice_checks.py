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


def failures(case: Case, right: bool, seeds: int) -> tuple[int, list[str]]:
    """How many checks there were, and what is said of those that went wrong. A wrong one has to be
    found in training, where both its output and its gradients are looked at."""
    checks, failed = 0, []
    for dtype in case.dtypes:
        for grad in (False, True) if right else (True,):
            for seed in range(seeds):
                said = verdict(case, dtype, seed, grad)
                checks += 1
                if right == bool(said):
                    failed.append(f"{dtype}, seed {seed}: {said or 'not found'}")
    return checks, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="", help="cases whose names have these words")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    os.environ["WHET_STORE"] = ":memory:"
    torch.set_num_threads(1)  # small operations: threads would wait for each other
    began = time.monotonic()
    found: dict[str, dict[str, tuple[int, list[str]]]] = {"right": {}, "wrong": {}}
    for kind, cases in (("right", RIGHT), ("wrong", WRONG)):
        for case in cases:
            if asked.only in case.name:
                found[kind][case.name] = failures(case, kind == "right", asked.seeds)
                _, failed = found[kind][case.name]
                for text in failed[:1]:
                    print(f"{case.name}: {len(failed)} failed, {text}", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2))
    print(f"{asked.seeds} seeds, {time.monotonic() - began:.0f} s\n")
    print("pairs  cases  checks  failed")
    for kind, by_case in found.items():
        checks = sum(checks for checks, _ in by_case.values())
        failed = [text for _, texts in by_case.values() for text in texts]
        what = "rejected" if kind == "right" else "not found"
        print(f"{kind}  {len(by_case):5}  {checks:6}  {len(failed)} {what}")
    sys.exit(any(failed for by_case in found.values() for _, failed in by_case.values()))


if __name__ == "__main__":
    main()
