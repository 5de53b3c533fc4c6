"""What a policy file with many rules costs: reading it once, a kernel's first look, a tuned call.

    python benchmarks/policy_rules.py [--rules 10000] [--limit 120] [--json OUT]

One file of rules for each kind of pattern, with 240 kernels that look at it. `read` is the first
look of a process, `first` is what a kernel's first call pays after that.

`new process` is the first look of a process, with all that it imports for it, byte code there as an
installed package has it, for a file of 20 rules and for one of all: the shortest and the median of
several; the last number is what the next kernel pays there. `bare` has imported nothing;
`decorated` has torch (where it is installed) and Triton imported and two kernels decorated with
`whet.autotune`; the look there is all that the policy adds to a kernel's first call.

The last lines are a tuned call of a Triton kernel under a fake driver, without a policy file and
with one of names; they need Triton. `--limit` is in seconds; kinds that are not reached are left
out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whet.engine.policy.reading import read_policy

KINDS = {
    "names": 'match = "kernel_{n}"',
    "modules and names": 'match = "fla.ops.m{n}:kernel_{n}"',
    "one name, many modules": 'match = "fla.ops.m{n}.*:chunk_1_fwd_kernel"',
    "starts of names": 'match = "fla.ops.*:chunk_{n}_*"',
    "starts of modules": 'match = "fla.ops.m{n}.*:*"',
    "ends of names": 'match = "chunk_*_{n}"',
    "infixes": 'match = "*_{n}_*"',
    "several infixes": 'match = "*ops*:*{n}*kernel*"',
    "one pattern": 'match = "*chunk*"',
}
KERNELS, CALLS, ROUNDS = 240, 2000, 7


def rules(match: str, count: int) -> str:
    text = f'[[kernel]]\n{match}\nmode = "cached"\nbuckets = {{ T = "pow2" }}\n\n'
    return "".join(text.replace("{n}", str(n)) for n in range(count))


def looked(path: Path, text: str) -> dict[str, float]:
    path.write_text(text)
    start = time.perf_counter()
    policy = read_policy(path)
    policy.rulings("none", ["none"])
    read_ms = 1e3 * (time.perf_counter() - start)
    looks = []
    for n in range(KERNELS):
        before = time.perf_counter()
        policy.rulings(f"chunk_{n}_fwd_kernel", [f"fla.ops.m{n}.chunk"])
        looks.append(1e3 * (time.perf_counter() - before))
    looks.sort()
    return {
        "read_ms": read_ms,
        "first_ms": statistics.median(looks),
        "first_p95_ms": looks[int(0.95 * len(looks))],
    }


BARE = """
import time
from whet.engine.policy.finding import current_policy
times = [time.perf_counter()]
for n in (7, 8):
    assert current_policy().rulings(f"kernel_{n}", ["fla.ops.m7"])
    times.append(time.perf_counter())
print(*(1e3 * (two - one) for one, two in zip(times, times[1:])))
"""

DECORATED = """
import time
from contextlib import suppress
with suppress(ImportError):
    import torch
import triton
import whet
def kernel_7(x, T): pass
def kernel_8(x, T): pass
tune = whet.autotune(configs=[triton.Config({})], key=["T"])
kernels = [tune(triton.jit(one)) for one in (kernel_7, kernel_8)]
from whet.targets.triton.policy import apply_policy
times = [time.perf_counter()]
for kernel in kernels:
    apply_policy(kernel)
    times.append(time.perf_counter())
assert all(kernel.whet_mode == "cached" for kernel in kernels)
print(*(1e3 * (two - one) for one, two in zip(times, times[1:])))
"""


PROGRAMS = {"bare": BARE, "decorated": DECORATED}


def new_processes(path: Path, folder: Path) -> dict[str, Any]:
    """Milliseconds of first and second looks."""
    environ = {
        **os.environ,
        "WHET_POLICY": str(path),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
    }
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return {way: _first_looks(program, folder, environ) for way, program in PROGRAMS.items()}


def _first_looks(program: str, folder: Path, environ: dict[str, str]) -> dict[str, float]:
    _looks(program, folder, environ)  # leaves byte code
    found = [_looks(program, folder, environ) for _ in range(8)]
    firsts = [one for one, _ in found]
    return {
        "first_ms": min(firsts),
        "first_median_ms": statistics.median(firsts),
        "next_ms": min(two for _, two in found),
    }


def _looks(program: str, folder: Path, environ: dict[str, str]) -> list[float]:
    file = folder / "program.py"
    file.write_text(program)
    words = [sys.executable, str(file)]
    said = subprocess.run(words, env=environ, check=True, capture_output=True, text=True)
    return [float(word) for word in said.stdout.split()]


def tuned_call_us(path: Path | None) -> float:
    """A call of a tuned kernel: the shortest round."""
    import triton
    import triton.language as tl

    import whet
    from whet.testing.fake_triton import FakeTensor, fake_driver, told

    os.environ["WHET_POLICY"] = "none" if path is None else str(path)

    @triton.jit  # type: ignore[untyped-decorator]
    def chunk_1_fwd_kernel(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
        tl.store(x + tl.arange(0, BLOCK), n)

    configs = [triton.Config({"BLOCK": size}) for size in (16, 32)]
    kernel: Any = whet.autotune(configs=configs, key=["n"], mode="tune")(chunk_1_fwd_kernel)
    kernel.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
    x = FakeTensor([0.0])

    def round_us() -> float:
        before = time.perf_counter()
        for _ in range(CALLS):
            kernel[(1,)](x, 4)
        return 1e6 * (time.perf_counter() - before) / CALLS

    with fake_driver():
        kernel[(1,)](x, 4)
        return min(round_us() for _ in range(ROUNDS))


def calls_us(path: Path) -> dict[str, float]:
    """In turns, since this machine may be busy."""
    ways: dict[str, Callable[[], float]] = {
        "without a policy": lambda: tuned_call_us(None),
        "with a policy": lambda: tuned_call_us(path),
    }
    tuned_call_us(None)  # the first kernel of a process is quicker than all that follow
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(3):
        for way, measured in ways.items():
            found[way].append(measured())
    return {way: min(several) for way, several in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=10_000)
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    ends = time.monotonic() + asked.limit
    told: dict[str, Any] = {"rules": asked.rules, "kinds": {}}
    print(f"{asked.rules:,} rules              read  first look: median  95 % are below")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "whet.toml")
        os.environ["WHET_STORE"] = ":memory:"
        for kind, match in KINDS.items():
            if time.monotonic() > ends:
                break
            found = told["kinds"][kind] = looked(path, rules(match, asked.rules))
            print(
                f"{kind:22} {found['read_ms']:6.0f} ms  {found['first_ms']:15.3f} ms  "
                f"{found['first_p95_ms']:11.3f} ms"
            )
        if time.monotonic() < ends:
            told["new_process"] = {}
            for count in (20, asked.rules):
                path.write_text(rules(KINDS["names"], count))
                ways = told["new_process"][str(count)] = new_processes(path, Path(folder))
                for way, found in ways.items():
                    print(
                        f"new process, {count:6,} rules, {way:10} {found['first_ms']:8.2f} ms"
                        f"  (median {found['first_median_ms']:.2f} ms), "
                        f"next {found['next_ms']:.3f} ms"
                    )
            told["tuned_call_us"] = calls_us(path)
            for way, call_us in told["tuned_call_us"].items():
                print(f"tuned call {way:16} {call_us:6.2f} µs")
    if asked.json:
        asked.json.write_text(json.dumps(told, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
