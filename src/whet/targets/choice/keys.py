"""What tells the calls of a choice apart: as a workload's key, and quickly as a dictionary's."""

from __future__ import annotations

import inspect
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any, Literal, get_args

from whet.core.buckets import Buckets
from whet.core.config import freeze_value
from whet.core.errors import SpaceError, UsageError, did_you_mean
from whet.targets.key import shape_of


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


# A tuple of more parts is data rather than sizes or strides.
_MOST_PARTS = 8


def described(value: Any) -> tuple[Any, ...] | None:
    """Plain constants that stand for a value; None for what has nothing to compare.

    Dynamo traces it: under torch.compile a size may be symbolic, and is then pinned down.
    """
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        sizes = tuple([operator.index(n) for n in value.shape])
        return (str(value.dtype), sizes, _strides(value, sizes))
    if value is None or isinstance(value, bool | float | str):
        return (value,)
    if isinstance(value, int):
        return (operator.index(value),)
    if isinstance(value, tuple | list):
        return _container(value)
    return None


def _container(value: Sequence[Any]) -> tuple[Any, ...] | None:
    """The parts of a short tuple or of some tensors; else what a key has room for."""
    holds_tensors = any([hasattr(one, "dtype") for one in value])  # noqa: C419, for Dynamo
    if 0 < len(value) <= _MOST_PARTS and (holds_tensors or isinstance(value, tuple)):
        parts = tuple([described(one) for one in value])
        if None not in parts:
            return ("parts", *parts)
    kinds: list[str] = []
    for one in value:
        kind = str(one.dtype) if hasattr(one, "dtype") else type(one).__name__
        if kind not in kinds:
            kinds.append(kind)
    return ("length", len(value), " ".join(sorted(kinds)))


