"""Tuning a decorated kernel without the program it belongs to, over keys given beforehand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from triton import knobs

from whet.core.errors import TuningFailedError, UsageError, WhetError, did_you_mean
from whet.core.event import Event, RunStarted, TrialFinished
from whet.core.run import Result
from whet.core.trial import Trial
from whet.targets.triton import device
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.call import Call
from whet.targets.triton.keys import workload_key
from whet.targets.triton.surroundings import temporary
from whet.targets.triton.target import TritonTarget

Key = Mapping[str, Any]
Events = Callable[[Event], None]


@dataclass(frozen=True)
class Kernel:
    """`launcher[grid](…)` is a call of the kernel; `tuner` is the `whet.autotune` inside it."""

    launcher: Any
    tuner: Autotuner

    @property
    def name(self) -> str:
        return str(self.tuner.base_fn.__name__)


class NothingToTuneError(WhetError):
    """A key that leaves no choice between configs, or none that may be made now."""


def kernel_of(value: Any) -> Kernel | None:
    """The kernel that a decorated object is, also where `triton.heuristics` is on the outside."""
    tuner = value
    while not isinstance(tuner, Autotuner):
        tuner = getattr(tuner, "fn", None)
        if tuner is None:
            return None
    return Kernel(value, tuner)


def check_inputs(kernel: Kernel) -> None:
    """Raises `UsageError` where nobody can make arguments from a key."""
    if kernel.tuner.whet_inputs is None:
        raise UsageError(
            f"kernel '{kernel.name}' does not say how its arguments are made; give "
            "whet.autotune(…, inputs=…) a function from a key to (grid, args)"
        )


def check_ready(kernel: Kernel) -> None:
    """Raises `UsageError` where no key of this kernel could be tuned here and now."""
    check_inputs(kernel)
    if not kernel.tuner._own_benchmark:
        raise UsageError(
            f"kernel '{kernel.name}' is timed in its own way, and such results are not kept; "
            "leave out do_bench, warmup and rep"
        )
    if knobs.runtime.interpret:
        raise UsageError("under TRITON_INTERPRET=1 nothing is compiled or timed; unset it to tune")
    device.current_index()


def check_key(kernel: Kernel, key: Key) -> None:
    """Raises `UsageError` unless `inputs` can be called with this key."""
    inputs = kernel.tuner.whet_inputs
    assert inputs is not None
    parameters = inspect.signature(inputs).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name in key:
        if name not in names and not open_ended:
            raise UsageError(
                f"the inputs of kernel '{kernel.name}' know no '{name}'{did_you_mean(name, names)}"
            )
    needed = [p.name for p in parameters if p.name in names and p.default is p.empty]
    missing = [name for name in needed if name not in key]
    if missing:
        example = ",".join(f"{name}=…" for name in needed)
        where = f"the key {key_text(key)} lacks {', '.join(missing)}" if key else "a key is needed"
        raise UsageError(f"{where} for kernel '{kernel.name}'; give --key {example}")


def key_text(key: Key) -> str:
    """`{"M": 64, "N": 32}` is `M=64,N=32`, as it is typed."""
    return ",".join(f"{name}={value}" for name, value in key.items())


def make_inputs(kernel: Kernel, key: Key) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The grid, the arguments and the keywords of one launch. Runs code of the user's."""
    inputs = kernel.tuner.whet_inputs
    assert inputs is not None
    made = inputs(**key)
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise UsageError(_wrong_inputs(kernel, f"a {type(made).__name__}"))
    grid, args, keywords = made if len(made) == 3 else (*made, {})
    if not isinstance(args, tuple | list) or not isinstance(keywords, Mapping):
        kinds = ", ".join(type(part).__name__ for part in made)
        raise UsageError(_wrong_inputs(kernel, f"({kinds})"))
    return grid, tuple(args), dict(keywords)


def _wrong_inputs(kernel: Kernel, returned: str) -> str:
    return (
        f"the inputs of kernel '{kernel.name}' returned {returned}; "
        "return (grid, args) or (grid, args, kwargs)"
    )


def received(
    kernel: Kernel, grid: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the tuner gets of a launch: with what `triton.heuristics` around it add. Launches
    nothing."""
    caught: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    tuner: Any = kernel.tuner
    tuner.run = lambda *args, **keywords: caught.append((args, keywords))
    try:
        kernel.launcher.run(*args, grid=grid, warmup=False, **keywords)
    finally:
        del tuner.run
    return caught[0]


def offline_target(kernel: Kernel, call: Call) -> TritonTarget:
    """The target that the tuner would make of this call, with the configs it would consider."""
    tuner = kernel.tuner
    passed = {name: value for name, value in call.named.items() if name in tuner.arg_names}
    own = {name: v for name, v in call.keywords.items() if name not in ("grid", "warmup")}
    tuner.nargs = dict(zip(tuner.arg_names, call.args, strict=False))
    try:
        configs = tuner.prune_configs(own) if len(tuner.configs) > 1 else tuner.configs
    finally:
        tuner.nargs = None
    return TritonTarget(
        call,
        configs,
        workload_key(tuner.keys, passed, tuner.whet_buckets),
        tuner.whet_timer,
        temporary(),
    )


def tune_call(
    kernel: Kernel,
    grid: Any,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    on_event: Events | None = None,
) -> Result:
    """Tunes as the program's own call with these arguments would, and under the same workload.

    Raises `TuningFailedError` where no config works, and `NothingToTuneError` where there was no
    choice to make.
    """
    watch = _Watch(on_event)
    launched: Exception | None = None
    with _afresh(kernel.tuner, watch):
        try:
            kernel.launcher[grid](*args, **keywords)
        except WhetError:
            raise
        except Exception as error:  # whatever the first config's launch has to say
            launched = error
        result = kernel.tuner.whet_result
    if result is not None and launched is None:
        return result
    if launched is not None:
        text = str(launched).strip().partition("\n")[0]
        raise TuningFailedError(
            f"no config of '{kernel.name}' works: {type(launched).__name__}: {text}"
        )
    if watch.started:
        failed = watch.failed
        why = "" if failed is None else f"; first: [{failed.config}] {failed.error}"
        raise TuningFailedError(f"no config of '{kernel.name}' works{why}")
    raise NothingToTuneError(
        f"there was nothing to tune for '{kernel.name}': one config is all that is left for this "
        "key, or another process has been tuning it for long"
    )


class _Watch:
    """Remembers what is needed to explain a tuning that came to nothing."""

    def __init__(self, on_event: Events | None) -> None:
        self._on_event = on_event
        self.started = False
        self.failed: Trial | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.started = True
        elif isinstance(event, TrialFinished) and event.trial.status.failed:
            self.failed = self.failed or event.trial
        if self._on_event is not None:
            self._on_event(event)


@contextmanager
def _afresh(tuner: Autotuner, events: Events) -> Iterator[None]:
    """Nothing that this process or Triton's own file has chosen before answers the call, and it
    tunes whatever the mode."""
    before = tuner.cache_results, tuner.whet_events, tuner.whet_mode
    idle, tuner.whet_idle = tuner.whet_idle, False
    tuner.cache.clear()
    tuner.cache_results, tuner.whet_events, tuner.whet_mode = False, events, "tune"
    tuner.whet_result, tuner.whet_lost = None, None
    try:
        yield
    finally:
        tuner.cache_results, tuner.whet_events, tuner.whet_mode = before
        tuner.whet_idle = idle
