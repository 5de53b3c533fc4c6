"""What tells one call of a kernel from another, and its configs, in plain values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whet.core.buckets import Buckets
from whet.core.config import Config, freeze_value
from whet.core.errors import SpaceError

if TYPE_CHECKING:
    from whet.core.miss import Argument
    from whet.targets.fingerprint import Source


def cache_key(keys: Sequence[str], passed: Mapping[str, Any], buckets: Buckets) -> list[Any]:
    """Triton's own key, which people look up in `cache`, with buckets for values."""
    key = [_bucketed(buckets, name, passed[name]) for name in keys if name in passed]
    key += [str(value.dtype) for value in passed.values() if hasattr(value, "dtype")]
    return key


def workload_key(
    keys: Sequence[str], passed: Mapping[str, Any], buckets: Buckets
) -> dict[str, Any]:
    key = {n: _plain(_bucketed(buckets, n, passed[n])) for n in keys if n in passed}
    for name, value in passed.items():
        if hasattr(value, "dtype"):
            key[f"{name}.dtype"] = str(value.dtype)
    return key


def captured_keys(kernel: Any, keys: Sequence[str], arg_names: Collection[str]) -> tuple[str, ...]:
    """Those of the keys that are no arguments, and under which the kernel captures a value."""
    others = [name for name in keys if name not in arg_names]
    if not others:
        return ()
    from whet.targets.triton.source import claimable  # few have such a key

    return claimable(kernel, others)


def claimed_key(source: Source, buckets: Buckets) -> dict[str, Any]:
    """What a kernel captures under names of its key, as part of the key."""
    return {name: buckets.value(name, value) for name, value in source.claimed.items()}


def agrees(key: Mapping[str, Any], claimed: Mapping[str, Any]) -> bool:
    """Whether a stored key is one of a kernel that captures these values."""
    from whet.targets.fingerprint import same_value

    return all(name in key and same_value(key[name], value) for name, value in claimed.items())


def _bucketed(buckets: Buckets, name: str, value: Any) -> Any:
    return buckets.value(name, value) if name in buckets.by_name else value


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def refuse_conflicts(kwargs: Mapping[str, Any], configs: Sequence[Any]) -> None:
    for config in configs:
        conflicts = kwargs.keys() & config.kwargs.keys()
        if conflicts:
            raise ValueError(
                f"Conflicting meta-parameters: {', '.join(conflicts)}."
                " Make sure that you don't re-define auto-tuned symbols."
            )


def refuse_incomplete(fn: Any, passed: Collection[str], configs: Sequence[Any]) -> None:
    """`TypeError` for a parameter of the kernel that neither the call nor a config sets: Triton's
    own names neither the kernel nor the config."""
    given = set(passed)
    while not inspect.isfunction(fn):
        given.update(getattr(fn, "values", ()))  # what a heuristic computes
        fn = fn.fn
    parameters = inspect.signature(fn).parameters.values()
    needed = [one.name for one in parameters if one.default is one.empty and one.name not in given]
    for config in configs:
        missing = [name for name in needed if name not in config.kwargs]
        if missing:
            raise TypeError(
                f"{fn.__name__}() is missing {', '.join(map(repr, missing))}: neither the call "
                f"nor the config [{config}] provides it"
            )


def input_key(
    inputs: Callable[..., Any], arguments: Sequence[Argument]
) -> tuple[dict[str, Any], list[str]]:
    """What to call `inputs` with to have these arguments again, and the names it needs that the
    arguments do not tell: `inputs(M, N, dtype)` gets the values of M and N, and the dtype that
    all tensors share."""
    values = {one.name: argument_value(one) for one in arguments if not one.dtype and _tells(one)}
    dtypes = {one.dtype.removeprefix("torch.") for one in arguments if one.dtype}
    key: dict[str, Any] = {}
    unknown = []
    for name, parameter in inspect.signature(inputs).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if name in values:
            key[name] = values[name]
        elif name == "dtype" and len(dtypes) == 1:
            key[name] = next(iter(dtypes))
        elif parameter.default is parameter.empty:
            unknown.append(name)
    return key, unknown


def _tells(argument: Argument) -> bool:
    return argument.value is not None or argument.type == "NoneType"


def plain_config(config: Any) -> Config:
    """`triton.Config({"BM": 64}, num_warps=4)` as `Config(BM=64, num_warps=4, …)`.

    What JSON cannot hold (a dtype, a function) goes in as its text; a `pre_hook` by its name, since
    configs that differ in nothing else are different configs.
    """
    values = {name: _frozen(value) for name, value in config.all_kwargs().items()}
    hook = getattr(config, "pre_hook", None)
    if hook is not None:
        values["pre_hook"] = getattr(hook, "__qualname__", type(hook).__qualname__)
    return Config(values)


def _frozen(value: Any) -> Any:
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


def written(value: Any) -> tuple[str, str] | None:
    """The type and the text of such a value: an infinite number, or a dtype of Triton's or torch's.
    None for any other."""
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if isinstance(value, float):
        return None if math.isfinite(value) else ("float", str(value))
    if type(value).__name__ == "dtype" and type(value).__module__.startswith(("torch", "triton")):
        return "dtype", str(value)
    return None


def argument_value(one: Argument) -> Any:
    """What `written` wrote, as it was; any other value as it is. Raises `ValueError` for a dtype
    that is not known here."""
    if not isinstance(one.value, str):
        return one.value
    if one.type == "float":
        return float(one.value)
    return _dtype(one.value) if one.type == "dtype" else one.value


def _dtype(text: str) -> Any:
    library, _, name = text.rpartition(".")
    if library == "torch":
        import torch

        found = getattr(torch, name, None)
        if not isinstance(found, torch.dtype):
            raise ValueError(f"this torch has no dtype {name}")
        return found
    import triton.language as tl

    known = {str(value): value for value in vars(tl).values() if isinstance(value, tl.dtype)}
    if text not in known:
        raise ValueError(f"this Triton has no dtype {text}")
    return known[text]
