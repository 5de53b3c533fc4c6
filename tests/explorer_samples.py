"""Stores with what the explorer has to show, hostile text included."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Run, Stop
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Cost, Trial
from whet.core.workload import Device, Workload
from whet.store import Store

SCRIPT = "<script>window.hacked = 1</script>"
HOSTILE = f"{SCRIPT}<img src=x onerror='window.hacked = 2'>\"'&\u2028</title></style>"

DTYPES = {"a_ptr.dtype": "torch.float16"}


def workload(kernel: str = "matmul", device: str = "NVIDIA H200", **key: Any) -> Workload:
    return Workload(
        kernel,
        "f1",
        Device(device, "nvidia", "sm_90", "13.0"),
        FrozenMap(key or {"M": 512, "N": 512, "K": 512, **DTYPES}),
        FrozenMap({"triton": "3.6.0"}),
    )


def trial(
    of: Workload,
    config: dict[str, Any],
    ns: float | None = None,
    *,
    status: Status = Status.OK,
    error: str = "",
    run: str = "",
    created: float = 0.0,
    samples: int = 12,
    **facts: Any,
) -> Trial:
    timing = None
    if ns is not None:
        timing = Timing(tuple(ns + 2.0 * (n - samples // 2) for n in range(samples)), "cuda")
    return Trial(
        workload_id=of.id,
        config=Config(config),
        status=status,
        timing=timing,
        cost=Cost(FrozenMap({"build": 0.5, "build.llir": 0.2, "measure": 0.25})),
        facts=FrozenMap(facts),
        error=error,
        run_id=run,
        created=created,
    )


def fill(store: Store, of: Workload | None = None, *, started: float = 1000.0) -> Run:
    """A finished run over BM × BN × warps: larger tiles are faster up to 128, warps hardly matter,
    and BM=256 with BN=256 runs out of resources."""
    of = of or workload()
    grid = [(m, n, w) for m in (32, 64, 128, 256) for n in (32, 64, 128, 256) for w in (4, 8)]
    first = Config(BM=32, BN=32, num_warps=4)
    best = Config(BM=128, BN=128, num_warps=4)
    run = Run(of, "s", len(grid), "grid", 7, first=first, started=started, whet="0")
    store.save_run(run)
    for number, (m, n, w) in enumerate(grid):
        config = {"BM": m, "BN": n, "num_warps": w}
        moment = started + 0.1 * (number + 1)
        if m == n == 256:
            error = "out of resource: shared memory\nRequired: 262144"
            made = trial(
                of, config, status=Status.RESOURCES, error=error, run=run.id, created=moment
            )
        else:
            ns = 1e4 * (1 + abs(np.log2(m / 128)) + 0.5 * abs(np.log2(n / 128)) + 0.01 * w)
            facts = {"registers": 128, "spills": 0, "shared_bytes": 65536}
            made = trial(of, config, ns, run=run.id, created=moment, **facts)
        store.append([made])
    done = replace(
        run,
        outcome=Outcome.FINISHED,
        best=best,
        equals=(Config(BM=128, BN=128, num_warps=8),),
        trials=len(grid),
        tried=len(grid),
        exhaustive=True,
        wall_s=4.0,
        cost=Cost(
            FrozenMap({"build": 16.0, "build.llir": 6.0, "measure": 8.0}),
            FrozenMap({"measure": 3.0, "waiting": 1.0}),
        ),
    )
    store.save_run(done)
    return done


def hostile(store: Store) -> Workload:
    """Script tags in the kernel's name, its key, its parameters, their values and its errors."""
    of = workload(HOSTILE, HOSTILE, **{HOSTILE: HOSTILE})
    store.put_workload(of)
    store.append(
        [
            trial(of, {HOSTILE: HOSTILE, "n": 1}, 100.0),
            trial(of, {HOSTILE: "plain", "n": 2}, status=Status.BUILD_ERROR, error=HOSTILE),
        ]
    )
    return of


def decoded(parts: Sequence[bytes] | bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays of an answer, as the page reads them."""
    data = parts if isinstance(parts, bytes) else b"".join(parts)
    (length,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + length])
    start = -(-(4 + length) // 8) * 8
    kinds = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f32": "<f4", "f64": "<f8"}
    arrays = {}
    for column in header["columns"]:
        at = start + column["offset"]
        assert at % 8 == 0
        arrays[column["name"]] = np.frombuffer(data, kinds[column["dtype"]], column["length"], at)
    return header, arrays


def cut(store: Store) -> Run:
    """A run whose budget ended before its pick of 94 ms was compared with what took 40 ms."""
    of = workload("cut", N=4096)
    grid = [(m, n) for m in (16, 32, 64, 128) for n in (1, 2, 4)]
    pick, fastest = Config(BM=32, WARPS=2), Config(BM=64, WARPS=4)
    started = 2000.0
    run = Run(of, "s", 3 * len(grid), "auto", 7, first=Config(BM=16, WARPS=1), started=started)
    store.save_run(run)
    for number, (m, n) in enumerate(grid):
        config = Config(BM=m, WARPS=n)
        ns = {pick: 94e6, fastest: 40e6}.get(config, 100e6 + 5e6 * number)
        store.append([trial(of, dict(config), ns, run=run.id, created=started + number)])
    done = replace(
        run,
        outcome=Outcome.FINISHED,
        budget=Budget(seconds=5.0),
        stopped=Stop.TIME,
        best=pick,
        provisional=True,
        trials=len(grid),
        tried=len(grid),
        wall_s=4.91,
        cost=Cost(
            FrozenMap({"build": 5.81, "build.llir": 3.0, "measure": 2.5}),
            FrozenMap({"measure": 2.4, "waiting": 2.0, "search": 0.51}),
        ),
    )
    store.save_run(done)
    return done


def raced(store: Store, configs: int = 648, finalists: int = 28) -> Run:
    """A run that stopped all but its finalists early; they are measured to the end last."""
    of = workload("raced", N=64)
    run = Run(of, "s", configs, "auto", 7, started=3000.0)
    store.save_run(run)
    slower = np.random.default_rng(0).permutation(configs - finalists)
    times = [*(2e6 + 1e4 * at for at in slower), *(1e6 + 1e4 * at for at in range(finalists))]
    # The few samples of one that was stopped early say that it is the fastest.
    times[5] = 9e5
    made = [
        trial(
            of,
            {"A": number % 27, "B": number // 27},
            float(ns),
            status=Status.OUTRACED if number < configs - finalists else Status.OK,
            run=run.id,
            created=3000.0 + number,
            samples=3,
        )
        for number, ns in enumerate(times)
    ]
    store.append(made)
    done = replace(
        run,
        outcome=Outcome.FINISHED,
        best=made[configs - finalists].config,
        trials=configs,
        tried=configs,
        exhaustive=True,
        wall_s=60.0,
    )
    store.save_run(done)
    return done
