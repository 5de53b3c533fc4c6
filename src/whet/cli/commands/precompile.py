"""`whet precompile`: compiles a Triton kernel on a machine that has no GPU."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.locate import InputsOption, file_of, locate, with_inputs
from whet.cli.arguments.missed import (
    MissLocator,
    RootOption,
    left_lines,
    making_again,
    recorded_files,
    recorders,
)
from whet.cli.arguments.options import (
    JobsOption,
    JsonOption,
    QuietOption,
    StoreOption,
    argument,
    option,
    read_keys,
    resolved,
)
from whet.cli.arguments.reading import problem_text
from whet.cli.terminal.output import (
    Column,
    bytes_text,
    columns,
    first_line,
    flexible,
    page,
    print_json,
    print_lines,
    right,
    say,
    seconds_text,
    table,
    told_by_values,
    wrap,
)
from whet.core.errors import UsageError, WhetError, did_you_mean
from whet.core.status import Status
from whet.core.workload import Workload
from whet.engine.target import Target
from whet.store import open_if_there
from whet.targets.files import guarded, imported_anew

if TYPE_CHECKING:
    from whet.cli.arguments.missed import LocatedMiss
    from whet.core.miss import Miss
    from whet.store import Store
    from whet.targets.files import RecordedFiles
    from whet.targets.triton.offline.kernel import Kernel
    from whet.targets.triton.offline.precompile import Made, Order
    from whet.targets.triton.packed.architectures import Architecture

WHICH = ("space", "stored", "pick")


def precompile(
    kernel: Annotated[
        str | None,
        argument(
            "FILE.py:KERNEL",
            "A Triton kernel with whet.autotune(…, inputs=…), or any with --inputs or --missed.",
        ),
    ] = None,
    arch: Annotated[
        list[str] | None,
        option(
            "--arch h100,gfx942",
            "GPUs to compile for: a name such as h100 or mi300x, or an architecture such "
            "as sm_90 or gfx942 (repeatable).",
        ),
    ] = None,
    keys: Annotated[
        list[str] | None,
        option(
            "--keys --key M=64,N=32",
            "A key to compile for, passed to inputs=, or a JSON file with a list of keys "
            "(repeatable).",
        ),
    ] = None,
    inputs: InputsOption = None,
    missed: Annotated[
        bool,
        option(
            "--missed",
            "Compile for the calls recorded by mode 'record': all, or those of "
            "FILE.py:KERNEL. --arch defaults to the GPUs they were recorded on.",
        ),
    ] = False,
    root: RootOption = None,
    configs: Annotated[
        str,
        option(
            f"--configs {'|'.join(WHICH)}",
            "Compile all configs, those measured in the store, or the one that would be used.",
        ),
    ] = "space",
    out: Annotated[
        str | None, option("--out DIR", "Output directory (default: the setting binaries).")
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

    Examples:
      whet precompile kernel.py:mm --arch h100 --keys M=512,N=512
      whet precompile kernel.py:mm --arch a100,mi300x --keys M=64 --keys M=512
      whet precompile kernel.py:mm --arch sm_90 --keys keys.json --configs pick
      whet precompile kernel.py:mm --arch sm_90 --keys M=512 --out packed
      whet precompile lib.py:k --arch h100 --keys M=512 --inputs mine.py:inputs
      whet precompile --missed --out packed  recorded keys, for the GPUs they met
      WHET_BINARIES=packed python serve.py   on the machine with the GPU
    """
    from whet.targets.triton.packed.binary_cache import FolderCache

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
        ordered, jobs=settings.jobs, limit_s=settings.build_limit_s, cache=cache, on_made=on_made
    )


def architectures_of(arch: Sequence[str]) -> list[Architecture]:
    """What `--arch` names; empty where it was not given."""
    from whet.targets.triton.packed.architectures import architectures

    found = architectures(name for given in arch for name in given.split(",") if name.strip())
    for one in found:
        if one.doubt:
            say(f"whet: note: {one.doubt}")
    return found


