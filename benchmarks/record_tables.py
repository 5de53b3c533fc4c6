"""Records, on whatever GPU this is, the tables that are shipped for simulation without one.

    python benchmarks/record_tables.py --out FOLDER [--tables paper,gemm576] [--visits 2]
                                       [--samples 6] [--build-limit 15]

`paper` is the cost paper's suite, 100 random GEMM configs (seed 0); `gemm576` is 4 × 4 × 3 tiles, 2
to 5 stages and 2, 4 or 8 warps; both over 64 sizes. Every config that builds within the limit is
sampled at every size in several visits, between which all the others come; the sizes go in another
order each time. A table keeps every sample by visit, the compiler's stages and what failed.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from problems import PAPER_SIZES, Numbers, large_configs, paper_configs, problem, triton_config

CONFIGS = {"paper": lambda: paper_configs(0), "gemm576": large_configs}


def record(name: str, configs: Sequence[Numbers], visits: int, folder: Path) -> Any:
    import torch

    import whet
    from whet.replay import table_from_stores

    bind = problem("gemm:0").bind()
    calls = {size: bind(size) for size in PAPER_SIZES}
    kernel = next(iter(calls.values())).kernel
    began = time.perf_counter()
    for visit in range(visits):
        os.environ["WHET_STORE"] = str(folder / f"{name}-{visit}.db")
        listed = [triton_config(config) for config in configs]
        tuned: Any = whet.autotune(configs=listed, key=["M", "N", "K"])(kernel)
        sizes = random.Random(visit).sample(PAPER_SIZES, len(PAPER_SIZES))
        for done, size in enumerate(sizes, start=1):
            tuned[calls[size].grid](*calls[size].arguments)
            torch.cuda.synchronize()
            if done in (1, len(sizes)):
                spent = time.perf_counter() - began
                print(f"{name}: visit {visit + 1}, size {done}: {spent:.0f} s", flush=True)
    with ExitStack() as stack:
        stores = [
            stack.enter_context(whet.open_store(folder / f"{name}-{visit}.db", read_only=True))
            for visit in range(visits)
        ]
        return table_from_stores(stores, kernel=kernel.__name__)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tables", default="paper,gemm576")
    parser.add_argument("--visits", type=int, default=2)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--build-limit", type=float, default=15.0)
    asked = parser.parse_args()
    os.environ["WHET_SAMPLES"] = str(asked.samples)
    os.environ["WHET_BUILD_LIMIT"] = str(asked.build_limit)
    from triton_kernels import wake_device
    from whet.replay import write_table

    wake_device()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.tables.split(","):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TRITON_CACHE_DIR"] = str(Path(folder) / "triton")
            table = record(name, CONFIGS[name](), asked.visits, Path(folder))
        path = asked.out / f"{name}.whet.json.gz"
        write_table(table, path)
        usable = sum(build.status == "ok" for build in table.builds)
        print(
            f"{path}: {len(table.configs)} configs, {usable} of them usable, "
            f"{len(table.workloads)} sizes, {path.stat().st_size / 1e6:.2f} MB"
        )


if __name__ == "__main__":
    main()
