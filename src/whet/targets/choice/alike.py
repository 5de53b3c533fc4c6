"""Calls with tensors like those of an earlier call, told by one question to torch.

Reading sizes, strides and dtypes takes most of the time of a tuned call. Dynamo's guards compare
them in C++, together with types, devices and whether a gradient is wanted, in a third of that time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

Check = Callable[..., bool]
Picks = dict[Any, Callable[..., Any]]

# What to ask about the tensors of a call, what is chosen where they are alike, and whom to ask
# where they are not.
Entry = tuple[Check, Picks, Callable[..., Any]]

# Kinds of tensors that have the same number of bytes: with a gradient and without, say.
MOST_ALIKE = 2

MOST_ENTRIES = 4096


class Near:
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
