"""`whet precompile`: compiles a Triton kernel on a machine that has no GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.inputs import InputsOption
from whet.cli.arguments.missed import RootOption
from whet.cli.arguments.options import JobsOption, JsonOption, QuietOption, StoreOption, resolved
from whet.core.errors import UsageError, WhetError, did_you_mean

if TYPE_CHECKING:
    from whet.targets.triton.offline.kernel import Kernel
    from whet.targets.triton.offline.precompile import Made, Order
    from whet.targets.triton.packed.architectures import Architecture

EXAMPLES = """\b
Examples:
  whet precompile kernel.py:mm --arch h100 --keys M=512,N=512
  whet precompile kernel.py:mm --arch a100,mi300x --keys M=64 --keys M=512
  whet precompile kernel.py:mm --arch sm_90 --keys keys.json --configs pick
  whet precompile kernel.py:mm --arch sm_90 --keys M=512 --out packed
  whet precompile lib.py:k --arch h100 --keys M=512 --inputs mine.py:inputs
  whet precompile --missed --out packed  recorded keys, for the GPUs they met
  WHET_BINARIES=packed python serve.py   on the machine with the GPU
"""

WHICH = ("space", "stored", "pick")


def precompile(
    kernel: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE.py:KERNEL",
            help="A Triton kernel with whet.autotune(…, inputs=…), or any with --inputs or "
            "--missed.",
            show_default=False,
        ),
    ] = None,
    arch: Annotated[
        list[str] | None,
        typer.Option(
            "--arch",
            metavar="h100,gfx942",
            help="GPUs to compile for: a name such as h100 or mi300x, or an architecture such "
            "as sm_90 or gfx942 (repeatable).",
        ),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--keys",
            "--key",
            metavar="M=64,N=32",
            help="A key to compile for, passed to inputs=, or a JSON file with a list of keys "
            "(repeatable).",
        ),
    ] = None,
    inputs: InputsOption = None,
    missed: Annotated[
        bool,
        typer.Option(
            "--missed",
            help="Compile for the calls recorded by mode 'record': all, or those of "
            "FILE.py:KERNEL. --arch defaults to the GPUs they were recorded on.",
        ),
    ] = False,
    root: RootOption = None,
    configs: Annotated[
        str,
        typer.Option(
            "--configs",
            metavar="|".join(WHICH),
            help="Compile all configs, those measured in the store, or the one that would be used.",
        ),
    ] = "space",
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="DIR", help="Output directory (default: the setting binaries)."
        ),
    ] = None,
    jobs: JobsOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compile a Triton kernel for GPUs, without needing one.

    Shows the resources each config uses on each GPU. With --out, the binaries are written to a
    directory; a process with WHET_BINARIES set to it loads them instead of compiling. Both sides
    need the same version of Triton.
    """
    from whet.cli.arguments.missed import recorded_files
    from whet.cli.commands.precompile_missed import architectures_of, ordered_missed
    from whet.cli.terminal.output import columns, print_json, print_lines
    from whet.cli.text.precompile import as_json, closing_lines, made_table
    from whet.targets.triton.packed.portable import FolderCache

    settings = resolved(jobs=jobs, store=store, binaries=out).settings
    if configs not in WHICH:
        raise UsageError(f"--configs {configs} is not valid{did_you_mean(configs, WHICH)}")
    cache = None if settings.binaries is None else FolderCache(settings.binaries)
    with redirect_stdout(sys.stderr):  # the file's own prints are not our result
        found = architectures_of(arch or ())
        if missed:
            if keys:
                raise UsageError("--missed has its own keys; omit --keys")
            files = recorded_files(root)
            name, ordered, left = ordered_missed(
                kernel, inputs, found, configs, settings.store, files
            )
        elif kernel is None:
            raise UsageError("missing argument 'FILE.py:KERNEL' or --missed")
        elif not found:
            raise UsageError(
                "--arch is required; name the GPUs to compile for, such as h100, sm_90 or gfx942"
            )
        else:
            name, ordered = _ordered(kernel, found, keys or (), inputs, configs, settings.store)
            left = []
        made = _compiled(ordered, settings, cache, quiet=quiet)
    folder = None if cache is None else str(cache.path)
    if json:
        print_json(as_json(name, made, folder, left))
    else:
        print_lines([*made_table(made, columns()), "", *closing_lines(made, folder, left)])
    if not any(one.resources for one in made):
        raise WhetError(f"no config of '{name}' could be compiled")
    if left:
        raise typer.Exit(1)


def _ordered(
    text: str,
    architectures: Sequence[Architecture],
    typed: Sequence[str],
    inputs: str | None,
    which: Any,
    store: str | None,
) -> tuple[str, list[Order]]:
    """The kernel's name, and what is to be compiled of it. The file is run once for every
    architecture, since its configs may depend on what it finds."""
    from whet.cli.arguments.locate import file_of
    from whet.store import open_if_there
    from whet.targets.files import guarded
    from whet.targets.triton.offline.precompile import orders
    from whet.targets.triton.offline.tuning import check_compiles

    check_compiles()
    keys = _keys(typed) or [{}]
    ordered: list[Order] = []
    with open_if_there(store, direct=True) as opened:
        for one in architectures:
            kernel = _located(text, one, keys, inputs)
            order = partial(orders, kernel, [one], keys, which, opened)
            ordered += guarded(file_of(inputs or text), order)
    return kernel.name, ordered


def _located(
    text: str, architecture: Architecture, keys: Sequence[Mapping[str, Any]], inputs: str | None
) -> Kernel:
    from whet.cli.arguments.inputs import with_inputs
    from whet.cli.arguments.locate import locate
    from whet.engine.target import Target
    from whet.targets.triton.offline.kernel import check_inputs, check_key
    from whet.targets.triton.offline.precompile import loading

    with loading(architecture):
        kernel = with_inputs(locate(text, as_far_as_it_goes=True), inputs)
    if isinstance(kernel, Target):
        raise UsageError(
            f"'{kernel.name}' is not a Triton kernel; only Triton kernels can be precompiled"
        )
    check_inputs(kernel)
    for key in keys:
        check_key(kernel, key)
    return kernel


def _keys(typed: Sequence[str]) -> list[dict[str, Any]]:
    """Typed keys and files of keys, in the order in which they were given."""
    from whet.cli.commands.tune_keys import read_keys

    keys: list[dict[str, Any]] = []
    for text in typed:
        is_file = "=" not in text or os.path.isfile(text)
        keys += read_keys([], text) if is_file else read_keys([text], None)
    return keys


def _compiled(ordered: Sequence[Order], settings: Any, cache: Any, *, quiet: bool) -> list[Made]:
    from whet.targets.triton.offline.precompile import precompile as compile_all

    done = 0
    shown = not quiet and sys.stderr.isatty()

    def on_made(made: Made) -> None:
        nonlocal done
        done += 1
        if shown:
            end = "\n" if done == len(ordered) else "\r"
            print(f"{done} of {len(ordered)} compiled", end=end, file=sys.stderr, flush=True)

    return compile_all(
        ordered,
        jobs=settings.jobs,
        limit_s=settings.build_limit_s,
        cache=cache,
        on_made=on_made,
    )
