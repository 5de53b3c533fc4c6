"""One implementation on the arguments of one call: what a bench runs, and what it computed."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.measure.bench.protocol import DeviceRoom, Verdict, is_out_of_memory
from whet.targets.base import refuse_unfinished
from whet.targets.choice.checking import (
    TURNS,
    Nudge,
    Rounding,
    coarsest,
    copied,
    judged,
    kept,
    seeded,
    widest,
)
from whet.targets.choice.keys import (
    CallCost,
    _within,
    capturing,
    differentiated,
    flattened,
    is_tensor,
)

Implementation = Callable[..., Any]


class Saved:
    """Copies of a call's arrays, to see what an implementation changes and to undo it."""

    def __init__(self, named: Mapping[str, Any], room: DeviceRoom) -> None:
        self._room = room
        self.arrays: dict[str, Any] = {}
        for name, value in named.items():
            held = [one for one in flattened(value) if _is_array(one)]
            places = [name] if len(held) == 1 else [f"{name}[{i}]" for i in range(len(held))]
            self.arrays.update(zip(places, held, strict=True))
        self._copies: dict[str, Any] = {}
        self.unsaved: list[str] = []

    def save(self) -> None:
        for name, array in self.arrays.items():
            if name in self._copies or name in self.unsaved:
                continue
            try:
                self._copies[name] = self._room.take(_size(array), lambda a=array: copied(a))  # type: ignore[misc]
            except Exception as problem:
                if not is_out_of_memory(problem):
                    raise
                self.unsaved.append(name)

    def changed(self) -> dict[str, Any]:
        """Those that differ from their copies, by name."""
        return {
            name: self.arrays[name]
            for name, copy in self._copies.items()
            if not _same(self.arrays[name], copy)
        }

    def restore(self) -> None:
        for name in self.changed():
            _put_back(self.arrays[name], self._copies[name])

    def let_go(self) -> None:
        self._copies.clear()


def _is_array(value: Any) -> bool:
    return is_tensor(value) or (type(value).__module__ == "numpy" and hasattr(value, "copy"))


def _size(array: Any) -> int:
    return int(array.nbytes) if is_tensor(array) and array.is_cuda else 0


def _same(one: Any, two: Any) -> bool:
    """Bit for bit but for the kinds of NaN."""
    if is_tensor(one):
        one = one.detach()
        if sys.modules["torch"].equal(one, two):
            return True
    return bool(((one == two) | ((one != one) & (two != two))).all())


def _put_back(array: Any, copy: Any) -> None:
    if not is_tensor(array):
        array[...] = copy
        return
    torch = sys.modules["torch"]
    with torch.no_grad():
        # As `.data`, so that a tensor that autograd has saved is not taken for changed.
        array.data.copy_(copy)


