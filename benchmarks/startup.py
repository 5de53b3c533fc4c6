"""What importing whet and asking for help cost.

    python benchmarks/startup.py [--json]

`import whet` is measured on top of an interpreter that has NumPy loaded; what each command takes
is the median of several fresh processes. `whet.autotune` is left out of the names that are used: it
is a subclass of Triton's own class, and brings Triton with it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

HEAVY = ("rich", "sklearn", "torch", "triton", "typer")
IMPORT = (
    "import numpy, time; t = time.perf_counter(); import whet; "
    "print(time.perf_counter() - t); "
    "[getattr(whet, name) for name in whet.__all__ if name != 'autotune']; "
    "print(time.perf_counter() - t); import sys; "
    f"print(','.join(m for m in {HEAVY!r} if m in sys.modules))"
)


def import_cost() -> tuple[float, float, list[str]]:
    """Milliseconds of the import, of using every public name, and what heavy packages came."""
    imports, uses, heavy = [], [], set[str]()
    for _ in range(9):
        done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True)
        imported, used, names = done.stdout.split("\n")[:3]
        imports.append(float(imported))
        uses.append(float(used))
        heavy |= {name for name in names.split(",") if name}
    return 1000 * statistics.median(imports), 1000 * statistics.median(uses), sorted(heavy)


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
    asked = parser.parse_args()
    import_ms, use_ms, heavy = import_cost()
    row = {
        "import_ms": import_ms,
        "use_every_name_ms": use_ms,
        "heavy_imports": heavy,
        "help_ms": help_cost(),
    }
    if asked.json:
        print(json.dumps(row))
        return
    print(f"import whet               {import_ms:6.1f} ms on top of numpy")
    print(f"and use every public name {use_ms:6.1f} ms")
    print(f"heavy packages imported   {', '.join(heavy) or 'none'}")
    print(f"whet --help               {row['help_ms']:6.1f} ms")


if __name__ == "__main__":
    main()
