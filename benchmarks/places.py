"""What earlier kernels leave in a GPU's multiprocessors, and what it does to a kernel's time.

    python benchmarks/places.py [--json FILE]

1. Where a grid begins: how often each place comes up after nothing, after torch's sum of a buffer
   of the L2's size, and after what whet queues before a launch with a warm and with a cold L2.
2. The paper's products, the best few configs at some sizes: their times by place.
3. The same configs in turn, with their data cleared by torch's sum, which leaves the place where
   it is; then with their code cleared as well, and at last among all others.

Times contain what two events cost, about 2 µs.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cold import Record
from cost_paper import quick_configs
from problems import Size, problem

LAUNCHES = 1200
DRAWS = 100
BATCH = 4
SLEEP_CYCLES = 1_200_000
FEW = 4
CONFIGS = 48
SIZES: tuple[Size, ...] = (
    (4096, 256, 4096),
    (4096, 512, 2048),
    (1024, 1024, 1024),
    (512, 4096, 512),
    (1024, 256, 256),
    (256, 512, 512),
)

Launch = Callable[[], Any]


class Bench:
    """A device, and what can go before a launch on it."""

    def __init__(self) -> None:
        import torch

        from whet.measure.gpu.clearing import Clearing
        from whet.measure.gpu.devices import TorchCuda
        from whet.measure.gpu.driver import driver_on
        from whet.testing.places import Places

        self.torch = torch
        self._api = TorchCuda(0)
        self._noting = Places(driver_on(0))
        self._l2_bytes = self._api.l2_bytes
        self._target = torch.zeros(4, device="cuda")
        self._clearing = Clearing(driver_on(0), self._target.data_ptr())
        self._read = torch.zeros(self._l2_bytes // 4, device="cuda")
        self._sum = torch.zeros((), device="cuda")
        self._found = torch.zeros(LAUNCHES, self._noting.blocks, dtype=torch.int32, device="cuda")
        self._events = [
            tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(BATCH)
        ]
        self._gate = torch.cuda.Event()
        self._names: dict[tuple[int, ...], int] = {}
        self._random = random.Random(0)
        self.name = torch.cuda.get_device_name()

    def nothing(self) -> None:
        pass

    def summed(self) -> None:
        self.torch.sum(self._read, dim=0, out=self._sum)

    def summed_and_code(self) -> None:
        self.summed()
        self._clearing.forget_code(self.torch.cuda.current_stream().cuda_stream)

    def warm(self) -> None:
        with self._api.current():
            self._api.flush(0)

    def cold(self) -> None:
        with self._api.current():
            self._api.flush(self._l2_bytes)

    def note(self, row: int) -> None:
        stream = self.torch.cuda.current_stream().cuda_stream
        self._noting.note(self._found[row].data_ptr(), stream)

    def noted(self, count: int) -> list[int]:
        """Places get numbers in the order in which they come up."""
        self.torch.cuda.synchronize()
        rows = self._found[:count].tolist()
        return [self._names.setdefault(tuple(row), len(self._names)) for row in rows]

    def batch(self, launches: Sequence[Launch], before: Launch, note: bool) -> list[float]:
        """Microseconds of each; the device sleeps while they are queued, longer where it woke
        before they were."""
        cuda, cycles = self.torch.cuda, SLEEP_CYCLES
        pairs = self._events[: len(launches)]
        while True:
            cuda.synchronize()
            cuda._sleep(cycles)
            self._gate.record()
            for row, (launch, (start, end)) in enumerate(zip(launches, pairs, strict=True)):
                before()
                if note:
                    self.note(row)
                start.record()
                launch()
                end.record()
            woke = self._gate.query()
            cuda.synchronize()
            if not woke:
                return [1000 * start.elapsed_time(end) for start, end in pairs]
            cycles *= 2

    def in_turn(
        self, launches: Mapping[int, Launch], before: Launch, rounds: int, note: bool = False
    ) -> dict[int, list[tuple[int, float]]]:
        """(place, µs) of each, in another order every round."""
        taken: dict[int, list[tuple[int, float]]] = {index: [] for index in launches}
        names = list(launches)
        for _ in range(rounds):
            self._random.shuffle(names)
            for first in range(0, len(names), BATCH):
                some = names[first : first + BATCH]
                times = self.batch([launches[index] for index in some], before, note)
                where = self.noted(len(some)) if note else [0] * len(some)
                for index, place, time_us in zip(some, where, times, strict=True):
                    taken[index].append((place, time_us))
        return taken


def begins(bench: Bench) -> list[dict[str, Any]]:
    rows = []
    for name, before in (
        ("nothing", bench.nothing),
        ("torch's sum", bench.summed),
        ("whet, warm L2", bench.warm),
        ("whet, cold L2", bench.cold),
    ):
        for row in range(LAUNCHES):
            before()
            bench.note(row)
            bench.torch.cuda.synchronize()
        found = bench.noted(LAUNCHES)
        again = sum(one == next_ for one, next_ in itertools.pairwise(found))
        rows.append({"before": name, "counts": Counter(found), "again": again / (LAUNCHES - 1)})
    return rows


def by_place(bench: Bench, few: Mapping[int, Launch]) -> dict[int, dict[int, float]]:
    """Medians at the places that came up five times or more."""
    medians = {}
    for index, taken in bench.in_turn(few, bench.cold, DRAWS, note=True).items():
        at: dict[int, list[float]] = {}
        for place, time_us in taken:
            at.setdefault(place, []).append(time_us)
        medians[index] = {
            place: statistics.median(times) for place, times in at.items() if len(times) >= 5
        }
    return medians


def by_company(
    bench: Bench, few: Mapping[int, Launch], every: Mapping[int, Launch]
) -> dict[str, dict[int, float]]:
    def medians(launches: Mapping[int, Launch], before: Launch, rounds: int) -> dict[int, float]:
        taken = bench.in_turn(launches, before, rounds)
        return {index: statistics.median(us for _, us in taken[index]) for index in few}

    return {
        "few": medians(few, bench.summed, 60),
        "code": medians(few, bench.summed_and_code, 60),
        "all": medians(every, bench.summed, 20),
    }


def sizes(bench: Bench) -> list[dict[str, Any]]:
    asked = problem("gemm:0")
    bind, configs = asked.bind(), quick_configs(asked, CONFIGS)
    rows = []
    for size in SIZES:
        call = bind(size)
        every: dict[int, Launch] = {i: call.launcher(asked.configs[i]) for i in configs}
        for launch in every.values():
            launch()
        first = bench.in_turn(every, bench.cold, 3)
        best = sorted(every, key=lambda index: min(us for _, us in first[index]))[:FEW]
        few = {index: every[index] for index in best}
        rows.append(
            {
                "size": size,
                "by_place_us": by_place(bench, few),
                "by_company_us": by_company(bench, few, every),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    record, bench = Record(options.json), Bench()
    print(bench.name)
    print(f"{'before a launch':16} places  as often                      the same as before")
    rows = begins(bench)
    record.put("begins", rows)
    for row in rows:
        counts = row["counts"].values()
        often = f"{min(counts)} to {max(counts)} of {LAUNCHES}"
        print(f"{row['before']:16} {len(counts):6}  {often:28} {100 * row['again']:4.0f} %")
    found = sizes(bench)
    record.put("sizes", found)
    print(f"\n{'µs':16} config  fastest place to slowest       few   code cleared  among all")
    for row in found:
        company = row["by_company_us"]
        for index, medians in row["by_place_us"].items():
            low, high = min(medians.values()), max(medians.values())
            print(
                f"{'×'.join(map(str, row['size'])):16} {index:6}  {low:6.2f} to {high:6.2f}"
                f" ({100 * (high / low - 1):4.1f} %)   "
                + "       ".join(f"{company[name][index]:6.2f}" for name in company)
            )


if __name__ == "__main__":
    main()
