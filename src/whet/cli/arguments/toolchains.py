"""Which workloads a choice of tools means, and what tools this machine has."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from importlib import metadata

from whet.cli.terminal.output import page, wrap
from whet.core.errors import UsageError, did_you_mean
from whet.store import StoreReader
from whet.store.toolchains import built_with, current, matches, versions

# A store may come from anybody: only programs of these names are asked for their version.
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
