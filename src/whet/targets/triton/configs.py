"""Triton's configs and ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.core.config import Config, freeze_value
from whet.core.errors import SpaceError


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
    """A list of Triton configs as a `Space`, with the way there (`plain`) and back (`by_id`)."""

    def __init__(self, configs: Sequence[Any]) -> None:
        from whet.core.space import Space

        self.by_id: dict[str, Any] = {}
        self._plain: dict[int, Config] = {}
        for config in configs:
            self._plain[id(config)] = self._place(config)
        self.space = Space([self._plain[id(config)] for config in configs])

    def _place(self, config: Any) -> Config:
        """Configs that differ in their hook alone, made by one function, are numbered."""
        plain, number = plain_config(config), 1
        while (other := self.by_id.setdefault(plain.id, config)) is not config:
            if other == config:
                break
            number += 1
            plain = plain_config(config).replace(pre_hook=f"{plain['pre_hook']}#{number}")
        return plain

    def plain(self, config: Any) -> Config:
        return self._plain[id(config)]


def needed_keywords(config: Any, defaults: Any) -> dict[str, Any]:
    """What a launch must say: not the options that are the compiler's own defaults, since each of
    them costs a launch a microsecond."""
    return {
        name: value
        for name, value in config.all_kwargs().items()
        if name in config.kwargs or getattr(defaults, name, None) != value
    }