def ordered_missed(
    tunable: str | None,
    inputs: str | None,
    given: Sequence[Architecture],
    which: Any,
    store: str | None,
    files: RecordedFiles,
) -> tuple[str, list[Order], list[NotCompiled]]:
    """The name of what is compiled, the orders, and the keys without any. All kernels are loaded
    once for each architecture, since their configs may depend on what they find."""
    from whet.targets.triton.offline.tuning import check_compiles

    check_compiles()
    found: dict[tuple[str, str], Order] = {}
    left: dict[str, NotCompiled] = {}
    with open_if_there(store, direct=True) as opened:
        misses = opened.missed(tuned=True)
        if not misses:
            raise UsageError(
                f"no recorded calls in {opened.location}; record some: whet run --record SCRIPT.py"
            )
        for architecture, several in _by_architecture(misses, given).items():
            for order, why in _orders(tunable, inputs, architecture, several, which, opened, files):
                if why is not None:
                    left.setdefault(why.workload.id, why)
                elif order is not None:
                    known = found.setdefault((order.kernel, order.identity), order)
                    keys = dict.fromkeys(map(_hashable, (*known.keys, *order.keys)))
                    found[order.kernel, order.identity] = replace(
                        known, keys=tuple(map(dict, keys))
                    )
    kernels = {order.kernel for order in found.values()}
    return (
        ", ".join(sorted(kernels)) or "the recorded calls",
        list(found.values()),
        [*left.values()],
    )


