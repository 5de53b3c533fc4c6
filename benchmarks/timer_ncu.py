"""Whet's CUDA timer and stock's `do_bench` against what the profiler `ncu` says.

    python benchmarks/timer_ncu.py [--visits 3] [--samples 10] [--launches 6] [--json FILE]

Like with like: a warm L2 against `--cache-control none`, a cold one against ncu's invalidation;
`do_bench` clears the cache, so it is compared with the cold one. The clock is left alone
(`--clock-control none`). Where a buffer lies and when one looks moves some kernels by 8 %, so whet
and ncu look at the same launches in the same process, in turn, three times each. The lines "apart"
are a process without ncu; there `do_bench` comes last, since 150 ms of a large product lower the
clock of an H200 by a fifth, and that would be in whatever is timed in the next tenth of a second.
All kernels are of Triton; the timer's own calibration uses none of them.
Exit code 1: in one of whet's lines the median difference is above 3 %, or one above 10 % and 1 µs.
"""

from __future__ import annotations

import argparse
import csv
import glob
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cold import Notes, Record, byte_compile, child
from launching import Repeated
from timer_kernels import kernels
from whet.core.timing import L2
from whet.measure.timer import joined

WANTED_MEDIAN, WANTED_WORST, WANTED_WORST_US = 0.03, 0.10, 1.0
RANGE_US = (3.0, 1000.0)
LEAST = 12
STATES: dict[L2, str] = {"warm": "none", "cold": "all"}
OURS = ("warm", "cold", "warm, apart", "cold, apart")
SKIPPED_LAUNCHES = 2
CHILD_LIMIT_S = 120.0
PLACES = (
    "/usr/local/cuda*/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
)
_TO_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}


def _launched_once() -> dict[str, tuple[str, Callable[[], Any]]]:
    import torch

    listed = kernels()
    for _, launch in listed.values():
        launch()
    torch.cuda.synchronize()
    return listed


class Timed:
    """What whet's timer says of every kernel, visit by visit."""

    def __init__(self, listed: Mapping[str, tuple[str, Callable[[], Any]]], state: L2) -> None:
        from whet.measure.gpu.timer import CudaTimer

        self._timer = CudaTimer(l2=state)
        self._runs = {name: Repeated(launch) for name, (_, launch) in listed.items()}
        self._readings: dict[str, list[Any]] = {name: [] for name in listed}

    def visit(self, samples: int) -> None:
        for name, run in self._runs.items():
            reading = self._timer.measure(run, samples, self._timer.warm(run))
            self._readings[name].append(reading)

    def rows(self) -> dict[str, dict[str, Any]]:
        """By kernel, in microseconds."""
        return {
            name: {
                "us": statistics.median(whole.samples) / 1000,
                "visits_us": [statistics.median(one.samples) / 1000 for one in readings],
                "quality": whole.quality,
                "discarded": whole.discarded,
                "remarks": whole.remarks,
            }
            for name, readings in self._readings.items()
            for whole in [joined(readings)]
        }


def apart(visits: int, samples: int, notes: Notes) -> None:
    """Whet's timer in both states of the L2 and then stock's, without a profiler."""
    import torch
    import triton

    listed = _launched_once()
    timed = {state: Timed(listed, state) for state in STATES}
    for _ in range(visits):
        for one in timed.values():
            one.visit(samples)
    answer: dict[str, Any] = {state: one.rows() for state, one in timed.items()}
    answer["device"] = f"{torch.cuda.get_device_name()}, Triton {triton.__version__}"
    answer["do_bench"] = {
        name: 1000 * triton.testing.do_bench(launch, return_mode="median")
        for name, (_, launch) in listed.items()
    }
    notes.write(answer)


