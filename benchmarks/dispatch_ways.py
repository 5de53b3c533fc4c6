"""What a tuned call costs the host by the way it comes to the autotuner.

    python benchmarks/dispatch_ways.py [--rounds 50] [--calls 200] [--json]

Libraries put `triton.heuristics` above or below `autotune`, give configs a hook, have a single
config, or override `run`. In each case the bare kernel, stock and whet launch the same kernel with
the same arguments, in turns; the shortest round of each counts. Without a GPU, Triton's launch goes
to a stand-in for the driver: then only the differences tell.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import whet
from whet.testing.fake_triton import FakeTensor, fake_driver, told

GPU = torch.cuda.is_available()
HEURISTICS = triton.heuristics({"EVEN": lambda named: named["n"] % 16 == 0})
EVEN = {"EVEN": False}
SIDES = ("bare", "stock", "whet")


def scale(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)


class Overridden(triton.runtime.Autotuner):  # type: ignore[misc]
    def run(self, *args: Any, **kwargs: Any) -> Any:
        return super().run(*args, **kwargs)


def configs(count: int = 2, **more: Any) -> list[Any]:
    return [triton.Config({"BLOCK": 64 << place}, **more) for place in range(count)]


def stock(given: list[Any], kernel: Any) -> Any:
    no_device = {} if GPU else {"do_bench": lambda call, quantiles=None: [1.0] * 3}
    return triton.autotune(configs=given, key=["n"], **no_device)(kernel)


def ours(given: list[Any], kernel: Any) -> Any:
    tuned: Any = whet.autotune(configs=given, key=["n"])(kernel)
    if not GPU:
        tuned.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    return tuned


def overridden(tune: Any, kernel: Any) -> Any:
    """As a library makes them, with a class of its own. Installed, whet takes it."""
    no_device = {} if GPU else {"do_bench": lambda call, quantiles=None: [1.0] * 3}
    return Overridden(kernel, kernel.arg_names, configs(), ["n"], None, None, **no_device)


Tune = Callable[[list[Any], Any], Any]
WAYS: dict[str, tuple[Callable[[Tune, Any], Any], dict[str, Any]]] = {
    "kernel[grid](…)": (lambda tune, kernel: tune(configs(), kernel), EVEN),
    "heuristics above": (lambda tune, kernel: HEURISTICS(tune(configs(), kernel)), {}),
    "heuristics below": (lambda tune, kernel: tune(configs(), HEURISTICS(kernel)), {}),
    "a hook": (lambda tune, kernel: tune(configs(pre_hook=lambda named: None), kernel), EVEN),
    "a single config": (lambda tune, kernel: tune(configs(1), kernel), EVEN),
    "a subclass's run": (overridden, EVEN),
}


def shortest(calls: list[Callable[[], Any]], rounds: int, count: int) -> list[float]:
    """Microseconds a call."""
    found = [float("inf")] * len(calls)
    gc.disable()
    for _ in range(rounds):
        for place, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(count):
                call()
            found[place] = min(found[place], 1e6 * (time.perf_counter() - start) / count)
            if GPU:
                torch.cuda.synchronize()
    gc.enable()
    return found


def measure(rounds: int, count: int) -> dict[str, dict[str, float]]:
    x: Any = torch.ones(4, device="cuda") if GPU else FakeTensor([1.0] * 4)
    found = {}
    for name, (made, keywords) in WAYS.items():

        def launch(kernel: Any, more: dict[str, Any] = keywords) -> Callable[[], Any]:
            call = partial(_launched, kernel, x, more)
            call()
            return call

        given = {"EVEN": False, "BLOCK": 64, "num_warps": 4, "num_stages": 3}
        bare, plain = launch(triton.jit(scale), given), launch(made(stock, triton.jit(scale)))
        if made is overridden:  # whet would take both, so these two do not take turns
            us = dict(zip(("bare", "stock"), shortest([bare, plain], rounds, count), strict=True))
            whet.install()
            tuned = made(ours, triton.jit(scale))
            if not GPU:
                tuned.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
            us["whet"] = shortest([bare, launch(tuned)], rounds, count)[1]
            whet.uninstall()
        else:
            calls = [bare, plain, launch(made(ours, triton.jit(scale)))]
            us = dict(zip(SIDES, shortest(calls, rounds, count), strict=True))
        found[name] = us
    return found


def _launched(kernel: Any, x: Any, keywords: dict[str, Any]) -> None:
    kernel[(1,)](x, 4, **keywords)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["WHET_STORE"] = str(Path(folder) / "whet.db")
        os.environ["TRITON_CACHE_DIR"] = str(Path(folder) / "triton")
        with nullcontext() if GPU else fake_driver():
            found = measure(asked.rounds, asked.calls)
    if asked.json:
        print(json.dumps({"us": found, "gpu": GPU}))
        return
    where = torch.cuda.get_device_name() if GPU else "a stand-in for a GPU"
    print(f"{where}, Triton {triton.__version__}; µs a call, stock and whet above the bare kernel")
    for name, us in found.items():
        above = [us[side] - us["bare"] for side in ("stock", "whet")]
        print(f"{name:18} bare {us['bare']:5.1f}  stock {above[0]:+6.1f}  whet {above[1]:+6.1f}")


if __name__ == "__main__":
    main()
