"""How far a mode's results are from those in float64, beside how far eager's are."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from whet.core.config import Value
from whet.doctor.subject import Call, Subject


def errors_of(run: Callable[..., Any], subject: Subject) -> dict[str, Value]:
    """The largest differences, relative to the largest value of the outputs in float64; and whether
    the outputs agree with eager's within `torch.testing.assert_close`'s own tolerances.

    Empty for a model that is random: then there is nothing to compare.
    """
    import torch

    if subject.training:
        return {}
    call = subject.calls[0]
    first, again = _outputs(subject.model, call), _outputs(subject.model, call)
    if not all(torch.equal(one, two) for one, two in zip(first, again, strict=True)):
        return {}
    wide = deepcopy(subject.model)
    if not isinstance(wide, torch.nn.Module):
        return {}
    exact = _outputs(wide.double(), _widened(call))
    ours = _outputs(run, call)
    return {
        "error": _relative(ours, exact),
        "eager_error": _relative(first, exact),
        "close_to_eager": _close(ours, first),
    }


def _outputs(run: Callable[..., Any], call: Call) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    call = deepcopy(call)
    with torch.no_grad():
        out = run(*call.args, **call.kwargs)
    return [one.clone() for one in tree_leaves(out) if isinstance(one, torch.Tensor)]


def _widened(call: Call) -> Call:
    import torch
    from torch.utils._pytree import tree_map

    def wide(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.dtype.is_floating_point
        return value.double() if floating else value

    return Call(tree_map(wide, call.args), tree_map(wide, dict(call.kwargs)))


def _relative(ours: list[Any], exact: list[Any]) -> float:
    worst = 0.0
    for one, other in zip(ours, exact, strict=True):
        largest = float(other.double().abs().max()) or 1.0
        worst = max(worst, float((one.double() - other.double()).abs().max()) / largest)
    return worst


def _close(ours: list[Any], eager: list[Any]) -> bool:
    import torch

    try:
        torch.testing.assert_close(ours, eager)
    except AssertionError:
        return False
    return True
