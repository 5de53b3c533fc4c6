"""Takes over kernels in place that Triton's decorator or a library's subclass created.

The object stays the same, because modules, `triton.heuristics` and others hold it. It gets a class
derived from its own and from whet's, so that `super().run` in the subclass reaches whet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import new_class
from typing import Any
from weakref import WeakSet

from triton.runtime import autotuner as stock

from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.dispatch import Cache
from whet.targets.triton.keys import captured_keys
from whet.targets.triton.live import instances, with_subclasses
from whet.targets.triton.subclassed import Subclassed, ThroughRun

_TRITONS = frozenset(name for kind in stock.Autotuner.__mro__ for name in vars(kind))


def _blank(kind: Any) -> Any:
    def kernel() -> None: ...

    return kind(kernel, [], [], [], None, None)


# Attributes of an instance that are whet's own, where Triton's has none of the name.
_STATE = frozenset(vars(_blank(Autotuner)).keys() - vars(_blank(stock.Autotuner)).keys())

# What Triton's constructor sets, and one of a subclass that does not call it may not.
_NEEDED = frozenset(vars(_blank(stock.Autotuner)))

_adopting = threading.RLock()
_classes: dict[tuple[type, bool], type | str] = {}

# What `torch.compile` made for itself while it traced a kernel: it must find nothing of ours there.
made_by_torch: WeakSet[Any] = WeakSet()


@dataclass(frozen=True)
class Taken:
    """What a kernel was before: its class, its `cache` and its `configs`."""

    kind: type
    cache: Any
    configs: Any


def live(*, not_ours: bool = False) -> list[Any]:
    """Every `Autotuner` of this process, Triton's and whet's, or only those that are `not_ours`."""
    every = with_subclasses(stock.Autotuner)
    kinds = {kind for kind in every if not (not_ours and issubclass(kind, Autotuner))}
    return instances(kinds, "base_fn")


def take(tuner: Any) -> str:
    """Puts whet behind a kernel; otherwise leaves it exactly as it was, and says why."""
    if isinstance(tuner, Autotuner):
        return ""
    with _adopting:
        if isinstance(tuner, Autotuner):  # another thread was quicker
            return ""
        kind = type(tuner)
        if kind is stock.Autotuner and tuner in made_by_torch:
            return "torch.compile created it"
        missing = sorted(_NEEDED - vars(tuner).keys())
        if missing:
            return f"{kind.__name__} does not set {missing[0]}"
        clash = sorted(_STATE & vars(tuner).keys())
        if clash:
            return f"{kind.__name__} sets {clash[0]}, a name that whet needs"
        made = _taken_class(kind, through_run="run" in vars(tuner))
        if isinstance(made, str):
            return made
        try:
            _become(tuner, made)
        except TypeError as error:  # of another layout
            return f"its class cannot be changed: {error}"
        return ""


def _become(tuner: Any, made: type) -> None:
    """In an order in which another thread may call it at any moment."""
    state, before = vars(tuner), type(tuner)
    donor = vars(_donor(tuner))
    mark = Taken(before, state["cache"], state["configs"])
    state.update({name: donor[name] for name in _STATE})
    state["_own_prune"] = state["_lookup"].own_prune = state["early_config_prune"]
    ours = _measured_by_us(tuner)
    state["whet_own_benchmark"] = ours and "_bench" not in _own(before)
    state["whet_claims"] = captured_keys(tuner.fn, tuner.keys, tuner.arg_names)
    state["whet_taken"] = mark
    if issubclass(made, Subclassed):
        state.update(whet_ours=ours, whet_one_by_one=None, whet_put={}, whet_lent=set())
    if type(mark.cache) is dict:
        cache = Cache(shared=issubclass(made, ThroughRun))
        cache.update(mark.cache)
        state["cache"] = cache
    try:
        tuner.__class__ = made
    except TypeError:
        _forget(state, mark)
        raise
    for name in ("configs", "early_config_prune"):
        del state[name]


def give_back(tuner: Any) -> None:
    """As it was, with what has been tuned in its `cache`; one that was not taken stays whet's."""
    state = vars(tuner)
    mark: Taken | None = state.get("whet_taken")
    if mark is None:
        return
    with tuner._tuning, _adopting:
        configs, cache = state["whet_given"], state["cache"]
        state["configs"] = mark.configs if configs == list(mark.configs) else configs
        state["early_config_prune"] = state["_own_prune"]
        tuner.__class__ = mark.kind
        _forget(state, mark)
        if type(cache) is Cache:
            mark.cache.clear()
            mark.cache.update(cache)
        else:
            state["cache"] = cache


