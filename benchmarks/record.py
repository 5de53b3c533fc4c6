"""Runs benchmarks and writes what they say, with date, machine and versions, to results.json.

python benchmarks/record.py [NAME …]      all of them, or those named (space, store …)
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy

import whet
from whet.targets.base import host_device
from whet.targets.native.compile import compiler_version

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
ORDER = (
    "space",
    "build_pool",
    "engine_overhead",
    "startup",
    "store",
    "cached_lookup",
    "kill9",
    "merge",
)


def circumstances() -> dict[str, Any]:
    device = host_device()
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{device.name}, {device.limits.multiprocessors} cores, {device.architecture}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "compiler": compiler_version("cc"),
        "whet": whet.__version__,
        "load": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    # Those that need a GPU (tutorial_matmul, dispatch) are run where there is one, by name.
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in sys.argv[1:] or ORDER:
        about = circumstances()
        print(f"{name} …", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, str(HERE / f"{name}.py"), "--json"], stdout=subprocess.PIPE, text=True
        )
        results[name] = {**about, "exit_code": done.returncode, "result": json.loads(done.stdout)}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(json.dumps(results[name], indent=1))


if __name__ == "__main__":
    main()