def _strides(value: Any, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """None where they follow from the sizes."""
    if not hasattr(value, "is_contiguous") or value.is_contiguous():
        return None
    return tuple([operator.index(n) for n in value.stride()])


def key_entries(name: str, description: tuple[Any, ...] | None) -> dict[str, Any]:
    """Numbers stand alone, so that what is known of other sizes can be inherited."""
    if description is None:
        return {}
    if len(description) == 1:
        with suppress(SpaceError):
            return {name: freeze_value(description[0])}
        return {}
    if description[0] == "length":
        return {f"{name}.length": description[1], f"{name}.type": description[2]}
    if description[0] == "parts":
        parts = [key_entries(f"{name}.{i}", one) for i, one in enumerate(description[1:])]
        return {name: value for part in parts for name, value in part.items()}
    dtype, sizes, strides = description
    entries: dict[str, Any] = {f"{name}.dtype": dtype.removeprefix("torch.")}
    entries |= {f"{name}.{place}": size for place, size in enumerate(sizes)}
    if strides is not None:
        entries[f"{name}.strides"] = "x".join(map(str, strides))
    return entries


def is_module(value: Any) -> bool:
    nn = sys.modules.get("torch.nn")
    return nn is not None and isinstance(value, nn.Module)


def differentiated(values: Any) -> list[Any]:
    """The tensors that a call is differentiated by, parameters of modules among them."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.is_grad_enabled():
        return []
    found: list[Any] = []
    for one in flattened(values):
        found += list(one.parameters()) if is_module(one) else [one] if is_tensor(one) else []
    return [one for one in found if one.requires_grad]


def device_index(values: Sequence[Any]) -> int | None:
    """Of the first tensor on a GPU; None where there is none."""
    for one in flattened(values):
        if is_tensor(one) and one.is_cuda:
            return int(one.device.index)
    return None


def flattened(values: Any) -> Iterator[Any]:
    """What lists, tuples and dictionaries hold, in their order."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list | tuple):
        for one in values:
            yield from flattened(one)
    else:
        yield values


CallCost = Literal["eager", "graph"]

COSTS: tuple[CallCost, ...] = get_args(CallCost)

# What the innermost `cost(…)` around a call says, None outside of any. Read on every call.
asked_cost: ContextVar[CallCost | None] = ContextVar("whet_cost", default=None)


def cost(name: CallCost) -> AbstractContextManager[CallCost]:
    """Sets which cost counts in choices: `with whet.cost("graph"): model(x)` before a capture.

    `eager` is the time a call takes when it is launched from Python, host included; `graph` is the
    time on the device when it is replayed from a CUDA graph. It applies to the current thread or
    task, like `whet.mode`. A choice that was given `cost=` keeps its own.
    """
    return _within(checked_cost(name))


@contextmanager
def _within(name: CallCost | None) -> Iterator[Any]:
    token = asked_cost.set(name)
    try:
        yield name
    finally:
        asked_cost.reset(token)


def checked_cost(value: Any) -> CallCost:
    text = value.strip().lower() if isinstance(value, str) else str(value)
    if text not in COSTS:
        raise UsageError(f"cost {value!r} is not valid{did_you_mean(text, COSTS)}")
    return text


def capturing() -> bool:
    """Whether the current stream records a CUDA graph. Never imports torch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return False
    return bool(torch.cuda.is_current_stream_capturing())


def current_cost(own: CallCost | None) -> CallCost:
    """The choice's own, else the context's; else what goes on now."""
    return own or asked_cost.get() or ("graph" if capturing() else "eager")


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
        self._guarded: GuardedPicks | None = None
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
            f"    check, picks, more = _whet_guarded[{size}]\n"
            f"    return {answer}\n"
            f"link = lambda check, picks, more: lambda {given}: {answer}\n"
            f"about = lambda {given}: ({size}, {others}, {_tuple(tensors)})\n",
            scope,
        )
        self._guarded = GuardedPicks(self.known, scope["link"], scope["about"], grad)
        scope["_whet_guarded"] = self._guarded.entries
        self.quick = scope["quick"]

    def learn(self, chosen: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """What `known` says of a call with these arguments, for `quick`."""
        if self._guarded is not None:
            self._guarded.learn(chosen, args)


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


Check = Callable[..., bool]
Picks = dict[Any, Callable[..., Any]]

# What to ask about the tensors of a call, what is chosen where they are alike, and whom to ask
# where they are not.
Entry = tuple[Check, Picks, Callable[..., Any]]

# Kinds of tensors that have the same number of bytes: with a gradient and without, say.
MOST_ALIKE = 2

MOST_ENTRIES = 4096


class GuardedPicks:
    """What is known of calls by how many bytes their tensors have, which is quickly asked.

    `known` finds an implementation by the whole key of a call, and raises `KeyError`. What it found
    is learnt, so that the next such call need not be looked at as closely. `link` makes a function
    of the arguments from an entry. Any thread may read `entries`; none of them ever changes.
    """

    def __init__(
        self,
        known: Callable[..., Callable[..., Any]],
        link: Callable[[Check, Picks, Callable[..., Any]], Callable[..., Any]],
        about: Callable[..., tuple[int, Any, tuple[Any, ...]]],
        grad: bool,
    ) -> None:
        """`about(…)` of a call: the bytes, what besides tensors tells it apart, and its tensors.
        With `grad`, the grad mode is a part of that: guards do not look at it, and it counts where
        a tensor requires a gradient."""
        self.entries: dict[int, Entry] = {}
        self._known, self._link, self._about, self._grad = known, link, about, grad
        self._alike: dict[int, list[tuple[Check, Picks]]] = {}
        self._lock = threading.Lock()

    def learn(self, chosen: Callable[..., Any], args: tuple[Any, ...]) -> None:
        # Of some layouts torch does not say how many bytes they have.
        with suppress(TypeError, RuntimeError), self._lock:
            size, rest, tensors = self._about(*args)
            if len(self.entries) >= MOST_ENTRIES:
                self.entries.clear()
                self._alike.clear()
            alike = self._alike.setdefault(size, [])
            for check, picks in alike:
                if check(*tensors):
                    picks[rest] = chosen
                    return
            new = self._guard(tensors) if len(alike) < MOST_ALIKE else None
            if new is not None:
                alike.append((new, {rest: chosen}))
            self.entries[size] = self._entry(alike, full=new is None)

    def _guard(self, tensors: tuple[Any, ...]) -> Check | None:
        fits = self._grad or not any(one.requires_grad for one in tensors)
        return guard(tensors) if fits else None

    def _entry(self, alike: Sequence[tuple[Check, Picks]], *, full: bool) -> Entry:
        """Where there are too many kinds, each question would be one too many."""
        if full:
            return _never, {}, self._known
        more = self._learning
        for check, picks in alike[1:]:
            more = self._link(check, picks, more)
        return *alike[0], more

    def _learning(self, *args: Any) -> Callable[..., Any]:
        chosen = self._known(*args)
        self.learn(chosen, args)
        return chosen


def guard(tensors: Sequence[Any]) -> Check | None:
    """Whether tensors are like these; None where torch cannot say so."""
    made = guards()
    torch = sys.modules["torch"]
    if made is None or any(type(one) not in (torch.Tensor, torch.nn.Parameter) for one in tensors):
        return None
    with suppress(Exception):  # a layout it does not know
        check: Check = made(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        # It says no where one tensor is given twice.
        return check if check(*tensors) else None
    return None


@cache
def guards() -> Any:
    """Torch's class for them, None where it is gone or does not tell apart what a key does: it is
    no public part of torch."""
    torch = sys.modules["torch"]
    try:
        made = torch._C._dynamo.guards.TensorGuards
        with torch.inference_mode(False):
            return made if _tells_apart(torch, made) else None
    except Exception:
        return None


def _tells_apart(torch: Any, made: Any) -> bool:
    def tensor(*sizes: int, **more: Any) -> Any:
        return torch.empty(*sizes, **{"device": "cpu", "dtype": torch.float32, **more})

    one, two = tensor(4, 3), tensor(3, requires_grad=True)
    check = made(one, two, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    others = [
        tensor(3, 4),
        tensor(4, 3, 1),
        tensor(3, 4).t(),
        tensor(8, 3)[::2],
        tensor(4, 3, dtype=torch.int32),
        tensor(4, 3, device="meta"),
        tensor(4, 3, requires_grad=True),
    ]
    if any(check(other, two) for other in others) or check(one, tensor(3)):
        return False
    return bool(check(tensor(4, 3), tensor(3, requires_grad=True)))


def _never(*_: Any) -> bool:
    return False
