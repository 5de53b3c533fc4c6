"""A decorated kernel tuned or measured without the program it belongs to, over given keys."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NoReturn, TypeVar

from triton import knobs

from whet.core.errors import TuningFailedError, UsageError, WhetError
from whet.core.event import Event, RunStarted, TrialFinished
from whet.core.run import Result
from whet.core.trial import Trial
from whet.core.workload import Device, Workload
from whet.targets.triton import device
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.call import Call
from whet.targets.triton.compiler.compile import failure_text
from whet.targets.triton.keys import agrees, claimed_key, workload_key
from whet.targets.triton.offline.kernel import Kernel, Key, check_inputs, key_text
from whet.targets.triton.policy import apply_policy, settings_for
from whet.targets.triton.source import source_of
from whet.targets.triton.target import TritonTarget

Events = Callable[[Event], None]


class NothingToTuneError(WhetError):
    """A key that leaves no choice between configs, or none that may be made now."""


def check_ready(kernel: Kernel, key: Key | None = None) -> None:
    """Raises `UsageError` where no key of this kernel could be tuned here and now."""
    check_inputs(kernel)
    if not kernel.tuner.whet_own_benchmark:
        raise UsageError(
            f"kernel '{kernel.name}' uses its own benchmark, whose results are not stored; "
            "remove do_bench, warmup and rep"
        )
    try:
        device.current_index()
        here = True
    except device.NoGpuError as error:
        here, none = False, error
    if knobs.runtime.interpret:
        raise UsageError(
            "TRITON_INTERPRET is set, so kernels run as Python on the CPU and cannot be timed; "
            + ("unset it to tune" if here else f"unset it, and {_instead(kernel, key)}")
        )
    if not here:
        raise UsageError(f"{none.why}; tune on a machine with a GPU. Here, {_instead(kernel, key)}")


def check_device(recorded: Device) -> None:
    """Raises `UsageError` where a recorded call was made on another device than this one."""
    here = device.describe(device.current_index()).name
    if here != recorded.name:
        raise UsageError(f"it was recorded on {recorded.name}, but this is {here}")


def check_compiles() -> None:
    """Raises `UsageError` where Triton was told not to compile."""
    if knobs.runtime.interpret:
        raise UsageError(
            "TRITON_INTERPRET is set, so kernels run as Python and are not compiled; unset it"
        )


def _instead(kernel: Kernel, key: Key | None) -> str:
    """What can be done with the kernel where there is no GPU, as a command to copy."""
    typed = f" --key {key_text(key)}" if key else ""
    made = f" --inputs {kernel.inputs_from}" if kernel.inputs_from else ""
    where = kernel.where or f"FILE.py:{kernel.name}"
    return (
        f"'whet precompile {where} --arch h100{typed}{made}' compiles every config for another "
        "machine's GPU and shows the resources each one uses"
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
    """The target that the tuner would make of this call, with the configs it would consider, for
    looking things up: there may be nothing here to measure with."""
    tuner = kernel.tuner
    passed = {name: value for name, value in call.named.items() if name in tuner.arg_names}
    own = {name: v for name, v in call.keywords.items() if name not in ("grid", "warmup")}
    tuner.nargs = dict(zip(tuner.arg_names, call.args, strict=False))
    try:
        configs = tuner.prune_configs(own) if len(tuner.configs) > 1 else tuner.configs
    finally:
        tuner.nargs = None
    return TritonTarget(call, configs, workload_key(tuner.keys, passed, tuner.whet_buckets))


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
        text = failure_text(launched).partition("\n")[0]
        raise TuningFailedError(f"no config of '{kernel.name}' works: {text}")
    if watch.started:
        failed = watch.failed
        why = "" if failed is None else f"; first: [{failed.config}] {failed.error}"
        raise TuningFailedError(f"no config of '{kernel.name}' works{why}")
    raise NothingToTuneError(
        f"nothing to tune for '{kernel.name}': only one config is left for this key, or "
        "another process is still tuning it"
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
    apply_policy(tuner)  # before its mode is put aside
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


T = TypeVar("T")


class _Enough(Exception, Generic[T]):
    """Ends the call once what was wanted of it is there: nothing is launched for its own sake."""

    def __init__(self, answer: T) -> None:
        super().__init__()
        self.answer = answer


def with_target(
    kernel: Kernel,
    grid: Any,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    use: Callable[[TritonTarget], T],
) -> T:
    """What `use` says of the target that this call would be tuned as, heuristics and pruning
    included. Raises `NothingToTuneError` where there is no choice to make."""

    def instead(call: Call, key: Mapping[str, Any], configs: Sequence[Any]) -> NoReturn:
        target = TritonTarget(call, configs, key, settings_for(kernel.tuner))
        try:
            answer = use(target)
        finally:
            call.restore()
        raise _Enough(answer)

    own: dict[str, Any] = kernel.tuner.__dict__
    with _afresh(kernel.tuner, lambda event: None):
        own["_tuned"] = instead
        try:
            kernel.launcher[grid](*args, **keywords)
        except _Enough as enough:
            answer: T = enough.answer
            return answer
        finally:
            del own["_tuned"]
    raise NothingToTuneError(f"nothing to tune for '{kernel.name}': only one config is left")


def keys_for_inputs(kernel: Kernel, known: Sequence[Workload]) -> list[dict[str, Any]]:
    """The stored keys of this device in the words of `inputs`, as far as these are the same.

    A dtype that `inputs` calls otherwise is left to its default.
    """
    here = device.describe(device.current_index())
    inputs = kernel.tuner.whet_inputs
    assert inputs is not None
    parameters = inspect.signature(inputs).parameters
    apply_policy(kernel.tuner)
    claimed = claimed_key(source_of(kernel.tuner), kernel.tuner.whet_buckets)
    needed = {name for name, p in parameters.items() if p.default is p.empty}
    found: list[dict[str, Any]] = []
    for workload in known:
        key = {name: workload.key[name] for name in parameters if name in workload.key}
        same = workload.kernel == kernel.name and workload.device.name == here.name
        if same and agrees(workload.key, claimed) and needed <= key.keys() and key not in found:
            found.append(key)
    return found
