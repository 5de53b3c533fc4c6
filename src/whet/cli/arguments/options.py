"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.terminal.help import SEARCHES
from whet.cli.terminal.output import say
from whet.core.errors import UsageError
from whet.engine.settings import resolve_settings
from whet.store import store_place

if TYPE_CHECKING:
    from whet.engine.settings import ResolvedSettings


def option(spec: str, help: str, panel: str | None = None, **more: Any) -> Any:
    """`spec` is how the option is typed: `--store PATH`, `--quiet -q`. `panel` is what it is an
    option of, where a command does several things."""
    words = spec.split()
    names = [word for word in words if word.startswith("-")]
    metavar = " ".join(words[len(names) :]) or None
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **more)


def argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False)


StoreOption = Annotated[
    str | None,
    option(
        "--store PATH", "Where results are stored: a path, postgresql://…, or NAME://… of a plugin."
    ),
]
JsonOption = Annotated[bool, option("--json", "Print JSON instead of text.")]
BUDGETS = "When to stop: 30s, 5m, 200trials or 1h,500trials."
BudgetOption = Annotated[str | None, option("--budget BUDGET", BUDGETS)]
SeedOption = Annotated[
    str | None, option("--seed N", "Random seed; the same seed tries the same configs.")
]
JobsOption = Annotated[
    str | None, option("--jobs N", "Number of parallel builds (default: usable cores).")
]
SearchOption = Annotated[
    str | None, option("--search NAME", f"Search strategy (default: auto): {SEARCHES}.")
]
EffortOption = Annotated[
    str | None,
    option(
        "--effort full|quick",
        "Try every config, or leave out those that are not expected to be worth their builds "
        "(default: full).",
    ),
]
L2Option = Annotated[
    str | None, option("--l2 cold|warm", "L2 cache before each timed launch (default: cold).")
]
L2BytesOption = Annotated[
    str | None,
    option(
        "--l2-bytes N",
        "Bytes to read to flush the L2, such as 64M; 0 disables (default: the size of the L2).",
    ),
]
CudaGraphOption = Annotated[
    bool, option("--cuda-graph", "Time launches as CUDA graphs, for a slow host.")
]
IsolateOption = Annotated[
    bool, option("--isolate", "Measure GPU configs in a separate process that may crash or hang.")
]
KeepIrOption = Annotated[
    bool, option("--keep-ir", "Keep the intermediate code of every config, for 'whet explore'.")
]
SamplesOption = Annotated[
    str | None,
    option("--samples N", "Take N samples of every config instead of racing, to record a table."),
]
# How a kernel or a workload may be named.
NAMED = "A kernel name, the name it was tuned under, FILE.py:NAME, or the start of a workload id"
KeysOption = Annotated[
    str | None, option("--keys FILE.json", "A JSON file with a list of such keys.")
]
KernelsOption = Annotated[
    list[str] | None,
    option("--kernel NAME", "Only this kernel, named as for 'whet best' (repeatable)."),
]
ModuleOption = Annotated[str | None, option("--module -m NAME", "A module to import.")]
ProgramArgument = Annotated[str | None, argument("FILE.py", "A program whose kernels to look at.")]
TableOption = Annotated[
    str | None, option("--table FILE|NAME", "A recorded table, or a shipped one, not the store.")
]
TransferOption = Annotated[
    list[str] | None,
    option(
        "--transfer TABLE…",
        "Learn from these tables first, but never from the workload itself; must come last.",
    ),
]
QuietOption = Annotated[bool, option("--quiet -q", "Show no progress on stderr.")]


def resolved(**flags: Any) -> ResolvedSettings:
    """The settings under these flags; what a person should know of them goes to stderr."""
    found = resolve_settings(flags)
    for note in found.notes:
        say(f"whet: note: {note}")
    return found


def pass_on(store: str | None, **given: str | None) -> None:
    """As settings of this process; the file may well change its folder before it tunes."""
    settings = resolved(store=store, **given).settings
    if store is not None:
        place = store_place(settings.store)
        # A place does not show a password, which processes started by the file may need.
        os.environ["WHET_STORE"] = str(settings.store) if "://" in place else place
    for name, value in given.items():
        if value is not None:
            os.environ[f"WHET_{name.upper()}"] = value


Key = dict[str, Any]

_WORDS = {"true": True, "false": False, "none": None}


def read_keys(typed: Sequence[str], file: str | None) -> list[Key]:
    """The keys of `--key M=64,N=32` and of `--keys file.json`, in this order."""
    keys = [_typed_key(text) for text in typed]
    return keys if file is None else keys + _keys_from_file(Path(file))


def _typed_key(text: str) -> Key:
    key: Key = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name.isidentifier() or not value:
            raise UsageError(
                f"--key '{text}' is not valid; use NAME=VALUE pairs, such as M=4096,N=4096"
            )
        if name in key:
            raise UsageError(f"--key '{text}' gives '{name}' twice")
        key[name] = typed_value(value)
    return key


def typed_value(text: str) -> Any:
    """`64` is a number, `true` is true, `none` is None, and `float16` a text."""
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return _WORDS.get(text.lower(), text)


def _keys_from_file(path: Path) -> list[Key]:
    try:
        keys = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the keys in {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(keys, list) or not keys or not all(isinstance(key, dict) for key in keys):
        raise UsageError(f'{path} is not a list of keys; use [{{"M": 4096, "N": 4096}}, …]')
    return keys


@contextmanager
def flags_in_environment(flags: Mapping[str, str | None]) -> Iterator[None]:
    """`{"store": "s.db"}` as `WHET_STORE`, where a decorated kernel looks for its settings."""
    given = {f"WHET_{name.upper()}": value for name, value in flags.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
