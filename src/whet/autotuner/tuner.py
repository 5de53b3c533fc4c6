"""`TritonAutoTuner`: a class around `tune`, for callables in this process."""

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

from whet.autotuner.cache import ConfigCache
from whet.autotuner.configs import ArgumentError, check_config_space
from whet.autotuner.metrics import (
    KernelMetrics,
    compute_elementwise_metrics,
    compute_gemm_metrics,
)
from whet.core.budget import Budget
from whet.core.config import Config, Value, freeze_value
from whet.core.errors import NotTunedError, SpaceError, TuningFailedError, UsageError
from whet.core.mode import Mode, checked_mode
from whet.core.run import Result
from whet.core.space import Space, value_key
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.engine import BenchLimits, Settings, tune
from whet.engine.fallback.mode import current_mode
from whet.engine.settings import resolve_settings
from whet.measure import Timer
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Bench, DeviceRoom, Verdict
from whet.measure.timers import CpuTimer
from whet.targets.base import host_device
from whet.targets.function import FunctionTarget, LoadedFunction, check_keywords
from whet.targets.triton import device as gpu

_HOST = re.compile(r"cpu(:\d+)?")
_CUDA = re.compile(r"cuda(?::(\d+))?")


@dataclass(frozen=True)
class Place:
    """Where a callable runs: `gpu` is the index of the device whose clock times it, None for the
    host's. `wait` returns when what the callable has queued has ended."""

    gpu: int | None
    wait: Callable[[], object]

    def current(self) -> AbstractContextManager[object]:
        """Makes the GPU the current one."""
        if self.gpu is None:
            return nullcontext()
        device: AbstractContextManager[object] = sys.modules["torch"].cuda.device(self.gpu)
        return device


def find_place(device: str | None, kernel_fn: Callable[..., Any], values: Sequence[Any]) -> Place:
    """The place that `device` names: `cpu`, `cuda`, `cuda:1` or a GPU's name as torch gives it.

    It must be here, and the CUDA tensors among `values` must be on it: what is measured elsewhere
    would be cached under a wrong name. Without `device` the tensors decide, the callable's own
    included. Without any, the host's clock is right for every callable, as long as it waits for
    the GPU that the process may use. torch is imported only if a GPU is named.
    """
    if device is not None and _HOST.fullmatch(device):
        _refuse_tensors(device, values)
        return Place(None, _nothing)
    if device is not None:
        return _on_gpu(_named_gpu(device, kernel_fn, values))
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found = _tensor_device(torch, [*values, *_captured(torch, kernel_fn)])
        if found is not None:
            return _on_gpu(found.index)
    return Place(None, _wait_for_cuda)


def _on_gpu(index: int) -> Place:
    return Place(index, partial(sys.modules["torch"].cuda.synchronize, index))


def _wait_for_cuda() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _nothing() -> None:
    pass


def _captured(torch: Any, kernel_fn: Callable[..., Any]) -> list[Any]:
    """The tensors that a function uses from around it."""
    try:
        found = inspect.getclosurevars(kernel_fn)
    except (TypeError, ValueError):  # another kind of callable, or a variable without a value
        return []
    around = [*found.nonlocals.values(), *found.globals.values()]
    return [value for value in around if isinstance(value, torch.Tensor)]


def _refuse_tensors(device: str, values: Sequence[Any]) -> None:
    torch = sys.modules.get("torch")
    found = None if torch is None else _tensor_device(torch, values)
    if found is not None:
        raise _elsewhere(device, found)


def _named_gpu(device: str, kernel_fn: Callable[..., Any], values: Sequence[Any]) -> int:
    named = _CUDA.fullmatch(device)
    torch, why = _torch_with_cuda()
    if torch is None:
        if named is None:
            raise _unknown(device, ["cpu"])
        raise ArgumentError(
            f"cannot use device='{device}': {why}; omit device=, or give device='cpu' to time "
            "the callable on the host"
        )
    count = torch.cuda.device_count()
    if named is None:
        names = [torch.cuda.get_device_name(index) for index in range(count)]
        if device not in names:
            raise _unknown(device, ["cpu", *_indexed(count), *dict.fromkeys(names)])
        allowed = [index for index, name in enumerate(names) if name == device]
    elif named[1] is None:
        allowed = list(range(count))
    elif int(named[1]) < count:
        allowed = [int(named[1])]
    else:
        raise _unknown(device, ["cpu", *_indexed(count)])
    found = _tensor_device(torch, values)
    if found is not None and found.index not in allowed:
        raise _elsewhere(device, found)
    found = found or _tensor_device(torch, _captured(torch, kernel_fn))
    likely: int = torch.cuda.current_device() if found is None else found.index
    return likely if likely in allowed else allowed[0]