class CallState:
    """The arguments of a call, and what an implementation has to compute from them.

    With `grad`, one run is forward and backward to every argument that requires a gradient.
    """

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        named: Mapping[str, Any],
        cost: CallCost,
        grad: bool,
        on_gpu: bool,
    ) -> None:
        self.args, self.kwargs, self.cost, self.grad = args, dict(kwargs), cost, grad
        self.room = DeviceRoom()
        self.saved = Saved(named, self.room)
        self.expected: Any = None
        self.reference: Implementation | None = None
        self.may_change: set[str] = set()
        self._torch = sys.modules.get("torch")
        self._on_gpu = on_gpu
        self._upstream: dict[int, Any] = {}
        self._changes: list[Any] | None = None
        self._random: tuple[Any, Any] | None = None

    def run(self, fn: Implementation, nudge: Nudge | None = None) -> tuple[Any, Any]:
        """What it returned, and the gradients."""
        args, kwargs = self.args, self.kwargs
        if nudge is not None:
            args, kwargs = nudge(args), nudge(kwargs)
        returned = refuse_unfinished(fn(*args, **kwargs), "an implementation")
        return returned, self._backward(returned, [args, kwargs], nudge) if self.grad else None

    def _backward(self, returned: Any, given: list[Any], nudge: Nudge | None) -> list[Any]:
        assert self._torch is not None
        values = enumerate(flattened(returned))
        outputs = {i: one for i, one in values if is_tensor(one) and one.requires_grad}
        if not outputs:
            return []
        upstream = [self._gradient_of(i, one) for i, one in outputs.items()]
        return list(
            self._torch.autograd.grad(
                list(outputs.values()),
                differentiated(given),
                upstream if nudge is None else nudge(upstream),
                allow_unused=True,
            )
        )

    def _gradient_of(self, place: int, output: Any) -> Any:
        """Random, the same for all: along a row of equal ones, true gradients of a softmax or a
        norm cancel, and a wrong sum over an axis does not show."""
        known = self._upstream.get(place)
        if known is None or known.shape != output.shape or known.dtype != output.dtype:
            assert self._torch is not None
            plain = self._torch.complex64 if output.is_complex() else self._torch.float32
            chance = seeded(place, output.device)
            known = self._torch.randn(
                output.shape, generator=chance, device=output.device, dtype=plain
            ).to(output.dtype)
            self._upstream[place] = known
        return known

    def wait(self) -> None:
        if self._on_gpu and self._torch is not None:
            self._torch.cuda.synchronize()

    def observed(self, fn: Implementation) -> tuple[Any, set[str]]:
        """One run from the caller's state: everything it computed, and which arguments it
        changed. The state is put back."""
        self.saved.save()
        self.saved.restore()
        self.rewind_random_numbers()
        returned, gradients = self.run(fn)
        changed = self.saved.changed()
        seen = kept({"output": returned, "gradient": gradients, "argument": changed})
        self.saved.restore()
        return seen, set(changed)

    def rounding(self, fn: Implementation, seen: Any) -> Rounding | None:
        """What rounding does to the reference and to an implementation that computed `seen`; None
        where they cannot be called with other numbers."""
        assert self.reference is not None
        device = "cuda" if self._on_gpu else "cpu"
        if self._torch is None:
            return None
        found = coarsest([self.args, self.kwargs, self.expected["output"]], device)
        if found is None:
            return None
        try:
            if self._changes is None:
                self._changes = self._changed_by(found[0], self.reference, self.expected)
            own = self._changed_by(found[0], fn, seen)
            return Rounding(*found, self._changes, own, self._changed_by(0.0, fn, seen, turns=1))
        except Exception:
            return None

    def _changed_by(
        self, step: float, fn: Implementation, seen: Any, turns: int = TURNS
    ) -> list[Any]:
        changes: list[Any] | None = None
        for turn in range(turns):
            nudge = Nudge(step, turn)
            self.rewind_random_numbers()
            with _within(self.cost):
                returned, gradients = self.run(fn, nudge)
            written = {name: nudge(self.saved.arrays[name]) for name in seen["argument"]}
            again = {"output": returned, "gradient": gradients, "argument": written}
            changes = widest(changes, seen, again)
        assert changes is not None
        return changes

    def rewind_random_numbers(self) -> None:
        """Every implementation draws what the caller's own call will draw."""
        if self._torch is None:
            return
        on_gpu = self._on_gpu and not capturing()
        if self._random is None:
            device = self._torch.cuda.get_rng_state() if on_gpu else None
            self._random = self._torch.get_rng_state(), device
        self._torch.set_rng_state(self._random[0])
        if self._random[1] is not None:
            self._torch.cuda.set_rng_state(self._random[1])

    def let_go(self) -> None:
        self.saved.restore()
        self.saved.let_go()
        if self._random is not None:
            self.rewind_random_numbers()
            self._random = None
        self.expected = self.reference = self._changes = None
        self._upstream = {}


class LoadedImplementation:
    """It runs at once: what it does the first time (it compiles, or is tuned itself) is no part of
    its time."""

    def __init__(
        self,
        state: CallState,
        fn: Implementation,
        expect: Callable[[], None] | None,
        rtol: float | None,
        atol: float | None,
    ) -> None:
        self._state, self._fn, self._expect = state, fn, expect
        self._rtol, self._atol = rtol, atol
        self.facts: Mapping[str, Any] = {}
        self.compares = expect is not None

    def first_call(self) -> None:
        state = self._state
        state.saved.save()
        state.rewind_random_numbers()
        with _within(state.cost), warnings.catch_warnings():
            # Of an implementation that cannot run here, torch warns why; that is in its trial.
            warnings.simplefilter("ignore")
            state.run(self._fn)
            state.wait()
        state.saved.restore()

    def repeat(self, n: int) -> None:
        state, fn = self._state, self._fn
        run = state.run if state.grad else None
        args, kwargs = state.args, state.kwargs
        captured = capturing()
        try:
            for _ in range(n):
                if run is None:
                    fn(*args, **kwargs)
                else:
                    run(fn)
        except Exception as problem:
            if not captured:
                raise
            raise ConfigFailure(
                Status.RUN_ERROR,
                f"it cannot be captured in a CUDA graph ({type(problem).__name__}: {problem}); "
                'cost="eager" compares without graphs',
            ) from problem
        if state.cost == "eager":
            state.wait()

    def check(self) -> Verdict:
        state = self._state
        if self._expect is None:
            return Verdict(True, "")
        self._expect()
        seen, changed = state.observed(self._fn)
        more = sorted(changed - state.may_change)
        if more:
            return Verdict(
                False,
                f"it changes the argument '{more[0]}', which the reference leaves as it is; have "
                "it work on a copy",
            )
        expected = state.expected
        verdict = judged(seen, expected, self._rtol, self._atol)
        if verdict.ok or self._rtol is not None or self._atol is not None:
            return verdict
        rounding = state.rounding(self._fn, seen)
        return verdict if rounding is None else judged(seen, expected, None, None, rounding)

    def close(self) -> None:
        pass
