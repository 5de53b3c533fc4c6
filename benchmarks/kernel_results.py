"""Tunes `whet.kernels` for the sizes of well-known models and packs what was found.

    python benchmarks/kernel_results.py OUT.whet [--limit 400] [--again KERNEL] [--store FILE]
    python benchmarks/kernel_results.py OUT.whet --carry
    python benchmarks/kernel_results.py --check

What comes of it ships with the package, in `src/whet/kernels/results/`: nothing needs tuning on
such a GPU, with the same versions of torch and Triton. Each size is tuned for CUDA graphs and for
eager calls; the sizes that most models have come first, and when `--limit` seconds have passed the
rest is left out and named. What ships already is put into the store before, so that only the rest
is tuned, and what `--again` names. `--carry` tunes nothing: what ships for choices is written down
for their present code, which is right where no kernel has changed, only what Python does before it
is launched. It is to be done with the versions that it ships for. `--check` tunes nothing: every
call is made in mode `require`, with an empty store, and those that do not find their results are
named.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Model:
    name: str
    hidden: int
    inner: int
    heads: int
    key_heads: int
    head: int = 128


MODELS = (
    Model("Llama-3.1-8B", 4096, 14336, 32, 8),
    Model("Qwen3-8B", 4096, 12288, 32, 8),
    Model("Qwen3-32B", 5120, 25600, 64, 8),
    Model("Llama-3.1-70B", 8192, 28672, 64, 8),
    Model("Qwen3-4B", 2560, 9728, 32, 8),
)
ROWS = (16, 4096, 1, 64, 512)
CACHED = (1024, 4096, 8192, 2048)

Case = tuple[str, Callable[[], Any]]


def cases(model: Model, rows: int) -> Iterator[Case]:
    """What a layer of the model calls with so many tokens. Tensors are made when a case runs."""
    queries, keys = model.heads * model.head, model.key_heads * model.head
    products = {
        (queries + 2 * keys, model.hidden),
        (model.hidden, queries),
        (model.hidden, model.inner),
    }
    for n, k in sorted(products):
        yield f"gemm {rows}×{n}×{k}", partial(_product, rows, n, k)
    shape = f"{rows}×{model.inner}×{model.hidden}"
    yield f"gated_mlp {shape}", partial(_mlp, rows, model.hidden, model.inner, False)
    yield f"gated_mlp, stacked {shape}", partial(_mlp, rows, model.hidden, model.inner, True)
    for added in (False, True):
        name = "rmsnorm, residual" if added else "rmsnorm"
        yield f"{name} {rows}×{model.hidden}", partial(_row_norm, rows, model.hidden, added)
    heads = (model.heads, model.key_heads, model.head)
    yield f"rmsnorm_rope {rows}×{heads}", partial(_norm, rows, *heads)
    if rows >= 512:
        yield f"attention {rows}×{heads}", partial(_attention, rows, rows, *heads)
    if rows == 1:
        for keys in CACHED:
            yield f"attention 1 to {keys}×{heads}", partial(_attention, 1, keys, *heads)


def _tensor(*shape: int) -> Any:
    import torch

    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / shape[-1] ** 0.5


def _product(rows: int, n: int, k: int) -> Callable[[], Any]:
    from whet.kernels import gemm

    return partial(gemm, _tensor(rows, k), _tensor(n, k).t())


def _mlp(rows: int, hidden: int, inner: int, stacked: bool) -> Callable[[], Any]:
    from whet.kernels import gated_mlp

    both = _tensor(2 * inner, hidden)
    weights = (both,) if stacked else both.chunk(2)
    return partial(gated_mlp, _tensor(rows, hidden), *weights)


def _norm(rows: int, heads: int, key_heads: int, head: int) -> Callable[[], Any]:
    from whet.kernels import rmsnorm_rope

    x, key = _tensor(1, rows, heads, head), _tensor(1, rows, key_heads, head)
    tables = _tensor(rows, head // 2), _tensor(rows, head // 2)
    return partial(rmsnorm_rope, x, _tensor(head), *tables, key=key, key_weight=_tensor(head))


def _row_norm(rows: int, hidden: int, added: bool) -> Callable[[], Any]:
    from whet.kernels import rmsnorm_rope

    x, none = _tensor(1, rows, hidden), _tensor(rows, 1)[:, :0]
    residual = _tensor(1, rows, hidden) if added else None
    how: dict[str, Any] = {"head_dim": hidden, "rotary_dim": 0, "residual": residual}
    return partial(rmsnorm_rope, x, _tensor(hidden), none, none, **how)


def _attention(rows: int, keys: int, heads: int, key_heads: int, head: int) -> Callable[[], Any]:
    from whet.kernels import attention

    q = _tensor(1, heads, rows, head)
    k, v = (_tensor(1, key_heads, keys, head) for _ in range(2))
    return partial(attention, q, k, v, causal=rows > 1)


def wanted() -> list[Case]:
    """Once each, those of the first models and most common numbers of rows first."""
    found: dict[str, Callable[[], Any]] = {}
    for model in MODELS:
        for rows in ROWS:
            for name, made in cases(model, rows):
                found.setdefault(name, made)
    return list(found.items())


def choices() -> list[Any]:
    from whet.kernels import mlp, norm_rope, product, sdpa

    return [product.chosen, mlp.apart, mlp.stacked, norm_rope.chosen, sdpa.chosen]


def carry(path: str) -> None:
    from whet.core.trial import new_id
    from whet.store import open_store

    sources = {one.name: one.source for one in choices()}
    with open_store(path) as store:
        for known in store.workloads():
            old = known.workload
            source = sources.get(old.kernel)
            if source is None or source.fingerprint == old.fingerprint:
                continue
            new = replace(old, fingerprint=source.fingerprint, origin=source.origin)
            store.put_workload(new)
            runs = {run.id: replace(run, workload=new, id=new_id()) for run in store.runs(old.id)}
            for trial in store.trials(old.id, all=True):
                of = runs[trial.run_id].id if trial.run_id in runs else ""
                store.append([replace(trial, workload_id=new.id, id=new_id(), run_id=of)])
            for run in runs.values():
                store.save_run(run)
            store.gc(workloads=[old.id])


def tune(limit_s: float) -> list[str]:
    """What was left out."""
    import torch

    import whet

    for one in choices():
        one.wait_limit_s = None
    start, todo = time.monotonic(), wanted()
    for done, (name, made) in enumerate(todo):
        if time.monotonic() - start > limit_s:
            return [left for left, _ in todo[done:]]
        began = time.monotonic()
        with torch.no_grad():
            call = made()
            with whet.cost("graph"):
                call()
            with whet.cost("eager"):
                call()
        print(f"{time.monotonic() - began:6.2f} s  {name}", flush=True)
    return []


def not_found() -> dict[str, str]:
    """Why, by case and cost."""
    import torch

    import whet

    problems: dict[str, str] = {}
    for name, made in wanted():
        with torch.no_grad():
            call = made()
            for cost in ("graph", "eager"):
                try:
                    with whet.mode("require"), whet.cost(cost):
                        call()
                except whet.WhetError as error:
                    problems[f"{name}, {cost}"] = str(error).splitlines()[0]
    return problems


def check() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WHET_STORE"] = str(Path(folder) / "empty.db")
        began, problems = time.monotonic(), not_found()
    for name, problem in problems.items():
        print(f"{name}: {problem}")
    calls = 2 * len(wanted())
    took = time.monotonic() - began
    print(f"{calls - len(problems)} of {calls} calls found their results, in {took:.1f} s")
    return int(bool(problems))


def add_shipped(store: str, again: list[str]) -> None:
    from whet.kernels.checks import RESULTS

    whet = [sys.executable, "-m", "whet"]
    for bundle in sorted(RESULTS.glob("*.whet")):
        subprocess.run([*whet, "store", "merge", str(bundle), "--store", store], check=True)
    for kernel in again:
        subprocess.run([*whet, "store", "gc", "--kernel", kernel, "--store", store], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, nargs="?")
    parser.add_argument("--limit", type=float, default=400.0)
    parser.add_argument("--store")
    parser.add_argument("--again", action="append", default=[], metavar="KERNEL")
    parser.add_argument("--carry", action="store_true", help="results of choices, tuning nothing")
    parser.add_argument("--dry-run", action="store_true", help="print the sizes, tune nothing")
    parser.add_argument("--check", action="store_true", help="find what ships, tune nothing")
    asked = parser.parse_args()
    if asked.check:
        return check()
    if asked.dry_run:
        print("\n".join(name for name, _ in wanted()))
        return 0
    if asked.bundle is None:
        parser.error("name the bundle to write, or give --check")
    with tempfile.TemporaryDirectory() as folder:
        store = asked.store or str(Path(folder) / "results.db")
        os.environ["WHET_STORE"] = store
        add_shipped(store, asked.again)
        if asked.carry:
            carry(store)
        left = [] if asked.carry else tune(asked.limit)
        if left:
            print(f"left out, for lack of time: {', '.join(left)}")
        words = [sys.executable, "-m", "whet", "pack", str(asked.bundle), "--store", store]
        return subprocess.run([*words, "--best-only"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
