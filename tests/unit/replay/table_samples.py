"""Tables to test with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.space import Categorical, Ordered, Permutation, Space
from whet.core.status import Status
from whet.core.workload import Device, Limits
from whet.replay import Build, Table, TableOrigin, TableOutcome, TableWorkload
from whet.replay.table import Declared

DEVICE = Device("Test GPU", "nvidia", "sm_90", "550", Limits(shared_memory_bytes=232_448))
ORIGIN = TableOrigin(timer="cuda", l2="cold", whet="0.1.0", date="2026-01-31")

SPACES = [
    None,
    Declared((Ordered("BM", (16, 32, 64)), Categorical("layout", ("row", None))), ("BM > 16",)),
    Declared((Permutation("loops", "mnk"),)),
]


def a_table(**changes: Any) -> Table:
    """Three configs on two workloads: one good, one slower and unclean, one that never built."""
    fields: dict[str, Any] = {
        "kernel": "matmul",
        "fingerprint": "3f786850e387550f",
        "device": DEVICE,
        "configs": (Config(BM=16), Config(BM=32), Config(BM=64, tile=(8, 8))),
        "builds": (
            Build(Status.OK, 1.5, FrozenMap({"ttir": 0.25}), facts=FrozenMap({"registers": 40})),
            Build(Status.OK, facts=FrozenMap({"tile": (8, 8)})),
            Build(Status.RESOURCES, 0.1, error="out of resource: shared memory"),
        ),
        "workloads": (
            TableWorkload.of(
                {"M": 64, "dtype": "f16"},
                [
                    TableOutcome(
                        Status.OK,
                        ((1000, 1010, 990), (1500,)),
                        first_ns=4000,
                        seconds=FrozenMap({"measure": 0.25}),
                    ),
                    TableOutcome(Status.OUTRACED, ((900,),), quality="contaminated"),
                    TableOutcome(Status.RESOURCES, error="out of resource: shared memory"),
                ],
            ),
            TableWorkload.of(
                {"M": 128, "dtype": "f16"},
                [
                    TableOutcome(Status.RUN_ERROR, error="it fell over"),
                    TableOutcome(),
                    TableOutcome(),
                ],
            ),
        ),
        "toolchain": FrozenMap({"triton": "3.6.0"}),
        "origin": ORIGIN,
    }
    return Table(**{**fields, **changes})


def one_key(
    outcomes: Sequence[TableOutcome], build_s: float | None = 1.0, key: Any = (), **changes: Any
) -> Table:
    """One workload, and a config `B=0`, `B=1` and so on for each of its outcomes."""
    fields = {
        "configs": tuple(Config(B=at) for at in range(len(outcomes))),
        "builds": (Build(Status.OK, build_s),) * len(outcomes),
        "workloads": (TableWorkload.of(dict(key), outcomes),),
    }
    return a_table(**{**fields, **changes})


def ok(*visits: Sequence[float], **more: Any) -> TableOutcome:
    return TableOutcome(Status.OK, tuple(map(tuple, visits)), **more)


def at_ns(*times: float, **more: Any) -> list[TableOutcome]:
    """Working configs, each with three samples of its time."""
    return [ok((ns,) * 3, **more) for ns in times]


def a_large_table(configs: int, workloads: int, visits: int, samples: int) -> Table:
    """With the noise of a real device: a per cent or so, a tail, ticks of 32 ns."""
    rng = np.random.default_rng(0)
    space = Space({f"P{at}": [1, 2, 3, 4, 5, 6] for at in range(4)})
    listed = space.sample(rng, configs)
    merit = rng.lognormal(0.0, 0.6, configs)
    stages, phases = ("ttir", "llir", "cubin"), {"load": 2e-4, "warmup": 1e-3, "measure": 4e-3}
    builds = [
        Build(
            Status.OK,
            seconds=float(rng.gamma(4.0, 0.1)),
            stages=FrozenMap({stage: rng.gamma(4, 0.02) for stage in stages}),
            facts=FrozenMap({"shared_bytes": int(rng.integers(200)) * 1024, "spills": 0}),
        )
        for _ in listed
    ]
    rows = []
    for at in range(workloads):
        base = 4_000.0 * 1.12**at * merit * rng.lognormal(0.0, 0.1, configs)
        noise = rng.lognormal(0.0, 0.012, (configs, visits, samples))
        noise *= 1 + 0.2 * (rng.random(noise.shape) < 0.02)
        ticks = np.rint(base[:, None, None] * noise / 32) * 32
        outcomes = [
            TableOutcome(
                Status.OK,
                tuple(map(tuple, taken.tolist())),
                first_ns=float(taken[0, 0] * 1.5),
                seconds=FrozenMap({name: rng.gamma(9, s / 9) for name, s in phases.items()}),
            )
            for taken in ticks
        ]
        rows.append(TableWorkload.of({"M": 64 * (at + 1), "N": 512, "K": 512}, outcomes))
    return a_table(configs=tuple(listed), builds=tuple(builds), workloads=tuple(rows))


texts = st.text(max_size=12)
names = st.text("abcXYZ_µ", min_size=1, max_size=3)
scalars = st.one_of(
    st.integers(-(10**12), 10**12),
    st.booleans(),
    st.none(),
    texts,
    st.floats(allow_nan=False, allow_infinity=False),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
seconds = st.dictionaries(names, st.floats(0, 1000)).map(FrozenMap)
samples = st.floats(0, 1e12, allow_nan=False)
visits = st.lists(st.lists(samples, min_size=1, max_size=4).map(tuple), min_size=1, max_size=3).map(
    tuple
)
failures = st.builds(
    TableOutcome,
    st.sampled_from([None, *(status for status in Status if status.failed)]),
    seconds=seconds,
    error=texts,
)
measured = st.builds(
    TableOutcome,
    st.sampled_from([Status.OK, Status.OUTRACED]),
    visits,
    quality=st.sampled_from(["clean", "contaminated", "host_bound"]),
    first_ns=st.none() | samples,
    seconds=seconds,
)
builds = st.builds(
    Build,
    st.sampled_from(Status),
    st.none() | st.floats(0, 1000),
    seconds,
    texts,
    st.dictionaries(names, scalars, max_size=3).map(FrozenMap),
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    declared = draw(st.sampled_from(SPACES))
    any_config = st.dictionaries(names, scalars, max_size=3).map(Config)
    configs = draw(
        st.lists(
            any_config if declared is None else st.sampled_from(list(declared.space())),
            max_size=5,
            unique_by=lambda config: config.json,
        )
    )
    count = len(configs)
    keys = draw(
        st.lists(
            st.dictionaries(names, scalars, max_size=2),
            max_size=3,
            unique_by=lambda key: Config(key).json,
        )
    )
    each = st.lists(failures | measured, min_size=count, max_size=count)
    return a_table(
        kernel=draw(texts),
        configs=tuple(configs),
        builds=tuple(draw(st.lists(builds, min_size=count, max_size=count))),
        workloads=tuple(TableWorkload.of(key, draw(each)) for key in keys),
        declared=declared,
    )
