"""What importing whet and asking for help cost.

    python benchmarks/startup.py [--json] [--names-of ../whet-0.1]

`import whet` is measured on top of an interpreter that has NumPy loaded; what each command takes
is the median of several fresh processes. `whet.autotune` is left out of the names that are used: it
is a subclass of Triton's own class, and brings Triton with it. Later sources have more names; with
`--names-of` those of another checkout are used and no others, so that the two can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HEAVY = ("rich", "sklearn", "torch", "triton", "typer")
IMPORT = (
    "import numpy, sys, time; t = time.perf_counter(); import whet; "
    "print(time.perf_counter() - t); "
    "names = sys.argv[1:] or whet.__all__; "
    "[getattr(whet, name) for name in names if name != 'autotune']; "
    "print(time.perf_counter() - t); "
    f"print(','.join(m for m in {HEAVY!r} if m in sys.modules)); print(len(names))"
)


def names_of(checkout: Path) -> list[str]:
    """The public names of another source of whet."""
    done = subprocess.run(
        [sys.executable, "-c", "import whet; print(*whet.__all__)"],
        env={**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def import_cost(names: list[str]) -> dict[str, object]:
    """Milliseconds of the import and of using the names, and what heavy packages came."""
    imports, uses, heavy = [], [], set[str]()
    for _ in range(9):
        done = subprocess.run(
            [sys.executable, "-c", IMPORT, *names], capture_output=True, text=True, check=True
        )
        imported, used, brought, count = done.stdout.split("\n")[:4]
        imports.append(float(imported))
        uses.append(float(used))
        heavy |= {name for name in brought.split(",") if name}
    return {
        "import_ms": 1000 * statistics.median(imports),
        "names": int(count),
        "use_every_name_ms": 1000 * statistics.median(uses),
        "heavy_imports": sorted(heavy),
    }


def help_cost() -> float:
    times = []
    for _ in range(9):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "whet", "--help"], stdout=subprocess.DEVNULL, check=True
        )
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--names-of", type=Path, metavar="CHECKOUT")
    asked = parser.parse_args()
    row = import_cost(names_of(asked.names_of) if asked.names_of else [])
    row["help_ms"] = help_cost()
    if asked.json:
        print(json.dumps(row))
        return
    heavy = row["heavy_imports"]
    assert isinstance(heavy, list)
    print(f"import whet               {row['import_ms']:6.1f} ms on top of numpy")
    print(f"and use {row['names']} public names   {row['use_every_name_ms']:6.1f} ms")
    print(f"heavy packages imported   {', '.join(heavy) or 'none'}")
    print(f"whet --help               {row['help_ms']:6.1f} ms")


if __name__ == "__main__":
    main()