def _forget(state: dict[str, Any], mark: Taken) -> None:
    for name in [n for n in state if n in _STATE or n.startswith("whet_")]:
        del state[name]
    state["cache"] = mark.cache


def _donor(tuner: Any) -> Autotuner:
    """Made for whet's own attributes: the constructor of a taken kernel is not run again."""
    return Autotuner(tuner.fn, tuner.arg_names, tuner.configs, [], None, None)


def _measured_by_us(tuner: Any) -> bool:
    """Whether nobody asked for a benchmark of another kind. Libraries write down Triton's own
    defaults, in milliseconds, and that asks for nothing special."""
    warmup, rep = tuner.num_warmups, tuner.num_reps
    unusual = (warmup, rep) != (None, None)
    if type(tuner) is not stock.Autotuner:
        unusual = warmup not in (None, 25) or rep not in (None, 100)
    made = bool(tuner.use_cuda_graph) or (warmup, rep) != (None, None)
    return tuner._do_bench is None or (made and not unusual)


def _own(kind: type) -> dict[str, Any]:
    """What a subclass and those above it define, Triton's own class not among them."""
    theirs = [one for one in kind.__mro__ if one not in stock.Autotuner.__mro__]
    return {name: value for one in reversed(theirs) for name, value in vars(one).items()}


def _taken_class(kind: type, through_run: bool) -> type | str:
    """The class for instances of `kind`, or why there is none. With `through_run` the instance
    itself has a `run`."""
    if kind is stock.Autotuner and not through_run:
        return Autotuner
    if (kind, through_run) not in _classes:
        _classes[kind, through_run] = _made_class(kind, through_run)
    return _classes[kind, through_run]


def _made_class(kind: type, through_run: bool) -> type | str:
    own = _own(kind)
    clash = sorted(own.keys() & _reserved())
    if clash:
        return f"{kind.__name__} defines {clash[0]}, a name that whet needs"
    if hasattr(own.get("cache"), "__set__"):
        return f"{kind.__name__} defines cache, a name that whet needs"
    base = ThroughRun if through_run or own.keys() & {"run", "__getitem__"} else Subclassed
    body: dict[str, Any] = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    if "prune_configs" in own:
        body["prune_configs"] = _pruning(kind)
    bases = (base,) if kind is stock.Autotuner else (kind, base)
    try:
        return new_class(kind.__name__, bases, {}, lambda space: space.update(body))
    except Exception as error:  # a metaclass or __init_subclass__ that refuses
        return f"{kind.__name__} cannot be extended: {error}"


def _reserved() -> set[str]:
    names = {name for kind in (Autotuner, Subclassed, ThroughRun) for name in vars(kind)}
    names = {name for name in names if not name.startswith("__")} - _TRITONS
    return names | _STATE | {"configs", "early_config_prune"}


def _pruning(kind: Any) -> Callable[..., Any]:
    """While a subclass prunes, `early_config_prune` is the author's own."""

    def prune_configs(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._tuning:
            before, self._pruning = self._pruning, True
            try:
                return kind.prune_configs(self, *args, **kwargs)
            finally:
                self._pruning = before

    return prune_configs