def _hashable(key: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(key.items())


def _by_architecture(
    misses: Sequence[Miss], given: Sequence[Architecture]
) -> dict[Architecture, list[Miss]]:
    from whet.targets.triton.packed.architectures import architecture

    if given:
        return {one: list(misses) for one in given}
    found: dict[Architecture, list[Miss]] = {}
    for miss in misses:
        found.setdefault(architecture(miss.workload.device.architecture), []).append(miss)
    return found


def _orders(
    tunable: str | None,
    inputs: str | None,
    architecture: Architecture,
    misses: Sequence[Miss],
    which: Any,
    store: Store,
    files: RecordedFiles,
) -> list[tuple[Order | None, NotCompiled | None]]:
    from whet.targets.triton.offline.precompile import loading

    locator = MissLocator(tunable, inputs, "precompile", files, recorders(store))
    done: list[tuple[Order | None, NotCompiled | None]] = []
    with imported_anew():
        with loading(architecture):
            located = [locator.locate(miss) for miss in locator.named(misses)]
        for one in located:
            try:
                done += [(order, None) for order in _of_call(one, architecture, which, store)]
            except WhetError as error:
                done.append((None, NotCompiled(one.miss.workload, str(error))))
    return done


def _of_call(one: LocatedMiss, architecture: Architecture, which: Any, store: Store) -> list[Order]:
    from whet.targets.triton.offline.precompile import orders

    found = one.found
    if found is None:
        raise UsageError(one.why)
    if isinstance(found, Target):
        raise UsageError("it is not a Triton kernel; only Triton kernels can be precompiled")
    with making_again(found, one.miss, without_memory=True) as key:
        made = guarded(one.path, lambda: orders(found, [architecture], [key], which, store))
    shown = {name: value for name, value in one.miss.workload.key.items() if "." not in name}
    return [replace(order, keys=(shown,), kernel=found.name) for order in made]


_NUMBER = re.compile(r"\d+")
UNITS = (
    "shared: memory per block; regs: 32-bit registers per thread; spilled: bytes per thread; "
    "occ.: resident warps out of the maximum of a multiprocessor"
)


@dataclass(frozen=True)
class NotCompiled:
    """A recorded key that nothing was compiled for, and why."""

    workload: Workload
    why: str


def as_json(
    kernel: str, made: Sequence[Made], folder: str | None, left: Sequence[NotCompiled] = ()
) -> dict[str, Any]:
    return {
        "v": 1,
        "kernel": kernel,
        "out": folder,
        "builds": [_row_json(one) for one in made],
        **(
            {"left": [{"key": problem_text(o.workload), "why": o.why} for o in left]}
            if left
            else {}
        ),
    }


def _row_json(one: Made) -> dict[str, Any]:
    return {
        **({"kernel": one.order.kernel} if one.order.kernel else {}),
        "architecture": one.order.architecture.name,
        "gpus": list(one.order.architecture.products),
        "config": dict(one.order.config),
        "keys": [dict(key) for key in one.order.keys],
        "why": one.order.why,
        "status": one.status.value,
        "error": one.error,
        "resources": None if one.resources is None else asdict(one.resources),
        "binary_bytes": one.binary_bytes,
        "portable_key": one.portable or None,
        "was_there": one.was_there,
        "seconds": round(one.seconds, 3),
    }


def made_table(made: Sequence[Made], width: int) -> list[str]:
    """One line a binary, below what all of them share, and what the columns count."""
    shown = [one for one in made if one.resources is not None]
    if not shown:
        return []
    alike = len({tuple(one.order.config) for one in shown}) == 1
    by_gpu = groupby(
        shown, lambda one: (one.order.kernel, "" if alike else one.order.architecture.name)
    )
    lines = [line for _, group in by_gpu for line in [*_table(list(group), width), ""]]
    return [*lines, *wrap(UNITS, width)]


def _table(shown: Sequence[Made], width: int) -> list[str]:
    keys = [_keys_text(one.order.keys) for one in shown]
    one_key = len(set(keys)) == 1
    labels = [one.order.architecture.label for one in shown]
    by, configs = told_by_values(
        [one.order.config for one in shown], width - 45 - max(map(len, labels))
    )
    kernel = [shown[0].order.kernel] if shown[0].order.kernel else []
    title = ", ".join([*kernel, *([f"for {keys[0]}"] if one_key else []), *([by] if by else [])])
    layout = [
        Column("arch"),
        *([] if one_key else [flexible("key")]),
        flexible("config"),
        *(right(title) for title in ("shared", "regs", "spilled", "occ.", "built")),
    ]
    rows = [
        (label, *([] if one_key else [key]), config, *_used(one))
        for one, label, key, config in zip(shown, labels, keys, configs, strict=True)
    ]
    above = [*wrap(title, width, indent=2), ""] if title else []
    return [*above, *table(layout, rows, width)]


def _used(one: Made) -> tuple[str, ...]:
    from whet.targets.triton.packed.architectures import REGISTER_BYTES

    used = one.resources
    assert used is not None
    return (
        bytes_text(used.shared_bytes),
        "–" if used.registers is None else str(used.registers),
        "–" if used.spills is None else bytes_text(REGISTER_BYTES * used.spills),
        "–" if used.occupancy is None else f"{used.occupancy:.0%}",
        "there" if one.was_there else seconds_text(one.seconds),
    )


def _keys_text(keys: Sequence[Mapping[str, Any]]) -> str:
    from whet.targets.triton.offline.kernel import key_text

    more = f" (+{len(keys) - 1})" if len(keys) > 1 else ""
    return f"{key_text(keys[0])}{more}"


def closing_lines(
    made: Sequence[Made], folder: str | None, left: Sequence[NotCompiled] = ()
) -> list[str]:
    """Why some were chosen or could not be made, how many came of it, and how to use them."""
    remarks = dict.fromkeys([*_notes(made), *_refusals(made)])
    lines = [line for remark in remarks for line in wrap(remark, page(), 2)]
    refused = left_lines([(one.workload, one.why) for one in left], page())
    lines += [*(["not compiled:"] if refused else []), *refused]
    built = [one for one in made if one.resources is not None]
    lines.append(f"{len(built)} of {len(made)} compiled")
    packed = {one.portable: one.binary_bytes for one in built if one.portable}
    if folder is None:
        lines.append("nothing was written; use --out DIR to keep the binaries")
    elif packed:
        size = bytes_text(sum(packed.values()))
        lines.append(f"{size} in {folder}; use them with WHET_BINARIES={folder}")
    return lines


def _notes(made: Sequence[Made]) -> list[str]:
    notes = []
    for one in made:
        where = f"{one.order.architecture.label} [{one.order.config}]"
        if one.order.why:
            notes.append(f"{where} is {one.order.why}")
        if one.resources is not None and one.error:
            notes.append(f"{where} {one.error}")
    return notes


def _refusals(made: Sequence[Made]) -> list[str]:
    """Those that were not compiled for reasons which differ in numbers at most are one."""
    from whet.targets.triton.call import out_of_resources

    alike: dict[tuple[str, str, str], list[Made]] = {}
    for one in made:
        if one.resources is None:
            refusal: Any = out_of_resources(one.error)
            verdict = "refused" if one.status is Status.RESOURCES else "failed"
            what = _NUMBER.sub("", first_line(one.error)) if refusal is None else refusal.name
            alike.setdefault((one.order.architecture.label, verdict, what), []).append(one)
    return [_refusal_text(label, verdict, of) for (label, verdict, _), of in alike.items()]


def _refusal_text(label: str, verdict: str, made: Sequence[Made]) -> str:
    from whet.targets.triton.call import out_of_resources

    one = f"[{made[0].order.config}]"
    who, first = (one, "") if len(made) == 1 else (f"{len(made)} configs", f", the first {one}")
    refusals: list[Any] = [out_of_resources(each.error) for each in made]
    if refusals[0] is None:
        return f"{label} {who} {verdict}{first}: {first_line(made[0].error)}"
    what, limit = refusals[0].name, refusals[0].limit
    shown = bytes_text if what == "shared memory" else str
    least, most = (shown(pick(each.required for each in refusals)) for pick in (min, max))
    needs = least if least == most else f"{least} to {most}"
    return f"{label} {who} rejected{first}: needs {needs} of {what}, limit {shown(limit)}"
