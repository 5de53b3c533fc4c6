"""Triton's configs and ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.core.config import Config, freeze_value
from whet.core.errors import SpaceError
from whet.core.space import Space


def plain_config(config: Any) -> Config:
    """`triton.Config({"BM": 64}, num_warps=4)` as `Config(BM=64, num_warps=4, …)`.

    What JSON cannot hold (a dtype, a function) goes in as its text; a `pre_hook` by its name, since
    configs that differ in nothing else are different configs.
    """
    values = {name: _plain(value) for name, value in config.all_kwargs().items()}
    hook = getattr(config, "pre_hook", None)
    if hook is not None:
        values["pre_hook"] = getattr(hook, "__qualname__", type(hook).__qualname__)
    return Config(values)


def _plain(value: Any) -> Any:
    try:
        return freeze_value(getattr(value, "value", value))
    except SpaceError:
        return str(value)


class Menu:
    """A list of Triton configs as a `Space`, with the way back."""

    def __init__(self, configs: Sequence[Any]) -> None:
        self._by_id: dict[str, Any] = {}
        for config in configs:
            self._by_id.setdefault(plain_config(config).id, config)
        self.space = Space([plain_config(config) for config in configs])

    def triton(self, config: Config) -> Any:
        return self._by_id[config.id]

    def __contains__(self, config: Config) -> bool:
        return config.id in self._by_id
