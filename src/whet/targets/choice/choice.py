"""`whet.choice`: the fastest of several implementations, found by measuring."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import MethodType
from typing import Any, overload

from whet.core.budget import Budget
from whet.core.errors import TuningFailedError, UsageError
from whet.core.mode import Mode, checked_mode
from whet.core.run import Choice, Result
from whet.engine.fallback.calls import (
    BusyElsewhere,
    CallDecisions,
    UndecidedCall,
    all_tuned,
    checked_wait,
    choice_without_tuning,
    in_store_or_memory,
    stands_in,
)
from whet.engine.fallback.mode import asked, current_mode
from whet.engine.fallback.untuned import exact_pick
from whet.engine.guard import HostLostError
from whet.engine.log import say_once
from whet.engine.plan import Plan
from whet.engine.settings import Settings, resolve_settings
from whet.engine.tuning import tune
from whet.store import Store
from whet.targets.base import refuse_lazy
from whet.targets.choice.keys import (
    CallCost,
    ChoicePlan,
    ChoiceTable,
    Described,
    Key,
    asked_cost,
    capturing,
    checked_cost,
    current_cost,
    device_index,
    differentiated,
    flattened,
)
from whet.targets.choice.target import PARAMETER, Alternatives, ChoiceTarget, numbered, numbers
from whet.targets.fingerprint import place_of
from whet.targets.key import shape_of
from whet.targets.triton.warming.active import active, suspended

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
    wait_limit: Any = ...,
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
    wait_limit: Any = ...,
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
    wait_limit: Any = None,
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
    forward and backward are timed and compared together. `mode`, `budget` and `wait_limit` are as
    in `whet.autotune`.
    """
    options: dict[str, Any] = {"file": sys._getframe(1).f_code.co_filename, "checks": check}
    options |= {"key": key, "buckets": buckets, "reference": reference, "rtol": rtol, "atol": atol}
    options |= {"cost": cost, "mode": mode, "budget": budget, "wait_limit_s": wait_limit}
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
    checks = {"cost": checked_cost, "mode": checked_mode, "budget": Budget.parse}
    for name, checked in {**checks, "wait_limit_s": checked_wait}.items():
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


# So many calls are told apart before the table starts anew.
MOST_KNOWN = 65_536


# Looked up on every call.
_asked = asked.get


def _never() -> bool:
    return False


class Counted:
    """What stands in for a tuning: calls it, and says when it has been called so often that a
    tuning would have paid."""

    def __init__(self, fn: Callable[..., Any], left: int, pays: Callable[[], None]) -> None:
        self._fn, self._left, self._pays = fn, left, pays

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            self._pays()
        return self._fn(*args, **kwargs)


