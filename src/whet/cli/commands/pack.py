"""`whet pack` and `whet unpack`: results in one file, to take elsewhere."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.missed import RootOption
from whet.cli.arguments.options import JsonOption, StoreOption, resolved
from whet.cli.terminal.output import say
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.core.config import Config
    from whet.store import Store, StoreReader
    from whet.store.bundles.bundle import Bundle
    from whet.store.bundles.format import Manifest
    from whet.store.bundles.writing import FolderBinaries
    from whet.targets.triton.jit.packing import Packing

PACK_EXAMPLES = """\b
Examples:
  whet pack results.whet                        everything in the store
  whet pack results.whet --kernel matmul --best-only
  whet pack results.whet --binaries compiled/   with compiled kernels
  whet pack results.whet --lock whet.lock --binaries compiled/
  whet pack serve.whet --jit --reachable        for whet.serving.preload
  whet pack missed.whet --missed                to tune on another machine
  WHET_BUNDLE=results.whet python serve.py      use the bundle, read-only
"""
UNPACK_EXAMPLES = """\b
Examples:
  whet unpack results.whet --list               list the contents
  whet unpack results.whet                      add it to your store
  whet unpack results.whet --store all.db --binaries compiled/
"""


def pack(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The bundle to write.", show_default=False)
    ],
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="NAME",
            help="Only this kernel, named as for 'whet best' (repeatable).",
        ),
    ] = None,
    best_only: Annotated[
        bool,
        typer.Option(
            "--best-only", help="Only the chosen configs: enough to use, not to continue tuning."
        ),
    ] = False,
    binaries: Annotated[
        Path | None,
        typer.Option(
            "--binaries", metavar="DIR", help="Also pack compiled kernels from this directory."
        ),
    ] = None,
    missed: Annotated[
        bool,
        typer.Option("--missed", help="Also pack keys that were recorded and not tuned yet."),
    ] = False,
    lock: Annotated[
        Path | None,
        typer.Option(
            "--lock", metavar="FILE", help="Only what this lock file chooses, and as it does."
        ),
    ] = None,
    jit: Annotated[
        bool,
        typer.Option("--jit", help="Also pack the kernels that WHET_JIT=record has met."),
    ] = False,
    reachable: Annotated[
        bool,
        typer.Option(
            "--reachable", help="With --jit, also what other integer arguments would compile."
        ),
    ] = False,
    most: Annotated[
        int, typer.Option("--most", metavar="N", min=0, help="At most N such a kernel.")
    ] = 8,
    pointers: Annotated[
        bool, typer.Option("--pointers", help="With --reachable, also unaligned pointers.")
    ] = False,
    root: RootOption = None,
    store: StoreOption = None,
) -> None:
    """Write results to a single file."""
    from whet.cli.terminal.output import bytes_text, count_text, print_lines
    from whet.store.bundles.bundle import open_bundle
    from whet.store.bundles.writing import FolderBinaries, write_bundle

    folder = None if binaries is None else FolderBinaries(binaries)
    if reachable and not jit:
        raise UsageError("--reachable needs --jit")
    kernels = (
        _kernels(store, root, kernel, most if reachable else None, pointers, folder)
        if jit
        else None
    )
    with _known(store, empty=binaries is not None or jit) as opened:
        chosen = _chosen(opened, kernel, needed=not jit)
        locked = None if lock is None else _locked(lock, opened)
        models = (
            {}
            if locked
            else _models(opened, None if chosen is None else sorted(set(chosen.values())))
        )
        manifest = write_bundle(
            file,
            opened,
            workloads=chosen,
            models=models,
            binaries=folder if kernels is None else kernels.binaries,
            jit=() if kernels is None else kernels.lines,
            choices=locked,
            best_only=best_only,
            missed=missed,
        )
    with open_bundle(file) as bundle:
        counts = {**_counts(manifest), "missed key": len(bundle.store.missed())}
        counts["specialization"] = len(bundle.jit_lines())
    parts = [count_text(number, noun) for noun, number in counts.items() if number]
    print(f"{file}: {', '.join(parts) or 'nothing'} ({bytes_text(file.stat().st_size)})")
    print_lines(kernels.notes if kernels is not None else [])


def _kernels(
    store: str | None,
    roots: list[str] | None,
    kernels: list[str] | None,
    most: int | None,
    pointers: bool,
    folder: FolderBinaries | None,
) -> Packing:
    from whet.cli.arguments.missed import recorded_files
    from whet.targets.triton.jit.packing import packing
    from whet.targets.triton.jit.records import Records

    settings = resolved(store=store).settings
    return packing(
        Records.beside(settings.store),
        recorded_files(roots),
        kernels=kernels or (),
        most=most,
        pointers=pointers,
        others=folder,
        jobs=settings.jobs,
    )


def unpack(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The bundle to read.", show_default=False)
    ],
    binaries: Annotated[
        Path | None,
        typer.Option("--binaries", metavar="DIR", help="Where to put compiled kernels."),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="List the contents and change nothing.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Add a bundle's results to the store.

    If the bundle and the store picked different configs, the rules of 'whet store merge' apply.
    """
    from whet.cli.terminal.output import count_text, print_json, print_lines
    from whet.cli.text.store import pick_lines, picks_json
    from whet.engine.fallback.models import models_beside
    from whet.store import open_store
    from whet.store.bundles.bundle import open_bundle
    from whet.store.bundles.unpacking import unpack_bundle

    where = resolved(store=store).settings.store
    with open_bundle(file) as bundle:
        if listing:
            if json:
                print_json({"v": 1, "bundle": str(bundle.path), **_as_json(bundle)})
            else:
                print_lines(_listing(bundle))
            return
        bundle.check()
        with open_store(where, direct=True) as opened:
            before = len(opened.missed())
            done = unpack_bundle(bundle, opened, binaries)
            models = models_beside(opened)
            for name in bundle.model_names():
                models.setdefault(name, bundle.model(name) or "")
            place = opened.location
            missed = max(0, len(opened.missed()) - before)
        left = len(bundle.binary_keys()) if binaries is None else 0
    counts = {
        "workload": done.merged.workloads,
        "trial": done.merged.trials,
        "run": done.merged.runs,
        "compiled kernel": done.binaries,
        **({"missed key": missed} if missed else {}),
    }
    if json:
        picks = picks_json(done.merged.picks)
        print_json({"v": 1, "store": place, "new": counts, "binaries_left": left, "picks": picks})
        return
    new = ", ".join(count_text(number, noun) for noun, number in counts.items())
    print(f"{file}: {new} new")
    print_lines(pick_lines(done.merged.picks))
    if left:
        print(
            f"{count_text(left, 'compiled kernel')} not unpacked; use --binaries DIR to unpack them"
        )
    print(f"saved in {place}")


