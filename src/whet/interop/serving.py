"""What the files of serving engines have in common: one config for each number of tokens, M.

    {
        "16": {
            "BLOCK_SIZE_M": 16,
            …

The engine takes the entry whose M is nearest to the batch at hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.core.config import Config
from whet.core.errors import SpaceError, UsageError
from whet.core.frozen import FrozenMap
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.interop.files import FormatError, ReadOptions, read_object, written_at
from whet.interop.findings import Finding, Tried, is_foreign

Pick = tuple[Workload, Trial]

PARAMETERS = (
    "BLOCK_SIZE_M",
    "BLOCK_SIZE_N",
    "BLOCK_SIZE_K",
    "GROUP_SIZE_M",
    "num_warps",
    "num_stages",
)
OPTIONS = ("num_warps", "num_stages")
# What kernels elsewhere call them.
_ALIASES = {
    f"BLOCK_SIZE_{axis}": (f"BLOCK_{axis}", f"B{axis}", f"block_size_{axis.lower()}")
    for axis in "MNK"
} | {"GROUP_SIZE_M": ("GROUP_M", "GM", "group_size_m")}

# How the engines name what is quantised. Any other dtype has no part in a file's name.
_DTYPES = re.compile(r"(?:mx)?(?:fp|int)\d+_w\d+a\d+|float32")


@dataclass(frozen=True)
class Layout:
    """How a kernel's key and parameters read in a file.

    `keys` says which name of the key is M, N, K or E, and `fixed` has values that are not in the
    key or are to be others there. `parameters` are the names of a kernel's own that stand for
    `BLOCK_SIZE_M` and the like. What is None is taken from the key where it is there.
    """

    keys: FrozenMap[str] = field(default_factory=FrozenMap)
    fixed: FrozenMap[Any] = field(default_factory=FrozenMap)
    parameters: FrozenMap[str] = field(default_factory=FrozenMap)
    dtype: str | None = None
    block_shape: tuple[int, int] | None = None
    per_channel_quant: bool = False
    down: bool = False
    triton: str | None = None

    def size(self, workload: Workload, name: str) -> int:
        """M, N, K or E of a workload."""
        at = self.keys.get(name, name)
        value = self.fixed.get(name, workload.key.get(at))
        if value is None:
            have = ", ".join(workload.key) or "nothing"
            raise UsageError(
                f"the key of {workload} has no {name} (it has {have}); give "
                f"--{name.lower()}-key NAME or --extra {name}=NUMBER"
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{name} of {workload} is {value!r}, not a positive whole number")
        return value

    def dtype_of(self, workload: Workload) -> str:
        """As it stands in a file's name; empty for what is not quantised."""
        if self.dtype is not None:
            return checked_part(self.dtype, "--dtype")
        value = workload.key.get("dtype")
        return value if isinstance(value, str) and _DTYPES.fullmatch(value) else ""

    def block_shape_of(self, workload: Workload) -> tuple[int, int] | None:
        if self.block_shape is not None:
            return self.block_shape
        value = workload.key.get("block_shape")
        if isinstance(value, tuple) and len(value) == 2 and all(type(n) is int for n in value):
            return value
        return None

    def flag(self, workload: Workload, name: str) -> bool:
        return bool(getattr(self, name)) or workload.key.get(name) is True

    def triton_of(self, workload: Workload) -> str | None:
        version = self.triton or workload.toolchain.get("triton")
        return None if version is None else checked_part(version, "the version of Triton")


def checked_part(text: str, what: str) -> str:
    """A part of a file's name that cannot lead anywhere else."""
    if re.search(r"[/\\\x00-\x1f\x7f]", text) or text in (".", ".."):
        raise UsageError(f"{what} is {text!r}, which cannot be part of a file name")
    return text


def by_name(
    picks: Sequence[Pick],
    name: Callable[[Workload], str],
    layout: Layout,
    extras: Sequence[str],
) -> dict[str, dict[int, dict[str, Any]]]:
    """The entries of each file. Two workloads that would be one entry are refused."""
    files: dict[str, dict[int, dict[str, Any]]] = {}
    owners: dict[tuple[str, int], Workload] = {}
    for workload, trial in picks:
        file, m = name(workload), layout.size(workload, "M")
        other = owners.setdefault((file, m), workload)
        if other is not workload:
            raise UsageError(
                f"{other} and {workload} both map to entry {m} of {file}; choose one with "
                "--where NAME=VALUE"
            )
        files.setdefault(file, {})[m] = _entry(workload, trial.config, layout, extras)
    return files


