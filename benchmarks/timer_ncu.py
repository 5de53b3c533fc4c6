"""Whet's CUDA timer and stock's `do_bench` against what the profiler `ncu` says.

    python benchmarks/timer_ncu.py [--launches 12] [--samples 30] [--json FILE]

Like with like: a warm L2 against `--cache-control none`, a cold one against ncu's invalidation;
`do_bench` clears the cache, so it is compared with the cold one. The clock is left alone
(`--clock-control none`). Where a buffer lies moves a kernel by 8 % with a warm L2, so whet times
the very launches that ncu profiles afterwards, in the same process. The lines "apart" are a process
without ncu; there `do_bench` comes last, since 150 ms of a large product lower the clock of an H200
by a fifth, and that would be in whatever is timed in the next tenth of a second.
All kernels are of Triton; the timer's own calibration uses none of them.
Exit code 1: the median difference is above 3 %, or one is above 10 % and 1 µs.
"""

from __future__ import annotations

import argparse
import csv
import glob
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cold import Notes, Record, byte_compile, child
from launching import Repeated
from whet.core.timing import L2

WANTED_MEDIAN, WANTED_WORST, WANTED_WORST_US = 0.03, 0.10, 1.0
RANGE_US = (3.0, 1000.0)
LEAST = 12
STATES: dict[L2, str] = {"warm": "none", "cold": "all"}
KINDS = ("warm", "cold", "warm, apart", "cold, apart", "do_bench")
SKIPPED_LAUNCHES = 2
CHILD_LIMIT_S = 120.0
PLACES = (
    "/usr/local/cuda*/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
)
_TO_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}

GEMMS = (
    ((256, 256, 256), (64, 64, 32, 4, 4)),
    ((256, 256, 4096), (64, 64, 64, 4, 4)),
    ((512, 512, 1024), (64, 64, 64, 4, 4)),
    ((1024, 1024, 1024), (128, 64, 64, 4, 4)),
    ((4096, 256, 4096), (128, 64, 64, 4, 4)),
    ((2048, 2048, 2048), (128, 128, 64, 3, 8)),
    ((4096, 4096, 4096), (128, 256, 64, 3, 8)),
    ((8192, 4096, 4096), (128, 256, 64, 3, 8)),
)


