"""What constraints cost: enumerating and sampling spaces of a million million combinations.

python benchmarks/space.py [--json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from whet.core.space import Space

NAMES = [f"p{at}" for at in range(8)]
VALUES = range(1, 33)
CHAIN = [f"{one} % {two} == 0" for one, two in itertools.pairwise(NAMES)]
PRODUCT = [f"{' * '.join(NAMES)} <= 4096"]
SAMPLES = 1_000
SLICE = 300_000
REPEATS = 3


@dataclass(frozen=True)
class Figure:
    name: str
    combinations: int
    valid_configs: int
    seconds: float
    product_seconds_extrapolated: float

    @property
    def ratio(self) -> float:
        return self.product_seconds_extrapolated / self.seconds

    def __str__(self) -> str:
        years = self.product_seconds_extrapolated / (365 * 24 * 3600)
        return (
            f"{self.name}\n"
            f"  {self.valid_configs:,} valid configs in {self.combinations:.1e} combinations\n"
            f"  whet                        {self.seconds:.3f} s (set-up included)\n"
            f"  filtered cartesian product  {self.product_seconds_extrapolated:.1e} s, "
            f"{years:.2f} years (extrapolated from {SLICE:,} combinations)\n"
            f"  ratio                       {self.ratio:.1e}"
        )


def enumerate_chain() -> int:
    return sum(1 for _ in Space(dict.fromkeys(NAMES, VALUES), CHAIN))


def sample_product() -> int:
    space = Space(dict.fromkeys(NAMES, VALUES), PRODUCT)
    drawn = space.sample(np.random.default_rng(0), SAMPLES)
    if len(set(drawn)) < SAMPLES or not space.exact_sampling:
        raise SystemExit("the sample is not distinct, or not exactly uniform")
    return len(space)


def divides(choice: tuple[int, ...]) -> bool:
    return all(one % two == 0 for one, two in itertools.pairwise(choice))


def fits(choice: tuple[int, ...]) -> bool:
    product = 1
    for value in choice:
        product *= value
    return product <= 4096


def measure(name: str, work: Callable[[], int], valid: Callable[[tuple[int, ...]], bool]) -> Figure:
    combinations = len(VALUES) ** len(NAMES)
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        count = work()
        seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    for choice in itertools.islice(itertools.product(VALUES, repeat=len(NAMES)), SLICE):
        valid(choice)
    each = (time.perf_counter() - start) / SLICE
    return Figure(name, combinations, count, min(seconds), each * combinations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    figures = [
        measure("enumerate: each of 8 parameters divides the one before", enumerate_chain, divides),
        measure(f"sample: {SAMPLES:,} of 8 parameters, product <= 4096", sample_product, fits),
    ]
    if arguments.json:
        rows = [{**asdict(figure), "ratio": figure.ratio} for figure in figures]
        print(json.dumps({"figures": rows, "slice": SLICE, "repeats": REPEATS}, indent=2))
    else:
        print("\n\n".join(map(str, figures)))


if __name__ == "__main__":
    main()
