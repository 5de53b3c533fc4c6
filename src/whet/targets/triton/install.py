"""Makes whet tune everything that goes through Triton's `Autotuner`, and undoes it."""

from __future__ import annotations

import sys
import threading
import weakref
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal

_lock = threading.RLock()
_replaced: dict[str, Any] = {}

# Of subclasses, whose constructor goes on after Triton's own has ended.
_pending: list[weakref.ref[Any]] = []

How = Literal["decorated", "taken", "subclass", "left alone"]


@dataclass(frozen=True)
class InstalledKernel:
    """A live autotuner. `how` says how whet reached it: `decorated` by whet, `taken` over from
    Triton's class or from a `subclass` of it, or `left alone`, with the `reason`. `keys` is the
    number of keys in its cache, or, where that cannot be counted, of keys that this process has
    measured; `seconds` is the time spent on tuning them."""

    kernel: str
    place: str
    kind: str
    how: How
    reason: str
    keys: int
    seconds: float
    called: bool


def install() -> None:
    """Makes whet tune every kernel of this process that goes through Triton's `Autotuner` or a
    subclass of it: kernels that exist already, and kernels that are created later.

    `triton.runtime.autotuner.autotune` stays Triton's own, because Dynamo re-wraps kernels with it.
    """
    import triton

    from whet.targets.triton.adoption import live, take
    from whet.targets.triton.decorator import autotune

    with _lock:
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


def uninstall() -> None:
    """Restores Triton's decorator, and the class, attributes and cache of kernels that were taken
    over; tuned configs stay in their cache. Kernels decorated in the meantime stay with whet."""
    import triton

    from whet.targets.triton.adoption import give_back, live
    from whet.targets.triton.decorator import autotune

    with _lock:
        if not _replaced:
            return
        for name, module in (("triton", triton), ("runtime", triton.runtime)):
            if name in _replaced and module.autotune is autotune:
                module.autotune = _replaced[name]
        _replaced.clear()
        _pending.clear()
        _unhook()
        for tuner in live():
            give_back(tuner)


def installed() -> tuple[InstalledKernel, ...]:
    """Lists every live autotuner of this process, sorted by file and line."""
    from whet.targets.triton.adoption import live, take

    found = []
    with _lock:
        for tuner in live():
            reason = take(tuner) if _replaced else "whet.install() was not called"
            found.append(_described(tuner, reason))
    return tuple(one for _, one in sorted(found, key=lambda item: item[0]))


def _described(tuner: Any, reason: str) -> tuple[tuple[str, int, str], InstalledKernel]:
    from triton.runtime import autotuner as stock

    from whet.targets.triton.autotuner import Autotuner

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
    )
    return (code.co_filename, code.co_firstlineno, one.kernel), one


def _keys(state: dict[str, Any]) -> int:
    try:
        return len(state["cache"])
    except Exception:  # a subclass may have put anything there: a table of a database, say
        benched = state.get("whet_one_by_one")
        return 0 if benched is None else len(benched.keys)


def _hook() -> None:
    """Triton's class itself, since subclasses call its methods by name, and those that are there
    already were made without asking us."""
    from triton.runtime import autotuner as stock

    from whet.targets.triton import tritons
    from whet.targets.triton.autotuner import Autotuner
    from whet.targets.triton.subclassed import Subclassed, ThroughRun

    kind: Any = stock.Autotuner

    @wraps(tritons.stock_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(self, Autotuner):
            _take_pending()
        tritons.stock_init(self, *args, **kwargs)
        _met(self)

    @wraps(tritons.stock_run)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self, ThroughRun) and not _reached(self):
            return tritons.stock_run(self, *args, **kwargs)
        return Autotuner.run(self, *args, **kwargs)

    @wraps(tritons.stock_bench)
    def bench(self: Any, *args: Any, **kwargs: Any) -> Any:
        _reached(self)
        ours = isinstance(self, Subclassed)
        return (Subclassed._bench if ours else tritons.stock_bench)(self, *args, **kwargs)

    @wraps(tritons.stock_getitem)
    def getitem(self: Any, grid: Any) -> Any:
        if not _reached(self):
            return tritons.stock_getitem(self, grid)
        return (ThroughRun if isinstance(self, ThroughRun) else Autotuner).__getitem__(self, grid)

    kind.__init__, kind.run, kind._bench, kind.__getitem__ = init, run, bench, getitem


def _unhook() -> None:
    from triton.runtime import autotuner as stock

    from whet.targets.triton import tritons

    kind: Any = stock.Autotuner
    kind.__init__, kind.run = tritons.stock_init, tritons.stock_run
    kind._bench = tritons.stock_bench
    del kind.__getitem__  # inherited


def _met(tuner: Any) -> None:
    """A new one: taken at once where its constructor has ended."""
    from triton.runtime import autotuner as stock

    from whet.targets.triton import adoption
    from whet.targets.triton.autotuner import Autotuner

    if isinstance(tuner, Autotuner):
        return
    if type(tuner) is not stock.Autotuner:
        _pending.append(weakref.ref(tuner))
    elif _torch_asked():
        adoption.made_by_torch.add(tuner)
    else:
        adoption.take(tuner)


def _take_pending() -> None:
    from whet.targets.triton.adoption import take

    while _pending:
        try:
            tuner = _pending.pop()()
        except IndexError:  # another thread was quicker
            return
        if tuner is not None:
            take(tuner)


def _reached(tuner: Any) -> bool:
    """Whether whet is behind it now."""
    from whet.targets.triton.adoption import take

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
