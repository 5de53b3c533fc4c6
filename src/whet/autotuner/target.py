"""A callable of the user's, as the engine sees it: nothing to build, run in this process."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from whet.autotuner.configs import check_config_space
from whet.autotuner.errors import ArgumentError
from whet.builds import Job
from whet.core.config import Config, Value, freeze_value
from whet.core.errors import SpaceError
from whet.core.space import Space
from whet.core.space.parameter import value_key
from whet.core.workload import Workload
from whet.engine import BenchLimits
from whet.measure import Bench, LocalBench, Timer, Verdict
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


@dataclass(frozen=True)
class CallableTarget:
    """`kernel_fn(*args, **kwargs, **config)`, timed by `timer`."""

    name: str
    kernel_fn: Callable[..., Any]
    choices: PlainChoices
    space: Space
    timer: Timer
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    shares_host = True
    method = None
    build_mode = "fork"

    def workload(self) -> Workload:
        # The store is gone with the run: nothing has to be recognised by its source later.
        return Workload(kernel=self.name, fingerprint="", device=host_device())

    def reject(self, config: Config) -> str | None:
        return None

    def job(self, config: Config) -> Job | None:
        return None

    def bench(self, limits: BenchLimits) -> Bench:
        return LocalBench(self, self.timer)

    def twin(self, config: Config, facts: Mapping[str, Value]) -> Hashable | None:
        return None

    def features(self, config: Config) -> Mapping[str, float]:
        return {}

    def load(self, config: Config, artifact: Any) -> BoundKernel:
        return BoundKernel(self, config)


class BoundKernel:
    """The callable with one config bound to it. Only the timer calls it, so that counts hold."""

    def __init__(self, target: CallableTarget, config: Config) -> None:
        self._kernel_fn = target.kernel_fn
        self._args = target.args
        self._keywords = {**target.kwargs, **target.choices.originals(config)}
        self.facts: Mapping[str, Any] = {}

    def repeat(self, n: int) -> None:
        """Returns when the calls have; what they queued on a device is the timer's to wait for."""
        for _ in range(n):
            self._kernel_fn(*self._args, **self._keywords)

    def check(self) -> Verdict:
        return Verdict(True, "")

    def close(self) -> None:
        pass


def _plain(value: Any) -> Value:
    try:
        return freeze_value(value)
    except SpaceError:
        return repr(value)
