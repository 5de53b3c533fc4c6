"""How autotuners of Triton and of libraries become whet's, and go back."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from types import new_class
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import triton
from triton import knobs
from triton.runtime import autotuner as stock
from triton.runtime.jit import KernelInterface

from whet.engine.fallback.mode import current_mode
from whet.targets.triton import device
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.decorator import autotune
from whet.targets.triton.dispatch import (
    Cache,
    Dispatching,
    stock_bench,
    stock_getitem,
    stock_init,
    stock_run,
)
from whet.targets.triton.keys import captured_keys
from whet.targets.triton.live import How, InstalledKernel, instances, with_subclasses
from whet.targets.triton.policy import settings_for
from whet.targets.triton.warming.active import active

if TYPE_CHECKING:
    from whet.targets.triton.foreign import OneByOne


_lock = threading.RLock()
_replaced: dict[str, Any] = {}

# Of subclasses, whose constructor goes on after Triton's own has ended.
_pending: list[weakref.ref[Any]] = []


def take_all(jit: bool = False) -> None:
    """`triton.runtime.autotuner.autotune` stays, because Dynamo re-wraps kernels with it."""
    with _lock:
        if jit:
            from whet.targets.triton.plain import take_plain  # few ask for it

            take_plain()
        if not _replaced:
            _hook()
            _replaced["hooked"] = True
            for name, module in (("triton", triton), ("runtime", triton.runtime)):
                # A library's own stays: it makes subclasses, and these are reached all the same.
                if module.autotune is triton.runtime.autotuner.autotune:
                    _replaced[name] = module.autotune
                    module.autotune = autotune
        for tuner in live(not_ours=True):
            take(tuner)


def give_all_back() -> None:
    with _lock:
        if not _replaced:
            return
        for name, module in (("triton", triton), ("runtime", triton.runtime)):
            if name in _replaced and module.autotune is autotune:
                module.autotune = _replaced[name]
        if (plain := sys.modules.get("whet.targets.triton.plain")) is not None:
            plain.give_plain_back()
        _replaced.clear()
        _pending.clear()
        _unhook()
        for tuner in live():
            give_back(tuner)


def all_kernels() -> tuple[InstalledKernel, ...]:
    found = []
    with _lock:
        for tuner in live():
            reason = take(tuner) if _replaced else "whet.install() was not called"
            found.append(_described(tuner, reason))
        if (plain := sys.modules.get("whet.targets.triton.plain")) is not None:
            found += plain.all_plain()
    return tuple(one for _, one in sorted(found, key=lambda item: item[0]))


def _described(tuner: Any, reason: str) -> tuple[tuple[str, int, str], InstalledKernel]:

    state = vars(tuner)
    mark = state.get("whet_taken")
    kind = type(tuner) if mark is None else mark.kind
    how: How = "decorated" if mark is None else "taken"
    if not isinstance(tuner, Autotuner):
        how = "left alone"
    elif mark is not None and kind is not stock.Autotuner:
        how = "subclass"
    code = tuner.base_fn.__code__
    spent = state.get("bench_time", 0.0) if how == "left alone" else tuner.whet_spent_s
    one = InstalledKernel(
        kernel=tuner.base_fn.__name__,
        place=f"{code.co_filename}:{code.co_firstlineno}",
        kind=f"{kind.__module__}.{kind.__qualname__}",
        how=how,
        reason=reason if how == "left alone" else "",
        keys=_keys(state),
        seconds=float(spent),
        called="best_config" in state,
        launch=_launch(tuner) if isinstance(tuner, Autotuner) else "by Triton",
        guards=tuner.whet_direct if isinstance(tuner, Autotuner) else (),
    )
    return (code.co_filename, code.co_firstlineno, one.kernel), one


def _launch(tuner: Autotuner) -> str:
    if tuner.whet_direct:
        others = tuner.whet_not_direct
        return f"direct; some by Triton: {others}" if others else "direct"
    if tuner.whet_not_direct:
        return f"by Triton: {tuner.whet_not_direct}"
    asked = settings_for(tuner).direct
    why = "no kind of call has come twice" if asked else "the setting direct is no"
    return f"by Triton: {why}"


def _keys(state: dict[str, Any]) -> int:
    try:
        return len(state["cache"])
    except Exception:  # a subclass may have put anything there: a table of a database, say
        benched = state.get("whet_one_by_one")
        return 0 if benched is None else len(benched.keys)


def _hook() -> None:
    """Triton's class itself, since subclasses call its methods by name, and those that are there
    already were made without asking us."""

    kind: Any = stock.Autotuner

    @wraps(stock_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(self, Autotuner):
            _take_pending()
        stock_init(self, *args, **kwargs)
        _met(self)

    @wraps(stock_run)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self, ThroughRun) and not _reached(self):
            return stock_run(self, *args, **kwargs)
        return Autotuner.run(self, *args, **kwargs)

    @wraps(stock_bench)
    def bench(self: Any, *args: Any, **kwargs: Any) -> Any:
        _reached(self)
        ours = isinstance(self, Subclassed)
        return (Subclassed._bench if ours else stock_bench)(self, *args, **kwargs)

    @wraps(stock_getitem)
    def getitem(self: Any, grid: Any) -> Any:
        if not _reached(self):
            return stock_getitem(self, grid)
        return (ThroughRun if isinstance(self, ThroughRun) else Autotuner).__getitem__(self, grid)

    kind.__init__, kind.run, kind._bench, kind.__getitem__ = init, run, bench, getitem


def _unhook() -> None:

    kind: Any = stock.Autotuner
    kind.__init__, kind.run = stock_init, stock_run
    kind._bench = stock_bench
    del kind.__getitem__  # inherited


def _met(tuner: Any) -> None:
    """A new one: taken at once where its constructor has ended."""

    if isinstance(tuner, Autotuner):
        return
    if type(tuner) is not stock.Autotuner:
        _pending.append(weakref.ref(tuner))
    elif _torch_asked():
        made_by_torch.add(tuner)
    else:
        take(tuner)


def _take_pending() -> None:
    while _pending:
        try:
            tuner = _pending.pop()()
        except IndexError:  # another thread was quicker
            return
        if tuner is not None:
            take(tuner)


def _reached(tuner: Any) -> bool:
    """Whether whet is behind it now."""
    _take_pending()
    return not take(tuner)


def _torch_asked() -> bool:
    """Whether it was torch, as it traces, that called Triton's `autotune`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _package(frame) in ("whet", "triton"):
        frame = frame.f_back
    return _package(frame) == "torch"