def _torch_with_cuda() -> tuple[Any, str]:
    """torch, or None and what is missing."""
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return None, "torch is not installed"
    if torch.cuda.is_available():
        return torch, ""
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return None, f"torch {torch.__version__} is built without CUDA"
    return None, "torch sees no GPU"


def _tensor_device(torch: Any, values: Iterable[Any]) -> Any:
    """The device of the first CUDA tensor, also inside lists, tuples and dictionaries."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_cuda:
                return value.device
        elif isinstance(value, list | tuple | dict):
            inner = value.values() if isinstance(value, dict) else value
            device = _tensor_device(torch, inner)
            if device is not None:
                return device
    return None


def _indexed(count: int) -> list[str]:
    return [f"cuda:{index}" for index in range(count)]


def _unknown(device: str, valid: Sequence[str]) -> ArgumentError:
    return ArgumentError(f"there is no device '{device}'; valid: {', '.join(valid)}")


def _elsewhere(device: str, found: Any) -> ArgumentError:
    return ArgumentError(
        f"device='{device}', but a tensor argument is on {found}; give device='{found}' or move it"
    )


class PlainChoices:
    """The author's own values behind the plain ones that the engine and a cache can hold.

    `{"dtype": [torch.float16]}` is searched and cached as `{"dtype": "torch.float16"}`, and the
    kernel is given `torch.float16`.
    """

    def __init__(self, config_space: Mapping[str, Any]) -> None:
        check_config_space(config_space)
        plain = {name: [_plain(value) for value in config_space[name]] for name in config_space}
        try:
            self.space = Space(plain)
        except SpaceError as error:
            raise ArgumentError(f"config_space: {error}") from None
        self.size = 1
        self._originals: dict[str, dict[int | str, Any]] = {}
        for name, values in plain.items():
            self.size *= len(values)
            self._originals[name] = dict(
                zip(map(value_key, values), config_space[name], strict=True)
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._originals)

    def originals(self, config: Mapping[str, Value]) -> dict[str, Any]:
        return {name: self._originals[name][value_key(config[name])] for name in self._originals}

    def offer(self, config: Mapping[str, Value]) -> bool:
        """False for a config of another space, such as one cached before the space changed."""
        return config.keys() == self._originals.keys() and all(
            value_key(value) in self._originals[name] for name, value in config.items()
        )


@dataclass(frozen=True, kw_only=True)
class CallableTarget(FunctionTarget):
    """A function that is timed in this process and where it runs. Each config is called
    `warmup_runs` times before the timer's own warm-up, and never less than once."""

    choices: PlainChoices
    runs_on: Place
    timer: Timer
    warmup_runs: int = 0

    method = None

    def workload(self) -> Workload:
        # The store is gone with the run: nothing has to be recognised by its source later.
        return Workload(kernel=self.name, fingerprint="", device=host_device())

    def bench(self, limits: BenchLimits) -> Bench:
        room = DeviceRoom(limits.device_bytes)
        return LocalBench(self, self.timer, room=room, alone=self.runs_on.current)

    def load(self, config: Config, artifact: Any) -> LoadedCallable:
        return LoadedCallable(self, config)

    def keywords(self, config: Config) -> dict[str, Any]:
        return {**self.kwargs, **self.choices.originals(config)}


class LoadedCallable(LoadedFunction):
    """The callable with one config bound to it."""

    def __init__(self, target: CallableTarget, config: Config) -> None:
        super().__init__(target, config)
        self._runs_on = target.runs_on
        self._further_warmup_runs = target.warmup_runs - 1

    def repeat(self, n: int) -> None:
        """On a GPU it returns before the last has ended: its timer times them in their queue."""
        super().repeat(n)
        if self._runs_on.gpu is None:
            self._runs_on.wait()

    def check(self) -> Verdict:
        """Waits, so that what fails on the device is this config's failure."""
        self.repeat(self._further_warmup_runs)
        self._runs_on.wait()
        return super().check()


