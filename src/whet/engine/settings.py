"""`Settings`: read once, at the edge, from flags, the environment, a file and defaults."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from whet.core.budget import Budget
from whet.core.errors import BudgetError, SettingsError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.core.mode import EFFORTS, MODES, Effort, Mode

SourceKind = Literal["flag", "environment", "file", "default"]

_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)

RUN_LIMIT_S = 30.0
FIRST_CALL_S = 120.0

# What they are is part of a shared store's URL from here on, so that whoever opens it knows.
_TRUST = ("trust", "trusted_keys", "signing_key")

# Variables of ours that choose where or how settings are read, and are none themselves.
_NOT_SETTINGS = (
    "WHET_CONFIG",
    "WHET_DEBUG",
    "WHET_JIT",
    "WHET_LOG",
    "WHET_POLICY",
    "WHET_PRELOAD",
)


def usable_cores() -> int:
    """The cores this process may run on, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Settings:
    """`store` None is the default place; `store_wait_s` is how long a call may wait for a
    server, once per outage. `trust`, `trusted_keys` and `signing_key` are those of a store on a
    server, and are part of its URL in `store`; `bundle` is a file of results that is read where the
    store knows nothing; `lock` is a file of choices, from which alone the modes `cached` and
    `require` then choose; `memory_bytes` None is what the machine has free. `device_memory_bytes`
    is what a tuning may allocate on the device for itself, None what is free there.

    `l2` is the state in which a GPU's L2 cache is for each timed launch; `l2_bytes` is how much is
    read to clear it, None as much as the device has, 0 none, which is the same as warm. `samples`
    turns the race off: every config gets so many. `effort` says whether a tuning may leave out
    what is not expected to pay. With `learn` a search starts from what the store
    knows of the kernel's other workloads. `agree_wait_s` is how long a process waits for another
    one that tunes the same: a rank of its group, or a process with the same store; a budget of time
    may end that earlier. `binaries` is a folder of packed kernels, which are used where they fit.
    `mode` says whether a call may tune. `idle_share` is how much of calls' time their refinement
    may take, where that was asked for. `isolate` measures in a process of its own what would else
    be measured in this one. `keep_ir` keeps beside the store what a compiler makes of every config
    on the way. `stall_timeout_s` is how long nothing may happen, beyond what is under way may
    take, before a run says where it is stuck; None never minds. `run_limit_s` is for what comes
    after a config's first call, and `first_call_limit_s` for that; None is as `first_call_s` says.
    `record_values` is how many elements an integer tensor may have for its contents to be recorded
    with a missed key. `wait_limit_s` is how long calls of one kernel may wait for tunings, all
    together; None is without end. With `direct` a tuned Triton kernel is launched without Triton's
    binder where that is the same launch. With `inductor`, `install` takes what `torch.compile`
    tunes as well: products, and with "all" the kernels that Inductor writes. `llm_url` is where the
    strategy `llm` asks, `llm_key` the name of an environment variable or a file that has the key,
    and `llm_headers` are more headers, in which `$NAME` stands for a variable's text; nothing is
    sent without a URL.
    """

    store: str | None = None
    store_wait_s: float = 0.05
    trust: str = "all"
    trusted_keys: str | None = None
    signing_key: str | None = None
    bundle: str | None = None
    lock: str | None = None
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    jobs: int = field(default_factory=usable_cores)
    search: str = "auto"
    effort: Effort = "full"
    build_limit_s: float = 60.0
    run_limit_s: float = RUN_LIMIT_S
    first_call_limit_s: float | None = None
    memory_bytes: int | None = None
    device_memory_bytes: int | None = None
    l2: Literal["cold", "warm"] = "cold"
    l2_bytes: int | None = None
    cuda_graph: bool = False
    samples: int | None = None
    learn: bool = True
    agree_wait_s: float = 300.0
    binaries: str | None = None
    mode: Mode = "tune"
    idle_share: float = 0.02
    isolate: bool = False
    keep_ir: bool = False
    stall_timeout_s: float | None = 300.0
    record_values: int = 4096
    wait_limit_s: float | None = None
    direct: bool = True
    inductor: bool | Literal["all"] = False
    llm_url: str | None = field(default=None, repr=False)
    llm_model: str | None = None
    llm_key: str | None = field(default=None, repr=False)
    llm_headers: str | None = field(default=None, repr=False)
    llm_certificates: str | None = None
    llm_timeout_s: float = 60.0

    @property
    def first_call_s(self) -> float:
        """Who sets a limit for runs means the first call, too. Otherwise it may take what a
        compiler of whole models needs."""
        run_limit_is_set = self.run_limit_s != RUN_LIMIT_S
        return self.first_call_limit_s or (self.run_limit_s if run_limit_is_set else FIRST_CALL_S)


