"""What around a device would make a timing wrong: its clock, its heat, its neighbours."""

from __future__ import annotations

from whet.measure.gpu.nvml import Health
from whet.measure.gpu.probe import clock_mhz, wait_for_clock
from whet.measure.gpu.torch_device import CudaApi

# An idle device lowers its clock; a busy one may be throttled at any time.
IDLE_NS = 1_000_000_000
CHECK_EVERY_NS = 500_000_000
THROTTLED_BELOW = 0.95


class Conditions:
    """Looked at where they may have changed; what there is to say of them waits for `said`."""

    def __init__(self, api: CudaApi) -> None:
        self._api = api
        self._events = (api.event(), api.event())
        self._fastest_mhz = 0.0
        self._used: int | None = None
        self._checked: int | None = None
        self._remarks: list[str] = []

    def used(self) -> None:
        """The device was busy until now."""
        self._used = self._api.clock()

    def settle(self) -> None:
        """Waits for a steady clock where the device may have been idle."""
        if self._used is not None and self._api.clock() - self._used <= IDLE_NS:
            return
        found = wait_for_clock(self._api)
        self._fastest_mhz = max(self._fastest_mhz, found.mhz)
        if not found.steady:
            self.remark(
                "the GPU clock did not settle before timing; lock it (nvidia-smi "
                "--lock-gpu-clocks) for more stable results"
            )
        self._look_around()

    def check(self) -> None:
        """FirstPass, now and then, for what would disturb a timing from outside."""
        if self._checked is not None and self._api.clock() - self._checked < CHECK_EVERY_NS:
            return
        health = self._look_around()
        mhz = clock_mhz(self._api, self._events)
        if mhz is None:
            return
        if mhz < THROTTLED_BELOW * self._fastest_mhz:
            why = f" ({', '.join(health.held_back_by)})" if health.held_back_by else ""
            self.remark(
                f"the GPU clock has dropped to {100 * mhz / self._fastest_mhz:.0f} % of its "
                f"earlier value{why}; timings from before and after are compared only through "
                "re-checks"
            )
        self._fastest_mhz = max(self._fastest_mhz, mhz)

    def remark(self, text: str) -> None:
        self._remarks.append(text)

    def said(self) -> tuple[str, ...]:
        """What was remarked since this was last asked."""
        remarks, self._remarks = tuple(self._remarks), []
        return remarks

    def _look_around(self) -> Health:
        self._checked = self._api.clock()
        health = self._api.health()
        if health.others:
            others = ", ".join(map(str, health.others[:4]))
            self.remark(
                f"another process is using this GPU (pid {others}); its work affects the timings"
            )
        return health
