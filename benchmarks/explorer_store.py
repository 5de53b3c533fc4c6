"""A store with very many trials of one kernel, filled quickly: for `benchmarks/explorer.py`.

    python benchmarks/explorer_store.py million.db --trials 1000000

Times follow a made-up cost of tiles, so that parameters matter to different degrees; one config in
twelve fails. Every trial is a config of its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Run
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Cost, Trial
from whet.core.workload import Device, Workload
from whet.store import SqliteStore

BATCH = 20_000
SAMPLES = 6

VALUES: dict[str, tuple[Any, ...]] = {
    "BLOCK_M": (16, 32, 64, 96, 128, 160, 192, 256),
    "BLOCK_N": (16, 32, 64, 96, 128, 160, 192, 256),
    "BLOCK_K": (16, 32, 64, 128),
    "GROUP_M": (1, 2, 4, 8, 16, 32, 64),
    "SPLIT_K": (1, 2, 4, 8),
    "num_warps": (1, 2, 4, 8, 16),
    "num_stages": (1, 2, 3, 4, 5, 6, 7, 8),
    "ORDER": ("row", "column", "morton", "hilbert"),
}
_ERRORS = (
    (Status.RESOURCES, "out of resource: shared memory, Required: 262144, Hardware limit: 232448."),
    (Status.BUILD_ERROR, "error: operation was not vectorizable"),
    (Status.BUILD_TIMEOUT, "the build was still running after 15 s and was killed"),
    (Status.WRONG_RESULT, "1024 of 65536 elements differ"),
)


def workload() -> Workload:
    device = Device("NVIDIA H200", "nvidia", "sm_90", "13.0")
    return Workload(
        "wide_matmul",
        "5eed",
        device,
        FrozenMap({"M": 4096, "N": 4096, "K": 4096, "a.dtype": "torch.float16"}),
        FrozenMap({"triton": "3.6.0"}),
    )


def fill(path: Path, trials: int, seed: int = 0) -> None:
    """Puts so many trials into the store at `path`, of one run."""
    tuned = workload()
    run = Run(tuned, "wide", _size(), "random", seed, started=time.time(), whet="benchmark")
    with SqliteStore(path) as store:
        store.save_run(run)
        best = None
        for batch in _batches(run, trials, seed):
            store.append(batch)
            found = min(batch, key=lambda trial: trial.median_ns or float("inf"))
            if best is None or (found.median_ns or 0) < (best.median_ns or 0):
                best = found
        assert best is not None
        done = Run(
            **{
                **{name: getattr(run, name) for name in run.__dataclass_fields__},
                "outcome": Outcome.FINISHED,
                "best": best.config,
                "trials": trials,
                "wall_s": 0.01 * trials,
            }
        )
        store.save_run(done)


def _size() -> int:
    return int(np.prod([len(values) for values in VALUES.values()]))


def _batches(run: Run, trials: int, seed: int) -> Iterator[list[Trial]]:
    rng = np.random.default_rng(seed)
    shape = tuple(len(values) for values in VALUES.values())
    chosen = rng.choice(_size(), size=min(trials, _size()), replace=False)
    done = 0
    while done < trials:
        picked = np.take(chosen, range(done, min(done + BATCH, trials)), mode="wrap")
        codes = np.stack(np.unravel_index(picked, shape), axis=1)
        ns = _times(codes, rng)
        noise = rng.normal(1.0, 0.01, (len(picked), SAMPLES))
        failed = rng.random(len(picked)) < 1 / 12
        which = rng.integers(len(_ERRORS), size=len(picked))
        yield [
            trial_of(run, row, ns[at] * noise[at], done + at, failure)
            for at, row in enumerate(codes.tolist())
            for failure in (_ERRORS[which[at]] if failed[at] else None,)
        ]
        done += len(picked)


def _times(codes: Any, rng: np.random.Generator) -> Any:
    m, n, k, group, split, warps, stages, order = codes.T
    ideal = (m - 4) ** 2 + 0.8 * (n - 4) ** 2 + 0.3 * (k - 2) ** 2
    return 2e5 * np.exp(
        0.08 * ideal
        + 0.05 * (warps - (m + n) / 4) ** 2
        + 0.03 * abs(stages - 3)
        + 0.02 * abs(group - 3)
        + 0.1 * split
        + 0.01 * order
        + rng.normal(0, 0.05, len(m))
    )


def trial_of(run: Run, codes: list[int], samples: Any, number: int, failure: Any) -> Trial:
    values = {name: VALUES[name][code] for name, code in zip(VALUES, codes, strict=True)}
    built = {"build": 0.4, "build.llir": 0.2, "build.cubin": 0.15}
    common: dict[str, Any] = {
        "workload_id": run.workload.id,
        "config": Config(values),
        "run_id": run.id,
        "created": run.started + 0.01 * number,
    }
    if failure is not None:
        status, error = failure
        return Trial(status=status, error=error, cost=Cost.of(**built), **common)
    timing = Timing(tuple(samples.round().tolist()), "cuda+fresh", l2="cold")
    cost = Cost.of(**built, load=0.001, warmup=0.002, measure=0.01)
    facts: FrozenMap[Any] = FrozenMap({"registers": 128, "spills": 0, "shared_bytes": 65536})
    return Trial(status=Status.OK, timing=timing, cost=cost, facts=facts, **common)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("path", type=Path)
    parser.add_argument("--trials", type=int, default=1_000_000)
    asked = parser.parse_args()
    began = time.perf_counter()
    fill(asked.path, asked.trials)
    print(f"{asked.trials:,} trials in {time.perf_counter() - began:.1f} s: {asked.path}")


if __name__ == "__main__":
    main()
