"""One size of a 576-config GEMM, cold, by search within a time budget.

    python benchmarks/one_size.py --reference TABLE [--size 4096x4096x4096] [--seeds 5]
                                  [--budget 9s] [--json FILE]

Every seed is a process with empty caches that calls the kernel once; what is timed is that call,
with all it builds and measures. Its pick is compared with the best of a table in which every config
was sampled at this size: `record_tables.py --tables gemm576` makes one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from cold import Record, byte_compile
from contest import side
from problems import PAPER_SIZES, problem, size_text

LIMIT_S = 60.0
WANTED_SHARE, WANTED_S = 0.98, 10.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--size", default="4096x4096x4096")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", default="9s")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    byte_compile()
    from whet.replay import read_table

    asked = problem("gemm576")
    size = tuple(int(number) for number in options.size.split("x"))
    table = read_table(options.reference)
    wanted = dict(zip(asked.key, size, strict=True)).items()
    known = next(workload for workload in table.workloads if wanted <= workload.key.items())
    optimum = known.optimum
    assert optimum is not None, "nothing in the reference can be used at this size"
    record = Record(options.json)
    rows = []
    for seed in range(options.seeds):
        payload = {"sizes": [PAPER_SIZES.index(size)], "budget": options.budget}
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            variables = {"WHET_SEED": str(seed)}
            tuned = side("whet", asked, payload, Path(name), LIMIT_S, variables=variables)
        if not tuned.get("calls"):
            raise SystemExit(f"seed {seed}: whet did not finish, exit code {tuned['exit_code']}")
        pick = asked.configs[tuned["calls"][0]["pick"]]
        row = next(at for at, config in enumerate(table.configs) if pick.items() <= config.items())
        median_ns = known.median_ns(row)
        found = {
            "seed": seed,
            "pick": pick,
            "wall_s": tuned["wall_s"],
            "statuses": tuned["statuses"],
            "share": optimum.ns / median_ns if median_ns else None,
        }
        rows.append(found)
        record.put(f"seed {seed}", found)
        print(f"  seed {seed}: {found['wall_s']:.1f} s, {found['share']}, {found['statuses']}")
    share = statistics.median(row["share"] or 0.0 for row in rows)
    wall_s = statistics.median(row["wall_s"] for row in rows)
    print(
        f"{size_text(size)}, {len(asked.configs)} configs: median of {len(rows)} seeds "
        f"{100 * share:.2f} % of the best in {wall_s:.1f} s"
    )
    raise SystemExit(0 if share >= WANTED_SHARE and wall_s <= WANTED_S else 1)


if __name__ == "__main__":
    main()
