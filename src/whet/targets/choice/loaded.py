"""One implementation on the arguments of one call: what a bench runs, and what it computed."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.measure import DeviceRoom, Verdict
from whet.targets.choice.arguments import Saved, differentiated, flattened, is_tensor
from whet.targets.choice.checking import judged, kept
from whet.targets.choice.cost import CallCost, _within, capturing

Implementation = Callable[..., Any]


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
        self.settled = False
        self.may_change: set[str] = set()
        self._torch = sys.modules.get("torch")
        self._on_gpu = on_gpu
        self._upstream: list[Any] = []
        self._random: tuple[Any, Any] | None = None

    def run(self, fn: Implementation) -> tuple[Any, Any]:
        """What it returned, and the gradients."""
        returned = fn(*self.args, **self.kwargs)
        return returned, self._backward(returned) if self.grad else None

    def _backward(self, returned: Any) -> list[Any]:
        assert self._torch is not None
        outputs = [one for one in flattened(returned) if is_tensor(one) and one.requires_grad]
        inputs = differentiated([self.args, self.kwargs])
        if not outputs:
            return []
        if not self._upstream:
            # Not ones: a wrong sum over an axis would not show.
            self._upstream = [
                self._torch.linspace(0.5, 1.5, max(1, one.numel()), device=one.device)[
                    : one.numel()
                ]
                .to(one.dtype)
                .view(one.shape)
                for one in outputs
            ]
        found = self._torch.autograd.grad(outputs, inputs, self._upstream, allow_unused=True)
        return list(found)

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
        self.expected, self.settled, self._upstream = None, False, []


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
        for part in ("output", "gradient", "argument"):
            verdict = judged(seen[part], state.expected[part], self._rtol, self._atol, part)
            if not verdict.ok:
                return verdict
        return Verdict(True, "")

    def close(self) -> None:
        pass
