"""Triton's own file of timings, `$TRITON_CACHE_DIR/<base32>/<kernel>.autotune.json`.

Where the file belongs is Triton's to say: it is written by Triton's `check_disk_cache`, which is
handed what whet measured in place of a benchmark. So every version reads what was written under it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from whet.core.config import Config
from whet.core.errors import SpaceError, UsageError
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timing import Summary
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.interop.files import FormatError, ReadOptions, read_object, written_at
from whet.interop.findings import Finding, Tried, quickest

SOURCE = "triton"
ENDING = ".autotune.json"

_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")


@dataclass(frozen=True)
class Timed:
    """A workload, its best, and the latest trial of each of its configs by config id."""

    workload: Workload
    best: Trial
    trials: Mapping[str, Trial]


def write(
    tuner: Any,
    known: Sequence[Timed],
    folder: Path,
    configs_for: Callable[[Workload], Sequence[Any]],
) -> list[Path]:
    """One file a workload, as stock Triton would have left it behind.

    `tuner` is a decorated kernel, `configs_for` its Triton configs for a workload after pruning. A
    config that reads quicker than the best and lost to it in the end is left out of the file,
    because Triton takes the quickest it finds there.
    """
    from whet.targets.triton.keys import Menu

    ready = []
    for one in known:
        configs = list(configs_for(one.workload))
        menu = Menu(configs)
        by_id = {menu.plain(config).id: config for config in configs}
        if one.best.config.id not in by_id:
            raise UsageError(
                f"the best config of {one.workload} is no longer one of the kernel's configs; "
                "tune it again, or exclude it with --where"
            )
        if any(config.pre_hook for config in configs):
            raise UsageError(
                f"Triton writes no cache file for configs with a pre_hook, as in {one.workload}"
            )
        best = quantiles(one.best)
        timings = {by_id.pop(one.best.config.id): best}  # first, so that it wins among equals
        for id, config in by_id.items():
            if (timing := quantiles(one.trials.get(id))) >= best:
                timings[config] = timing
        ready.append((one.workload, configs, timings))
    return [_written(tuner, *one, folder) for one in ready]


def tuning_key(tuner: Any, workload: Workload) -> tuple[Any, ...]:
    """Triton's key of the call: the values of `key`, then the dtype of every tensor, in the order
    in which they were passed, which is the order a workload's key keeps."""
    values = [workload.key[name] for name in tuner.keys if name in workload.key]
    dtypes = [value for name, value in workload.key.items() if name.endswith(".dtype")]
    return (*values, *dtypes)


def quantiles(trial: Trial | None) -> list[float]:
    """Milliseconds at the median, the first and the fourth fifth; infinite for what failed."""
    timing = None if trial is None else trial.timing
    if timing is None:
        return [math.inf] * 3
    if timing.foreign is not None:
        said = timing.foreign
        return [said.median_ns / 1e6, said.low_ns / 1e6, said.high_ns / 1e6]
    ordered, last = sorted(timing.samples), len(timing.samples) - 1
    return [timing.median_ns / 1e6, *(ordered[round(last * part)] / 1e6 for part in (0.2, 0.8))]


def _written(
    tuner: Any,
    workload: Workload,
    configs: Sequence[Any],
    timings: Mapping[Any, list[float]],
    folder: Path,
) -> Path:
    from triton.runtime.autotuner import Autotuner as Stock

    stand_in = SimpleNamespace(fn=tuner.fn, cache={}, configs_timings=dict(timings))
    key = tuning_key(tuner, workload)
    if not key:
        raise UsageError(
            f"Triton writes no cache file for a kernel without a key, such as {workload}"
        )
    with _target(workload), _writing_to(folder) as written:
        Stock.check_disk_cache(stand_in, key, list(configs), lambda: None)
    return written[0]


