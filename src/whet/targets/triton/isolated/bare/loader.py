"""The measuring process's side without torch: cubins are loaded and launched by the driver."""

from __future__ import annotations

import contextlib
import gc
import os
import time
import traceback
from collections.abc import Mapping

from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.core.timing import L2
from whet.measure.bench.gate import Verdict
from whet.measure.bench.protocol import Recovering
from whet.measure.gpu import driver as cuda_driver
from whet.measure.gpu.driver import CudaDriver, Parameters, driver_on
from whet.measure.gpu.driver_device import DriverCuda
from whet.measure.gpu.timer import CudaTimer
from whet.targets.triton.isolated.bare.ipc_arguments import BareIpcCall, BareLaunch
from whet.targets.triton.isolated.bare.unpacking import copied
from whet.workers import stages


def bare_timer(device: int, l2: L2, l2_bytes: int | None) -> CudaTimer:
    return CudaTimer(DriverCuda(device), l2=l2, l2_bytes=l2_bytes)


class BareLoader(Recovering):
    def __init__(self, ipc_call: BareIpcCall) -> None:
        stages.add("start", _age_s())
        self._driver = driver_on(ipc_call.device)
        with stages.stage("copy"):
            starts = copied(self._driver, ipc_call.blocks)
        self._addresses = [starts[block] + offset for block, offset in ipc_call.places]

    def load(self, config: Config, artifact: BareLaunch) -> BareLoaded:
        return BareLoaded(self._driver, artifact, self._addresses)

    def recover(self, problem: BaseException) -> bool:
        """A context that is gone shows when it is waited for."""
        traceback.clear_frames(problem.__traceback__)
        gc.collect()
        try:
            self._driver.synchronize()
        except Exception:
            return False
        return True


class BareLoaded:
    """One config, loaded and ready to be launched as Triton would."""

    compares = False

    def __init__(self, driver: CudaDriver, launch: BareLaunch, addresses: list[int]) -> None:
        self._driver = driver
        self._grid, self._threads, self._shared = launch.grid, launch.threads, launch.shared_bytes
        _allow("shared memory", launch.shared_bytes, driver.attribute(cuda_driver.SHARED_BYTES))
        self._parameters = Parameters(
            [
                addresses[one].to_bytes(8, "little") if isinstance(one, int) else one
                for one in launch.parameters
            ]
        )
        with open(launch.cubin, "rb") as file:
            self._module = driver.module(file.read())
        self._function = driver.function(self._module, launch.name)
        if launch.shared_bytes > cuda_driver.UNASKED_SHARED_BYTES:
            driver.allow_shared(self._function)
        _allow("threads", launch.threads, self._attribute(cuda_driver.MAX_THREADS))
        self.facts: Mapping[str, Value] = {
            "registers": self._attribute(cuda_driver.REGISTERS),
            "spills": self._attribute(cuda_driver.LOCAL_BYTES) // 4,
            "shared_bytes": launch.shared_bytes,
        }

    def repeat(self, n: int) -> None:
        """Queues the launches and waits for none, as a launch of Triton's does."""
        if 0 in self._grid:
            return
        for _ in range(n):
            self._driver.launch(
                self._function, self._grid, self._threads, self._shared, self._parameters
            )

    def check(self) -> Verdict:
        """There is nothing to compare with in a plain call; but it has run."""
        self.repeat(1)
        self._driver.synchronize()
        return Verdict(True)

    def close(self) -> None:
        # A context that is gone unloads nothing, and has said so to whom it concerns.
        with contextlib.suppress(RuntimeError):
            self._driver.unload(self._module)

    def _attribute(self, which: int) -> int:
        return self._driver.function_attribute(self._function, which)


def _allow(what: str, needed: int, most: int) -> None:
    """Refuses in Triton's own words."""
    if needed > most:
        raise ConfigFailure(
            Status.RESOURCES,
            f"out of resource: {what}, Required: {needed}, Hardware limit: {most}. "
            "Reducing block sizes or `num_stages` may help.",
        )


def _age_s() -> float:
    """Since this process was started."""
    with open("/proc/self/stat") as file:
        born = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - born / os.sysconf("SC_CLK_TCK")
