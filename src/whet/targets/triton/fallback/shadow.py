"""A call that is measured between others: with the arguments of whichever call there is now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from whet.builds.job import Job
from whet.core.config import Config
from whet.core.errors import TuningFailedError
from whet.engine.fallback.background import NotNow
from whet.engine.settings import Settings
from whet.engine.target import BenchLimits
from whet.engine.turns import file_lock
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Bench
from whet.targets.triton import device
from whet.targets.triton.call import Call, LoadedTriton, Touched, touched
from whet.targets.triton.compiler.capture import identified_request
from whet.targets.triton.target import TritonTarget

_NUMBERS = (bool, int, float, str, type(None))


class PassingCall(Call):
    """Has arguments only while a step is taken: nobody's tensors are kept alive or written to
    between steps. Unlike a tuning, which comes before a first call, it may meet tensors that have
    gathered something since, so whatever a launch or a hook may change is saved and put back."""

    def __init__(self, tuner: Any) -> None:
        self._touched: Touched | None = None
        self._current: dict[int, dict[str, Any]] = {}
        super().__init__(tuner, (), {})

    def bind(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        super().bind(args, keywords)
        self._current.clear()

    def current(self, config: Any) -> dict[str, Any]:
        found = self._current.get(id(config))
        if found is None:
            found = self._current[id(config)] = super().current(config)
        return found

    def protect(self, kernel: Any) -> None:
        """Raises where something cannot be saved: then nothing must be launched."""
        self._touched = self._touched or touched(kernel)
        self.save()

    def save(self) -> None:
        """Nothing before the first kernel is loaded, and nothing twice."""
        if self._touched is None or self._saved is not None:
            return
        saved: dict[str, Any] = {}
        for name in self._changed(self._touched):
            tensor = self.named.get(name)
            if isinstance(tensor, _NUMBERS):
                continue
            try:
                saved[name] = tensor.clone()
            except Exception as error:  # no tensor, or no memory
                raise TuningFailedError(
                    f"cannot save '{name}', which a launch may change: {error}"
                ) from error
        self._saved = saved

    def _changed(self, found: Touched) -> list[str]:
        tuner = self.tuner
        hooks = tuner.user_defined_pre_hook or tuner.user_defined_post_hook
        names = [*tuner.reset_to_zero, *tuner.restore_value, *found.updated, *self.also_read(found)]
        if hooks or any(config.pre_hook for config in tuner.configs):
            names += [name for name in tuner.arg_names if hasattr(self.named.get(name), "clone")]
        return list(dict.fromkeys(names))


class _LoadedShadow(LoadedTriton):
    """Runs with the arguments of now."""

    def __init__(self, call: Call, config: Any) -> None:
        super().__init__(call, config)
        self._current = {}

    def _keywords(self) -> dict[str, Any]:
        return self._call.current(self.config)


class ShadowTarget(TritonTarget):
    """A `TritonTarget` of a `PassingCall`."""

    def __init__(
        self,
        call: PassingCall,
        configs: Sequence[Any],
        key: Mapping[str, Any],
        settings: Settings,
    ) -> None:
        super().__init__(call, configs, key, settings)
        self._passing = call
        # The identity of what is built for a config; None once the kernel is in memory.
        self._built: dict[Config, str | None] = {}

    def job(self, config: Config) -> Job | None:
        job = super().job(config)
        self._built[config] = None if job is None else job.identity
        return job

    def load(self, config: Config, artifact: Any) -> LoadedTriton:
        loaded = _LoadedShadow(self.call, self.menu.by_id[config.id])
        self._built[config] = None
        return loaded

    def bench(self, limits: BenchLimits) -> Bench:
        """Without a lock: `bound` holds it."""
        return LocalBench(self, self._timer, check_each=False)

    @contextmanager
    def bound(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Iterator[None]:
        """Around a step, with the arguments of a call that is to be launched right after; raises
        `NotNow` where this call does not lend itself to it."""
        if device.capturing():
            raise NotNow
        with file_lock(self._timing_lock, 0.0) as had:
            if not had:
                raise NotNow
            self.call.bind(args, keywords)
            try:
                if not self._fits():
                    raise NotNow
                self._passing.save()
                try:
                    yield
                finally:
                    self.call.restore()
            finally:
                self.call.bind((), {})

    def _fits(self) -> bool:
        """Whether this call needs the very kernels that were built: another alignment, or another
        value of a heuristic, and Triton would compile them now."""
        call = self.call
        for config, identity in self._built.items():
            keywords = call.current(self.menu.by_id[config.id])
            found = identified_request(call.tuner.fn, call.args, keywords, self._limits)
            if found is not None and found[1] != identity:
                return False
        return True
