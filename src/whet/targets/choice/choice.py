"""`whet.choice`: the fastest of several implementations, found by measuring."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, overload

from whet.core.budget import Budget
from whet.core.errors import UsageError
from whet.core.mode import Mode, checked_mode
from whet.targets.base import refuse_lazy
from whet.targets.choice.chooser import Chooser
from whet.targets.choice.cost import CallCost, checked_cost
from whet.targets.choice.keys import Key

Implementations = Mapping[str, Callable[..., Any]]


@overload
def choice(
    implementations: Implementations,
    *,
    key: Key = ...,
    name: str | None = ...,
    reference: Callable[..., Any] | None = ...,
    rtol: float | None = ...,
    atol: float | None = ...,
    check: bool = ...,
    cost: CallCost | None = ...,
    mode: Mode | None = ...,
    buckets: Mapping[str, Any] | None = ...,
    budget: Any = ...,
) -> Chooser: ...


@overload
def choice(
    *,
    against: Implementations,
    key: Key = ...,
    name: str | None = ...,
    reference: Callable[..., Any] | None = ...,
    rtol: float | None = ...,
    atol: float | None = ...,
    check: bool = ...,
    cost: CallCost | None = ...,
    mode: Mode | None = ...,
    buckets: Mapping[str, Any] | None = ...,
    budget: Any = ...,
) -> Callable[[Callable[..., Any]], Chooser]: ...


def choice(
    implementations: Implementations | None = None,
    *,
    against: Implementations | None = None,
    key: Key = None,
    name: str | None = None,
    reference: Callable[..., Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    check: bool = True,
    cost: CallCost | None = None,
    mode: Mode | None = None,
    buckets: Mapping[str, Any] | None = None,
    budget: Any = None,
) -> Any:
    """Makes one function of several that compute the same, and calls the fastest of them.

    `whet.choice({"torch": f, "triton": g})` returns that function. As a decorator,
    `@whet.choice(against={"triton": g})` makes the decorated function the first implementation.
    The first is used unless another is shown to be faster. An implementation may be tunable itself:
    it is tuned before it is timed.

    `key` says which calls are of one kind: names of arguments, or a function of the arguments that
    returns a dictionary and looks at nothing else; by default the sizes, strides and dtypes of all
    tensors and the values of all numbers and strings. `buckets` map values of the key to one
    workload. `cost` is what counts: "eager" calls, or the time in a CUDA "graph"; by default what
    goes on when it is called.

    Every implementation must agree with `reference`, or with the first, within `rtol` and `atol`,
    or else within a few roundings of its dtype and what these change; with `rtol` alone, elements
    near zero may be off by that much of the mean. `check=False` compares nothing. It must not
    change an argument that the reference leaves alone. Where an argument requires a gradient,
    forward and backward are timed and compared together. `mode` and `budget` are as in
    `whet.autotune`.
    """
    options: dict[str, Any] = {"file": sys._getframe(1).f_code.co_filename, "checks": check}
    options |= {"key": key, "buckets": buckets, "reference": reference, "rtol": rtol, "atol": atol}
    options |= {"cost": cost, "mode": mode, "budget": budget}
    _check_options(options)
    if implementations is None:
        return _decorator(_checked({} if against is None else against, "against"), name, options)
    if against is not None:
        raise UsageError("against= is for the decorator; put all implementations in one dict")
    every = _checked(implementations, "whet.choice")
    if not every:
        raise UsageError("whet.choice needs at least one implementation")
    return Chooser(every, name=name or _label(next(iter(every.values()))), **options)


def _check_options(options: dict[str, Any]) -> None:
    """As they are written down, and not at the first call."""
    reference = options["reference"]
    if reference is not None and not callable(reference):
        raise UsageError(
            f"reference= is a {type(reference).__name__}; give a function of the same arguments"
        )
    refuse_lazy(reference, "reference=")
    for name, checked in (("cost", checked_cost), ("mode", checked_mode), ("budget", Budget.parse)):
        if options[name] is not None:
            options[name] = checked(options[name])


def _decorator(
    others: dict[str, Callable[..., Any]], name: str | None, options: dict[str, Any]
) -> Callable[[Callable[..., Any]], Chooser]:
    def decorated(fn: Callable[..., Any]) -> Chooser:
        own = _label(fn)
        if own in others:
            raise UsageError(f"against= has an implementation '{own}' like the function's own")
        return Chooser({own: fn, **others}, name=name or own, **options)

    return decorated


def _label(fn: Any) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))


def _checked(implementations: Any, what: str) -> dict[str, Callable[..., Any]]:
    if not isinstance(implementations, Mapping):
        raise UsageError(
            f"{what} needs a dict from names to functions, not {type(implementations).__name__}"
        )
    for name, fn in implementations.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"{what}: the name {name!r} is not a string")
        if not callable(fn):
            raise UsageError(
                f"{what}: implementation '{name}' is a {type(fn).__name__}, which cannot be called"
            )
        refuse_lazy(fn, f"{what}: implementation '{name}'")
    return dict(implementations)