def _package(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


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
    names = {
        name for kind in (Dispatching, Autotuner, Subclassed, ThroughRun) for name in vars(kind)
    }
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


class Subclassed(Autotuner):
    """For a subclass that may call `_bench` itself, or has one of its own. `whet_ours` says that
    nobody asked for a benchmark of another kind."""

    whet_ours: bool
    whet_one_by_one: OneByOne | None
    whet_builds_in_bench = True

    def _bench(self, *args: Any, config: Any, **meta: Any) -> Any:
        """What a loop of the subclass's own gets in place of Triton's benchmark."""
        if knobs.runtime.interpret or device.capturing():
            return stock_bench(self, *args, config=config, **meta)
        if (program := active()) is not None:
            program.measures(self, [*args, *meta.values()])
        start = time.perf_counter()
        if self.whet_one_by_one is None:
            from whet.targets.triton.foreign import OneByOne

            self.whet_one_by_one = OneByOne(self.whet_ours)
        try:
            return self.whet_one_by_one.bench(self, args, config, meta)
        finally:
            self.whet_spent_s += time.perf_counter() - start

    def _benchmark(self, *args: Any) -> bool:
        before = self.whet_spent_s
        measured = super()._benchmark(*args)
        self.whet_spent_s = before + self.bench_time  # what `_bench` added is part of it
        return measured


class ThroughRun(Subclassed):
    """For a subclass with a `run` of its own, which every call has to reach.

    It may put configs into `cache`: these win, whatever the mode. It may also read there what was
    tuned, by Triton's own key, which says nothing of the device: where that is not the first, the
    config is there under both keys. `whet_put` has what whet put there, and `whet_lent` the keys
    that are not about the first device after all.
    """

    whet_put: dict[Any, Any]
    whet_lent: set[Any]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        launch: Callable[..., Any] = KernelInterface.__getitem__(self, grid)
        return launch

    def _chosen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
        _, key = self._keyed({**(self.nargs or {}), **kwargs})
        if current_mode(self._mode) == "off" and self._is_theirs(key):
            return self.cache[key], True
        known = key in self.cache
        config, lasting = super()._chosen(args, kwargs)
        if not known and key in self.cache:
            self.whet_put[key] = self.cache[key]
            if _of_device(key) and key[:-1] not in self.cache:
                self.cache[key[:-1]] = self.whet_put[key[:-1]] = config
                self.whet_lent.add(key[:-1])
        return config, lasting

    def _keyed(self, named: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
        passed, key = super()._keyed(named)
        if _of_device(key):
            return passed, key[:-1] if self._is_theirs(key[:-1]) else key
        if key in self.whet_lent:
            self.whet_lent.discard(key)
            if not self._is_theirs(key):
                self.cache.pop(key, None)
        return passed, key

    def _is_theirs(self, key: tuple[Any, ...]) -> bool:
        return key in self.cache and self.whet_put.get(key) is not self.cache[key]


def _of_device(key: tuple[Any, ...]) -> bool:
    return bool(key) and isinstance(key[-1], str) and key[-1].startswith("device:")
