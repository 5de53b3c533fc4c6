"""`--devices` and `--ray`: where a tuning is built and measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.engine.executors.protocol import DeviceExecutor
    from whet.engine.target import Target
    from whet.targets.triton.offline.kernel import Kernel

# What a machine that compiles Triton kernels must have as here; which assembler, the build looks.
TRITON_TOOLS = ("whet", "triton")

DevicesOption = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="all|0,1,…",
        help="GPUs to tune on, with a process each (default: this process's own).",
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Tune over a Ray cluster: HOST:PORT, auto, or local for one on this machine.",
    ),
]
BuildOnOption = Annotated[
    str | None,
    typer.Option(
        "--build-on",
        metavar="all|cpu|gpu|NODES",
        help="Machines of the Ray cluster that build (default: all).",
    ),
]


@contextmanager
def executor_for(
    found: Target | Kernel, devices: str | None, ray: str | None, build_on: str | None = None
) -> Iterator[DeviceExecutor | None]:
    """None where neither was asked for."""
    if build_on is not None and ray is None:
        raise UsageError("--build-on needs --ray")
    if devices is not None and ray is not None:
        raise UsageError("--devices are those of this machine; omit them with --ray")
    if devices is not None:
        with local_executor(found, devices) as executor:
            yield executor
    elif ray is not None:
        with _on_ray(found, ray, build_on or "all") as executor:
            yield executor
    else:
        yield None


def local_executor(found: object, devices: str) -> DeviceExecutor:
    """A process for each device; `found` None stands for Triton kernels in general."""
    from whet.engine.executors.processes import ProcessPerDevice
    from whet.engine.executors.selecting import selected
    from whet.engine.target import OnDevices, Target

    if isinstance(found, OnDevices):
        names, environment = found.device_names(), found.device_environment
    elif isinstance(found, Target):
        raise UsageError(
            f"'{found.name}' runs on the CPU; --devices is for kernels that run on GPUs"
        )
    else:
        from whet.targets.triton.devices import device_environment, device_names

        names, environment = device_names(), device_environment
    return ProcessPerDevice(selected(devices, names), environment)


def _on_ray(found: Target | Kernel, address: str, build_on: str) -> DeviceExecutor:
    from whet.engine.executors.on_ray import RayExecutor
    from whet.engine.target import Target

    kind = "cpu" if isinstance(found, Target) and found.shares_host else "gpu"
    tools = None if isinstance(found, Target) else TRITON_TOOLS
    return RayExecutor(address, measure_on=kind, build_on=build_on, build_tools=tools, say=_said)


def _said(text: str) -> None:
    print(f"whet: {text}", file=sys.stderr, flush=True)
