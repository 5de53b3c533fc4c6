"""Stores to export from, as a tuning would have left them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.workload import Device, Workload
from whet.store import MemoryStore, Store
from whet.testing.samples import a_run, a_trial

H200 = Device("NVIDIA H200", "nvidia", "sm_90")
TILE = {
    "BLOCK_SIZE_M": 16,
    "BLOCK_SIZE_N": 64,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 1,
    "num_warps": 4,
    "num_ctas": 1,
    "num_stages": 3,
}


def tile(**changes: Any) -> dict[str, Any]:
    """A config as Triton has it: every option is there."""
    return {**TILE, **changes}


def a_key(
    key: Mapping[str, Any],
    kernel: str = "fused_moe_kernel",
    device: Device = H200,
    toolchain: Mapping[str, str] | None = None,
) -> Workload:
    versions = {"triton": "3.6.0"} if toolchain is None else toolchain
    return Workload(kernel, "3f786850e387550f", device, FrozenMap(key), FrozenMap(versions))


def tuned(
    store: Store, workload: Workload, times: Sequence[tuple[Mapping[str, Any], float]]
) -> None:
    """A finished run that chose the quickest."""
    best = min(times, key=lambda pair: pair[1])[0]
    run = a_run(workload, best)
    store.save_run(run)
    store.append(a_trial(workload, Config(config), ns, run_id=run.id) for config, ns in times)


def one_result(config: Mapping[str, Any] = TILE, **changes: Any) -> MemoryStore:
    """A MoE kernel tuned for one token; `changes` are of its key and of `a_key`."""
    given = {name: changes.pop(name) for name in ("device", "toolchain") if name in changes}
    store = MemoryStore()
    tuned(store, a_key({"M": 1, "E": 8, "N": 64, **changes}, **given), [(config, 10.0)])
    return store


def moe_store(*tokens: int, **key: Any) -> MemoryStore:
    """A MoE kernel tuned for so many tokens each; the tile grows with them."""
    store = MemoryStore()
    for m in tokens:
        quick = tile(BLOCK_SIZE_M=16 if m < 64 else 64)
        workload = a_key({"M": m, "E": 8, "N": 14336, **key})
        tuned(store, workload, [(quick, 1000.0), (tile(num_warps=8), 1500.0)])
    return store
