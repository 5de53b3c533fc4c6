"""A callable of the user's, as the engine sees it: a function that is run in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.autotuner.configs import check_config_space
from whet.autotuner.devices import Place
from whet.autotuner.errors import ArgumentError
from whet.core.config import Config, Value, freeze_value
from whet.core.errors import SpaceError
from whet.core.space import Space, value_key
from whet.core.workload import Workload
from whet.engine import BenchLimits
from whet.measure import Bench, DeviceRoom, LocalBench, Timer, Verdict
from whet.targets.function import FunctionTarget, LoadedFunction
from whet.targets.host import host_device


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
