"""`whet tune` of a Triton kernel: which keys, and what came of each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.core.errors import HostFailure, StoreError, TuningFailedError, UsageError, WhetError

if TYPE_CHECKING:
    from whet.core.run import Result
    from whet.targets.triton.offline.kernel import Kernel

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


@dataclass(frozen=True)
class KeyOutcome:
    """One key and what its tuning found; without a result, `why` says why there is none. `lost`
    says why a result is not kept, or is only the best so far."""

    key: Key
    result: Result | None
    why: str = ""
    lost: StoreError | HostFailure | None = None


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


def tune_keys(
    kernel: Kernel,
    keys: Sequence[Key],
    flags: Mapping[str, str | None],
    *,
    store: str | None,
    path: Path,
    quiet: bool,
) -> tuple[list[KeyOutcome], bool]:
    """Tunes key after key with progress on stderr; what came of them, and whether Ctrl-C ended it.

    One key that cannot be tuned does not keep the others from it. `store` is the one that the
    settings name under these flags; `path` is the kernel's file, for what its `inputs` may raise.
    """
    from whet.engine import Interrupted
    from whet.store import open_store
    from whet.targets.triton.offline.kernel import check_key
    from whet.targets.triton.offline.tuning import check_ready
    from whet.targets.triton.policy import apply_policy

    check_ready(kernel, keys[0])
    for key in keys:
        check_key(kernel, key)
    tuner = kernel.tuner
    apply_policy(tuner, [name for name, value in flags.items() if value])
    tuner.whet_search = flags.get("search") or tuner.whet_search
    tuner.whet_budget = flags.get("budget") or tuner.whet_budget
    tuner.whet_effort = flags.get("effort") or getattr(tuner, "whet_effort", None)
    done: list[KeyOutcome] = []
    with flags_in_environment(flags), redirect_stdout(sys.stderr):
        with open_store(store):
            pass  # a kernel goes on without a store; who asks for tuning wants it kept
        for key in keys:
            try:
                done.append(_tune_key(kernel, key, path, quiet))
            except Interrupted as interrupted:
                if interrupted.result is not None:
                    done.append(KeyOutcome(key, interrupted.result))
                return done, True
            except KeyboardInterrupt:
                return done, True
    return done, False


def _tune_key(kernel: Kernel, key: Key, path: Path, quiet: bool) -> KeyOutcome:
    from whet.cli.terminal.progress import progress
    from whet.engine import HostLostError
    from whet.targets.files import guarded
    from whet.targets.triton.configs import plain_config
    from whet.targets.triton.offline.kernel import make_inputs
    from whet.targets.triton.offline.tuning import NothingToTuneError, tune_call

    grid, args, keywords = guarded(path, lambda: make_inputs(kernel, key))
    with progress(plain_config(kernel.tuner.configs[0]), quiet=quiet) as on_event:
        try:
            result = tune_call(kernel, grid, args, keywords, on_event)
            return KeyOutcome(key, result, lost=kernel.tuner.whet_lost)
        except (TuningFailedError, NothingToTuneError) as error:
            return KeyOutcome(key, None, str(error))
        except HostLostError as error:
            return KeyOutcome(key, error.result, str(error), lost=error)


def as_json(kernel: Kernel, done: Sequence[KeyOutcome]) -> dict[str, Any]:
    found = [one.result.to_json() for one in done if one.result is not None]
    return {"v": 1, "kernel": kernel.name, "keys": found}


def keys_table(done: Sequence[KeyOutcome], width: int) -> list[str]:
    """One line a key, for more keys than a summary each would be read of."""
    from whet.cli.terminal.output import Column, ns_text, page, table, times_text, wrap
    from whet.targets.triton.offline.kernel import key_text

    layout = [
        Column("key", flexible=True),
        Column("median", align="right"),
        Column("speed-up", align="right"),
        Column("tried", align="right"),
        Column("best", flexible=True),
    ]
    rows = [
        (
            key_text(one.key),
            ns_text(one.result.best.median_ns),
            "–" if one.result.speedup is None else times_text(one.result.speedup),
            _tried(one.result),
            str(one.result.config),
        )
        for one in done
        if one.result is not None
    ]
    if not rows:
        return []
    coverages = [one.result.run.coverage for one in done if one.result is not None]
    open_ends = [one for one in coverages if one is not None and one.next_text]
    ends = dict.fromkeys(f"{one.reason}; {one.next_text}" for one in open_ends)
    said = [f"{len(open_ends)} of {len(done)} keys have untried configs: {end}" for end in ends][:1]
    return [*table(layout, rows, width), *(["", *wrap(said[0], page(), indent=2)] if said else [])]


def _tried(result: Result) -> str:
    from whet.cli.arguments.reading import tried_text

    tried = tried_text(result.run.coverage, len(result.trials))
    return tried if result.source == "tuned" else f"{tried} {result.source}"


def raise_for_failures(done: Sequence[KeyOutcome]) -> None:
    """For keys without a result: one line that names the first of them, and exit code 1. For keys
    whose result could not be kept or is not the last word: why, likewise."""
    from whet.targets.triton.offline.kernel import key_text

    failed = [one for one in done if one.result is None]
    if failed:
        more = f" (and {len(failed) - 1} more keys)" if len(failed) > 1 else ""
        raise WhetError(f"{key_text(failed[0].key) or 'the key'}: {failed[0].why}{more}")
    lost = [one.lost for one in done if one.lost is not None]
    if lost:
        raise lost[0]
