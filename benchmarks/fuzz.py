"""A million hostile inputs for every parser: tables, bundles, stores, settings, command lines.

    python benchmarks/fuzz.py                        # a million, about a quarter of an hour
    python benchmarks/fuzz.py --inputs 20000 --target constraint

Each target runs in a process of its own, which may take 3 GiB and 5 s of processor time for an
input. Inputs are made from valid ones, and from those that reached lines nothing had reached; by
atheris where that is installed, else by a loop of our own. What crashes is written to
tests/faults/fuzzing/found, where the tests try it again ever after.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

FAULTS = Path(__file__).parents[1] / "tests" / "faults"
LARGEST_BYTES = 3 << 30
LONGEST_S = 3600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", help="only this one; may be given again")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--engine", choices=("auto", "own", "atheris"), default="auto")
    parser.add_argument("--json", metavar="FILE", help="write what was found as JSON")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(FAULTS))
    if options.alone:
        _fuzz_here(options.target[0], options.inputs, options.seed, options.engine)
    else:
        sys.exit(_fuzz_all(options))


def _fuzz_all(options: argparse.Namespace) -> int:
    from fuzzing.everything import TARGETS, shares

    for name in options.target or ():
        if name not in TARGETS:
            sys.exit(f"there is no target '{name}'; known: {', '.join(TARGETS)}")
    share = shares(options.inputs, options.target or list(TARGETS))
    longest_first = sorted(share, key=lambda name: TARGETS[name].per_million)
    print(f"{'target':<20}{'inputs':>10}{'inputs/s':>10}{'lines':>8}{'crashes':>9}", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(_fuzz_apart, name, share[name], options) for name in longest_first]
        found = [future.result() for future in waiting]
    inputs, crashes = (sum(int(one[what]) for one in found) for what in ("inputs", "crashes"))
    lines = sum(one["lines"] for one in found)
    print(f"{'all':<20}{inputs:>10,}{'':>10}{lines:>8}{crashes:>9}")
    if options.json:
        Path(options.json).write_text(json.dumps({"inputs": inputs, "targets": found}, indent=1))
    return 1 if crashes else 0


def _fuzz_apart(name: str, inputs: int, options: argparse.Namespace) -> dict[str, Any]:
    command = [
        sys.executable, "-W", "ignore", __file__, "--alone", "--target", name,
        "--inputs", str(inputs), "--seed", str(options.seed), "--engine", options.engine,
    ]  # fmt: skip
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
        found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        tail = getattr(error, "stderr", None) or (ended.stderr if "ended" in locals() else "")
        print(f"{name} ended without an answer: {str(tail)[-600:]}", file=sys.stderr)
        found = {"target": name, "inputs": 0, "seconds": 0.0, "lines": 0, "crashes": 1, "what": []}
    rate = found["inputs"] / found["seconds"] if found["seconds"] else 0.0
    print(
        f"{name:<20}{found['inputs']:>10,}{rate:>10,.0f}{found['lines']:>8}{found['crashes']:>9}",
        flush=True,
    )
    for what in found["what"]:
        print(f"    {what}", flush=True)
    return found


def _fuzz_here(name: str, inputs: int, seed: int, engine: str) -> None:
    from fuzzing.loop import fuzz, fuzz_with_atheris, is_installed
    from fuzzing.target import Target

    def target() -> Target:
        from fuzzing.everything import TARGETS

        return TARGETS[name]

    if engine == "atheris" or (engine == "auto" and is_installed()):
        fuzz_with_atheris(target, inputs, seed, _tell)
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST_BYTES, LARGEST_BYTES))
    _tell(fuzz(target(), inputs, seed))


def _tell(found: Any) -> None:
    """Keeps the crashes, and answers with one line."""
    from fuzzing.target import FOUND

    for crash in found.crashes.values():
        place = FOUND / found.target
        place.mkdir(parents=True, exist_ok=True)
        (place / hashlib.sha256(crash.data).hexdigest()[:12]).write_bytes(crash.data)
    answer = {
        "target": found.target,
        "inputs": found.inputs,
        "seconds": round(found.seconds, 3),
        "lines": found.lines,
        "crashes": len(found.crashes),
        "what": sorted(found.crashes),
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
