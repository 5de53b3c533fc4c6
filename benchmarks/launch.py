"""What a call of a small kernel costs the host: torch's operator, the bare kernel, stock
`triton.autotune`, and whet with direct launches.

    python benchmarks/launch.py [--rounds 9] [--calls 2000] [--json]

Each case is a way of calling that real code has. The four take turns within each round, in an order
that rotates; every output is compared with torch's first. Without a GPU the kernels are compiled
and their launches stubbed, so that what is left is the host's work in Python alone.
"""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import whet
from whet.targets.triton.adoption import take

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
SIZE = 4096
SIDES = ("torch", "bare", "stock", "whet")

Call = Callable[[], Any]


@triton.jit  # type: ignore[untyped-decorator]
def add(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, out_ptr, n, alpha, beta, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = alpha * tl.load(x_ptr + at, inside) + beta * tl.load(y_ptr + at, inside)
    tl.store(out_ptr + at, total, inside)


@triton.jit  # type: ignore[untyped-decorator]
def many(  # type: ignore[no-untyped-def]
    a,
    b,
    c,
    d,
    e,
    f,
    g,
    h,
    out,
    s0,
    s1,
    s2,
    s3,
    s4,
    s5,
    s6,
    s7,
    s8,
    s9,
    s10,
    s11,
    s12,
    s13,
    n,
    scale,
    HAS_A: tl.constexpr,
    HAS_B: tl.constexpr,
    HAS_C: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(a + at * s0, inside) + tl.load(b + at * s1, inside)
    total += tl.load(c + at * s2, inside) + tl.load(d + at * s3, inside)
    total += tl.load(e + at * s4, inside) + tl.load(f + at * s5, inside)
    total += tl.load(g + at * s6, inside) + tl.load(h + at * s7, inside)
    if HAS_A:
        total *= scale
    if HAS_B:
        total += s8 + s9 + s10
    if HAS_C:
        total += s11 + s12 + s13
    tl.store(out + at, total, inside)


@triton.jit  # type: ignore[untyped-decorator]
def evened(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        total = tl.load(x_ptr + at) + tl.load(y_ptr + at)
        tl.store(out_ptr + at, total)
    else:
        total = tl.load(x_ptr + at, at < n) + tl.load(y_ptr + at, at < n)
        tl.store(out_ptr + at, total, at < n)


class Library(triton.runtime.Autotuner):  # type: ignore[misc]
    """As libraries write them: with a `run` of its own."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return super().run(*args, **kwargs)


CONFIGS = [
    triton.Config({"BLOCK": size}, num_warps=warps) for size in (512, 1024) for warps in (2, 4)
]
SCALARS = {f"s{i}": 1 for i in range(8)} | {f"s{i}": i for i in range(8, 14)}


def grid_of(meta: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


class Case:
    """One way of calling. `call(kernel, **fixed)` calls a tuned kernel, or the bare one with a
    config's values."""

    def __init__(
        self,
        name: str,
        kernel: Any,
        call: Callable[..., Any],
        expected: Callable[[], Any],
        out: Any,
        *,
        wrapped: Callable[[Any], Any] = lambda kernel: kernel,
        bare: dict[str, Any] | None = None,
        key: tuple[str, ...] = ("n",),
        kind: Any = None,
    ) -> None:
        self.name, self.expected, self.out = name, expected, out
        below = wrapped(kernel)
        if kind is None:
            stock = triton.autotune(configs=CONFIGS, key=list(key))(below)
            tuned: Any = whet.autotune(configs=CONFIGS, key=list(key))(below)
        else:
            stock = kind(below, below.arg_names, CONFIGS, list(key), None, None)
            tuned = kind(below, below.arg_names, CONFIGS, list(key), None, None)
            take(tuned)
        one = CONFIGS[0]
        if not CUDA:
            for tuner in (stock, tuned):
                tuner.configs = [one]
        fixed = {**one.kwargs, "num_warps": one.num_warps, **(bare or {})}
        self.tuned = tuned
        self.calls: dict[str, Call] = {
            "torch": expected,
            "bare": lambda: call(kernel, **fixed),
            "stock": lambda: call(stock),
            "whet": lambda: call(tuned),
        }
        with_torch = expected()
        for who in ("bare", "stock", "whet"):
            for _ in range(4):
                out.zero_()
                self.calls[who]()
            if CUDA and not torch.allclose(out, with_torch):
                raise SystemExit(f"{name}: {who} is wrong")


def cases() -> list[Case]:
    x, y, out = (torch.rand(SIZE, device=DEVICE) for _ in range(3))
    others = [torch.rand(SIZE, device=DEVICE) for _ in range(8)]
    named = dict(zip("abcdefgh", others, strict=True))
    shifted = torch.rand(SIZE + 1, device=DEVICE)[1:]
    tuple_grid = (triton.cdiv(SIZE, 512),)
    total = torch.empty_like(out)

    def plain() -> Any:
        return torch.add(x, y, out=total)

    def of_many() -> Any:
        return sum(others[1:], others[0]) + sum(range(8, 11))

    turns = {"at": 0}

    def in_turn(kernel: Any, **fixed: Any) -> Any:
        turns["at"] ^= 1
        first = shifted if turns["at"] else x
        return kernel[grid_of](first, y, out, SIZE, 1.0, 1.0, **fixed)

    def two_keys(kernel: Any, **fixed: Any) -> Any:
        turns["at"] ^= 1
        return kernel[grid_of](x, y, out, SIZE - 1024 * turns["at"], 1.0, 1.0, **fixed)

    def by_keyword(kernel: Any, **fixed: Any) -> Any:
        return kernel[grid_of](
            **named,
            out=out,
            **SCALARS,
            n=SIZE,
            scale=1.0,
            HAS_A=False,
            HAS_B=True,
            HAS_C=False,
            **fixed,
        )

    def even(args: dict[str, Any]) -> bool:
        return bool(args["n"] % args["BLOCK"] == 0)

    def heuristic(kernel: Any) -> Any:
        return triton.heuristics({"EVEN": even})(kernel)

    def three(kernel: Any, **fixed: Any) -> Any:
        return kernel[grid_of](x, y, out, SIZE, 1.0, 1.0, **fixed)

    return [
        Case("three tensors, grid function", add, three, plain, out),
        Case(
            "three tensors, tuple grid",
            add,
            lambda kernel, **fixed: kernel[tuple_grid](x, y, out, SIZE, 1.0, 1.0, **fixed),
            plain,
            out,
        ),
        Case("nine tensors, twenty scalars by keyword", many, by_keyword, of_many, out),
        Case(
            "heuristics",
            evened,
            lambda kernel, **fixed: kernel[grid_of](x, y, out, SIZE, **fixed),
            plain,
            out,
            wrapped=heuristic,
            bare={"EVEN": True},
        ),
        Case("a subclass with a run of its own", add, three, plain, out, kind=Library),
        Changing("alignment that changes", add, in_turn, plain, out),
        Changing("two keys in turn", add, two_keys, plain, out),
    ]


class Changing(Case):
    """Whose output changes from call to call: held against the bare kernel's, call by call."""

    def __init__(self, name: str, kernel: Any, call: Any, expected: Any, out: Any) -> None:
        def none() -> Any:
            return out

        super().__init__(name, kernel, call, none, out)
        found = []
        for who in ("bare", "stock", "whet"):
            for _ in range(2):
                out.zero_()
                self.calls[who]()
                found.append(out.clone())
        if CUDA and not all(torch.equal(one, found[i % 2]) for i, one in enumerate(found)):
            raise SystemExit(f"{name}: results differ")
        self.calls["torch"] = expected


def plain_jit() -> dict[str, Call]:
    """A kernel nobody tunes, before and after `whet.install(jit=True)`."""
    x, y, out = (torch.rand(SIZE, device=DEVICE) for _ in range(3))
    fixed = {**CONFIGS[0].kwargs, "num_warps": CONFIGS[0].num_warps}
    ours: Any = triton.JITFunction(add.fn)

    def bare() -> None:
        add.run(x, y, out, SIZE, 1.0, 1.0, grid=grid_of, warmup=False, **fixed)

    def direct() -> None:
        ours[grid_of](x, y, out, SIZE, 1.0, 1.0, **fixed)

    whet.install(jit=True)
    for _ in range(4):
        bare()
        direct()
    return {"torch": lambda: torch.add(x, y, out=out), "bare": bare, "whet": direct}


def one_turn(call: Call, calls: int) -> float:
    if CUDA:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    spent = 1e6 * (time.perf_counter() - start) / calls
    if CUDA:
        torch.cuda.synchronize()
    return spent


def measured(calls: dict[str, Call], rounds: int, count: int) -> dict[str, Any]:
    names = list(calls)
    spent: dict[str, list[float]] = {name: [] for name in names}
    gc.disable()
    for number in range(rounds):
        at = number % len(names)
        for name in names[at:] + names[:at]:
            spent[name].append(one_turn(calls[name], count))
    gc.enable()
    best = {name: min(values) for name, values in spent.items()}
    return {
        "best_us": best,
        "median_us": {name: statistics.median(values) for name, values in spent.items()},
        "ratio": best["whet"] / best["bare"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, stand_in():
        os.environ["WHET_STORE"] = str(Path(folder) / "whet.db")
        os.environ["WHET_DIRECT"] = "yes"
        for case in cases():
            rows[case.name] = measured(case.calls, asked.rounds, asked.calls)
            why_not = case.tuned.whet_not_direct
            rows[case.name]["launch"] = "direct" if case.tuned.whet_direct else why_not
        rows["a plain kernel, install(jit=True)"] = measured(plain_jit(), asked.rounds, asked.calls)
    about = {
        "device": torch.cuda.get_device_name() if CUDA else "none: launches are stubbed",
        "triton": triton.__version__,
        "torch": torch.__version__,
        "rounds": asked.rounds,
        "calls": asked.calls,
    }
    if asked.json:
        print(json.dumps({**about, "cases": rows}))
        return
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    print(f"\n{'best, µs a call':42} torch   bare  stock   whet  whet/bare")
    for name, row in rows.items():
        best, launch = row["best_us"], row.get("launch", "direct")
        whose = [f"{best[who]:6.2f}" if who in best else "     -" for who in SIDES]
        why = "" if launch == "direct" else launch
        print(f"{name:42}{' '.join(whose)}   {row['ratio']:.2f} {why}")


def stand_in() -> Any:
    if CUDA:
        return nullcontext()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests/unit/targets/triton"))
    from direct_parts import Launcher38, launching  # type: ignore[import-not-found]

    class Silent(Launcher38):  # type: ignore[misc]
        def __init__(self, src: Any, metadata: Any) -> None:
            super().__init__(src, metadata)
            self.launch = lambda *handed: None

    return launching(launcher=Silent)


if __name__ == "__main__":
    main()
