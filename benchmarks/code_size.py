"""Does it matter how many other kernels run between two samples of one, and how much code it has?

    python benchmarks/suite.py --referee --json suite.json        # on a GPU
    python benchmarks/code_size.py suite.json [MORE.json …] [--below 10] [--architecture 90]

The referee times a few configs of each size twice: in turn with all others, and in its rematch in
turn with two or three. This compares the two readings by the size of the config's code, which it
compiles here, without a GPU and with the Triton at hand.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from problems import OPTIONS, problem

EDGES = (0, 6_000, 9_000, 12_000, 16_000, 1_000_000)
CONTIGUOUS = ("stride_ak", "stride_bn", "stride_cn")

_SECTION_BYTES = 64


class Reading(NamedTuple):
    """One config at one size: microseconds among all of them, and among few."""

    problem: str
    config: int
    all_us: float
    few_us: float


def readings(path: Path) -> Iterator[Reading]:
    for name, seed in json.loads(path.read_text()).items():
        asked = f"gemm:{name.removeprefix('seed ')}"
        for size in seed["referee"]["sizes"]:
            for config, few_us in size["rematch_us"].items():
                yield Reading(asked, int(config), size["median_us"][config], few_us)


def code_bytes(architecture: int, which: tuple[str, int]) -> int:
    """Of the config's kernel, for operands whose sizes and addresses 16 divides."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from triton_kernels import matmul_kernel

    name, index = which
    numbers = problem(name).configs[index]
    constants = {key: value for key, value in numbers.items() if key not in OPTIONS}
    constants |= dict.fromkeys(CONTIGUOUS, 1)
    names: list[str] = matmul_kernel.arg_names

    def kind(argument: str) -> str:
        if argument in constants:
            return "constexpr"
        return "*fp16" if argument.endswith("_ptr") else "i32"

    source = ASTSource(
        matmul_kernel,
        {argument: kind(argument) for argument in names},
        {(names.index(argument),): value for argument, value in constants.items()},
        {
            (place,): [["tt.divisibility", 16]]
            for place, argument in enumerate(names)
            if argument not in constants
        },
    )
    options = {key: numbers[key] for key in OPTIONS}
    compiled: Any = triton.compile(
        source, target=GPUTarget("cuda", architecture, 32), options=options
    )
    return _text_bytes(compiled.asm["cubin"])


def _text_bytes(binary: bytes) -> int:
    """Of the sections `.text…` of an ELF file of 64 bits."""
    (start,) = struct.unpack_from("<Q", binary, 40)
    count, names = struct.unpack_from("<HH", binary, 60)
    sections = [
        struct.unpack_from("<IIQQQQ", binary, start + _SECTION_BYTES * place)
        for place in range(count)
    ]
    texts = sections[names][4]
    return sum(
        section[5] for section in sections if binary[texts + section[0] :].startswith(b".text")
    )


def print_table(found: Sequence[tuple[int, float]]) -> None:
    """Of bytes of code and microseconds more among all than among few."""
    print("   bytes of code   readings   µs more among all: median, middle half")
    for low, high in itertools.pairwise(EDGES):
        more = sorted(us for size, us in found if low <= size < high)
        if len(more) < 2:
            continue
        first, middle, third = statistics.quantiles(more, method="inclusive")
        print(f"  {low:6} – {high:7} {len(more):8}   {middle:6.3f}   {first:.3f} to {third:.3f}")
    sizes, differences = zip(*found, strict=True)
    print(f"correlation {statistics.correlation(sizes, differences):.2f}, {len(found)} readings")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--below", type=float, default=10.0, help="µs a reading at most")
    parser.add_argument("--architecture", type=int, default=90)
    options = parser.parse_args()
    short = [one for path in options.files for one in readings(path) if one.all_us < options.below]
    if len(short) < 2:
        raise SystemExit("no such readings: was the suite run with --referee?")
    wanted = sorted({(one.problem, one.config) for one in short})
    with ProcessPoolExecutor() as pool:
        sizes = dict(
            zip(wanted, pool.map(partial(code_bytes, options.architecture), wanted), strict=True)
        )
    print_table([(sizes[one.problem, one.config], one.all_us - one.few_us) for one in short])


if __name__ == "__main__":
    main()