def _known(store: str | None, *, empty: bool) -> Store:
    """What one's own store knows; with `empty`, there need be none."""
    from whet.cli.arguments.reading import NothingKnownError, open_known
    from whet.store import MemoryStore

    try:
        return open_known(store, bundle=False)
    except NothingKnownError:
        if empty:
            return MemoryStore()
        raise


def _chosen(store: StoreReader, names: list[str] | None, *, needed: bool) -> dict[str, str] | None:
    """The kernels of the workloads that were asked for, by workload id; None is all of them. Where
    it is not `needed`, a kernel may have none: it was recorded and never tuned."""
    from whet.cli.arguments.reading import NothingKnownError, chosen

    if not names:
        return None
    found: dict[str, str] = {}
    for name in names:
        try:
            found |= {one.workload.id: one.workload.kernel for one in chosen(store, name)}
        except (UsageError, NothingKnownError):
            if needed:
                raise
    return found


def _locked(path: Path, store: StoreReader) -> dict[str, Config]:
    """The lock's configs by workload id; those that the store has not are said."""
    from whet.engine.lockfile.entries import entry_id
    from whet.engine.lockfile.text import read_lock

    lock = read_lock(path)
    found: dict[str, Config] = {}
    packed: set[str] = set()
    for one in store.workloads():
        id = entry_id(one.workload)
        entry = lock.by_id.get(id)
        if entry is None:
            continue
        if any(trial.config == entry.config for trial in store.trials(one.workload.id)):
            found[one.workload.id] = entry.config
            packed.add(id)
    for id, entry in lock.by_id.items():
        if id not in packed:
            note = f"whet: note: {entry}: [{entry.config}] is locked, but not in the store"
            say(note)
    return found


def _models(store: StoreReader, kernels: list[str] | None) -> dict[str, str]:
    """The cost models of these kernels, of the latest trials."""
    from whet.engine.fallback.inheritance import refresh_models
    from whet.engine.fallback.models import ModelError, models_beside, read_model

    models = dict(models_beside(store))
    refresh_models(store, kernels, models)
    wanted = {}
    for name, text in models.items():
        with suppress(ModelError):
            if not kernels or read_model(text).kernel in kernels:
                wanted[name] = text
    return wanted


def _counts(manifest: Manifest) -> dict[str, int]:
    """By noun, in the order in which they are told."""
    names = manifest.entries
    return {
        "kernel": len(manifest.kernels),
        "workload": sum(kernel.workloads for kernel in manifest.kernels),
        "trial": sum(kernel.trials for kernel in manifest.kernels),
        "run": sum(kernel.runs for kernel in manifest.kernels),
        "model": sum(name.startswith("models/") for name in names),
        "compiled kernel": len({n.split("/")[1] for n in names if n.startswith("binaries/")}),
    }


def _as_json(bundle: Bundle) -> dict[str, Any]:
    manifest = bundle.manifest
    return {
        **manifest.to_json(),
        "models": bundle.model_names(),
        "binaries": bundle.binary_keys(),
        "specializations": len(bundle.jit_lines()),
    }


def _listing(bundle: Bundle) -> list[str]:
    from whet.cli.arguments.reading import toolchain_text
    from whet.cli.terminal.output import (
        Column,
        bytes_text,
        columns,
        count_text,
        fields,
        page,
        table,
    )
    from whet.store.bundles.format import printable

    manifest = bundle.manifest
    counts = {**_counts(manifest), "specialization": len(bundle.jit_lines())}
    parts = [count_text(number, noun) for noun, number in counts.items() if number]
    about = {
        "holds": ", ".join(parts) or "nothing",
        "size": f"{bytes_text(bundle.path.stat().st_size)}, {bytes_text(manifest.bytes)} unpacked",
        "packed": f"{manifest.created} by whet {manifest.whet}"
        + (", chosen configs only" if manifest.best_only else ""),
        "devices": ["; ".join(value for value in one.values() if value) for one in manifest.devices]
        or "none",
        "tools": [printable(toolchain_text(one)) for one in manifest.toolchains] or "none",
    }
    layout = [
        Column("kernel", flexible=True),
        *(Column(name, align="right") for name in ("workloads", "trials", "runs")),
    ]
    rows = [
        (kernel.name, f"{kernel.workloads:,}", f"{kernel.trials:,}", f"{kernel.runs:,}")
        for kernel in manifest.kernels
    ]
    lines = [str(bundle.path), *fields(about, page())]
    return [*lines, "", *table(layout, rows, columns())] if rows else lines
