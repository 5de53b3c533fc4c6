"""`whet pack` and `whet unpack`: results in one file, to take elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.options import JsonOption, StoreOption, resolved
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.store.bundle import Bundle
    from whet.store.bundle_format import Manifest

PACK_EXAMPLES = """\b
Examples:
  whet pack results.whet                        everything that is known
  whet pack results.whet --kernel matmul --best-only
  whet pack results.whet --binaries compiled/   compiled kernels as well
  WHET_BUNDLE=results.whet python serve.py      used where it is, read-only
"""
UNPACK_EXAMPLES = """\b
Examples:
  whet unpack results.whet --list               what is in it
  whet unpack results.whet                      into one's own store
  whet unpack results.whet --store all.db --binaries compiled/
"""


def pack(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The bundle to write.", show_default=False)
    ],
    kernel: Annotated[
        list[str] | None,
        typer.Option("--kernel", metavar="NAME", help="Only this kernel; may be repeated."),
    ] = None,
    best_only: Annotated[
        bool,
        typer.Option(
            "--best-only", help="Only what was chosen: enough to use, too little to tune on."
        ),
    ] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="KERNEL=FILE", help="A kernel's cost model; may be repeated."
        ),
    ] = None,
    binaries: Annotated[
        Path | None,
        typer.Option("--binaries", metavar="FOLDER", help="Compiled kernels to put in as well."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write what is known into one file."""
    from whet.cli.output import bytes_text, count_text
    from whet.cli.reading import open_known
    from whet.store.bundle_writing import FolderBinaries, write_bundle

    models = dict(_model(text) for text in model or ())
    with open_known(store, bundle=False) as opened:
        manifest = write_bundle(
            file,
            opened,
            kernels=kernel or None,
            models=models,
            binaries=None if binaries is None else FolderBinaries(binaries),
            best_only=best_only,
        )
    parts = [count_text(number, noun) for noun, number in _counts(manifest).items() if number]
    print(f"{file}: {', '.join(parts) or 'nothing'} ({bytes_text(file.stat().st_size)})")


def unpack(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The bundle to read.", show_default=False)
    ],
    binaries: Annotated[
        Path | None,
        typer.Option("--binaries", metavar="FOLDER", help="Where compiled kernels shall go."),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="Say what is in it; take nothing.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Take a bundle's results into the store."""
    from whet.cli.output import count_text, print_json, print_lines
    from whet.store import open_store
    from whet.store.bundle import open_bundle
    from whet.store.bundle_unpacking import unpack_bundle

    where = resolved(store=store).settings.store
    with open_bundle(file) as bundle:
        if listing:
            if json:
                print_json({"v": 1, "bundle": str(bundle.path), **_as_json(bundle)})
            else:
                print_lines(_listing(bundle))
            return
        bundle.check()
        with open_store(where) as opened:
            done = unpack_bundle(bundle, opened, binaries)
            place = opened.location
        left = len(bundle.binary_keys()) if binaries is None else 0
    counts = {
        "workload": done.merged.workloads,
        "trial": done.merged.trials,
        "run": done.merged.runs,
        "compiled kernel": done.binaries,
    }
    if json:
        print_json({"v": 1, "store": place, "new": counts, "binaries_left": left})
        return
    new = ", ".join(count_text(number, noun) for noun, number in counts.items())
    print(f"{file}: {new} new")
    if left:
        print(f"{count_text(left, 'compiled kernel')} left in it; --binaries FOLDER takes them out")
    print(f"kept in {place}")


def _model(text: str) -> tuple[str, str]:
    kernel, equals, path = text.partition("=")
    if not equals or not kernel or not path:
        raise UsageError(f"--model '{text}' cannot be read; write KERNEL=FILE")
    try:
        return kernel, Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the model {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"the model {path} is not text") from None


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
        "models": [kernel.name for kernel in manifest.kernels if bundle.has_model(kernel.name)],
        "binaries": bundle.binary_keys(),
    }


def _listing(bundle: Bundle) -> list[str]:
    from whet.cli.output import Column, bytes_text, columns, count_text, fields, page, table
    from whet.store.bundle_format import printable

    manifest, counts = bundle.manifest, _counts(bundle.manifest)
    parts = [count_text(number, noun) for noun, number in counts.items() if number]
    about = {
        "holds": ", ".join(parts) or "nothing",
        "size": f"{bytes_text(bundle.path.stat().st_size)}, {bytes_text(manifest.bytes)} unpacked",
        "packed": f"{manifest.created} by whet {manifest.whet}"
        + (", only what was chosen" if manifest.best_only else ""),
        "devices": ["; ".join(value for value in one.values() if value) for one in manifest.devices]
        or "none",
        "tools": [
            printable(", ".join(f"{name} {version}" for name, version in one.items()))
            for one in manifest.toolchains
        ]
        or "none",
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