@dataclass(frozen=True)
class SettingSource:
    """Where a value came from: `--budget`, `WHET_BUDGET`, or the file's path."""

    kind: SourceKind
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.where}".rstrip()


@dataclass(frozen=True)
class ResolvedSettings:
    """`sources` has one entry for every name in `SETTINGS`. `notes` are for a person to read."""

    settings: Settings
    sources: FrozenMap[SettingSource]
    notes: tuple[str, ...] = ()


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


def _whole(least: int, most: float = math.inf) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = int(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise ValueError
        return number

    return parse


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = Budget.parse(value).seconds
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ValueError
    return float(value)


def _seconds_or_none(value: Any) -> float | None:
    if isinstance(value, str) and value.strip().lower() in ("none", "0"):
        return None
    return None if value == 0 and not isinstance(value, bool) else _seconds(value)


def _share(value: Any) -> float:
    if isinstance(value, str):
        text = value.strip()
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 0.5:
        raise ValueError
    return float(value)


def _size(least: int) -> Callable[[Any], int | None]:
    def parse(value: Any) -> int | None:
        if isinstance(value, str):
            if value.strip().lower() == "none":
                return None
            match = _SIZE.fullmatch(value.strip())
            if match is None:
                raise ValueError
            value = int(float(match[1]) * _BYTES[match[2].upper()])
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError
        return value

    return parse


def _one_of(*choices: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        text = value.strip().lower() if isinstance(value, str) else ""
        if text not in choices:
            raise ValueError
        return text

    return parse


def _llm_url(value: Any) -> str:
    text = _text(value)
    if "@" in text.partition("://")[2].partition("/")[0]:
        raise ValueError
    return text


def _secret_name(value: Any) -> str:
    """What a key looks like is refused: it belongs where this name leads to."""
    text = _text(value)
    if not re.fullmatch(r"[A-Za-z_]\w*", text) and not os.path.exists(os.path.expanduser(text)):
        raise ValueError
    return os.path.expanduser(text)


def _headers(value: Any) -> str:
    from whet.engine.advice import read_headers

    read_headers(_text(value))
    return _text(value)


def _yes_or_no(value: Any) -> bool:
    if isinstance(value, str):
        value = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(
            value.strip().lower()
        )
    if not isinstance(value, bool):
        raise ValueError
    return value


def _yes_no_or_all(value: Any) -> bool | Literal["all"]:
    return "all" if value == "all" else _yes_or_no(value)


@dataclass(frozen=True)
class _Setting:
    """`valid` ends the sentence "... is not valid; use"."""

    field: str
    parse: Callable[[Any], Any]
    valid: str


_TABLE: dict[str, _Setting] = {
    "store": _Setting("store", _text, "a path or postgresql://host/database"),
    "store_wait": _Setting("store_wait_s", _seconds, "a time, such as 50ms or 1s"),
    "trust": _Setting("trust", _one_of("all", "promoted"), "all or promoted"),
    "trusted_keys": _Setting("trusted_keys", _text, "the path of a list of public keys"),
    "signing_key": _Setting("signing_key", _text, "the path of a key from 'whet store key --new'"),
    "bundle": _Setting("bundle", _text, "the path of a file written by 'whet pack'"),
    "lock": _Setting("lock", _text, "the path of a file written by 'whet lock update'"),
    "budget": _Setting("budget", Budget.parse, "a time or a count, such as 30s, 5m or 200trials"),
    "seed": _Setting("seed", _whole(0), "a whole number, 0 or more"),
    "jobs": _Setting("jobs", _whole(1, 100_000), "a whole number from 1 to 100,000"),
    "search": _Setting("search", _text, "the name of a strategy, such as auto"),
    "effort": _Setting("effort", _one_of(*EFFORTS), "full or quick"),
    "build_limit": _Setting("build_limit_s", _seconds, "a time, such as 30s or 2m"),
    "run_limit": _Setting("run_limit_s", _seconds, "a time, such as 30s or 2m"),
    "first_call_limit": _Setting("first_call_limit_s", _seconds, "a time, such as 30s or 2m"),
    "memory": _Setting("memory_bytes", _size(1), "a size, such as 512M or 8G, or none"),
    "device_memory": _Setting(
        "device_memory_bytes", _size(0), "a size, such as 512M or 8G, or none"
    ),
    "l2": _Setting("l2", _one_of("cold", "warm"), "cold or warm"),
    "l2_bytes": _Setting("l2_bytes", _size(0), "a size, such as 64M, or 0 for none"),
    "cuda_graph": _Setting("cuda_graph", _yes_or_no, "yes or no"),
    "samples": _Setting("samples", _whole(1, 1_000_000), "a whole number from 1 to 1,000,000"),
    "learn": _Setting("learn", _yes_or_no, "yes or no"),
    "agree_wait": _Setting("agree_wait_s", _seconds, "a time, such as 30s or 5m"),
    "binaries": _Setting("binaries", _text, "a directory written by 'whet precompile'"),
    "idle_share": _Setting("idle_share", _share, "a share of time, such as 0.02 or 2%"),
    "isolate": _Setting("isolate", _yes_or_no, "yes or no"),
    "keep_ir": _Setting("keep_ir", _yes_or_no, "yes or no"),
    "stall_timeout": _Setting("stall_timeout_s", _seconds_or_none, "a time, such as 5m, or none"),
    "record_values": _Setting("record_values", _whole(0, 10**6), "a number, at most 1,000,000"),
    "wait_limit": _Setting("wait_limit_s", _seconds_or_none, "a time, such as 10s, or none"),
    "direct": _Setting("direct", _yes_or_no, "yes or no"),
    "inductor": _Setting("inductor", _yes_no_or_all, "yes, no or all"),
    "llm_url": _Setting("llm_url", _llm_url, "https://host/v1 without a password"),
    "llm_model": _Setting("llm_model", _text, "the name of a model"),
    "llm_key": _Setting("llm_key", _secret_name, "the name of a variable or file with the key"),
    "llm_headers": _Setting("llm_headers", _headers, "Name: value; Name: $VARIABLE"),
    "llm_certificates": _Setting("llm_certificates", _text, "the path of a file of certificates"),
    "llm_timeout": _Setting("llm_timeout_s", _seconds, "a time, such as 30s or 2m"),
    "mode": _Setting("mode", _one_of(*MODES), "tune, cached, require, off or record"),
}

SETTINGS: tuple[str, ...] = tuple(_TABLE)

# Somebody may have put into these what nobody should read: they are not repeated.
SECRET = ("llm_url", "llm_key", "llm_headers")

# Names of 0.1 that are still taken, with a note. What has no new name does nothing any more.
_RENAMED = {"wedge": "stall_timeout", "race": None}


def resolve_settings(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> ResolvedSettings:
    """Flag over environment over file over default, for each name in `SETTINGS`.

    A flag that is None and a variable that is empty were not given. The file is `file`, else what
    `WHET_CONFIG` names, else `whet/config.toml` in the user's configuration folder if it is there.
    """
    path, content = _file(environ, file)
    variables = tuple((n, environ.get(n, "")) for n in environ if n.startswith("WHET_"))
    # Every key of a kernel asks, and hardly anything changes meanwhile.
    again = not flags and (content is None or path.is_absolute())
    resolve = _resolved if again else _resolved.__wrapped__
    values, sources, notes = resolve(path, content, variables, None if again else flags)
    return ResolvedSettings(Settings(**values), sources, notes)


@lru_cache(maxsize=8)
def _resolved(
    path: Path,
    content: str | None,
    variables: tuple[tuple[str, str], ...],
    flags: Mapping[str, Any] | None,
) -> tuple[Mapping[str, Any], FrozenMap[SettingSource], tuple[str, ...]]:
    """Fields of `Settings` that were set, and where; not the settings, since their defaults depend
    on what this process may use at the moment."""
    environ = dict(variables)
    given: dict[str, tuple[Any, SettingSource]] = {}
    notes: list[str] = []
    from_file = {} if content is None else _from_file(path, content)
    for found in (from_file, _from_environment(environ), _from_flags(flags or {})):
        given.update(_renamed(found, notes))
    values = {_TABLE[name].field: parse_setting(name, *entry) for name, entry in given.items()}
    if "run_limit_s" in values:
        values.setdefault("first_call_limit_s", values["run_limit_s"])
    if "store" in values and any(name in values for name in _TRUST):
        from whet.store import trusting

        given_trust = {name: values.get(name) for name in _TRUST}
        values["store"] = trusting(values["store"], given_trust, environ={})
    sources = {
        name: given[name][1] if name in given else SettingSource("default") for name in _TABLE
    }
    return values, FrozenMap(sources), (*notes, *_notes(environ))


def _renamed(
    found: Mapping[str, tuple[Any, SettingSource]], notes: list[str]
) -> dict[str, tuple[Any, SettingSource]]:
    """What was found under the names of today, which win over old ones in the same place."""
    current = {name: entry for name, entry in found.items() if name in _TABLE}
    for old, new in _RENAMED.items():
        if old not in found:
            continue
        entry = found[old]
        if new is None:
            notes.append(f"the setting {old} ({entry[1]}) no longer exists and is ignored")
        else:
            notes.append(f"the setting {old} ({entry[1]}) was renamed; use {new}")
            current.setdefault(new, entry)
    return current


def parse_setting(name: str, value: Any, source: SettingSource | None = None) -> Any:
    """The value of one of `SETTINGS`, as `Settings` has it. Raises `SettingsError`."""
    setting = _TABLE[name]
    try:
        return setting.parse(value)
    except (ValueError, OverflowError, BudgetError):
        where = "" if source is None else f" ({source})"
        if name in SECRET:
            raise SettingsError(f"{name}{where} is not valid; use {setting.valid}") from None
        raise SettingsError(
            f"{name} = {value!r}{where} is not valid; use {setting.valid}"
        ) from None


def setting_field(name: str) -> str:
    """The field of `Settings` behind a name: `build_limit` is `build_limit_s`."""
    return _TABLE[name].field


def _from_flags(flags: Mapping[str, Any]) -> dict[str, tuple[Any, SettingSource]]:
    for name in flags:
        if name not in _TABLE and name not in _RENAMED:
            raise SettingsError(f"'{name}' is not a setting{did_you_mean(name, _TABLE)}")
    return {
        name: (value, SettingSource("flag", "--" + name.replace("_", "-")))
        for name, value in flags.items()
        if value is not None
    }


def _variable(name: str) -> str:
    return f"WHET_{name.upper()}"


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[Any, SettingSource]]:
    return {
        name: (environ[_variable(name)], SettingSource("environment", _variable(name)))
        for name in (*_TABLE, *_RENAMED)
        if environ.get(_variable(name))
    }


def _notes(environ: Mapping[str, str]) -> tuple[str, ...]:
    # Not errors: a newer part of whet, or another program, may well know the variable.
    known = [*map(_variable, _TABLE), *_NOT_SETTINGS]
    old = [*map(_variable, _RENAMED)]
    unknown = sorted(
        name
        for name in environ
        if name.startswith("WHET_") and name not in known and name not in old
    )
    return tuple(
        f"the variable {name} is not a setting and is ignored{did_you_mean(name, known)}"
        for name in unknown
    )


# There are some dozens of settings.
_MOST_BYTES = 256 * 1024


def _default_file(environ: Mapping[str, str]) -> Path:
    folder = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):
        folder = os.path.join(environ.get("HOME") or str(Path.home()), ".config")
    return _path(os.path.join(folder, "whet", "config.toml"))


# A path takes as long to make as all the rest that a process asks for again.
_path = lru_cache(maxsize=8)(Path)


def _file(environ: Mapping[str, str], file: Path | None) -> tuple[Path, str | None]:
    """Which file, and what is in it; None where nobody has named one and there is none."""
    named = environ.get("WHET_CONFIG")
    path = file or (Path(named).expanduser() if named else _default_file(environ))
    try:
        with path.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            most = _MOST_BYTES >> 10
            raise SettingsError(f"settings file {path} is larger than {most} KiB; shorten it")
        return path, content.decode()
    except FileNotFoundError:
        if file is None and not named:
            return path, None
        raise SettingsError(f"settings file {path} does not exist") from None
    except OSError as error:
        raise SettingsError(f"cannot read settings file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"settings file {path} is not valid TOML: {error}") from None


def _from_file(path: Path, content: str) -> dict[str, tuple[Any, SettingSource]]:
    import tomllib  # most programs have no such file

    from whet.core.toml import parse_toml

    try:
        table = parse_toml(content)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"settings file {path} is not valid TOML: {error}") from None
    source = SettingSource("file", str(path))
    for name in table:
        if name not in _TABLE and name not in _RENAMED:
            raise SettingsError(f"'{name}' ({source}) is not a setting{did_you_mean(name, _TABLE)}")
    for name in ("store", "bundle", "lock", "binaries"):
        if isinstance(table.get(name), str):
            table[name] = _beside(path, table[name])
    return {name: (value, source) for name, value in table.items()}


def _beside(file: Path, place: str) -> str:
    """A relative path in a file means the same from every folder one may be in."""
    if not place.strip() or place.startswith((":", "~")) or "://" in place:
        return place
    return str(file.absolute().parent / place)
