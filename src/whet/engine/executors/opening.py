"""From an executor to the bench of one run."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from whet.core.errors import UsageError
from whet.engine.executors import calibration
from whet.engine.executors.calibration import AgreementPolicy, KeptAgreement
from whet.engine.executors.protocol import DeviceExecutor, Seat
from whet.engine.executors.spread import SpreadBench
from whet.engine.target import BenchLimits, Target
from whet.measure.bench.protocol import Bench
from whet.store import Store


def bench_on(
    executor: DeviceExecutor,
    target: Target,
    limits: BenchLimits,
    store: Store,
    say: Callable[[str], None],
    policy: AgreementPolicy | None = None,
) -> Bench:
    """A bench over all seats of the executor. Raises `UsageError` where the target can only be
    measured in this process."""
    policy = policy or AgreementPolicy()
    device = target.workload().device
    where = f"{executor.name} {socket.gethostname()} {device.name} {device.driver}"
    recorded = _recorded(store, where, policy, say)

    def open_bench(seat: Seat) -> Bench:
        bench = target.bench(
            replace(
                limits,
                isolate=True,
                open_session=seat.session,
                elsewhere=seat.remote,
                device=seat.name,
            )
        )
        if bench.in_process:
            bench.close()
            raise UsageError(
                f"'{target.name}' can only be measured in this process, so not on other devices; "
                "omit --devices and --ray"
            )
        return bench

    for text in executor.refused():
        say(text)
    return SpreadBench(
        executor.seats,
        open_bench,
        say,
        policy,
        recorded,
        lambda found: calibration.keep(store.models, where, found),
    )


def _recorded(
    store: Store, where: str, policy: AgreementPolicy, say: Callable[[str], None]
) -> KeptAgreement | None:
    """What an earlier run found, while it holds."""
    found = calibration.kept(store.models, where)
    if found is None or not 0 <= time.time() - found.date < policy.valid_s:
        return None
    date = datetime.fromtimestamp(found.date, UTC).strftime("%Y-%m-%d %H:%M UTC")
    for name, why in found.left_out.items():
        say(f"device {name} is not used: {why} (calibrated {date})")
    return found
