"""Every executor, held to the contract."""

from __future__ import annotations

import pytest

from whet.engine.executors.processes import ProcessPerDevice
from whet.engine.executors.protocol import DeviceExecutor
from whet.testing.executor_kit import ExecutorContract
from whet.testing.fake_devices import FakeDevices

pytestmark = pytest.mark.medium


class TestFakeDevices(ExecutorContract):
    separate = False

    def make(self, devices: int) -> DeviceExecutor:
        return FakeDevices([str(n) for n in range(devices)])


class TestProcessPerDevice(ExecutorContract):
    def make(self, devices: int) -> DeviceExecutor:
        return ProcessPerDevice([str(n) for n in range(devices)], lambda name: {})
