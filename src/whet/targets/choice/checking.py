"""Whether two implementations computed the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.measure.bench.protocol import Verdict, compare
from whet.targets.choice.keys import flattened, is_tensor

_PIECE = 1 << 24

# Neighbours whose sensitivity counts for an element: its own may be small by chance. Divides
# `_PIECE`.
_BLOCK = 32

# An implementation that is itself more sensitive to rounding than the reference may be so many
# times farther off.
_MOST_NOISE = 8.0


def copied(array: Any) -> Any:
    return array.detach().clone() if is_tensor(array) else array.copy()


def kept(values: Any) -> Any:
    """A copy that later calls do not change."""
    if isinstance(values, Mapping):
        return {name: kept(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [kept(value) for value in values]
    if is_tensor(values) or hasattr(values, "__array__"):
        return copied(values)
    return values


def judged(
    actual: Mapping[str, Any],
    expected: Mapping[str, Any],
    rtol: float | None,
    atol: float | None,
    rounding: Rounding | None = None,
) -> Verdict:
    """Without tolerances, within what the dtype can hold, by the element and the mean; or, with
    `rounding`, by what the element is sensitive to."""
    place = 0
    for part in expected:
        for path, one, two in _paired(actual[part], expected[part], part):
            wrong = _leaf(one, two, rtol, atol, rounding, place)
            if wrong:
                return Verdict(False, f"{path}: {wrong}")
            place += 1
    return Verdict(True, "")


def _paired(actual: Any, expected: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """What they hold, in the order of `flattened`; as a whole what is not of one form."""
    maps = isinstance(expected, Mapping) and isinstance(actual, Mapping)
    lists = isinstance(expected, list | tuple) and isinstance(actual, list | tuple)
    if maps and actual.keys() == expected.keys():
        for name in expected:
            yield from _paired(actual[name], expected[name], f"{path} '{name}'")
    elif lists and len(actual) == len(expected):
        for i, (one, two) in enumerate(zip(actual, expected, strict=True)):
            yield from _paired(one, two, f"{path} {i}")
    else:
        yield path, actual, expected


def _leaf(
    actual: Any,
    expected: Any,
    rtol: float | None,
    atol: float | None,
    rounding: Rounding | None,
    place: int,
) -> str:
    """What is wrong, empty where nothing is."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return f"{list(actual)}, expected {list(expected)}"
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        return f"{len(actual)} values, expected {len(expected)}"
    if not is_tensor(expected):
        relative, absolute = 1e-5 if rtol is None else rtol, 1e-8 if atol is None else atol
        return compare(actual, expected, rtol=relative, atol=absolute).message
    if not is_tensor(actual):
        return f"a {type(actual).__name__}, expected a tensor"
    if actual.shape != expected.shape:
        return f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if actual.dtype != expected.dtype:
        return f"{actual.dtype}, expected {expected.dtype}"
    if not actual.numel():
        return ""
    expected = expected.to(actual.device).flatten()
    if rounding is not None and rounding.reference[place] is not None:
        return _difference(
            actual.detach().flatten(), expected, _Sensitive(expected, rounding, place)
        )
    return _difference(actual.detach().flatten(), expected, _Plain(expected, rtol, atol))


def _difference(actual: Any, expected: Any, allowed: _Plain | _Sensitive) -> str:
    count, first = 0, -1
    # In pieces: a large output in twice or four times its width might not fit.
    for start in range(0, actual.numel(), _PIECE):
        part = slice(start, start + _PIECE)
        one, two = actual[part].to(_wide(actual)), expected[part].to(_wide(expected))
        near = ((one - two).abs() <= allowed(part)) & two.isfinite()
        wrong = ~near & ~(one.isnan() & two.isnan()) & (one != two)
        found = int(wrong.sum())
        if found and first < 0:
            first = start + int(wrong.nonzero()[0])
        count += found
    if count == 0:
        return ""
    return (
        f"{count} of {actual.numel()} elements differ, the first at {first}: got "
        f"{actual[first].item():.6g}, expected {expected[first].item():.6g}; if this is good "
        "enough, give rtol= and atol="
    )


class _Plain:
    """Of the element and absolutely. By default the latter follows from the mean: sums that come
    out near zero are as far off as any other."""

    def __init__(self, expected: Any, rtol: float | None, atol: float | None) -> None:
        self._expected = expected
        self._relative = rtol or 0.0
        if atol is not None:
            self._absolute = atol
            return
        if rtol is None:
            self._relative = relative_error(expected)
        sizes = _sizes(expected, slice(_PIECE)) if self._relative else expected[:0]
        self._absolute = self._relative * _mean(sizes)

    def __call__(self, part: slice) -> Any:
        return self._absolute + self._relative * _sizes(self._expected, part)


