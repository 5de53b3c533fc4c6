"""`ConfigCache`: the best config of a kernel, by problem size and device."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from whet.autotuner.configs import ArgumentError
from whet.core.config import Value, freeze_value
from whet.core.errors import SpaceError
from whet.core.files import write_whole

Key: TypeAlias = tuple[str, Value, str]

_VERSION = 1
_NAME = "config-{}.json"


class ConfigCache:
    """Caches configs in memory and, if `cache_dir` is given, in one JSON file per key.

    The device string is part of the key. Values can be anything JSON can hold; lists come back as
    tuples, in problem sizes and in configs. A cache can be shared by threads, and its directory by
    processes: `get` sees what others have written, files are replaced atomically, and a file that
    cannot be read is ignored with a warning.
    """

    def __init__(self, cache_dir: str | os.PathLike[str] | None = None) -> None:
        self._lock = threading.RLock()
        self._configs: dict[Key, dict[str, Value]] = {}
        self._folder = None if cache_dir is None else Path(cache_dir).expanduser()
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ArgumentError(
                    f"cannot use cache_dir '{self._folder}': {error.strerror}"
                ) from error

    def get(self, kernel_type: str, problem_size: Any, device: Any) -> dict[str, Any] | None:
        """Returns a copy of the config, or None. A file on disk takes precedence over memory."""
        key = _key(kernel_type, problem_size, device)
        with self._lock:
            path = self._path(key)
            if path is not None and path.exists():
                entry = _read(path)
                if entry is not None and entry[0] == key:
                    self._configs[key] = entry[1]
            config = self._configs.get(key)
            return None if config is None else dict(config)

    def set(
        self, kernel_type: str, problem_size: Any, device: Any, config: Mapping[str, Any]
    ) -> None:
        """Stores a config. If the file cannot be written, warns and keeps it in memory."""
        key = _key(kernel_type, problem_size, device)
        values = {str(name): _plain(value, f"config['{name}']") for name, value in config.items()}
        with self._lock:
            self._configs[key] = values
            path = self._path(key)
            if path is not None:
                try:
                    _write(path, key, values)
                except OSError as error:
                    warnings.warn(f"could not save the config to {path}: {error}", stacklevel=2)

    def clear(self) -> None:
        """Removes every entry and its file; files that cannot be read are not deleted."""
        with self._lock:
            self._configs.clear()
            for path, _ in self._files():
                path.unlink(missing_ok=True)

    def get_all_keys(self) -> list[Key]:
        """Returns `(kernel_type, problem_size, device)` of every entry, including those of other
        processes.
        """
        with self._lock:
            keys = {*self._configs, *(key for _, key in self._files())}
        return sorted(keys, key=_key_text)

    def _path(self, key: Key) -> Path | None:
        if self._folder is None:
            return None
        digest = hashlib.blake2b(_key_text(key).encode(), digest_size=16).hexdigest()
        return self._folder / _NAME.format(digest)

    def _files(self) -> Iterator[tuple[Path, Key]]:
        if self._folder is None:
            return
        for path in sorted(self._folder.glob(_NAME.format("*"))):
            entry = _read(path)
            if entry is not None:
                yield path, entry[0]


def _key(kernel_type: str, problem_size: Any, device: Any) -> Key:
    return str(kernel_type), _plain(problem_size, "problem_size"), str(device)


def _key_text(key: Key) -> str:
    return json.dumps(key, separators=(",", ":"))


def _plain(value: Any, where: str) -> Value:
    try:
        return freeze_value(value, where)
    except SpaceError as error:
        raise ArgumentError(str(error)) from None


_UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
    SpaceError,
)


def _read(path: Path) -> tuple[Key, dict[str, Value]] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["v"] != _VERSION:
            raise ValueError(f"it has version {data['v']}, but this whet reads version {_VERSION}")
        key = _key(data["kernel_type"], data["problem_size"], data["device"])
        return key, {name: freeze_value(value) for name, value in data["config"].items()}
    except FileNotFoundError:  # another process has just cleared the folder
        return None
    except _UNREADABLE as error:
        warnings.warn(
            f"ignoring cached config {path}: {error!r}; delete the file to stop this warning",
            stacklevel=3,
        )
        return None


def _write(path: Path, key: Key, config: Mapping[str, Value]) -> None:
    kernel_type, problem_size, device = key
    entry = {
        "v": _VERSION,
        "kernel_type": kernel_type,
        "problem_size": problem_size,
        "device": device,
        "config": config,
    }
    write_whole(path, json.dumps(entry, indent=2).encode())
