"""Sizes that were never tuned, on a GPU: what they inherit, judged by the referee.

    python benchmarks/inherit_live.py [--problem gemm576] [--known 48] [--seed 0] [--json FILE]

In a process with empty caches whet tunes the known sizes, drawn at random, and keeps a cost model.
Then every other size is called in mode `cached`, in which nothing may be measured: what is asked of
the timer is counted. The referee times every usable config at these sizes, and says how near the
inherited picks come to the best.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from cold import Notes, Record, byte_compile, child
from contest import USABLE, kinds_of, quality
from problems import problem, size_text, triton_config

LIMIT_S = 400.0
WANTED_MEAN, WANTED_WORST = 0.98, 0.80


def inherit(name: str, known: int, seed: int, notes: Notes) -> None:
    import torch

    import whet
    from sides import _device, _judged, _launchable, _stored
    from triton_kernels import wake_device
    from whet.engine.fallback.inheritance import refresh_models

    wake_device()
    asked = problem(name)
    order = random.Random(seed).sample(range(len(asked.sizes)), len(asked.sizes))
    bind = asked.bind()
    calls = {size: bind(asked.sizes[size]) for size in order}
    listed = [triton_config(config) for config in asked.configs]
    kernel = next(iter(calls.values())).kernel
    tuned: Any = whet.autotune(configs=listed, key=list(asked.key))(kernel)
    start = time.perf_counter()
    for size in order[:known]:
        tuned[calls[size].grid](*calls[size].arguments)
        torch.cuda.synchronize()
    answer: dict[str, Any] = {"device": _device(), "tuning_s": time.perf_counter() - start}
    answer |= _stored(asked)
    start = time.perf_counter()
    with whet.open_store() as store:
        answer["models"] = refresh_models(store)
    answer["fitting_s"] = time.perf_counter() - start
    picks: dict[int, list[int]] = {}
    answer["calls_s"] = []
    measured = _count_measurements()
    with whet.mode("cached"):
        for size in order[known:]:
            start = time.perf_counter()
            tuned[calls[size].grid](*calls[size].arguments)
            torch.cuda.synchronize()
            answer["calls_s"].append(time.perf_counter() - start)
            picks[size] = [asked.index_of(tuned.best_config.all_kwargs())]
    answer["measured"] = len(measured)
    usable = [index for index, kind in kinds_of(asked, answer).items() if kind == USABLE]
    launchable = _launchable(calls[order[0]], asked, usable)
    inherited = {size: calls[size] for size in order[known:]}
    answer["judged"] = _judged(asked, inherited, launchable, picks, {"visits": 3, "samples": 15})
    answer["picks"] = {size: pick[0] for size, pick in picks.items()}
    del answer["runs"]
    notes.write(answer)


def _count_measurements() -> list[str]:
    """What the timer is asked to do from now on."""
    from whet.measure.gpu.timer import CudaTimer

    asked: list[str] = []
    for name in ("measure", "warm", "warm_all", "turn"):
        own = getattr(CudaTimer, name)

        def counted(self: Any, *args: Any, _own: Any = own, _name: str = name, **more: Any) -> Any:
            asked.append(_name)
            return _own(self, *args, **more)

        setattr(CudaTimer, name, counted)
    return asked


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", default="gemm576")
    parser.add_argument("--known", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        inherit(options.problem, options.known, options.seed, Notes(options.out))
        return
    byte_compile()
    arguments = ["--part", "--problem", options.problem]
    arguments += ["--known", str(options.known), "--seed", str(options.seed)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        found = child("inherit_live.py", arguments, Path(name), LIMIT_S)
    Record(options.json).put("inherit_live", found)
    if "judged" not in found:
        raise SystemExit(f"whet did not finish, exit code {found['exit_code']}")
    asked = problem(options.problem)
    picks = {int(size): pick for size, pick in found["picks"].items()}
    judged = quality(found["judged"], picks)
    assert judged is not None
    calls_ms = sorted(1000 * seconds for seconds in found["calls_s"])
    print(
        f"{found['device']}: {options.known} sizes tuned in {found['tuning_s']:.1f} s "
        f"({dict(Counter(found['statuses']))}), {found['models']} model in "
        f"{found['fitting_s']:.1f} s; {len(picks)} sizes inherit, {found['measured']} measurements"
    )
    print(
        f"  inherited: geometric mean {100 * judged['geometric_mean']:.2f} %, worst "
        f"{100 * judged['worst']:.1f} % at {size_text(asked.sizes[judged['worst_size']])}; a first "
        f"call took {calls_ms[0]:.0f} to {calls_ms[-1]:.0f} ms, kernel loading included"
    )
    good = judged["geometric_mean"] >= WANTED_MEAN and judged["worst"] >= WANTED_WORST
    raise SystemExit(0 if good and not found["measured"] else 1)


if __name__ == "__main__":
    main()
