"""Binaries made where there is no GPU, used where there is one.

    python benchmarks/precompiled.py --pack FOLDER [--arch sm_90]     on any machine
    python benchmarks/precompiled.py --use FOLDER [--json]            on one with a GPU

Both machines need the same version of Triton; their processors and their Pythons may differ. Two
kernels, three keys each. `--use` starts fresh processes with empty caches, with the packed binaries
and without, which make first calls and then tune; Triton's own listener counts what is compiled and
its stage hook the stages that run, in forked compiler processes as well. A first call includes
Triton's small C launcher, which is built on either side.
"""

# The kernels' arguments are made by functions without types.
# mypy: allow-untyped-decorators

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import triton

import softmax_kernels
import triton_kernels
import whet

MATMUL_KEYS = [{"size": 512}, {"size": 1000}, {"size": 1023}]
SOFTMAX_KEYS = [
    {"rows": 1024, "columns": 1024},
    {"rows": 4096, "columns": 333},
    {"rows": 17, "columns": 20000},
]


def matmul_inputs(size: int) -> tuple[Any, tuple[Any, ...]]:
    a, b, c = triton_kernels.matmul_inputs(size)
    grid = triton_kernels.matmul_grid(size, size)
    return grid, triton_kernels.matmul_arguments(a, b, c)


def softmax_inputs(rows: int, columns: int) -> tuple[Any, tuple[Any, ...]]:
    x, y = softmax_kernels.softmax_inputs(rows, columns)
    return softmax_kernels.softmax_grid(rows), softmax_kernels.softmax_arguments(x, y)


SOFTMAX_CONFIGS = [
    triton.Config({"ROWS": rows, "CHUNK": chunk, "STAGES": 2}, num_warps=warps)
    for rows, chunk, warps in ((1, 1024, 4), (1, 4096, 8), (4, 512, 4), (2, 2048, 8))
]

matmul = whet.autotune(
    triton_kernels.tutorial_configs()[3:8], key=list(triton_kernels.KEY), inputs=matmul_inputs
)(triton_kernels.matmul_kernel)
softmax = whet.autotune(SOFTMAX_CONFIGS, key=["rows", "columns"], inputs=softmax_inputs)(
    softmax_kernels.softmax_kernel
)

KERNELS: dict[str, tuple[Any, Any, list[dict[str, int]]]] = {
    "matmul": (matmul, matmul_inputs, MATMUL_KEYS),
    "softmax": (softmax, softmax_inputs, SOFTMAX_KEYS),
}


def pack(folder: str, arch: str) -> None:
    for name, (_, _, keys) in KERNELS.items():
        typed = [f"--keys={','.join(f'{n}={v}' for n, v in key.items())}" for key in keys]
        command = ["precompile", f"{__file__}:{name}", f"--arch={arch}", f"--out={folder}", *typed]
        subprocess.run([sys.executable, "-m", "whet", *command], check=True)
    print(f"packed with Triton {triton.__version__}")


def listen(path: str) -> None:
    """One line for each kernel that is compiled or found, and for each stage that runs."""
    from triton import knobs

    heard = open(path, "a", buffering=1)  # noqa: SIM115 (for the life of the process)

    def listener(*, cache_hit: bool, **_: Any) -> None:
        heard.write("found\n" if cache_hit else "compiled\n")

    def hook(*args: Any) -> tuple[str, str] | None:
        if not args:
            return "", ""
        stages = args[1]
        for name, run in list(stages.items()):

            def noted(*given: Any, run: Any = run) -> Any:
                heard.write("stage\n")
                return run(*given)

            stages[name] = noted
        return None

    knobs.compilation.listener = listener
    knobs.runtime.add_stages_inspection_hook = hook


def is_right(name: str, args: tuple[Any, ...]) -> bool:
    if name == "matmul":
        return triton_kernels.relative_error(*args[:3]) < 1e-2
    return softmax_kernels.softmax_error(*args[:2]) < 1e-2


def child(what: str, heard: str) -> None:
    """First calls of the first config, or whole tunings."""
    triton_kernels.wake_device()
    listen(heard)
    calls = []
    for name, (kernel, inputs, keys) in KERNELS.items():
        if what == "call":
            kernel.configs = kernel.configs[:1]
        for key in keys:
            grid, args = inputs(**key)
            torch.cuda.synchronize()
            start = time.perf_counter()
            kernel[grid](*args)
            torch.cuda.synchronize()
            spent = 1000 * (time.perf_counter() - start)
            calls.append({"kernel": name, **key, "ms": spent, "right": is_right(name, args)})
    print(json.dumps(calls))


def started(what: str, folder: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **{name: value for name, value in os.environ.items() if name != "WHET_BINARIES"},
            "TRITON_CACHE_DIR": f"{home}/triton",
            "WHET_STORE": f"{home}/store.db",
            **({} if folder is None else {"WHET_BINARIES": folder}),
        }
        heard = Path(home) / "heard"
        done = subprocess.run(
            [sys.executable, __file__, "--child", what, "--heard", str(heard)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        counts = Counter(heard.read_text().split())
    calls = json.loads(done.stdout.splitlines()[-1])
    return {
        "what": what,
        "binaries": folder is not None,
        "stages": counts["stage"],
        "compiled": counts["compiled"],
        "found": counts["found"],
        "right": all(call["right"] for call in calls),
        "calls": calls,
    }


def use(folder: str, as_json: bool) -> None:
    rows = [started(what, binaries) for what in ("call", "tune") for binaries in (None, folder)]
    if as_json:
        print(json.dumps({"triton": triton.__version__, "rows": rows}))
        return
    for row in rows:
        side = "packed  " if row["binaries"] else "compiled"
        print(
            f"{row['what']} {side}  {row['stages']:4} stages  {row['compiled']:3} compiled  "
            f"{row['found']:3} found  {'right' if row['right'] else 'WRONG'}"
        )
        for call in row["calls"]:
            key = " ".join(f"{n}={v}" for n, v in call.items() if n not in ("ms", "right"))
            print(f"    {key:<40} {call['ms']:9.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pack", metavar="FOLDER")
    parser.add_argument("--use", metavar="FOLDER")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--heard", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, asked.heard)
    elif asked.pack:
        pack(asked.pack, asked.arch)
    elif asked.use:
        use(os.path.abspath(asked.use), asked.json)
    else:
        parser.error("give --pack FOLDER or --use FOLDER")


if __name__ == "__main__":
    main()
