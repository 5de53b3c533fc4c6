"""`whet verify`: measures stored picks again, and says which no longer hold."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.inputs import InputsOption, with_inputs
from whet.cli.arguments.missed import RootOption
from whet.cli.arguments.options import (
    CudaGraphOption,
    JsonOption,
    L2BytesOption,
    L2Option,
    QuietOption,
    StoreOption,
    resolved,
)
from whet.cli.arguments.verifying import Asked, checked, nothing_stored
from whet.cli.text.verified import Checked
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.store import Store
    from whet.targets.triton.offline.kernel import Kernel

EXAMPLES = """\b
Examples:
  whet verify kernel.py:blur                  measure the pick of 'blur' again
  whet verify kernel.py:blur kernel.py:mm     several tunables
  whet verify kernel.py:mm --key M=64,N=64    one key of a Triton kernel
  whet verify kernel.py:blur --fail-over 5%   exit with 1 if over 5 % slower
  whet verify kernel.py:blur --record         store the new measurements
  whet verify --missed                        every key that was recorded
"""


def verify(
    tunables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE.py:NAME",
            help="What to verify, named as for 'whet tune'.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="M=64,N=32",
            help="A key to verify, passed to the kernel's inputs= (default: every stored key of "
            "this device).",
        ),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option("--keys", metavar="FILE.json", help="A JSON file with a list of such keys."),
    ] = None,
    inputs: InputsOption = None,
    missed: Annotated[
        bool,
        typer.Option(
            "--missed",
            help="Verify the keys recorded by mode 'record', with arguments made from the record: "
            "all, or those of FILE.py:NAME.",
        ),
    ] = False,
    root: RootOption = None,
    fail_over: Annotated[
        str,
        typer.Option(
            "--fail-over",
            metavar="PERCENT",
            help="How much slower than stored counts as a failure.",
        ),
    ] = "3%",
    record: Annotated[
        bool,
        typer.Option("--record", help="Store the new measurements; without it nothing is written."),
    ] = False,
    store: StoreOption = None,
    l2: L2Option = None,
    l2_bytes: L2BytesOption = None,
    cuda_graph: CudaGraphOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure stored picks again on this machine.

    Each pick is built and measured side by side with the author's first config, and compared with
    the stored timings. A Triton kernel without inputs= is measured with the arguments of its
    recorded calls, if there are any. Exits with 1 if a pick is slower than --fail-over allows
    (at 95 % confidence) or no longer works.
    """
    from whet.cli.arguments.missed import recorded_files
    from whet.cli.arguments.reading import NothingKnownError, open_known
    from whet.cli.arguments.sources import place_of
    from whet.cli.commands.tune_keys import flags_in_environment, read_keys
    from whet.cli.commands.verify_missed import RECORDING, recorded
    from whet.cli.terminal.output import print_json, print_lines
    from whet.cli.text.verify import as_json, report

    flags = {
        "store": store,
        "l2": l2,
        "l2_bytes": l2_bytes,
        "cuda_graph": "yes" if cuda_graph else None,
    }
    limit, given = _share(fail_over), read_keys(key or (), keys)
    if not tunables and not missed:
        raise UsageError("missing argument 'FILE.py:NAME' or --missed (see whet verify --help)")
    if missed and given:
        raise UsageError("--missed has its own keys; omit --key and --keys")
    settings = resolved(**flags).settings
    with open_known(store, read_only=not record) as opened, flags_in_environment(flags):
        given_flags = tuple(name for name, value in flags.items() if value)
        asked = Asked(opened, settings, limit, record, quiet, inputs, given_flags)
        with redirect_stdout(sys.stderr):  # the files' own prints are not our result
            if missed:
                files = recorded_files(root)
                texts = tunables or (None,)
                found = [one for text in texts for one in recorded(text, asked, files)]
            else:
                places = [place_of(text, "verify", opened) for text in tunables or ()]
                found = [one for text in places for one in _verified(text, given, asked)]
        place = opened.location
    if json:
        print_json(as_json(found, limit))
    done = [one.done for one in found if one.done is not None]
    if not done and not found:
        raise NothingKnownError(f"no recorded calls in {place}; record some: {RECORDING}", place)
    if not done:
        more = f" (and {len(found) - 1} more keys)" if len(found) > 1 else ""
        raise NothingKnownError(f"{found[0].what}: {found[0].why}{more}", place)
    if not json:
        print_lines(report(found, limit))
    if any(one.failed for one in done):
        raise typer.Exit(1)


def _share(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text.strip())
    if match is None:
        raise UsageError(f"--fail-over '{text}' is not valid; use a percentage, such as 3%")
    return float(match[1]) / 100


def _verified(text: str, keys: Sequence[Mapping[str, Any]], asked: Asked) -> list[Checked]:
    from whet.cli.arguments.locate import locate
    from whet.engine.target import Target

    target = with_inputs(locate(text), asked.inputs)
    if not isinstance(target, Target):
        found = _of_kernel(target, text, keys, asked.of_kernel(target.tuner))
    elif keys:
        raise UsageError(f"'{target.name}' takes no --key: only Triton kernels have keys")
    else:
        found = [checked(target, text, asked)]
    return [*found, *_left_out(found, asked.store)]


def _of_kernel(
    kernel: Kernel, text: str, keys: Sequence[Mapping[str, Any]], asked: Asked
) -> list[Checked]:
    from whet.cli.arguments.locate import file_of
    from whet.cli.arguments.missed import LocatedMiss
    from whet.cli.commands.verify_missed import checked_call
    from whet.targets.triton.offline.kernel import check_key
    from whet.targets.triton.offline.tuning import check_ready, keys_for_inputs

    if kernel.tuner.whet_inputs is None and not keys:
        calls = asked.store.missed(kernel.name, tuned=True)
        if calls:
            return [checked_call(LocatedMiss(one, kernel, file_of(text)), asked) for one in calls]
    check_ready(kernel, keys[0] if keys else None)
    for key in keys:
        check_key(kernel, key)
    known = [one.workload for one in asked.store.workloads(kernel.name)]
    wanted = keys or keys_for_inputs(kernel, known)
    if not wanted:
        return [Checked(text, None, nothing_stored(f"whet tune {text}"))]
    return [_of_key(kernel, text, key, asked) for key in wanted]


def _of_key(kernel: Kernel, text: str, key: Mapping[str, Any], asked: Asked) -> Checked:
    from whet.cli.arguments.locate import file_of
    from whet.core.errors import WhetError
    from whet.targets.files import guarded
    from whet.targets.triton.offline.kernel import key_text, make_inputs
    from whet.targets.triton.offline.tuning import with_target

    named = f"{text} --key {key_text(key)}" if key else text
    grid, args, keywords = guarded(file_of(asked.inputs or text), lambda: make_inputs(kernel, key))
    try:
        return with_target(kernel, grid, args, keywords, lambda one: checked(one, named, asked))
    except WhetError as error:
        return Checked(named, None, str(error))


def _left_out(found: Sequence[Checked], store: Store) -> list[Checked]:
    """What else is stored of the same kernel for this device, under other keys."""
    done = [one.done for one in found if one.done is not None]
    if not done:
        return []
    here = done[0].workload
    seen = {one.workload.key for one in done}
    others = {
        one.workload.key: one.workload
        for one in store.workloads(here.kernel)
        if one.workload.device.name == here.device.name and one.best is not None
    }
    return [
        Checked(str(other), None, "stored, but not requested")
        for key, other in others.items()
        if key not in seen
    ]
