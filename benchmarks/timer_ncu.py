"""Whet's CUDA timer and stock's `do_bench` against what the profiler `ncu` says.

    python benchmarks/timer_ncu.py [--launches 12] [--samples 30] [--pause 0] [--json FILE]

Like with like: a warm L2 against `--cache-control none`, a cold one against ncu's invalidation;
`do_bench` clears the cache, so it is compared with the cold one. The clock is left alone
(`--clock-control none`), and a GPU without a rest lowers it by a tenth under a large matrix
product, while ncu rests between launches; with `--pause 0.05` whet's timer rests between visits of
four samples, too. All kernels are of Triton; the timer's own calibration uses none of them.
Exit code 1: the median difference is above 3 %, or one is above 10 % and 1 µs.
"""

from __future__ import annotations

import argparse
import csv
import glob
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cold import Notes, Record, byte_compile, child
from launching import Repeated

WANTED_MEDIAN, WANTED_WORST, WANTED_WORST_US = 0.03, 0.10, 1.0
RANGE_US = (3.0, 1000.0)
LEAST = 12
SKIPPED_LAUNCHES = 2
SAMPLES_A_VISIT = 4
PAUSE_S = 0.0
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


def _rested(timer: Any, run: Repeated, samples: int, pause_s: float) -> Iterator[Any]:
    """Readings of a few samples each, with a rest before every one."""
    warm = timer.warm(run)
    for start in range(0, samples, SAMPLES_A_VISIT):
        time.sleep(pause_s)
        yield timer.measure(run, min(SAMPLES_A_VISIT, samples - start), warm)


def measure(samples: int, pause_s: float, notes: Notes) -> None:
    """Whet's timer in both states of the L2, and stock's, in microseconds."""
    import torch
    import triton

    from whet.measure.gpu.timer import CudaTimer

    listed = kernels()
    for _, launch in listed.values():
        launch()
    torch.cuda.synchronize()
    timers: dict[str, Any] = {"warm": CudaTimer(l2="warm"), "cold": CudaTimer(l2="cold")}
    device = f"{torch.cuda.get_device_name()}, Triton {triton.__version__}"
    answer: dict[str, Any] = {"device": device, "kernels": {}}
    for name, (_, launch) in listed.items():
        row: dict[str, Any] = {}
        for state, timer in timers.items():
            run = Repeated(launch)
            readings = list(_rested(timer, run, samples, pause_s))
            taken = [ns for reading in readings for ns in reading.samples]
            qualities = {reading.quality for reading in readings}
            row[state] = statistics.median(taken) / 1000
            row[f"{state}_quality"] = "clean" if qualities == {"clean"} else "host_bound"
            row[f"{state}_discarded"] = sum(reading.discarded for reading in readings)
        row["do_bench"] = 1000 * triton.testing.do_bench(launch, return_mode="median")
        answer["kernels"][name] = row
        notes.write(answer)


def launches(count: int, notes: Notes) -> None:
    """Every kernel `count` times in a row, between the marks that tell ncu where to look."""
    import torch

    listed = kernels()
    for _, launch in listed.values():
        launch()
    torch.cuda.synchronize()
    profiler: Any = torch.cuda.profiler
    profiler.start()
    for _, launch in listed.values():
        for _ in range(count):
            launch()
    torch.cuda.synchronize()
    profiler.stop()
    notes.write({"order": [[name, kernel] for name, (kernel, _) in listed.items()]})


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


def profile(ncu: str, control: str, count: int, folder: Path) -> dict[str, float]:
    """Microseconds by kernel as ncu has them, with the caches left alone or invalidated."""
    log = folder / f"ncu-{control}.csv"
    before = [ncu, "--clock-control", "none", "--cache-control", control, "--csv"]
    before += ["--metrics", "gpu__time_duration.sum", "--profile-from-start", "off"]
    before += ["--log-file", str(log)]
    arguments = ["--part", "launches", "--launches", str(count)]
    answer = child("timer_ncu.py", arguments, folder, CHILD_LIMIT_S, before=before)
    text = log.read_text() if log.exists() else ""
    rows = profiled(text.splitlines())
    if answer["exit_code"] != 0 or not rows:
        raise SystemExit(f"ncu failed (exit code {answer['exit_code']}):\n{text[-2000:]}")
    return by_kernel(answer["order"], rows, count)


def find_ncu(given: str | None) -> str:
    found = given or shutil.which("ncu")
    found = found or next(
        iter(sorted((p for g in PLACES for p in glob.glob(g)), reverse=True)), None
    )
    if found is None:
        raise SystemExit("ncu was not found: give its path with --ncu")
    return found


def compared(
    measured: Mapping[str, Any], warm: Mapping[str, float], cold: Mapping[str, float]
) -> list[dict[str, Any]]:
    rows = []
    for name, row in measured.items():
        found: dict[str, Any] = {"name": name}
        for kind, ours, truth in (
            ("warm", row["warm"], warm[name]),
            ("cold", row["cold"], cold[name]),
            ("do_bench", row["do_bench"], cold[name]),
        ):
            found[kind] = {"ncu_us": truth, "us": ours, "off": ours / truth - 1}
            found[kind]["in_range"] = RANGE_US[0] <= truth <= RANGE_US[1]
        found["quality"] = [row["warm_quality"], row["cold_quality"]]
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
            f"{kind:9} {found['kernels']} kernels: median {100 * found['median']:.1f} %, worst "
            f"{100 * off:.1f} % ({name}); beyond 10 % and 1 µs: {len(found['beyond'])}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--launches", type=int, default=12)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--pause", type=float, default=PAUSE_S, help="seconds between visits")
    parser.add_argument("--ncu", metavar="PATH")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--part", choices=("launches", "measure"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "launches":
        launches(options.launches, Notes(options.out))
        return
    if options.part == "measure":
        measure(options.samples, options.pause, Notes(options.out))
        return
    ncu, record = find_ncu(options.ncu), Record(options.json)
    byte_compile()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        arguments = ["--part", "measure", "--samples", str(options.samples)]
        arguments += ["--pause", str(options.pause)]
        measured = child("timer_ncu.py", arguments, folder, CHILD_LIMIT_S)
        record.put("measured", measured)
        if measured["exit_code"] != 0:
            raise SystemExit(f"measuring failed with exit code {measured['exit_code']}")
        truth = {}
        for state, control in (("warm", "none"), ("cold", "all")):
            truth[state] = profile(ncu, control, options.launches, folder)
            record.put(f"ncu {state}", truth[state])
    rows = compared(measured["kernels"], truth["warm"], truth["cold"])
    verdicts = {kind: verdict(rows, kind) for kind in ("warm", "cold", "do_bench")}
    record.put("rows", rows)
    record.put("verdicts", verdicts)
    print_table(measured["device"], rows, verdicts)
    raise SystemExit(0 if verdicts["warm"]["good"] and verdicts["cold"]["good"] else 1)


if __name__ == "__main__":
    main()