def together(state: L2, visits: int, samples: int, count: int, notes: Notes) -> None:
    """In turn whet's timer, and every kernel `count` times between the marks of ncu."""
    import torch

    listed = _launched_once()
    timed = Timed(listed, state)
    profiler: Any = torch.cuda.profiler
    for _ in range(visits):
        timed.visit(samples)
        torch.cuda.synchronize()
        profiler.start()
        for _, launch in listed.values():
            for _ in range(count):
                launch()
        torch.cuda.synchronize()
        profiler.stop()
    order = [[name, kernel] for name, (kernel, _) in listed.items()]
    notes.write({"timed": timed.rows(), "order": order})


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
    order: Sequence[Sequence[str]], rows: Sequence[tuple[str, float]], visits: int, count: int
) -> dict[str, list[float]]:
    """Each kernel's medians, visit by visit, over its launches but the first two of each.

    The launches must be as they were made.
    """
    expected = [kernel for _ in range(visits) for _, kernel in order for _ in range(count)]
    if [name for name, _ in rows] != expected:
        names = sorted({name for name, _ in rows})
        raise SystemExit(
            f"ncu reports {len(rows)} launches of {names}; {len(expected)} were expected, in order"
        )
    times = iter(us for _, us in rows)
    medians: dict[str, list[float]] = {name: [] for name, _ in order}
    for _ in range(visits):
        for name, _ in order:
            seen = [next(times) for _ in range(count)]
            medians[name].append(statistics.median(seen[SKIPPED_LAUNCHES:]))
    return medians


def profile(ncu: str, state: L2, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """By kernel: what whet's timer said, and ncu's microseconds of the same launches."""
    control = STATES[state]
    log = folder / f"ncu-{control}.csv"
    before = [ncu, "--clock-control", "none", "--cache-control", control, "--csv"]
    before += ["--metrics", "gpu__time_duration.sum", "--profile-from-start", "off"]
    before += ["--log-file", str(log)]
    arguments = ["--part", state, *_counts(options)]
    answer = child("timer_ncu.py", arguments, folder, CHILD_LIMIT_S, before=before)
    text = log.read_text() if log.exists() else ""
    rows = profiled(text.splitlines())
    if answer["exit_code"] != 0 or not rows:
        raise SystemExit(f"ncu failed (exit code {answer['exit_code']}):\n{text[-2000:]}")
    truth = by_kernel(answer["order"], rows, options.visits, options.launches)
    return {
        name: {**row, "ncu_us": statistics.median(truth[name]), "ncu_visits_us": truth[name]}
        for name, row in answer["timed"].items()
    }


def _counts(options: argparse.Namespace) -> list[str]:
    names = ("visits", "samples", "launches")
    return [text for name in names for text in (f"--{name}", str(getattr(options, name)))]


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
    parser.add_argument("--visits", type=int, default=3)
    parser.add_argument("--samples", type=int, default=10, help="of whet's timer, a visit")
    parser.add_argument("--launches", type=int, default=6, help="that ncu profiles, a visit")
    parser.add_argument("--ncu", metavar="PATH")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--part", choices=("apart", *STATES), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "apart":
        apart(options.visits, options.samples, Notes(options.out))
        return
    if options.part:
        counts = (options.visits, options.samples, options.launches)
        together(options.part, *counts, Notes(options.out))
        return
    ncu, record = find_ncu(options.ncu), Record(options.json)
    byte_compile()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        arguments = ["--part", "apart", *_counts(options)]
        without = child("timer_ncu.py", arguments, folder, CHILD_LIMIT_S)
        record.put("apart", without)
        if without["exit_code"] != 0:
            raise SystemExit(f"measuring failed with exit code {without['exit_code']}")
        profiles: dict[str, dict[str, Any]] = {}
        for state in STATES:
            profiles[state] = profile(ncu, state, options, folder)
            record.put(f"with ncu, {state}", profiles[state])
    rows = compared(profiles, without)
    verdicts = {kind: verdict(rows, kind) for kind in (*OURS, "do_bench")}
    record.put("rows", rows)
    record.put("verdicts", verdicts)
    print_table(without["device"], rows, verdicts)
    raise SystemExit(0 if all(verdicts[kind]["good"] for kind in OURS) else 1)


if __name__ == "__main__":
    main()
