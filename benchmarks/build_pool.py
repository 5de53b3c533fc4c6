"""The same builds one after another and in a pool of workers.

    python benchmarks/build_pool.py [--builds 24] [--jobs 2] [--mode spawn] [--rounds 1] [--json]

Every build is a `cc -O3` of its own source. The pool's time includes starting and closing it. Of
several rounds, which take turns, the fastest of each kind counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

from whet.workers.pool import open_pool
from whet.workers.task import Kind, Task

FUNCTIONS = 6

KERNEL = """
void kernel_{n}(const float *restrict a, const float *restrict b, float *restrict c, int size)
{{
    for (int i = 0; i < size; i += {tile})
        for (int j = 0; j < size; j += {tile})
            for (int k = 0; k < size; k += {tile})
                for (int ii = i; ii < i + {tile}; ii++)
                    for (int jj = j; jj < j + {tile}; jj++) {{
                        float sum = c[ii * size + jj];
                        for (int kk = k; kk < k + {tile}; kk++)
                            sum += a[ii * size + kk] * b[kk * size + jj] + {n}.0f;
                        c[ii * size + jj] = sum > 0 ? sum : sum * 0.1f;
                    }}
}}
"""


def source(build: int) -> str:
    return "".join(KERNEL.format(n=n, tile=4 + (build + n) % 13) for n in range(FUNCTIONS))


def command(path: Path) -> list[str]:
    return ["cc", "-O3", "-march=native", "-shared", "-fPIC", str(path), "-o", "kernel.so"]


def one_after_another(sources: list[Path], folder: Path) -> float:
    start = time.perf_counter()
    for path in sources:
        subprocess.run(command(path), cwd=folder, check=True)
    return time.perf_counter() - start


def in_a_pool(sources: list[Path], jobs: int, mode: str) -> float:
    start = time.perf_counter()
    with open_pool(jobs, mode) as pool:
        for path in sources:
            pool.submit(Task(subprocess.check_call, (command(path),)))
        while pool.pending:
            for outcome in pool.wait(None):
                if outcome.kind is not Kind.DONE:
                    raise SystemExit(f"a build failed: {outcome.error}")
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--builds", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--mode", choices=("spawn", "fork"), default="spawn")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = [folder / f"kernel_{build}.c" for build in range(asked.builds)]
        for build, path in enumerate(sources):
            path.write_text(source(build))
        one_after_another(sources[:1], folder)
        times = [
            (one_after_another(sources, folder), in_a_pool(sources, asked.jobs, asked.mode))
            for _ in range(asked.rounds)
        ]
    serial_s, pool_s = (min(column) for column in zip(*times, strict=True))
    row = {
        "builds": asked.builds,
        "jobs": asked.jobs,
        "mode": asked.mode,
        "serial_s": serial_s,
        "pool_s": pool_s,
        "ratio": serial_s / pool_s,
    }
    if asked.json:
        print(json.dumps(row))
        return
    print(f"one after another  {serial_s:7.2f} s   {serial_s / asked.builds:.2f} s a build")
    workers = f"{asked.jobs} workers ({asked.mode})"
    print(f"{workers:17}  {pool_s:7.2f} s")
    print(f"ratio              {serial_s / pool_s:7.2f}")


if __name__ == "__main__":
    main()
