"""What tells the calls of a choice apart: as a workload's key, and quickly as a dictionary's."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whet.core.buckets import Buckets
from whet.core.config import freeze_value
from whet.core.errors import SpaceError, UsageError, did_you_mean
from whet.targets.choice.alike import Near
from whet.targets.choice.arguments import described, is_module, is_tensor, key_entries
from whet.targets.choice.cost import asked_cost, capturing
from whet.targets.key import shape_of

Key = Sequence[str] | Callable[..., Any] | None

# A name and what stands for its value; under torch.compile they are found while it traces.
Described = tuple[tuple[str, tuple[Any, ...] | None], ...]


# So many values of an argument that is no tensor are taken for data.
MOST_VALUES = 8


class CallKeys:
    """`key` is None for all arguments, some names of theirs, or a function of the arguments that
    returns a dictionary and goes by their sizes, dtypes, strides and plain values alone."""

    def __init__(self, key: Key, buckets: Mapping[str, Any] | None, first: Any) -> None:
        self.parameters = _parameters(first)
        self.function: Callable[..., Any] | None = key if callable(key) else None
        self.names: tuple[str, ...] | None = None
        if key is not None and not callable(key):
            self.names = (key,) if isinstance(key, str) else tuple(key)
            for name in self.names:
                if self.parameters and name not in self.parameters:
                    raise UsageError(
                        f"key names '{name}', which is no parameter of the first implementation"
                        f"{did_you_mean(name, self.parameters)}"
                    )
        self._buckets = Buckets.of(buckets, buckets or ())
        self._values: dict[str, set[Any]] = {}

    def named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = [*self.parameters, *map(str, range(len(self.parameters), len(args)))]
        return {**dict(zip(names, args, strict=False)), **kwargs}

    def described(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Described:
        """Traced by Dynamo, so it is plain."""
        if self.function is not None:
            said = self.function(*args, **kwargs)
            if not isinstance(said, dict):
                said = {"key": said}
            return tuple([(name, described(value)) for name, value in said.items()])
        named = self.named(args, kwargs)
        wanted = named if self.names is None else self.names
        return tuple([(name, described(named.get(name))) for name in wanted])

    def entries(self, description: Described) -> dict[str, Any]:
        """The key of a workload, values in their buckets."""
        key: dict[str, Any] = {}
        for name, one in description:
            if self.function is not None and one is None:
                raise UsageError(
                    f"the key function returned a '{name}' that is neither a number, a string, "
                    "a tensor nor a list of these; return what tells calls apart"
                )
            key |= key_entries(name, one)
        for name in self._buckets.by_name:
            if name not in key:
                raise UsageError(
                    f"buckets names '{name}', which is not in the key{did_you_mean(name, key)}"
                )
        return {name: self._buckets.value(name, value) for name, value in key.items()}

    def always_new(self, description: Described, key: Mapping[str, Any]) -> str:
        """Asked for each key that is tuned: which argument makes one after another, and what to do
        about it; said once of an argument, empty where there is none."""
        for name, one in description:
            what, place = ("value", name) if name in key else ("length", f"{name}.length")
            if one is None or place not in key:
                continue
            values = self._values.setdefault(name, set())
            if len(values) < MOST_VALUES:
                values.add(key[place])
                if len(values) == MOST_VALUES:
                    others = [other for other, one in description if other != name and one]
                    left = "of what key= returns" if self.function else f"with key={others}"
                    return (
                        f"every {what} of '{name}', {MOST_VALUES} so far; if it does not matter "
                        f"for speed, leave it out {left}, or give it buckets="
                    )
        return ""


def _parameters(first: Any) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(first).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(one.name for one in parameters if one.kind in kinds)


class ChoicePlan:
    """How calls of one shape, with the same types in the same places, are told apart quickly.

    `key(*args, **kwargs)` is one expression made for this shape: several times as quick as a loop
    over the arguments. `known(…)` is the implementation that `table` has under that key. `quick(…)`
    is the same for positional arguments; where it can, it asks torch whether the tensors are like
    those of an earlier call.
    """

    def __init__(
        self, keys: CallKeys, args: tuple[Any, ...], kwargs: Mapping[str, Any], own_cost: bool
    ) -> None:
        # Positional ones as parameters too: an index into a tuple costs more than a local name.
        places = {f"_whet{place}": value for place, value in enumerate(args)} | dict(kwargs)
        scope: dict[str, Any] = {"_whet_described": described, "_whet_asked": asked_cost.get}
        # A key function is asked once for each set of these: it says no more than they do.
        names = [*keys.named(args, kwargs)]
        counted = {
            place: value
            for name, (place, value) in zip(names, places.items(), strict=True)
            if keys.names is None or name in keys.names
        }
        tensors = [place for place, value in places.items() if is_tensor(value)]
        parts = {place: _parts(place, value) for place, value in counted.items()}
        rest = [part for place in parts if place not in tensors for part in parts[place]]
        key = [part for place in parts for part in parts[place]]
        grad = False
        if tensors:
            torch = sys.modules["torch"]
            scope |= {"_whet_grad": torch.is_grad_enabled, "_whet_capturing": _capturing(torch)}
            needs = " or ".join(f"{place}.requires_grad" for place in tensors)
            modules = any(map(is_module, places.values()))
            key.append("_whet_grad()" if modules else f"_whet_grad() and ({needs})")
            grad = modules or any(places[place].requires_grad for place in tensors)
            rest += ["_whet_grad()"] * grad
            if has_gpu():
                key.append(f"{tensors[0]}.get_device()")
                cost = [] if own_cost else ["_whet_asked() or _whet_capturing()"]
                key, rest = key + cost, rest + cost
        self.table: dict[Any, Callable[..., Any]] = {}
        scope["_whet_table"] = self.table
        given = ", ".join([*places][: len(args)] + ["*"] * bool(kwargs) + [*kwargs])
        self.key: Callable[..., Any]
        self.known: Callable[..., Callable[..., Any]]
        self.key, self.known = eval(
            f"(lambda {given}: {_tuple(key)}), (lambda {given}: _whet_table[{_tuple(key)}])", scope
        )
        self.quick = self.known
        self._near: Near | None = None
        if not kwargs and tensors and all(place in counted for place in tensors):
            self._use_guards(given, tensors, rest, scope, grad)

    def _use_guards(
        self,
        given: str,
        tensors: Sequence[str],
        rest: Sequence[str],
        scope: dict[str, Any],
        grad: bool,
    ) -> None:
        others = rest[0] if len(rest) == 1 else _tuple(rest)
        size, asked = " + ".join(f"{place}.nbytes" for place in tensors), ", ".join(tensors)
        answer = f"picks[{others}] if check({asked}) else more({given})"
        exec(
            f"def quick({given}):\n"
            f"    check, picks, more = _whet_near[{size}]\n"
            f"    return {answer}\n"
            f"link = lambda check, picks, more: lambda {given}: {answer}\n"
            f"about = lambda {given}: ({size}, {others}, {_tuple(tensors)})\n",
            scope,
        )
        self._near = Near(self.known, scope["link"], scope["about"], grad)
        scope["_whet_near"] = self._near.entries
        self.quick = scope["quick"]

    def learn(self, chosen: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """What `known` says of a call with these arguments, for `quick`."""
        if self._near is not None:
            self._near.learn(chosen, args)


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' * bool(parts)})"


def _capturing(torch: Any) -> Callable[[], bool]:
    """In a build for GPUs, what torch's own function calls: this is asked on every call."""
    if not torch.cuda.is_available():
        return capturing
    own: Callable[[], bool] = getattr(
        torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing
    )
    return own


def has_gpu() -> bool:
    """Whether tensors may be on one, and calls of theirs in graphs."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


def _parts(place: str, value: Any) -> list[str]:
    if is_tensor(value):
        return [f"{place}.shape", f"{place}.dtype", f"{place}.is_contiguous() or {place}.stride()"]
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return [f"{place}.shape", f"{place}.dtype"]
    if isinstance(value, tuple | list):
        return [f"_whet_described({place})"]
    try:
        freeze_value(value)
    except SpaceError:
        return []
    return [f"type({place})", place]  # True is not 1


class ChoiceTable:
    """`plans` by shape of call; `quick` finds the implementation by how many positional arguments
    there are: by the only plan for so many, or by the plan of the call's shape."""

    def __init__(self) -> None:
        self.plans: dict[Any, ChoicePlan] = {}
        self.quick: dict[int, Callable[..., Callable[..., Any]]] = {}

    def add_quick(self, count: int, plan: ChoicePlan) -> None:
        self.quick[count] = self._by_shape if count in self.quick else plan.quick

    def _by_shape(self, *args: Any) -> Callable[..., Any]:
        return self.plans[shape_of(args, {})].quick(*args)
