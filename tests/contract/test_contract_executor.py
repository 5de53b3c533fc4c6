"""Every executor, held to the contract."""

from __future__ import annotations

import pytest

from whet.engine.executors.processes import ProcessPerDevice
from whet.engine.executors.protocol import DeviceExecutor
from whet.engine.executors.this_process import ThisProcess
from whet.testing.executor_kit import ExecutorContract

pytestmark = pytest.mark.medium


class TestThisProcess(ExecutorContract):
    separate = False

    def make(self, devices: int) -> DeviceExecutor:
        return ThisProcess()


class TestProcessPerDevice(ExecutorContract):
    def make(self, devices: int) -> DeviceExecutor:
        return ProcessPerDevice([str(n) for n in range(devices)], lambda name: {})
