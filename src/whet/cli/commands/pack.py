"""`whet pack`, and `whet store merge` of a bundle: results in one file, to take elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from whet.cli.arguments.missed import RootOption, recorded_files
from whet.cli.arguments.options import KernelsOption, StoreOption, argument, option, resolved
from whet.cli.arguments.reading import NothingKnownError, chosen, open_known, toolchain_text
from whet.cli.commands.store import pick_lines, picks_json
from whet.cli.terminal.output import (
    bytes_text,
    columns,
    count_text,
    fields,
    flexible,
    page,
    print_json,
    print_lines,
    right,
    say,
    table,
)
from whet.core.errors import UsageError
from whet.engine.lockfile.entries import entry_id, read_lock

if TYPE_CHECKING:
    from whet.core.config import Config
    from whet.store import Store, StoreReader
    from whet.store.bundles.archive import Manifest
    from whet.store.bundles.bundle import Bundle
    from whet.store.bundles.writing import FolderBinaries
    from whet.targets.triton.jit.packing import Packing


def pack(
    file: Annotated[Path, argument("FILE", "The bundle to write.")],
    kernel: KernelsOption = None,
    best_only: Annotated[
        bool,
        option("--best-only", "Only the chosen configs: enough to use, not to continue tuning."),
    ] = False,
    binaries: Annotated[
        Path | None, option("--binaries DIR", "Also pack compiled kernels from this directory.")
    ] = None,
    missed: Annotated[
        bool, option("--missed", "Also pack keys that were recorded and not tuned yet.")
    ] = False,
    lock: Annotated[
        Path | None, option("--lock FILE", "Only what this lock file chooses, and as it does.")
    ] = None,
    jit: Annotated[
        bool, option("--jit", "Also pack the kernels that WHET_JIT=record has met.")
    ] = False,
    reachable: Annotated[
        bool, option("--reachable", "With --jit, also what other integer arguments would compile.")
    ] = False,
    most: Annotated[int, option("--most N", "At most N such a kernel.", min=0)] = 8,
    pointers: Annotated[
        bool, option("--pointers", "With --reachable, also unaligned pointers.")
    ] = False,
    root: RootOption = None,
    store: StoreOption = None,
) -> None:
    """Write results to a single file.

    Examples:
      whet pack results.whet                        everything in the store
      whet pack results.whet --kernel matmul --best-only
      whet pack results.whet --binaries compiled/   with compiled kernels
      whet pack results.whet --lock whet.lock --binaries compiled/
      whet pack serve.whet --jit --reachable        for whet.serving.preload
      whet pack missed.whet --missed                to tune on another machine
      WHET_BUNDLE=results.whet python serve.py      use the bundle, read-only
    """
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


def unpacked(
    bundle: Bundle, opened: Store, binaries: Path | None
) -> tuple[list[str], dict[str, Any]]:
    """Adds a bundle to a store; what to say of it, to people and to programs."""
    from whet.engine.fallback.inheritance import models_beside
    from whet.store.bundles.writing import unpack_bundle

    before = len(opened.missed())
    done = unpack_bundle(bundle, opened, binaries)
    models = models_beside(opened)
    for name in bundle.model_names():
        models.setdefault(name, bundle.model(name) or "")
    missed = max(0, len(opened.missed()) - before)
    left = len(bundle.binary_keys()) if binaries is None else 0
    counts = {
        "workload": done.merged.workloads,
        "trial": done.merged.trials,
        "run": done.merged.runs,
        "compiled kernel": done.binaries,
        **({"missed key": missed} if missed else {}),
    }
    new = ", ".join(count_text(number, noun) for noun, number in counts.items())
    lines = [f"{bundle.path}: {new} new", *pick_lines(done.merged.picks)]
    if left:
        what = count_text(left, "compiled kernel")
        lines.append(f"{what} not unpacked; use --binaries DIR to unpack them")
    picks = picks_json(done.merged.picks)
    told = {"bundle": str(bundle.path), "new": counts, "binaries_left": left, "picks": picks}
    return lines, told


def print_contents(bundles: Sequence[Bundle], json: bool) -> None:
    for bundle in bundles:
        if json:
            print_json({"v": 1, "bundle": str(bundle.path), **_as_json(bundle)})
        else:
            print_lines(_listing(bundle))


def _known(store: str | None, *, empty: bool) -> Store:
    """What one's own store knows; with `empty`, there need be none."""
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
    from whet.engine.fallback.inheritance import (
        ModelError,
        models_beside,
        read_model,
        refresh_models,
    )

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
    from whet.store.bundles.archive import printable

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
    layout = [flexible("kernel"), *(right(name) for name in ("workloads", "trials", "runs"))]
    rows = [
        (kernel.name, f"{kernel.workloads:,}", f"{kernel.trials:,}", f"{kernel.runs:,}")
        for kernel in manifest.kernels
    ]
    lines = [str(bundle.path), *fields(about, page())]
    return [*lines, "", *table(layout, rows, columns())] if rows else lines
