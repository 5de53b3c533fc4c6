"""What a step of a library's kernels costs the host when nothing needs tuning: stock and whet.

    python benchmarks/library_calls.py FOLDER [PROGRAM …] [--rounds 3] [--steps 30] [--fake]

FOLDER and the programs are those of `serving.py`, at a small size. Each side has processes of its
own, in turns; a step is one forward and backward pass until its last kernel is queued. Both launch
the first config of every kernel and tune nothing. With `--fake`, kernels go to a stand-in for the
driver and torch computes on the CPU: then only the differences tell.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import serving

SIDES = ("stock", "whet")
SIZE = 3  # of each program, the smallest


def child(asked: Any, side: str, program: str) -> None:
    """Prints the shortest step in microseconds, and how many kernels it launched."""
    from triton.runtime import autotuner as stock
    from triton.runtime import jit

    sys.path[:0] = [str(asked.folder.resolve())]
    if side == "whet":
        import whet

        whet.install()
    with serving.device(asked) as torch:
        step = serving.made_step(torch, asked, program, serving.SIZES[program][SIZE])
        if side == "stock":
            first_configs_alone(stock.Autotuner)
        step()
        taken = []
        for _ in range(asked.steps):
            serving.idle(asked, torch)
            start = time.perf_counter()
            step()
            taken.append(time.perf_counter() - start)
        launches = 0
        plain = jit.JITFunction.run

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal launches
            launches += 1
            return plain(*args, **kwargs)

        jit.JITFunction.run = counted
        step()
    print(1e6 * min(taken), launches)


def first_configs_alone(kind: Any) -> None:
    import gc

    for one in gc.get_objects():
        if issubclass(type(one), kind):
            one.configs = one.configs[:1]


def shortest(asked: Any, side: str, program: str, caches: str) -> tuple[float, int]:
    words = [sys.executable, __file__, str(asked.folder), program, "--steps", str(asked.steps)]
    words += ["--side", side, *["--fake"] * asked.fake]
    environment = {
        **os.environ,
        "WHET_MODE": "off",
        "WHET_STORE": str(Path(caches, "store.db")),
        "TRITON_CACHE_DIR": str(Path(caches, "triton")),
        "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path[1:], os.environ.get("PYTHONPATH")])),
    }
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{program} with {side}: {done.stderr.strip()[-2000:]}")
    us, launches = done.stdout.split()[-2:]
    return float(us), int(launches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        child(asked, asked.side, asked.programs[0])
        return
    for program in asked.programs or serving.SIZES:
        taken: dict[str, list[float]] = {side: [] for side in SIDES}
        with tempfile.TemporaryDirectory() as caches:
            for _ in range(asked.rounds):
                for side in SIDES:
                    us, launches = shortest(asked, side, program, caches)
                    taken[side].append(us)
        both = {side: statistics.median(values) for side, values in taken.items()}
        extra = (both["whet"] - both["stock"]) / launches
        print(
            f"{program:7} {launches:3} launches  stock {both['stock']:7.0f} µs  "
            f"whet {both['whet']:7.0f} µs a step, {extra:+.1f} µs a launch",
            flush=True,
        )


if __name__ == "__main__":
    main()
