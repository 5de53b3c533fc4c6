"""What is Triton's own: methods of its `Autotuner` as they were before `whet.install()` put others
there, and the form in which it keeps timings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triton.runtime import autotuner as stock

if TYPE_CHECKING:
    from whet.core.event import Event

stock_init = stock.Autotuner.__init__
stock_bench = stock.Autotuner._bench
stock_run = stock.Autotuner.run
stock_getitem = stock.Autotuner.__getitem__


def quantiles_ms(samples_ns: Sequence[float]) -> list[float]:
    """Milliseconds at the median, the fifth and the fourth fifth."""
    ordered = sorted(samples_ns)
    last = len(ordered) - 1
    return [ordered[round(last * share)] / 1e6 for share in (0.5, 0.2, 0.8)]


class _NothingOnDisk(Exception):
    """Triton's own file of results has nothing for a key."""


def on_disk(tuner: Any, key: tuple[Any, ...], configs: Sequence[Any]) -> bool:
    """Whether Triton's own file has filled the cache; nothing is benchmarked otherwise."""

    def benchmark() -> None:
        raise _NothingOnDisk

    try:
        tuner.check_disk_cache(key, configs, benchmark)
    except _NothingOnDisk:
        return False
    return True


def printing(
    tuner: Any, by_id: Mapping[str, Any], events: Callable[[Event], None] | None
) -> Callable[[Event], None] | None:
    """`events`, and where Triton is to print what it tunes, its own lines of each config."""
    from triton import knobs

    if not knobs.autotuning.print:
        return events
    from whet.core.event import MeasureStarted, TrialFinished

    begun = set()

    def on_event(event: Event) -> None:
        if events is not None:
            events(event)
        trial = event.trial if isinstance(event, TrialFinished) and not event.known else None
        config = event.config if isinstance(event, MeasureStarted) else trial and trial.config
        if config is not None and config.id not in begun:
            begun.add(config.id)
            print(f"Autotuning kernel {tuner.base_fn.__name__} with config {by_id[config.id]}")
        if trial is not None and trial.status.failed:
            print(f"Autotuning failed with {trial.error}")

    return on_event


def announce(tuner: Any, key: tuple[Any, ...], jit: Any, from_disk: bool) -> None:
    """Triton's own lines, and its listener, once a key has a config."""
    from triton import knobs

    listener = getattr(getattr(knobs, "autotuning", None), "listener", None)
    if listener is not None:
        listener(
            fn=jit,
            key=key,
            best_config=tuner.cache[key],
            configs_timings=getattr(tuner, "configs_timings", None),
            duration=None if from_disk else tuner.bench_time,
            cache_hit=from_disk,
        )
    if knobs.autotuning.print and not from_disk:
        print(
            f"Triton autotuning for function {tuner.base_fn.__name__},\nwith key as {key},\n"
            f"finished after {tuner.bench_time:.2f}s,\n"
            f"best config selected: {tuner.cache[key]};"
        )