class Chooser(Alternatives):
    """What `whet.choice` makes. Calling it calls one of `implementations`, a dictionary by name.

    A call that is known costs a look at its arguments and two look-ups; any other is tuned, or
    answered without tuning as the mode says. `picks` tells what was chosen in this process, by key;
    `stand_ins` what is used in place of a tuning, after `wait_limit`, and why.
    """

    def __init__(self, implementations: Mapping[str, Callable[..., Any]], **given: Any) -> None:
        super().__init__(implementations, **given)
        self._callables = tuple(self.implementations.values())
        self.picks: dict[str, str] = {}
        self.stand_ins: dict[str, str] = {}
        self._tables: dict[Mode | None, ChoiceTable] = {}
        self._decisions: CallDecisions[str] = CallDecisions()
        self._lock = threading.RLock()
        self.number = str(next(numbers))
        numbered[self.number] = self
        self._compiling: Callable[[], bool] = _never
        self._notice_torch()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._compiling():
            return self._traced(args, kwargs)
        try:
            table = self._tables[_asked()]
            if kwargs:
                chosen = table.plans[shape_of(args, kwargs)].known(*args, **kwargs)
            else:
                chosen = table.quick[len(args)](*args)
        except (KeyError, AttributeError, TypeError, RuntimeError):
            chosen = self._found(args, kwargs)
        return chosen(*args, **kwargs) if kwargs else chosen(*args)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """So that a method can be a choice."""
        return self if instance is None else MethodType(self, instance)

    def __deepcopy__(self, memo: dict[int, Any]) -> Chooser:
        """A copy of a model calls the same function, as it does with plain ones."""
        return self

    def __reduce__(self) -> Any:
        """By its name, as functions are pickled."""
        place = place_of(self.file, self)
        module = next(
            (
                name
                for name, one in list(sys.modules.items())
                if getattr(one, "__dict__", {}).get("__file__") == self.file
            ),
            None,
        )
        if not place or module is None:
            raise TypeError(
                f"cannot pickle the choice '{self.name}', which is no name of a module; "
                "define it at the top of a file"
            )
        return _named, (module, place.rpartition(":")[2])

    def __repr__(self) -> str:
        return f"<choice '{self.name}' of {', '.join(self.implementations)}>"

    def register(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator that adds an implementation: `@product.register("triton")`."""
        if name in self.implementations:
            raise UsageError(f"'{self.name}' already has an implementation '{name}'")

        def added(fn: Callable[..., Any]) -> Callable[..., Any]:
            with self._lock:
                self.implementations[name] = fn
                self._callables = tuple(self.implementations.values())
                for derived in ("space", "source"):
                    self.__dict__.pop(derived, None)
                self.forget()
            return fn

        return added

    def target(self, *args: Any, **kwargs: Any) -> ChoiceTarget:
        """This call as a target: for `whet.tune`, `whet.choose`, or the command line."""
        description = self.keys.described(args, kwargs)
        return self._target(args, kwargs, description, current_cost(self.cost))

    def forget(self) -> None:
        """What was chosen in this process; the store keeps what it has."""
        with self._lock:
            self._tables.clear()
            self._decisions.clear()
            self.picks.clear()
            self.stand_ins.clear()

    def _notice_torch(self) -> None:
        compiler = getattr(sys.modules.get("torch"), "compiler", None)
        self._compiling = getattr(compiler, "is_dynamo_compiling", _never)

    def _traced(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Dynamo follows this: the look-up is done while it traces, the pick is traced inline."""
        from whet.targets.choice.dynamo import traced_place

        return self._callables[traced_place(self, args, kwargs)](*args, **kwargs)

    def _found(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Not known yet, or of a rarer shape."""
        self._notice_torch()
        table = self._tables.get(asked.get())
        plan = None if table is None else table.plans.get(shape_of(args, kwargs))
        if plan is not None:
            with suppress(TypeError, KeyError):
                chosen = plan.known(*args, **kwargs)
                if not kwargs:
                    plan.learn(chosen, args)
                return chosen
        with self._lock:
            description = self.keys.described(args, kwargs)
            cost = current_cost(self.cost)
            self._decisions.calls_left = None
            name, lasting, key = self._chosen(args, kwargs, description, cost)
            chosen = self.implementations[name]
            if lasting:
                left = self._decisions.calls_left
                kept = chosen if left is None else Counted(chosen, left, partial(self._pays, key))
                self._remember(kept, args, kwargs)
        return chosen

    def _pays(self, key: str) -> None:
        """What stands in for its tuning has been called often enough."""
        with self._lock:
            self._decisions.pays(key)
            self._tables.clear()

    def _remember(
        self, chosen: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        with suppress(TypeError, SyntaxError):  # cannot be hashed, or has odd names
            table = self._tables.setdefault(asked.get(), ChoiceTable())
            shape = shape_of(args, kwargs)
            plan = table.plans.get(shape)
            if plan is None:
                plan = ChoicePlan(self.keys, args, kwargs, self.cost is not None)
                table.plans[shape] = plan
                if not kwargs:
                    table.add_quick(len(args), plan)
            if len(plan.table) >= MOST_KNOWN:
                plan.table.clear()
            plan.table[plan.key(*args, **kwargs)] = chosen
            if not kwargs:
                plan.learn(chosen, args)

    def _target(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        description: Described,
        cost: CallCost,
    ) -> ChoiceTarget:
        values = list(flattened([args, kwargs]))
        gpu = device_index(values)
        entries = self.keys.entries(description)
        # Without a GPU there is no graph to be captured.
        cost = "eager" if gpu is None else cost
        return ChoiceTarget(self, args, kwargs, entries, cost, bool(differentiated(values)), gpu)

    def _chosen(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        description: Described,
        cost: CallCost,
    ) -> tuple[str, bool, str]:
        """The name of an implementation; whether that will hold, or is only a stopgap; and the
        key."""
        mode = self._decisions.mode(self.mode, lambda: self._tables.pop(None, None))
        if mode == "off" or len(self.implementations) < 2:
            return self.first, True, ""
        target = self._target(args, kwargs, description, cost)
        call = UndecidedChoice(self, target, description)
        known = self._decisions.known(mode, call.key, self.picks)
        pick = (known, True) if known is not None else self._decisions.decide(call, mode)
        return *pick, call.key

    def compiled_place(self, description: Described, grad: bool, gpu: int | None) -> int:
        """Which implementation torch.compile traces: what is known, inherited, or the first."""
        names = list(self.implementations)
        with self._lock:
            mode = current_mode(self.mode)
            if mode == "off" or len(names) < 2:
                return 0
            costs: list[CallCost] = ["graph", "eager"] if gpu is not None else ["eager"]
            given = self.cost or asked_cost.get()
            costs = [given] if given is not None and gpu is not None else costs
            name, exact = self._compiled_pick(description, grad, gpu, mode, costs)
        if not exact and mode == "tune":
            say_once(
                f"torch.compile uses '{name}' for {self.name}, which is not tuned for this call; "
                "call it once with such arguments outside torch.compile to tune it"
            )
        return names.index(name)

    def _compiled_pick(
        self, description: Described, grad: bool, gpu: int | None, mode: Mode, costs: list[CallCost]
    ) -> tuple[str, bool]:
        entries, answers = self.keys.entries(description), []
        for cost in costs:
            known = _as_text(entries, cost, grad, gpu)
            if known in self.picks:
                return self.picks[known], True
            target = ChoiceTarget(self, (), {}, entries, cost, grad, gpu)
            last = cost == costs[-1]
            allowed: Mode = "cached" if mode == "tune" or not last else mode
            name, exact = untuned_pick(target, allowed, quiet=True)
            if exact:
                return name, True
            answers.append(name)
        return answers[0], False


def _named(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _as_text(key: Mapping[str, Any], cost: CallCost, grad: bool, gpu: int | None) -> str:
    """What `picks` names a call: unlike values, the texts of 1 and True are different."""
    parts = {**key, "cost": cost, "grad": grad, **({} if gpu is None else {"device": gpu})}
    return ", ".join(f"{name}={value}" for name, value in parts.items())


class UndecidedChoice(UndecidedCall[str]):
    """A call of a choice: a pick is the name of an implementation."""

    def __init__(self, chooser: Chooser, target: ChoiceTarget, description: Described) -> None:
        self._chooser, self._target, self._description = chooser, target, description
        self.key: str = _as_text(target.key, target.cost, target.grad, target.gpu)

    def first(self) -> str:
        return self._chooser.first

    def look_up(self, mode: Mode) -> tuple[str, bool]:
        name, exact = untuned_pick(self._target, mode)
        if exact:
            self._chooser.picks[self.key] = name
        return name, exact

    def is_captured(self) -> bool:
        return capturing()

    def while_capturing(self) -> str:
        chooser = self._chooser
        name, exact = untuned_pick(self._target, "cached", quiet=True)
        if not exact:
            say_once(
                f"{chooser.name} cannot be tuned during CUDA graph capture; using '{name}'. Before "
                "the capture, call it once inside 'with whet.cost(\"graph\")'"
            )
        return name

    def in_warm_up(self) -> str | None:
        """Until all kernels of the program are tuned, every implementation is called, so that their
        kernels are met; one that fails will be told so later."""
        warmup, chooser = active(), self._chooser
        if warmup is None or warmup.may_choose(f"{chooser.name} {self.key}"):
            return None
        for fn in chooser._callables[1:]:
            with suppress(Exception):
                fn(*self._target.args, **self._target.kwargs)
        return chooser.first

    def wait_limit_s(self) -> float | None:
        own = self._chooser.wait_limit_s
        given = resolve_settings().settings.wait_limit_s if own is None else own
        return None if active() is not None else given

    def stand_in(self) -> tuple[str, int] | None:
        found = stands_in(self._target)
        if found is None:
            return None
        name = str(found.config[PARAMETER])
        self._chooser.stand_ins[self.key] = f"{name}: {found.reason}"
        return name, found.calls

    def tune(self) -> str:
        chooser, warmup = self._chooser, active()
        changing = chooser.keys.always_new(self._description, self._target.key)
        if changing:
            say_once(f"{chooser.title} is tuned anew for {changing}")
        with suspended(), all_tuned():
            name = chooser.picks[self.key] = tuned_pick(self._target)
        chooser.stand_ins.pop(self.key, None)
        if warmup is not None:
            warmup.chose(f"{chooser.name} {self.key}", name)
        if chooser._decisions.tuned(self.key):
            chooser._tables.clear()
        return name


def tuned_pick(target: ChoiceTarget) -> str:
    """The name of the fastest; of the first where nothing could be tuned, so that the call goes on
    and raises what that raises."""
    settings = resolve_settings().settings
    return in_store_or_memory(settings, lambda store: _tuned_in(store, target, settings))


def _tuned_in(store: Store, target: ChoiceTarget, settings: Settings) -> str:
    try:
        result = tune(
            target,
            store=store,
            settings=settings,
            budget=target.alternatives.budget,
            plan=_plan(target),
            progress=False,
            mode="tune",
            confirm=False,
        )
    except TuningFailedError as failure:
        say_once(f"{failure}; calling '{target.alternatives.first}' anyway")
        return target.alternatives.first
    except HostLostError as lost:
        if lost.result is None:
            say_once(f"{target.name} was not tuned: {lost}; using '{target.alternatives.first}'")
            return target.alternatives.first
        result = lost.result
    finally:
        target.let_go()
    name = str(result.config[PARAMETER])
    if result.source == "waited":
        say_once(f"{target.name} is not tuned yet: {result.notes[-1]}")
        raise BusyElsewhere(name)
    _tell(target, result)
    return name


def _plan(target: ChoiceTarget) -> Plan | None:
    if target.gpu is None or target.cost == "eager":
        return None
    from whet.targets.triton.tuning import gpu_plan

    return gpu_plan()


def _tell(target: ChoiceTarget, result: Result) -> None:
    """What failed is stored; a wrong result is also said, since somebody should know."""
    for trial in result.trials:
        if trial.status.value == "wrong_result":
            name = trial.config[PARAMETER]
            say_once(
                f"{target.alternatives.title} does not use its implementation '{name}', whose "
                f"result is wrong: {trial.error}"
            )


def untuned_pick(target: ChoiceTarget, mode: Mode, *, quiet: bool = False) -> tuple[str, bool]:
    """Without measuring anything: a name, and whether it is the stored result of this very key.

    While a graph is captured, what counts eagerly is better than what is merely inherited.
    """

    def eager_pick(store: Store) -> Choice | None:
        other = target.with_cost("eager")
        if exact_pick(target, target.workload(), store) is not None:
            return None
        eager = exact_pick(other, other.workload(), store)
        return None if eager is None else Choice(eager.trial.config, "nearest", 0.5, "eager calls")

    instead = eager_pick if quiet and mode == "cached" and target.cost == "graph" else None
    choice = choice_without_tuning(
        target, mode, "the store cannot be read; using the first implementation", instead
    )
    return str(choice.config[PARAMETER]), choice.source == "exact"
