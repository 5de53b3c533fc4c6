"""`--devices` and `--ray`: where a tuning is built and measured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from whet.cli.arguments.options import option
from whet.cli.terminal.output import say
from whet.core.errors import UsageError
from whet.engine.target import OnDevices, Target

if TYPE_CHECKING:
    from whet.engine.executors.protocol import DeviceExecutor
    from whet.targets.triton.offline.kernel import Kernel

# What a machine that compiles Triton kernels must have as here; which assembler, the build looks.
TRITON_TOOLS = ("whet", "triton")

DevicesOption = Annotated[
    str | None,
    option(
        "--devices all|0,1,…", "GPUs to tune on, with a process each (default: this process's own)."
    ),
]
RayOption = Annotated[
    str | None,
    option(
        "--ray ADDRESS",
        "Tune over a Ray cluster: HOST:PORT, auto, or local for one on this machine.",
    ),
]
BuildOnOption = Annotated[
    str | None,
    option(
        "--build-on all|cpu|gpu|NODES", "Machines of the Ray cluster that build (default: all)."
    ),
]
EnvOption = Annotated[
    list[str] | None,
    option(
        "--env NAME",
        "Environment variable to copy to the machines of the Ray cluster (repeatable).",
    ),
]


@dataclass(frozen=True)
class Devices:
    """What was typed of `--devices`, `--ray`, `--build-on` and `--env`."""

    devices: str | None = None
    ray: str | None = None
    build_on: str | None = None
    env: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.build_on is not None and self.ray is None:
            raise UsageError("--build-on needs --ray")
        if self.env and self.ray is None:
            raise UsageError("--env needs --ray: processes of this machine have its environment")
        if wrong := next((name for name in self.env if "=" in name or not name), None):
            raise UsageError(f"--env takes the name of a variable that is set here, not '{wrong}'")
        if self.devices is not None and self.ray is not None:
            raise UsageError("--devices are those of this machine; omit them with --ray")

    @contextmanager
    def opened(self, found: Target | Kernel | None) -> Iterator[DeviceExecutor | None]:
        """None where nothing was asked for; `found` None stands for Triton kernels in general."""
        if self.devices is not None:
            with local_executor(found, self.devices) as executor:
                yield executor
        elif self.ray is not None:
            with self._on_ray(found, self.ray) as executor:
                yield executor
        else:
            yield None

    def _on_ray(self, found: Target | Kernel | None, address: str) -> DeviceExecutor:
        from whet.engine.executors.on_ray import RayExecutor

        return RayExecutor(
            address,
            measure_on="cpu" if isinstance(found, Target) and found.shares_host else "gpu",
            build_on=self.build_on or "all",
            build_tools=None if isinstance(found, Target) else TRITON_TOOLS,
            environment={name: os.environ.get(name) for name in self.env},
            say=lambda text: say(f"whet: {text}"),
        )


def local_executor(found: object, devices: str) -> DeviceExecutor:
    """A process for each device; `found` None stands for Triton kernels in general."""
    from whet.engine.executors.current import selected
    from whet.engine.executors.processes import ProcessPerDevice

    if isinstance(found, OnDevices):
        names, environment = found.device_names(), found.device_environment
    elif isinstance(found, Target):
        raise UsageError(
            f"'{found.name}' runs on the CPU; --devices is for kernels that run on GPUs"
        )
    else:
        from whet.targets.triton.device import device_environment, device_names

        names, environment = device_names(), device_environment
    return ProcessPerDevice(selected(devices, names), environment)
