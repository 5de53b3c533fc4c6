"""What a tuned choice costs above calling its winner, by kind of call; without a GPU.

    python benchmarks/choice_call.py [--rounds 200] [--calls 1000] [--json FILE]

`kernels.py dispatch` measures the same on a GPU. Here the tensors are on the CPU, and the key is
made as it is where there is a GPU: with the device, and with the question whether a graph is being
captured, which a function of torch's answers that takes as long as any of its short ones. The
winner does nothing. Choice and winner take turns; the shortest round of each counts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

Call = Callable[..., Any]


def nothing(*_: Any, **__: Any) -> None:
    return None


def shortest_us(call: Call, every: Sequence[tuple[Any, ...]], calls: int) -> float:
    """One call after another with these arguments in turn, as the layers of a model come."""
    turns = calls // len(every)
    if len(every) == 1:
        a, b = every[0]
        began = time.perf_counter()
        for _ in range(turns):
            call(a, b)
        return 1e6 * (time.perf_counter() - began) / turns
    began = time.perf_counter()
    for _ in range(turns):
        for a, b in every:
            call(a, b)
    return 1e6 * (time.perf_counter() - began) / (turns * len(every))


def above(chosen: Call, winner: Call, every: Sequence[tuple[Any, ...]], asked: Any) -> Any:
    for one in every:
        chosen(*one)
    best = {"choice": math.inf, "winner": math.inf}
    for turn in range(asked.rounds):
        for name in ("choice", "winner") if turn % 2 else ("winner", "choice"):
            call = chosen if name == "choice" else winner
            best[name] = min(best[name], shortest_us(call, every, asked.calls))
    return {"extra_us": round(best["choice"] - best["winner"], 3)} | {
        name: round(us, 3) for name, us in best.items()
    }


def kinds() -> dict[str, list[tuple[Any, ...]]]:
    import torch

    def pair(m: int, k: int, n: int, *, turned: bool = False, grad: bool = False) -> Any:
        a = torch.zeros(m, k, dtype=torch.bfloat16)
        b = torch.zeros(n, k, dtype=torch.bfloat16, requires_grad=grad)
        return a, b.t() if turned else b.detach().view(k, n).requires_grad_(grad)

    sizes = [(16, 64, 64), (16, 64, 192), (16, 192, 64), (16, 64, 128)]
    return {
        "one kind of call": [pair(16, 64, 64)],
        "b is transposed": [pair(16, 64, 64, turned=True)],
        "b has a gradient": [pair(16, 64, 64, grad=True)],
        "four kinds in turn": [pair(*size) for size in sizes],
    }


def as_on_a_gpu() -> Any:
    """The key of a call has all parts that it has there."""
    import torch

    from whet.targets.choice import keys

    asked = torch._C._get_deterministic_algorithms_warn_only
    return mock.patch.multiple(keys, has_gpu=lambda: True, _capturing=lambda _: asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    os.environ["WHET_STORE"] = ":memory:"
    import whet

    found: dict[str, Any] = {}
    with as_on_a_gpu():
        for kind, every in kinds().items():
            chosen = whet.choice({"first": nothing}, name="nothing")
            found[kind] = above(chosen, nothing, every, asked)
            print(f"{kind:20} {found[kind]['extra_us']:6.3f} µs above the winner", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