def _entry(
    workload: Workload, config: Config, layout: Layout, extras: Sequence[str]
) -> dict[str, Any]:
    left = dict(config)
    # Some of their own files leave out what the kernel has a default for.
    shown = [one for one in PARAMETERS if not (is_foreign(workload) and _may_lack(one, config))]
    entry = {name: _taken(left, name, workload, layout) for name in shown}
    # Triton puts one CTA a cluster into every config; their files say so only where others did.
    if left.get("num_ctas") == 1 and not is_foreign(workload):
        del left["num_ctas"]
    entry.update({name: left.pop(name) for name in extras if name in left})
    if left:
        raise UsageError(
            f"the best config of {workload} has {', '.join(left)}, which the engine's kernel "
            "does not accept; tune a space without it"
        )
    return entry


def _may_lack(name: str, config: Config) -> bool:
    return name in OPTIONS and name not in config


def _taken(left: dict[str, Any], name: str, workload: Workload, layout: Layout) -> Any:
    own = layout.parameters.get(name)
    for candidate in (own,) if own is not None else (name, *_ALIASES.get(name, ())):
        if candidate in left:
            value = left.pop(candidate)
            if type(value) is not int:
                raise UsageError(f"{candidate} of {workload} is {value!r}, not a whole number")
            return value
    fixed = layout.fixed.get(name)
    if type(fixed) is int:
        return fixed
    raise UsageError(
        f"the best config of {workload} has no {own or name}; give --param {name}=ITS_NAME or "
        f"--extra {name}=NUMBER"
    )


def body(entries: Mapping[int, Mapping[str, Any]], head: Mapping[str, str] | None = None) -> str:
    """Byte for byte what the engines' own tuners write."""
    ordered = {str(m): dict(entries[m]) for m in sorted(entries)}
    return json.dumps({**(head or {}), **ordered}, indent=4) + "\n"


def read_entries(path: Path) -> tuple[dict[int, Config], str | None]:
    """The config of each M, and the version of Triton where the file says it."""
    data = read_object(path)
    version = data.pop("triton_version", None)
    if version is not None and not isinstance(version, str):
        raise FormatError(f"{path} has a triton_version that is not a string")
    entries: dict[int, Config] = {}
    for name, values in data.items():
        if not re.fullmatch(r"[1-9][0-9]{0,11}", name):
            raise FormatError(
                f"{path} has the entry '{name[:60]}', which is not a number of tokens"
            )
        entries[int(name)] = _config(path, name, values)
    if not entries:
        raise FormatError(f"{path} has no entries")
    return entries, version


def _config(path: Path, name: str, values: Any) -> Config:
    if not isinstance(values, dict):
        raise FormatError(f"entry {name} of {path} is not a config")
    missing = [one for one in PARAMETERS if one not in values and one not in OPTIONS]
    if missing:
        raise FormatError(f"entry {name} of {path} has no {', '.join(missing)}")
    for one in PARAMETERS:
        if one in values and type(values[one]) is not int:
            raise FormatError(f"entry {name} of {path} has {one} = {values[one]!r}"[:200])
    try:
        return Config(values)
    except (SpaceError, RecursionError) as error:
        raise FormatError(f"entry {name} of {path} is not valid: {error}"[:300]) from None


def findings_of(
    path: Path,
    key: Mapping[str, Any],
    device: str,
    source: str,
    kernel: str,
    options: ReadOptions,
    triton: str | None = None,
) -> list[Finding]:
    """The file tells choices and no times."""
    entries, version = read_entries(path)
    version = version or triton
    return [
        Finding(
            kernel=options.kernel or kernel,
            device=options.device or device.replace("_", " "),
            key=FrozenMap({"M": m, **key}),
            source=source,
            tried=(Tried(config),),
            best=config,
            toolchain=FrozenMap({} if version is None else {"triton": version}),
            created=written_at(path),
        )
        for m, config in entries.items()
    ]


def matched(path: Path, pattern: re.Pattern[str], example: str) -> re.Match[str]:
    found = pattern.fullmatch(path.name)
    if found is None:
        raise FormatError(f"{path} does not have a name the engine uses; expected {example}")
    return found


def quantised(found: re.Match[str]) -> dict[str, Any]:
    """The parts of a name that are there only for some kernels, as parts of a key."""
    parts = found.groupdict()
    key: dict[str, Any] = {}
    if parts.get("dtype"):
        key["dtype"] = parts["dtype"]
    if parts.get("block_n"):
        key["block_shape"] = (int(parts["block_n"]), int(parts["block_k"]))
    for flag in ("per_channel_quant", "down"):
        if parts.get(flag):
            key[flag] = True
    return key
