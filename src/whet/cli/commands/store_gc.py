"""`whet store gc`: what may go."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Annotated

from whet.cli.arguments.options import StoreOption, option
from whet.cli.arguments.reading import NothingKnownError, chosen, open_known
from whet.cli.commands.store import counts_text
from whet.cli.terminal.output import bytes_text, page, print_lines, wrap
from whet.core.errors import UsageError, did_you_mean
from whet.store.matching import built_with, current, matches, versions

if TYPE_CHECKING:
    from whet.store import GcReport, StoreReader

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def gc(
    older_than: Annotated[
        str | None, option("--older-than AGE", "Workloads not tuned for this long: 12h, 30d, 8w.")
    ] = None,
    superseded: Annotated[
        bool, option("--superseded", "Trials replaced by a later trial of the same config.")
    ] = False,
    kernel: Annotated[
        str | None, option("--kernel NAME", "Only this kernel; without other criteria, all of it.")
    ] = None,
    max_size: Annotated[
        str | None,
        option(
            "--max-size SIZE",
            "Remove superseded trials, then the workloads tuned longest ago, until the "
            "store fits: 500M, 2G.",
        ),
    ] = None,
    toolchain: Annotated[
        list[str] | None,
        option("--toolchain TOOL=VERSION", "Only results built with this version: triton=3.5."),
    ] = None,
    other_toolchains: Annotated[
        bool,
        option(
            "--other-toolchains",
            "Only results from versions that are neither installed here nor the newest.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, option("--dry-run", "Show what would be removed, and remove nothing.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Remove results.

    --kernel, --toolchain and --other-toolchains limit what the other options remove. Used alone,
    they remove everything that matches.

    Examples:
      whet store gc --older-than 90d --dry-run   show what would be removed
      whet store gc --superseded                 results replaced by newer ones
      whet store gc --kernel matmul              everything about one kernel
      whet store gc --max-size 500M              the oldest, until the rest fits
      whet store gc --toolchain triton=3.5       results built with this version
      whet store gc --other-toolchains           results from old versions only
    """
    if not (older_than or superseded or kernel or max_size or toolchain or other_toolchains):
        raise UsageError(
            "say what to remove: --older-than AGE, --superseded, --kernel NAME, --max-size "
            "SIZE, --toolchain TOOL=VERSION or --other-toolchains"
        )
    age = None if older_than is None else _seconds(older_than)
    size = None if max_size is None else _bytes(max_size)
    try:
        with open_known(store, read_only=dry_run, bundle=False) as opened:
            ids, said = None, list[str]()
            if toolchain or other_toolchains:
                ids, said = of_toolchains(opened, toolchain or [], other_toolchains)
            # By the column first: where rows are damaged, only the others can be asked for names.
            if kernel is not None and not opened.gc(kernel=kernel, dry_run=True).workloads:
                meant = {one.workload.id: one.workload.kernel for one in chosen(opened, kernel)}
                if kernel not in meant.values():  # another name of it, or one file's alone
                    ids = [id for id in meant if ids is None or id in ids]
                    kernel = None
            report = opened.gc(
                older_than_s=age,
                superseded=superseded,
                kernel=kernel,
                workloads=ids,
                max_bytes=size,
                dry_run=dry_run,
            )
    except NothingKnownError as nothing:
        print(nothing)
        return
    print_lines([*swept(report), *said])
    if size is not None and report.bytes_left > size and not dry_run:
        print(f"the store is still larger than {max_size}: nothing else can be removed")


def swept(report: GcReport) -> list[str]:
    counts = counts_text(report.workloads, report.trials, report.runs)
    verb = "would remove" if report.dry_run else "removed"
    lines = [f"{verb} {counts} ({bytes_text(report.bytes_freed)})"]
    if report.kernels:
        kernels = ", ".join(f"{n:,} of {kernel}" for kernel, n in report.kernels.items())
        lines += wrap(f"workloads: {kernels}", page(), indent=2)
    return lines


_COMPILER = re.compile(r"(?:[a-z0-9_]+-)*(?:cc|gcc|clang|icx|tcc)(?:-[0-9.]+)?")


def of_toolchains(
    store: StoreReader, named: list[str], others: bool
) -> tuple[list[str], list[str]]:
    """The ids of the workloads that were built with what is named, or with what is outdated; and
    a line for each tool that says which versions those are."""
    workloads = [one.workload for one in store.workloads()]
    known = versions(workloads)
    wanted = [_tool(text, known) for text in named]
    kept = current(known, installed(known)) if others else known
    chosen = {
        tool: [
            version
            for version in some
            if version not in kept[tool]
            or any(tool == other and matches(version, text) for other, text in wanted)
        ]
        for tool, some in known.items()
    }
    said = [
        line
        for tool, some in chosen.items()
        if some
        for line in wrap(f"built with {tool} {', '.join(some)}", page(), indent=2)
    ]
    return [workload.id for workload in workloads if built_with(workload, chosen)], said


def _tool(text: str, known: Mapping[str, object]) -> tuple[str, str]:
    tool, equals, version = (part.strip() for part in text.partition("="))
    if not equals or not tool or not version:
        raise UsageError(f"--toolchain '{text}' is not valid; use TOOL=VERSION, such as triton=3.5")
    if known and tool not in known:
        raise UsageError(f"no result was built with '{tool}'{did_you_mean(tool, known)}")
    return tool, version


def installed(tools: Iterable[str]) -> dict[str, str]:
    """Those of the tools that are here, with their versions; nothing heavy is imported."""
    found = {tool: _version(tool) for tool in tools}
    return {tool: version for tool, version in found.items() if version is not None}


def _version(tool: str) -> str | None:
    if tool == "python":
        return platform.python_version()
    if _COMPILER.fullmatch(tool):
        from whet.targets.native.compile import compiler_version

        return compiler_version(tool)
    try:
        return metadata.version(tool)
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _seconds(age: str) -> float:
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*([smhdw])", age.strip().lower())
    if match is None:
        raise UsageError(f"--older-than '{age}' is not valid; use an age, such as 12h, 30d or 8w")
    return float(match[1]) * _UNITS[match[2]]


def _bytes(size: str) -> int:
    match = re.fullmatch(r"(\d{1,18}(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", size.strip().upper())
    if match is None:
        raise UsageError(f"--max-size '{size}' is not valid; use a size, such as 500M or 2G")
    return int(float(match[1]) * _SIZES[match[2]])
