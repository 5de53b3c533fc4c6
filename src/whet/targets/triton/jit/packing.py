"""What `whet pack --jit` takes: recorded specializations, those derived from them, and the binaries
of both, which are compiled without a device where they are missing.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.core.config import Config
from whet.core.errors import UsageError, WhetError
from whet.store.bundles.writing import FolderBinaries
from whet.targets.files import NotAllowedError, RecordedFiles, file_of_module, load_module
from whet.targets.triton.compiler.capture import identified_request
from whet.targets.triton.jit.preloading import LiveKernels, uncovered_lines
from whet.targets.triton.jit.records import JitBinaries, Records, keep_launchers, packed_lines
from whet.targets.triton.jit.specialization import NotReproducibleError, Specialization, mock_call
from whet.targets.triton.jit.variants import reachable
from whet.targets.triton.offline.precompile import Made, Order, imagined, loading, precompile
from whet.targets.triton.packed.architectures import Architecture, architecture
from whet.targets.triton.packed.portable import NotPortableError


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


@dataclass(frozen=True)
class Packing:
    """`lines` and `binaries` are for `write_bundle`; `notes` say what was left out."""

    binaries: JitBinaries
    lines: list[str]
    notes: list[str]


def packing(
    records: Records,
    files: RecordedFiles,
    *,
    kernels: Collection[str] = (),
    most: int | None = None,
    pointers: bool = False,
    others: FolderBinaries | None = None,
    jobs: int | None = None,
) -> Packing:
    """What was compiled only to be measured is left out, as are kernels that no name selects. With
    `most`, as many that were never met are derived for each kernel. What has no binary yet is
    compiled, where the kernel's file is one of `files`."""
    recorded = records.all()
    known = [one for one in recorded if not one.met.tuning]
    if kernels:
        known = [one for one in known if one.kernel in kernels or one.name in kernels]
    if not known:
        raise UsageError(
            f"nothing is recorded in {records.folder}; run the program with WHET_JIT=record"
        )
    notes = []
    if most is not None:
        more = reachable(known, most=most, pointers=pointers)
        known += more.found
        if more.left:
            notes.append(f"{more.left:,} more are reachable and were left out; see --most")
    missing = [one for one in known if one.met.derived and not one.binary]
    built, unlaunchable = build(missing, records, files, jobs=jobs) if missing else ([], "")
    made = {one.id: one for one in built}
    notes += [unlaunchable] if unlaunchable else []
    asked = {one.id for one in recorded}
    records.add(one for one in made.values() if one.binary and one.id in asked)
    found = [made.get(one.id, one) for one in known]
    notes += uncovered_lines((one.kernel, one.why) for one in found if one.why)
    packed = tuple(one for one in found if one.binary or not one.met.derived)
    return Packing(JitBinaries(records, packed, others), packed_lines(packed), notes)
