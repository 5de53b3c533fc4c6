"""The way of a call whose config is known: a look at the arguments, a look-up, a launch.

No dictionary is made, no store asked and no lock taken on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from triton.runtime import autotuner as stock

from whet.core.buckets import Buckets
from whet.core.mode import Mode
from whet.engine.fallback.mode import asked
from whet.targets.key import shape_of
from whet.targets.triton import device

# So many keys are dispatched without a look at buckets or devices before it starts anew.
MOST_KNOWN = 65_536

# Triton's own methods, as they were before `whet.install()` put others there.
stock_init = stock.Autotuner.__init__
stock_bench = stock.Autotuner._bench
stock_run = stock.Autotuner.run
stock_getitem = stock.Autotuner.__getitem__

Key = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]


@cache
def _key_of(expression: str) -> Key:
    """One expression made for a shape of call is several times as quick as any loop over the
    arguments. It holds nothing but places and names of parameters."""
    made: Key = eval(f"lambda args, kwargs, bucket=None: {expression}")
    return made


def quantiles_ms(samples_ns: Sequence[float]) -> list[float]:
    """Milliseconds at the median, the fifth and the fourth fifth, as Triton keeps timings."""
    ordered = sorted(samples_ns)
    last = len(ordered) - 1
    return [ordered[round(last * share)] / 1e6 for share in (0.5, 0.2, 0.8)]


# So many kinds of calls of one key are launched directly (numbers that divide by 16 and others,
# say); and so many of a kernel are tried before anything is looked up.
MOST_KINDS = 8
MOST_AT_ONCE = 4


class DirectLaunches:
    """Those for the calls of one key, and how many more may be written."""

    __slots__ = ("launches", "left")

    def __init__(self, left: int) -> None:
        self.launches: tuple[Any, ...] = ()
        self.left = left


class StandInLaunches(DirectLaunches):
    """Of a config that stands in for a tuning: none is written, and `left` are the calls until a
    tuning of `key` would have paid."""

    __slots__ = ("key",)

    def __init__(self, left: int, key: Any) -> None:
        super().__init__(left)
        self.key = key


Known = tuple[Any, dict[str, Any], DirectLaunches]


class DispatchPlan:
    """How to tell calls of one shape apart: those with the same types in the same places.

    `key(args, kwargs)` is the values Triton's own key is made of, with the device where there is
    more than one. `known` has the config and its keywords for each key.
    """

    def __init__(
        self,
        keys: Sequence[str],
        arg_names: Sequence[str],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        with_device: bool,
        buckets: Buckets | None = None,
    ) -> None:
        places = {name: place for place, name in enumerate(arg_names) if place < len(args)}
        tensors = [place for place, value in enumerate(args) if hasattr(value, "dtype")]
        found = [(name, f"args[{places[name]}]") for name in keys if name in places]
        found += [(name, f"kwargs[{name!r}]") for name in keys if name in kwargs]
        bucketed = buckets.by_name if buckets else ()
        parts = [f"bucket({n!r}, {at})" if n in bucketed else at for n, at in found]
        parts += [f"args[{place}].dtype" for place in tensors]
        parts += [f"kwargs[{n!r}].dtype" for n, v in kwargs.items() if hasattr(v, "dtype")]
        # An optional tensor that is missing now may be there next time.
        parts += [f"args[{place}] is None" for place, value in enumerate(args) if value is None]
        if with_device:
            named = [f"kwargs[{name!r}]" for name, v in kwargs.items() if hasattr(v, "dtype")]
            parts += [f"{one}.device" for one in (*(f"args[{i}]" for i in tensors), *named)][:1]
        key: Any = _key_of(f"({', '.join(parts)}{',' * bool(parts)})")
        self.key: Key = partial(key, bucket=buckets.value) if buckets else key
        self.known: dict[Any, Known] = {}


class DispatchTable:
    """`plans` by shape of call; `quick` has the first seen with so many positional arguments.
    `direct` has all direct launches of a kernel that has few."""

    def __init__(self) -> None:
        self.direct: tuple[Any, ...] = ()
        self.direct_in_all = 0
        self.plans: dict[Any, DispatchPlan] = {}
        self.quick: dict[int, DispatchPlan] = {}


class Cache(dict[Any, Any]):
    """Triton's `cache` of configs by key, as people know and clear it.

    `tables` lead to configs more quickly. There is one for every mode that a context can ask for,
    and None for none: what is used in one mode may not be what another one wants. All are
    forgotten whenever the cache is changed by hand. One that is `shared` has others who add to it:
    a new key, too, may be about calls that are known by another.
    """

    def __init__(self, *, shared: bool = False) -> None:
        super().__init__()
        self.shared = shared
        self.tables: dict[Mode | None, DispatchTable] = {}

    def table(self, asked: Mode | None) -> DispatchTable:
        return self.tables.setdefault(asked, DispatchTable())

    @property
    def plans(self) -> dict[Any, DispatchPlan]:
        return self.table(None).plans

    def forget_plans(self) -> None:
        self.tables.clear()

    def clear(self) -> None:
        super().clear()
        self.forget_plans()

    def __setitem__(self, key: Any, config: Any) -> None:
        if key in self or self.shared:
            self.forget_plans()
        super().__setitem__(key, config)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self.forget_plans()

    def pop(self, *args: Any) -> Any:
        self.forget_plans()
        return super().pop(*args)

    def update(self, *args: Any, **kwargs: Any) -> None:
        super().update(*args, **kwargs)
        self.forget_plans()

    def __ior__(self, other: Any) -> Cache:  # type: ignore[misc]
        self.update(other)
        return self

    def popitem(self) -> tuple[Any, Any]:
        self.forget_plans()
        return super().popitem()


class Dispatching(stock.Autotuner):  # type: ignore[misc]
    """The part of an autotuner that every call enters, and that most do not leave.

    `whet_direct` are the last direct launches that were written, and `whet_not_direct` says why
    one could not be.
    """

    whet_direct: tuple[str, ...] = ()
    whet_not_direct = ""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            try:
                table = self.cache.tables[asked.get()]
                direct = table.direct
            except (KeyError, AttributeError):
                # A launcher may be held for longer than whet is installed: this may be Triton's.
                return self.run(*args, grid=grid, warmup=False, **kwargs)
            for one in direct:
                kernel = one(grid, args, kwargs)
                if kernel is not None:
                    return kernel
            try:
                plan = table.plans[shape_of(args, kwargs)] if kwargs else table.quick[len(args)]
                known = plan.known[plan.key(args, kwargs)]
            except (KeyError, AttributeError, TypeError):
                return self.run(*args, grid=grid, warmup=False, **kwargs)
            return self._launch_known(table, known, grid, args, kwargs)

        return launch

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """What `launch` does not know, and every call that comes by way of `triton.heuristics` or
        of a subclass's own `run`. Most of those are known as well."""
        try:
            table = self.cache.tables[asked.get()]
            direct = () if warmup else table.direct
        except (KeyError, AttributeError):
            return self._run_unknown(args, {**kwargs, "grid": grid, "warmup": warmup})
        for one in direct:
            kernel = one(grid, args, kwargs)
            if kernel is not None:
                return kernel
        try:
            plan = table.plans[shape_of(args, kwargs)]
            known = plan.known[plan.key(args, kwargs)]
        except (KeyError, AttributeError, TypeError):
            return self._run_unknown(args, {**kwargs, "grid": grid, "warmup": warmup})
        if warmup:
            return self.fn.run(*args, grid=grid, warmup=True, **kwargs, **known[1])
        return self._launch_known(table, known, grid, args, kwargs)

    def _launch_known(
        self,
        table: DispatchTable,
        known: Known,
        grid: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        config, keywords, direct = known
        for one in direct.launches:
            kernel = one(grid, args, kwargs)
            if kernel is not None:
                return kernel
        self.best_config = config
        if config.pre_hook is not None:
            self._call_hook(config, args, {**kwargs, "grid": grid, "warmup": False})
        kernel = self.fn.run(*args, grid=grid, warmup=False, **kwargs, **keywords)
        if direct.left:
            self._write_direct(table, known, kernel, grid, args, kwargs)
        return kernel

    def _remember(
        self,
        config: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        stand_in: StandInLaunches | None = None,
    ) -> None:
        """For the next call of this kind."""
        cache = self.cache
        if type(cache) is not Cache:
            return
        own = {name: v for name, v in kwargs.items() if name not in ("grid", "warmup")}
        with contextlib.suppress(TypeError):  # a key that cannot be hashed
            table = cache.table(asked.get())
            several = device.count() > 1
            plan = table.plans.setdefault(
                shape_of(args, own),
                DispatchPlan(self.keys, self.arg_names, args, own, several, self.whet_buckets),
            )
            if len(plan.known) >= MOST_KNOWN:
                plan.known.clear()
            direct = stand_in or DirectLaunches(MOST_KINDS * self._may_launch_directly())
            plan.known[plan.key(args, own)] = (config, self._launch_keywords(config), direct)
            if not own:
                table.quick.setdefault(len(args), plan)

    def _write_direct(
        self,
        table: DispatchTable,
        known: Known,
        kernel: Any,
        grid: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """So that the next call of this kind needs no look-up and no binder."""
        from whet.targets.triton.direct import NotDirect, Route, direct_call  # most never need it

        config, keywords, direct = known
        direct.left -= 1
        if isinstance(direct, StandInLaunches):
            if not direct.left:
                self._pays(direct.key)
            return
        route = Route(self.fn, self, config, keywords, self.keys, self.whet_buckets)
        try:
            made = direct_call(route, kernel, grid, args, kwargs)
        except NotDirect as refusal:
            self.whet_not_direct = str(refusal)
            return
        except Exception as error:  # the kernel has been launched, and can be again in Triton's way
            self.whet_not_direct = f"{type(error).__name__}: {error}"
            return
        direct.launches += (made.launch,)
        self.whet_direct = (*self.whet_direct, made.text)[-MOST_KINDS:]
        table.direct_in_all += 1
        few = table.direct_in_all <= MOST_AT_ONCE
        table.direct = (*table.direct, made.launch) if few else ()

    def _call_hook(self, config: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        nargs = dict(zip(self.arg_names, args, strict=False))
        config.pre_hook({**nargs, **kwargs, **config.all_kwargs()})

    def _pays(self, key: Any) -> None:
        """What stands in for the tuning of this key has been called often enough."""
        raise NotImplementedError

    def _may_launch_directly(self) -> bool:
        raise NotImplementedError

    def _run_unknown(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def _launch_keywords(self, config: Any) -> dict[str, Any]:
        raise NotImplementedError