class _Sensitive:
    """Of what an element is made of: how much the reference changes there, or nearby, where the
    numbers of the call are off by a little; more where the other implementation changes more."""

    def __init__(self, expected: Any, rounding: Rounding, place: int) -> None:
        self._expected, self._step = expected, rounding.step
        self._change = rounding.reference[place].to(expected.device).flatten()
        first = slice(_PIECE)
        sizes = _sizes(expected, first)
        self._mean = _mean(sizes.maximum(self._change[first].to(sizes.dtype) / self._step))
        self._relative = max(rounding.relative, relative_error(expected))
        # One that answers differently each time is not excused by that.
        if self._noise(rounding.same[place]) == 1.0:
            self._relative *= self._noise(rounding.own[place])

    def _noise(self, changes: Any) -> float:
        most, own = 1.0, self._expected[:0] if changes is None else changes.flatten()
        for start in range(0, own.numel(), _PIECE):
            part = slice(start, start + _PIECE)
            unit = self._unit(part)
            ratio = own[part].to(unit.dtype) / self._step / unit
            most = max(most, float(ratio.nan_to_num(0.0).max()))
        return min(most, _MOST_NOISE)

    def _unit(self, part: slice) -> Any:
        torch = sys.modules["torch"]
        sizes = _sizes(self._expected, part)
        change = self._change[part].to(sizes.dtype) / self._step
        filled = torch.nn.functional.pad(change, (0, -len(change) % _BLOCK)).view(-1, _BLOCK)
        near = filled.amax(1).repeat_interleave(_BLOCK)[: len(change)]
        return sizes + near + self._mean

    def __call__(self, part: slice) -> Any:
        return self._relative * self._unit(part)


def _sizes(tensor: Any, part: slice) -> Any:
    return tensor[part].to(_wide(tensor)).abs()


def _mean(sizes: Any) -> float:
    finite = sizes[sizes.isfinite()]
    return float(finite.mean()) if finite.numel() else 0.0


def _wide(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.complex128 if tensor.is_complex() else torch.float64


# What right implementations may differ by: sums in another order, and for halves every
# intermediate result rounded.
_RELATIVE = {
    "float64": 1e-8,
    "complex128": 1e-8,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 1e-2,
    "bfloat16": 4e-2,
}

# On a GPU, products of float32 may be computed in TF32: its step, and what they may differ by.
_TF32 = (2.0**-10, 1e-3)

# Once every number goes up, then each up or down at random.
TURNS = 4


@dataclass(frozen=True)
class Rounding:
    """How much each value in a result changes where the call's numbers change by `step` of
    themselves: in the reference, in another implementation (`own`), and there without any change
    (`same`); by place, None where that cannot be told. `relative` is what may be off in a call of
    such dtypes."""

    step: float
    relative: float
    reference: Sequence[Any]
    own: Sequence[Any]
    same: Sequence[Any]


def relative_error(tensor: Any) -> float:
    """What elements of its dtype may be off by, 0 for integers."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype == "float32" and tensor.is_cuda:
        return _TF32[1]
    return _RELATIVE.get(dtype, 0.25 if dtype.startswith("float8") else 0.0)


def coarsest(values: Any, device: str) -> tuple[float, float] | None:
    """The step between numbers of the coarsest dtype of at least 16 bits that a call meets, and
    what may be off; None where it meets none."""
    torch = sys.modules["torch"]
    dtypes = {(one.dtype, one.is_cuda) for one in flattened(values) if is_tensor(one)}
    if torch.is_autocast_enabled(device):
        dtypes.add((torch.get_autocast_dtype(device), False))
    found = []
    for dtype, on_gpu in dtypes:
        name = str(dtype).removeprefix("torch.")
        if name == "float32" and on_gpu:
            found.append(_TF32)
        elif name in _RELATIVE:
            found.append((torch.finfo(dtype).eps, _RELATIVE[name]))
    return max(found, default=None)


class Nudge:
    """Copies of what it is called with, as if every number had been rounded once more."""

    def __init__(self, step: float, turn: int) -> None:
        self._step, self._turn = step, turn
        self._copies: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            parts = [self(one) for one in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if not (is_tensor(value) or type(value).__module__ == "numpy"):
            return value
        if id(value) not in self._copies:
            self._copies[id(value)] = self._copy(value)
        return self._copies[id(value)]

    def _copy(self, array: Any) -> Any:
        copy = copied(array)
        if not is_tensor(array) or str(array.dtype).removeprefix("torch.") not in _RELATIVE:
            return copy
        torch = sys.modules["torch"]
        if self._turn == 0:
            copy.mul_(1 + self._step)
        else:
            chance = seeded(1000 * self._turn + len(self._copies), array.device)
            up = torch.rand(array.shape, generator=chance, device=array.device) < 0.5
            copy.mul_(torch.where(up, 1 + self._step, 1 - self._step).to(copy.dtype))
        return copy.requires_grad_(array.requires_grad)


def seeded(seed: int, device: Any) -> Any:
    """A generator of its own: the caller's random numbers are not touched."""
    return sys.modules["torch"].Generator(device=device).manual_seed(seed)


def widest(changes: Sequence[Any] | None, one: Any, two: Any) -> list[Any]:
    """The larger of `changes` and of the differences between two results, by place."""
    values, others = list(flattened(one)), list(flattened(two))
    before = [None] * len(values) if changes is None else changes
    return [_wider(*each) for each in zip(before, values, others, strict=True)]


def _wider(before: Any, one: Any, two: Any) -> Any:
    if not (is_tensor(one) and is_tensor(two)) or one.shape != two.shape:
        return None
    if not (one.is_floating_point() or one.is_complex()):
        return None
    wide = one.dtype if one.dtype.itemsize >= 4 else sys.modules["torch"].float32
    change = (one.detach().to(wide) - two.detach().to(wide)).abs().nan_to_num(0.0, 0.0)
    return change if before is None else before.maximum(change)
