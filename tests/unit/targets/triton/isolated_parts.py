"""What a measuring process imports in tests: a device that only writes down what it is asked to.

A kernel is `copy` from triton_kernels, and what a launch does depends on its BLOCK.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from whet.measure.timer import Reading, Runnable, Timer, Warm
from whet.targets.triton.isolated.ipc_arguments import NotShared
from whet.testing.fake_triton import FakeDriver, ToldTimer, fake_driver

ILLEGAL, ENDLESS, CRASH, WRONG, MEMORY = 16, 32, 64, 128, 256

_spoilt = False
_open: list[Any] = []


def diary() -> Path:
    """Where launches are written down, by every process."""
    return Path(os.environ["ISOLATED_DIARY"])


def entries() -> list[dict[str, Any]]:
    if not diary().exists():
        return []
    return [json.loads(line) for line in diary().read_text().splitlines()]


def write(**entry: Any) -> None:
    with diary().open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), **entry}) + "\n")


def launched(driver: FakeDriver, name: str, args: tuple[Any, ...]) -> None:
    """`copy(x, y, n, BLOCK)`"""
    global _spoilt
    x, y, n, block = args
    write(name=name, grid=driver.launches[-1][1], n=n, block=block, aliased=_aliased(x, y))
    if _spoilt or block == ILLEGAL:
        _spoilt = True
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if block == ENDLESS:
        time.sleep(600)
    if block == CRASH:
        os.abort()
    if block == MEMORY:
        raise RuntimeError("CUDA out of memory. Tried to allocate 200 GiB")
    y[:n] = x[:n] + (1 if block == WRONG else 0)


def _aliased(x: Any, y: Any) -> bool:
    return bool(x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr())


def start_device() -> None:
    """In a process that has none."""
    from triton.runtime.driver import driver as triton_driver

    if isinstance(triton_driver._active, FakeDriver):
        return
    block = fake_driver()
    driver = block.__enter__()
    _open.append(block)  # a generator that is collected would put the old driver back
    driver.on_launch = lambda name, args: launched(driver, name, args)


def by_block() -> Timer:
    """The larger the BLOCK, the faster."""
    start_device()
    return ToldTimer(lambda config: 1e6 / config.kwargs["BLOCK"])


class Grouped(ToldTimer):
    """Launches several before it looks at any of them."""

    def warm_all(self, runs: list[Runnable]) -> list[Warm]:
        return [self.warm(run) for run in runs]

    def turn(self, runs: list[Runnable], warms: list[Warm]) -> list[Reading]:
        return [self.measure(run, 1, warm) for run, warm in zip(runs, warms, strict=True)]


def in_groups() -> Timer:
    start_device()
    return Grouped(lambda config: 1e6 / config.kwargs["BLOCK"])


def just_written_down() -> Timer:
    """Launches do nothing; what came after `n` is in the diary."""
    timer = by_block()
    from triton.runtime.driver import driver as triton_driver

    device = triton_driver._active
    if os.getpid() != int(os.environ["ISOLATED_HERE"]):
        device.on_launch = lambda name, args: write(
            grid=device.launches[-1][1], values=list(args[3:])
        )
    return timer


def only_here() -> Timer:
    """Cannot be made in another process."""
    if os.getpid() != int(os.environ["ISOLATED_HERE"]):
        raise RuntimeError("no room on the device")
    return by_block()


def not_shared_at_first() -> Timer:
    """As where the driver lets one process hand out memory that another may not open."""
    if os.getpid() != int(os.environ["ISOLATED_HERE"]) and not entries():
        write(refused=True)
        raise NotShared("cuIpcOpenMemHandle gave error 1")
    return by_block()


def shift(arguments: dict[str, Any]) -> None:
    """A hook."""
    write(hook=arguments["BLOCK"], n=arguments["n"])


def copied(arguments: Any) -> dict[str, Any]:
    """A check function."""
    write(expected=True)
    return {"y_ptr": arguments["x_ptr"].clone()}