@contextmanager
def _writing_to(folder: Path) -> Iterator[list[Path]]:
    """Triton's cache is in `folder` for a moment, and nothing is in it to be read."""
    from triton import knobs
    from triton.runtime.cache import FileCacheManager

    written: list[Path] = []

    class WriteOnly(FileCacheManager):  # type: ignore[misc]
        def get_file(self, filename: str) -> None:
            return None

        def put(self, data: Any, filename: str, binary: bool = True) -> str:
            path: str = super().put(data, filename, binary)
            written.append(Path(path))
            return path

    with knobs.cache.scope():
        knobs.cache.dir = str(folder)
        knobs.cache.manager_class = WriteOnly
        try:
            yield written
        except OSError as error:
            raise UsageError(f"cannot write {folder}: {error.strerror or error}") from None


@contextmanager
def _target(workload: Workload) -> Iterator[None]:
    """Triton's key names the architecture; the file may be written where there is no GPU."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    architecture = workload.device.architecture
    if architecture.startswith("sm_") and architecture[3:].isdigit():
        target = GPUTarget("cuda", int(architecture[3:]), 32)
    elif architecture.startswith("gfx"):
        target = GPUTarget("hip", architecture, 64 if architecture.startswith("gfx9") else 32)
    else:
        raise UsageError(
            f"{workload} has architecture '{architecture}', which is not a GPU Triton supports"
        )
    before = driver._active
    driver.set_active(SimpleNamespace(get_current_target=lambda: target))
    try:
        yield
    finally:
        driver._active = before


def read(path: Path, options: ReadOptions) -> list[Finding]:
    """One file, or all that are in a folder of Triton's cache."""
    if not os.path.isdir(path):
        return [_read_file(path, options)]
    files = sorted(path.rglob(f"*{ENDING}"))
    if not files:
        raise FormatError(f"no *{ENDING} in {path}; Triton writes it with cache_results=True")
    return [_read_file(file, options) for file in files]


def _read_file(path: Path, options: ReadOptions) -> Finding:
    if not path.name.endswith(ENDING):
        raise FormatError(f"{path} does not have the name of a Triton cache file: KERNEL{ENDING}")
    data = read_object(path)
    key, timings = data.get("key"), data.get("configs_timings")
    if not isinstance(key, list) or not isinstance(timings, list) or not timings:
        raise FormatError(f"{path} has no 'key' with 'configs_timings'")
    try:
        tried = tuple(_tried(one) for one in timings)
        named = FrozenMap(_named(key, options.names, path))
    except (SpaceError, LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FormatError(f"{path} has an invalid config or timing: {error}"[:300]) from None
    if len({one.config for one in tried}) != len(tried):
        raise FormatError(f"{path} lists a config twice")
    return Finding(
        kernel=options.kernel or path.name.removesuffix(ENDING),
        device=options.device or "unknown",
        key=named,
        source=SOURCE,
        tried=tried,
        best=quickest(tried),
        created=written_at(path),
    )


def _named(key: Sequence[Any], names: Sequence[str], path: Path) -> dict[str, Any]:
    if names and len(names) != len(key):
        raise FormatError(
            f"{path} has a key of {len(key)} parts, {key}, but --names has {len(names)}"[:300]
        )
    numbered = [f"key{at}" for at in range(len(key))]
    return dict(Config(dict(zip(names or numbered, key, strict=True))))


def _tried(entry: Any) -> Tried:
    described, said = entry
    if not isinstance(described, dict) or not isinstance(described["kwargs"], dict):
        raise TypeError("a config is not an object")
    options = {name: described[name] for name in _OPTIONS if described.get(name) is not None}
    config = Config({**described["kwargs"], **options})
    listed = said if isinstance(said, list) else [said]
    if not listed or not all(type(one) in (int, float) and one > 0 for one in listed):
        raise TypeError(f"a timing is {said}")
    if not all(math.isfinite(one) and one < 1e12 for one in listed):
        return Tried(config, Status.RUN_ERROR, error="Triton has no time for it")
    ns = [one * 1e6 for one in listed]
    return Tried(config, timing=Summary(ns[0], min(ns), max(ns), SOURCE))