def _plain(value: Any) -> Value:
    try:
        return freeze_value(value)
    except SpaceError:
        return repr(value)


__all__ = [
    "TritonAutoTuner",
    "TuningResult",
    "compute_elementwise_metrics",
    "compute_gemm_metrics",
]

# An empty kernel takes a microsecond; two events with nothing between them read less than this.
SHORTEST_KERNEL_NS = 500


@dataclass(frozen=True)
class TuningResult:
    """The result of `TritonAutoTuner.tune`.

    `all_results` has one pair per config, in the order they were run: the config, and its
    `KernelMetrics` or the error as text; metrics of a config that lost early come from few samples.
    `from_cache` means that the config was cached and only its metrics are new.
    """

    best_config: dict[str, Any]
    metrics: KernelMetrics
    all_results: list[tuple[dict[str, Any], KernelMetrics | str]]
    problem_size: Any = None
    device: str | None = None
    from_cache: bool = False


class TritonAutoTuner:
    """Tunes any callable that takes the parameters of `config_space` as keywords.

    Every config is run in this process and timed as in `whet.tune`: slow configs are dropped in a
    race, and the last few are compared in turns. A config that raises is recorded and skipped. With
    `benchmark_runs` there is no race: each config gets that many samples and the lowest median
    wins. With `warmup_runs`, each config is called that many times before the timer's own warm-up.

    On a GPU, a sample is one call, timed by the device with a cold L2 cache (see the setting `l2`):
    work that the callable queues on the current stream counts, work on the host does not. On the
    host, a short callable is called many times for one sample.

    `cache` is the `ConfigCache` in `cache_dir`, or in memory only. `mode` says whether `tune` may
    run anything (default: the mode of the context or the settings); `choose` never runs anything.
    """

    def __init__(
        self,
        kernel_fn: Callable[..., Any],
        config_space: Mapping[str, list[Any]],
        warmup_runs: int | None = None,
        benchmark_runs: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        mode: Mode | None = None,
    ) -> None:
        if not callable(kernel_fn):
            raise ArgumentError(f"kernel_fn is {kernel_fn!r}; give a callable")
        self._choices = PlainChoices(config_space)
        self._kernel_fn = kernel_fn
        self._name = _name_of(kernel_fn)
        self._signature = _signature_of(kernel_fn)
        self._warmup_runs = _count("warmup_runs", warmup_runs, least=0)
        self._benchmark_runs = _count("benchmark_runs", benchmark_runs, least=1)
        try:
            check_keywords(kernel_fn, self._choices.space, {})
        except UsageError as error:
            raise ArgumentError(str(error)) from None
        self.cache = ConfigCache(cache_dir)
        self._mode = None if mode is None else checked_mode(mode)

    def choose(
        self, *, problem_size: Any, device: Any, kernel_type: str | None = None
    ) -> dict[str, Any]:
        """Returns the cached config, or the first of `config_space`; runs nothing.

        Mode `off` always returns the first; `require` raises `NotTunedError` if nothing is cached.
        """
        mode, name = current_mode(self._mode), kernel_type or self._name
        if mode != "off":
            known = self.cache.get(name, problem_size, str(device))
            if known is not None and self._choices.offer(known):
                return self._choices.originals(known)
        if mode == "require":
            raise NotTunedError(
                f"{name} for {problem_size} on {device} has no cached config, and mode "
                "'require' does not tune; call tune(…) once with mode='tune'"
            )
        first = self._choices.space.first
        assert first is not None
        return self._choices.originals(first)

    def tune(
        self,
        *args: Any,
        problem_size: Any = None,
        device: Any = None,
        kernel_type: str | None = None,
        **kwargs: Any,
    ) -> TuningResult:
        """Finds the fastest config of `kernel_fn(*args, **kwargs, **config)`.

        If `problem_size` and `device` are given, the winner is cached under (`kernel_type`,
        `problem_size`, `device`); `kernel_type` defaults to the name of the kernel. A cached config
        is taken as the best: only this config is run, to get current metrics. If it fails, or is no
        longer in `config_space`, everything is tuned.

        `device` is where the callable runs: `cpu`, `cuda`, `cuda:1` or the name of a GPU according
        to torch. A device that does not exist, or that does not hold the tensors, is an error. By
        default it is the device of the tensors, including those the function captures; if there are
        none, the host's clock times each call until the GPU has finished too.

        Raises `TuningFailedError` if no config works, and `NotTunedError` in a mode that does not
        tune, because metrics cannot be measured without running.
        """
        mode = current_mode(self._mode)
        if mode != "tune":
            raise NotTunedError(
                f"mode '{mode}' does not allow running {kernel_type or self._name} to tune it; "
                "use choose(…), which runs nothing, or mode='tune'"
            )
        self._check_call(args, kwargs)
        device = None if device is None else str(device)
        settings = resolve_settings().settings
        place = find_place(device, self._kernel_fn, [*args, *kwargs.values()])
        target = CallableTarget(
            fn=self._kernel_fn,
            space=self._choices.space,
            name=kernel_type or self._name,
            args=args,
            kwargs=kwargs,
            choices=self._choices,
            runs_on=place,
            timer=_timer(place, settings),
            warmup_runs=self._warmup_runs or 0,
        )
        if problem_size is None or device is None:
            return self._report(self._run(target, settings), problem_size, device)
        key = (target.name, problem_size, device)
        result = self._run_cached(target, settings, self.cache.get(*key))
        if result is not None:
            return self._report(result, problem_size, device, from_cache=True)
        result = self._run(target, settings)
        self.cache.set(*key, result.config)
        return self._report(result, problem_size, device)

    def _run(self, target: CallableTarget, settings: Settings) -> Result:
        """Whatever the settings say, every config is tried and only the cache remembers it."""
        samples = self._benchmark_runs or settings.samples
        result = tune(
            target,
            search="grid",
            budget=Budget(trials=self._choices.size),
            store=":memory:",
            jobs=1,
            settings=replace(settings, samples=samples, bundle=None),
            progress=False,
            mode="tune",
        )
        gpu_index, timing = target.runs_on.gpu, result.best.timing
        if gpu_index is not None and timing and timing.median_ns < SHORTEST_KERNEL_NS:
            warnings.warn(
                f"{self._name}() queued no work on the current stream of cuda:{gpu_index}, so its "
                "times mean nothing; use that stream, or give device='cpu' if it runs on the host",
                stacklevel=3,
            )
        return result

    def _run_cached(
        self, target: CallableTarget, settings: Settings, known: dict[str, Any] | None
    ) -> Result | None:
        if known is None or not self._choices.offer(known):
            return None
        try:
            return self._run(replace(target, space=Space([known])), settings)
        except TuningFailedError:
            return None

    def _report(
        self, result: Result, problem_size: Any, device: str | None, from_cache: bool = False
    ) -> TuningResult:
        return TuningResult(
            best_config=self._choices.originals(result.config),
            metrics=_metrics(result.best),
            all_results=[
                (
                    self._choices.originals(trial.config),
                    trial.error if trial.status.failed else _metrics(trial),
                )
                for trial in result.trials
            ],
            problem_size=problem_size,
            device=device,
            from_cache=from_cache,
        )

    def _check_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for name in self._choices.names:
            if name in kwargs:
                raise ArgumentError(f"'{name}' is tuned and also passed to tune(); remove one")
        if self._signature is None:
            return
        try:
            self._signature.bind(*args, **kwargs, **dict.fromkeys(self._choices.names))
        except TypeError as error:
            raise ArgumentError(
                f"{self._name}() cannot be called with the arguments of tune(): {error}"
            ) from None


def _metrics(trial: Trial) -> KernelMetrics:
    assert trial.timing is not None
    return KernelMetrics.from_samples(trial.timing.samples)


def _timer(place: Place, settings: Settings) -> Timer:
    if place.gpu is None:
        return CpuTimer()
    # Not from a CUDA graph: what a callable does need not be possible in one.
    return gpu.timer(place.gpu, settings.l2, settings.l2_bytes, False)


def _name_of(kernel_fn: Callable[..., Any]) -> str:
    inner = getattr(kernel_fn, "func", kernel_fn)  # functools.partial
    return str(getattr(inner, "__name__", type(kernel_fn).__name__))


def _signature_of(kernel_fn: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(kernel_fn)
    except (TypeError, ValueError):  # some builtins tell nobody
        return None


def _count(name: str, value: Any, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentError(f"{name} is {value!r}; give a whole number of at least {least}")
    return int(value)
