"""Binaries for specializations that were derived and never met: compiled without a device."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.core.config import Config
from whet.core.errors import UsageError, WhetError
from whet.targets.files import load_module
from whet.targets.modules import file_of_module
from whet.targets.recorded import NotAllowedError, RecordedFiles
from whet.targets.triton.compiler.capture import identified_request
from whet.targets.triton.jit.constants import NotReproducibleError
from whet.targets.triton.jit.kernels import LiveKernels
from whet.targets.triton.jit.libraries import keep_launchers
from whet.targets.triton.jit.mocks import mock_call
from whet.targets.triton.jit.records import Records
from whet.targets.triton.jit.specialization import Specialization
from whet.targets.triton.packed.architectures import Architecture, architecture
from whet.targets.triton.packed.offline_driver import imagined, loading
from whet.targets.triton.packed.portable import NotPortableError
from whet.targets.triton.packed.precompile import Made, Order, precompile


def build(
    wanted: Sequence[Specialization],
    records: Records,
    files: RecordedFiles,
    *,
    jobs: int | None = None,
    on_made: Callable[[Made], None] = lambda made: None,
) -> tuple[list[Specialization], str]:
    """Each with its binary, which is put among the records, or with the reason why there is none;
    and what is missing to launch them. Imports the modules of the kernels, if they are `files`."""
    refused = _import_modules(wanted, records, files)
    live = LiveKernels()
    orders: dict[str, Order] = {}
    reasons: dict[str, str] = {}
    for one in wanted:
        if one.kernel in refused:
            reasons[one.id] = refused[one.kernel]
            continue
        try:
            orders[one.id] = _order(one, live)
        except (NotReproducibleError, NotPortableError, WhetError) as error:
            reasons[one.id] = str(error)
        except Exception as error:  # of Triton's, over arguments that do not fit the kernel
            reasons[one.id] = f"{type(error).__name__}: {error}"
    made = precompile(list(orders.values()), jobs=jobs, cache=records.binaries, on_made=on_made)
    outcomes = dict(zip(orders, made, strict=True))
    missing = keep_launchers([one.order.request for one in made if one.portable], records)
    found = [_with_outcome(one, outcomes.get(one.id), reasons.get(one.id, "")) for one in wanted]
    return found, missing


def _with_outcome(one: Specialization, made: Made | None, why: str) -> Specialization:
    if made is None or not made.portable:
        return replace(one, why=why or (made.error if made else "") or "it could not be compiled")
    return replace(one, binary=made.portable, why="")


def _import_modules(
    wanted: Sequence[Specialization], records: Records, files: RecordedFiles
) -> dict[str, str]:
    """As on the device that it is for: files may look at it when they are imported. By kernel, why
    its file may not be run."""
    refused: dict[str, str] = {}
    for target in {one.target for one in wanted}:
        with loading(_architecture(target)):
            for one in {one.kernel: one for one in wanted if one.target == target}.values():
                try:
                    _import_module(one, lambda file: files.allow(file, str(records.folder)))
                except NotAllowedError as error:
                    refused[one.kernel] = str(error)
    return refused


def _import_module(one: Specialization, allow: Callable[[Path], Path]) -> None:
    """A program's own folder is on its path and not on ours, so it is looked for where it was."""
    module, file = one.kernel.partition(":")[0], Path(re.sub(r":\d+$", "", one.place))
    if module == "__main__":
        if file.is_file():
            load_module(allow(file), one.name)
        return
    if module in sys.modules:
        return
    depth = module.count(".") + (file.name == "__init__.py")
    root = str(file.parents[depth]) if len(file.parents) > depth else ""
    for found, folder in ((file_of_module(module), ""), (file, root)):
        if found is None or not found.is_file():
            continue
        allow(found)
        if folder:
            sys.path.append(folder)
        with suppress(ImportError):
            importlib.import_module(module)
            return


def _architecture(target: tuple[Any, ...]) -> Architecture:
    backend, arch, _ = target
    return architecture(f"sm_{arch}" if backend == "cuda" else str(arch))


def _order(one: Specialization, live: LiveKernels) -> Order:
    kernels = live.named(one.kernel)
    if not kernels:
        raise UsageError(f"kernel {one.kernel} cannot be imported; it may be made by a call")
    made_for = _architecture(one.target)
    places, names = mock_call(kernels[-1], one, live.one)
    with imagined(made_for):
        found = identified_request(
            kernels[-1], tuple(places), {"grid": (1,), **names}, made_for.limits
        )
    if found is None:
        raise UsageError(f"kernel {one.kernel} was compiled for this already")
    return Order(made_for, Config({"id": one.id}), *found, ({},))
