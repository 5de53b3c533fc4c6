"""Whether two implementations computed the same."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from whet.measure import Verdict, compare
from whet.targets.choice.arguments import copied, is_tensor

# What sums in another order may differ by, relative to the element and to the mean.
_RELATIVE = {
    "float64": 1e-8,
    "complex128": 1e-8,
    "float32": 1e-3,
    "complex64": 1e-3,
    "float16": 2e-2,
    "bfloat16": 5e-2,
}

_PIECE = 1 << 24


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
    actual: Any, expected: Any, rtol: float | None, atol: float | None, path: str = "output"
) -> Verdict:
    """Without tolerances, within what the dtype can hold."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if actual.keys() != expected.keys():
            return Verdict(False, f"{path}: {list(actual)}, expected {list(expected)}")
        pairs = [(f"{path} '{name}'", actual[name], expected[name]) for name in expected]
    elif isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        if len(actual) != len(expected):
            return Verdict(False, f"{path}: {len(actual)} values, expected {len(expected)}")
        pairs = [
            (f"{path} {i}", *both) for i, both in enumerate(zip(actual, expected, strict=True))
        ]
    else:
        return _leaf(actual, expected, rtol, atol, path)
    for name, one, two in pairs:
        verdict = judged(one, two, rtol, atol, name)
        if not verdict.ok:
            return verdict
    return Verdict(True, "")


def _leaf(actual: Any, expected: Any, rtol: float | None, atol: float | None, path: str) -> Verdict:
    if not is_tensor(expected):
        relative, absolute = 1e-5 if rtol is None else rtol, 1e-8 if atol is None else atol
        verdict = compare(actual, expected, rtol=relative, atol=absolute)
        return verdict if verdict.ok else Verdict(False, f"{path}: {verdict.message}")
    if not is_tensor(actual):
        return Verdict(False, f"{path}: a {type(actual).__name__}, expected a tensor")
    wrong = _difference(actual.detach(), expected, rtol, atol)
    return Verdict(not wrong, f"{path}: {wrong}" if wrong else "")


def _difference(actual: Any, expected: Any, rtol: float | None, atol: float | None) -> str:
    if actual.shape != expected.shape:
        return f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if actual.dtype != expected.dtype:
        return f"{actual.dtype}, expected {expected.dtype}"
    if not actual.numel():
        return ""
    actual, expected = actual.flatten(), expected.to(actual.device).flatten()
    allowed = _allowed(expected, rtol, atol)
    count, first = 0, -1
    # In pieces: a large output in twice or four times its width might not fit.
    for start in range(0, actual.numel(), _PIECE):
        part = slice(start, start + _PIECE)
        wrong = _wrong(actual[part], expected[part], *allowed)
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


def _allowed(expected: Any, rtol: float | None, atol: float | None) -> tuple[float, float]:
    """Relative to an element, and absolute. By default the latter follows from the mean: sums
    that come out near zero are as far off as any other."""
    if atol is not None:
        return rtol or 0.0, atol
    dtype = str(expected.dtype).removeprefix("torch.")
    usual = _RELATIVE.get(dtype, 0.25 if dtype.startswith("float8") else 0.0)
    relative = usual if rtol is None else rtol
    if not relative:
        return 0.0, 0.0
    sizes = expected[:_PIECE].to(_wide(expected)).abs()
    finite = sizes[sizes.isfinite()]
    return relative, relative * (float(finite.mean()) if finite.numel() else 0.0)


def _wide(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.complex128 if tensor.is_complex() else torch.float64


def _wrong(actual: Any, expected: Any, relative: float, absolute: float) -> Any:
    one, two = actual.to(_wide(actual)), expected.to(_wide(expected))
    near = (one - two).abs() <= absolute + relative * two.abs()
    return ~near & ~(one.isnan() & two.isnan()) & (one != two)
