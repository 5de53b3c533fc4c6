"""Whether two implementations computed the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from whet.measure.bench.protocol import Verdict, compare
from whet.targets.choice.arguments import copied, is_tensor
from whet.targets.choice.rounding import Rounding, relative_error

_PIECE = 1 << 24

# Neighbours whose sensitivity counts for an element: its own may be small by chance. Divides
# `_PIECE`.
_BLOCK = 32

# An implementation that is itself more sensitive to rounding than the reference may be so many
# times farther off.
_MOST_NOISE = 8.0


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