def kernels() -> dict[str, tuple[str, Callable[[], Any]]]:
    """By name: the kernel's own name, as the profiler has it, and a launch."""
    import torch

    from attention_kernels import (
        attention_arguments,
        attention_grid,
        attention_inputs,
        attention_kernel,
    )
    from softmax_kernels import softmax_arguments, softmax_grid, softmax_inputs, softmax_kernel
    from triton_kernels import (
        matmul_arguments,
        matmul_grid,
        matmul_kernel,
        row_sum_kernel,
        scale_add_kernel,
    )

    torch.manual_seed(0)
    found: dict[str, tuple[str, Callable[[], Any]]] = {}

    def add(name: str, kernel: Any, grid: Any, *arguments: Any, **constants: Any) -> None:
        launch = partial(kernel.run, *arguments, grid=grid, warmup=False, **constants)
        found[name] = (kernel.__name__, launch)

    for (m, n, k), (bm, bn, bk, stages, warps) in GEMMS:
        a, b = (
            torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((m, k), (k, n))
        )
        c = torch.empty((m, n), device="cuda", dtype=torch.float16)
        blocks = {"BLOCK_SIZE_M": bm, "BLOCK_SIZE_N": bn, "BLOCK_SIZE_K": bk, "GROUP_SIZE_M": 8}
        options = {"num_stages": stages, "num_warps": warps}
        arguments = matmul_arguments(a, b, c)
        add(f"gemm {m}×{n}×{k}", matmul_kernel, matmul_grid(m, n), *arguments, **blocks, **options)
    for size in (2**20, 2**23, 2**26):
        x, y = (torch.randn(size, device="cuda") for _ in range(2))
        add(f"scale-add 2^{size.bit_length() - 1}", scale_add_kernel, (size // 1024,), x, y, size,
            BLOCK=1024)  # fmt: skip
    for rows, columns in ((2048, 1024), (8192, 8192)):
        x = torch.randn((rows, columns), device="cuda")
        total = torch.empty(rows, device="cuda")
        add(f"row sum {rows}×{columns}", row_sum_kernel, (rows,), x, total, columns, BLOCK=1024)
    for rows, columns in ((1024, 1024), (4096, 4096), (16384, 8192)):
        x, y = softmax_inputs(rows, columns)
        constants = {"ROWS": 1, "CHUNK": columns, "STAGES": 1, "num_warps": 8}
        arguments = softmax_arguments(x, y)
        add(f"softmax {rows}×{columns}", softmax_kernel, softmax_grid(rows), *arguments,
            **constants)  # fmt: skip
    for heads, sequence in ((16, 512), (16, 2048), (64, 4096)):
        arguments = attention_arguments(*attention_inputs(heads, sequence))
        constants = {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3}
        add(f"attention {heads}×{sequence}", attention_kernel, attention_grid(heads, sequence),
            *arguments, **constants)  # fmt: skip
    return found


def _launched_once() -> dict[str, tuple[str, Callable[[], Any]]]:
    import torch

    listed = kernels()
    for _, launch in listed.values():
        launch()
    torch.cuda.synchronize()
    return listed


def _timed(
    listed: Mapping[str, tuple[str, Callable[[], Any]]], state: L2, samples: int
) -> dict[str, dict[str, Any]]:
    """What whet's timer says of every kernel, in microseconds."""
    from whet.measure.gpu.timer import CudaTimer

    timer = CudaTimer(l2=state)
    found = {}
    for name, (_, launch) in listed.items():
        run = Repeated(launch)
        reading = timer.measure(run, samples, timer.warm(run))
        found[name] = {
            "us": statistics.median(reading.samples) / 1000,
            "quality": reading.quality,
            "discarded": reading.discarded,
            "remarks": reading.remarks,
        }
    return found


def apart(samples: int, notes: Notes) -> None:
    """Whet's timer in both states of the L2 and then stock's, without a profiler."""
    import torch
    import triton

    listed = _launched_once()
    answer: dict[str, Any] = {state: _timed(listed, state, samples) for state in STATES}
    answer["device"] = f"{torch.cuda.get_device_name()}, Triton {triton.__version__}"
    answer["do_bench"] = {
        name: 1000 * triton.testing.do_bench(launch, return_mode="median")
        for name, (_, launch) in listed.items()
    }
    notes.write(answer)


def together(state: L2, samples: int, count: int, notes: Notes) -> None:
    """Whet's timer, then every kernel `count` times between the marks that ncu looks between."""
    import torch

    listed = _launched_once()
    timed = _timed(listed, state, samples)
    profiler: Any = torch.cuda.profiler
    profiler.start()
    for _, launch in listed.values():
        for _ in range(count):
            launch()
    torch.cuda.synchronize()
    profiler.stop()
    order = [[name, kernel] for name, (kernel, _) in listed.items()]
    notes.write({"timed": timed, "order": order})


def profiled(lines: Iterable[str]) -> list[tuple[str, float]]:
    """Kernel name and microseconds of each launch, from what `ncu --csv` prints.

    Its own remarks and the program's output come before the header and may come between rows.
    """
    rows = [line for line in lines if line.startswith('"')]
    header = next((i for i, line in enumerate(rows) if '"Metric Value"' in line), None)
    if header is None:
        return []
    found = []
    for row in csv.DictReader(rows[header:]):
        unit, value = row.get("Metric Unit"), row.get("Metric Value")
        if unit in _TO_US and value:
            microseconds = float(value.replace(",", "")) * _TO_US[unit]
            found.append((row["Kernel Name"].split("(")[0].strip(), microseconds))
    return found


def by_kernel(
    order: Sequence[Sequence[str]], rows: Sequence[tuple[str, float]], count: int
) -> dict[str, float]:
    """Each kernel's median over its launches but the first two. The order must be as launched."""
    expected = [kernel for _, kernel in order for _ in range(count)]
    if [name for name, _ in rows] != expected:
        names = sorted({name for name, _ in rows})
        raise SystemExit(
            f"ncu reports {len(rows)} launches of {names}; {len(expected)} were expected, in order"
        )
    medians = {}
    for place, (name, _) in enumerate(order):
        times = [us for _, us in rows[place * count : (place + 1) * count]]
        medians[name] = statistics.median(times[SKIPPED_LAUNCHES:])
    return medians


def profile(ncu: str, state: L2, samples: int, count: int, folder: Path) -> dict[str, Any]:
    """By kernel: what whet's timer said, and ncu's microseconds of the same launches."""
    control = STATES[state]
    log = folder / f"ncu-{control}.csv"
    before = [ncu, "--clock-control", "none", "--cache-control", control, "--csv"]
    before += ["--metrics", "gpu__time_duration.sum", "--profile-from-start", "off"]
    before += ["--log-file", str(log)]
    arguments = ["--part", state, "--samples", str(samples), "--launches", str(count)]
    answer = child("timer_ncu.py", arguments, folder, CHILD_LIMIT_S, before=before)
    text = log.read_text() if log.exists() else ""
    rows = profiled(text.splitlines())
    if answer["exit_code"] != 0 or not rows:
        raise SystemExit(f"ncu failed (exit code {answer['exit_code']}):\n{text[-2000:]}")
    truth = by_kernel(answer["order"], rows, count)
    return {name: {**row, "ncu_us": truth[name]} for name, row in answer["timed"].items()}


def find_ncu(given: str | None) -> str:
    found = given or shutil.which("ncu")
    found = found or next(
        iter(sorted((p for g in PLACES for p in glob.glob(g)), reverse=True)), None
    )
    if found is None:
        raise SystemExit("ncu was not found: give its path with --ncu")
    return found


def compared(
    profiles: Mapping[str, Mapping[str, Any]], without: Mapping[str, Any]
) -> list[dict[str, Any]]:
    rows = []
    for name in profiles["warm"]:
        found: dict[str, Any] = {"name": name}
        warm, cold = (profiles[state][name] for state in STATES)
        for kind, ours, truth in (
            ("warm", warm["us"], warm["ncu_us"]),
            ("cold", cold["us"], cold["ncu_us"]),
            ("warm, apart", without["warm"][name]["us"], warm["ncu_us"]),
            ("cold, apart", without["cold"][name]["us"], cold["ncu_us"]),
            ("do_bench", without["do_bench"][name], cold["ncu_us"]),
        ):
            found[kind] = {"ncu_us": truth, "us": ours, "off": ours / truth - 1}
            found[kind]["in_range"] = RANGE_US[0] <= truth <= RANGE_US[1]
        found["quality"] = [warm["quality"], cold["quality"]]
        rows.append(found)
    return rows


def verdict(rows: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any]:
    """Over the kernels within the range: median, worst, and those further off than allowed."""
    judged = [row for row in rows if row[kind]["in_range"]]
    off = {row["name"]: abs(row[kind]["off"]) for row in judged}
    beyond = [
        row["name"]
        for row in judged
        if abs(row[kind]["us"] - row[kind]["ncu_us"])
        > max(WANTED_WORST * row[kind]["ncu_us"], WANTED_WORST_US)
    ]
    worst = max(off, key=off.__getitem__, default=None)
    median = statistics.median(off.values()) if off else None
    enough = len(judged) >= LEAST
    good = enough and median is not None and median <= WANTED_MEDIAN and not beyond
    return {
        "kernels": len(judged),
        "median": median,
        "worst": None if worst is None else [worst, off[worst]],
        "beyond": beyond,
        "good": good,
    }


def print_table(
    device: str, rows: Sequence[Mapping[str, Any]], verdicts: Mapping[str, Any]
) -> None:
    print(f"{device}; µs, medians; difference to ncu")
    head = f"{'':24}" + "".join(f"  {'ncu':>8} {kind:>8} {'':>8}" for kind in ("warm", "cold"))
    print(f"{head}  {'do_bench':>8}")
    for row in rows:
        cells = "".join(
            f"  {row[kind]['ncu_us']:8.2f} {row[kind]['us']:8.2f} {100 * row[kind]['off']:+7.1f}%"
            for kind in ("warm", "cold")
        )
        stock = row["do_bench"]
        marks = "" if row["warm"]["in_range"] and row["cold"]["in_range"] else "  out of range"
        marks += "" if row["quality"] == ["clean", "clean"] else f"  {row['quality']}"
        print(f"{row['name']:24}{cells}  {stock['us']:8.2f} {100 * stock['off']:+7.1f}%{marks}")
    for kind, found in verdicts.items():
        if found["worst"] is None:
            continue
        name, off = found["worst"]
        print(
            f"{kind:11} {found['kernels']} kernels: median {100 * found['median']:.1f} %, worst "
            f"{100 * off:.1f} % ({name}); beyond 10 % and 1 µs: {len(found['beyond'])}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--launches", type=int, default=12)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--ncu", metavar="PATH")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--part", choices=("apart", *STATES), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "apart":
        apart(options.samples, Notes(options.out))
        return
    if options.part:
        together(options.part, options.samples, options.launches, Notes(options.out))
        return
    ncu, record = find_ncu(options.ncu), Record(options.json)
    byte_compile()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        arguments = ["--part", "apart", "--samples", str(options.samples)]
        without = child("timer_ncu.py", arguments, folder, CHILD_LIMIT_S)
        record.put("apart", without)
        if without["exit_code"] != 0:
            raise SystemExit(f"measuring failed with exit code {without['exit_code']}")
        profiles = {}
        for state in STATES:
            profiles[state] = profile(ncu, state, options.samples, options.launches, folder)
            record.put(f"with ncu, {state}", profiles[state])
    rows = compared(profiles, without)
    verdicts = {kind: verdict(rows, kind) for kind in KINDS}
    record.put("rows", rows)
    record.put("verdicts", verdicts)
    print_table(without["device"], rows, verdicts)
    raise SystemExit(0 if verdicts["warm"]["good"] and verdicts["cold"]["good"] else 1)


if __name__ == "__main__":
    main()
