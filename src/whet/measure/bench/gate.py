"""The correctness gate: a fast wrong answer is no answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

_KINDS = {
    "b": "boolean",
    "i": "integer",
    "u": "integer",
    "f": "floating-point",
    "c": "complex",
}


@dataclass(frozen=True)
class Verdict:
    """`message` says what is wrong, and is empty when nothing is."""

    ok: bool
    message: str = ""


RIGHT = Verdict(True)


def compare(actual: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Verdict:
    """Arrays, scalars, and tuples, lists and dicts of them, to any depth.

    Floating-point and complex numbers may differ by `atol + rtol * |expected|`; everything else
    must be the same. NaN is right exactly where it is expected, and so is each infinity. The
    first output that is wrong is reported:

        output 'c': 12 of 4096 elements differ, worst at [3, 7]: got 1.5, expected 2.5 (rtol …)
    """
    return _compare(actual, expected, rtol, atol, "")


def _compare(actual: Any, expected: Any, rtol: float, atol: float, path: str) -> Verdict:
    if isinstance(expected, Mapping):
        if not isinstance(actual, Mapping) or actual.keys() != expected.keys():
            return _wrong(path, f"got {_outline(actual)}, expected {_outline(expected)}")
        pairs = [(repr(key), actual[key], expected[key]) for key in expected]
    elif isinstance(expected, list | tuple):
        if not isinstance(actual, list | tuple) or len(actual) != len(expected):
            return _wrong(path, f"got {_outline(actual)}, expected {_outline(expected)}")
        pairs = [(str(i), a, e) for i, (a, e) in enumerate(zip(actual, expected, strict=True))]
    else:
        return _compare_leaf(actual, expected, rtol, atol, path)
    for name, a, e in pairs:
        verdict = _compare(a, e, rtol, atol, f"{path}.{name}" if path else name)
        if not verdict.ok:
            return verdict
    return RIGHT


def _compare_leaf(actual: Any, expected: Any, rtol: float, atol: float, path: str) -> Verdict:
    import numpy as np

    if expected is None or isinstance(expected, str | bytes):
        same = type(actual) is type(expected) and actual == expected
        return RIGHT if same else _wrong(path, f"got {actual!r}, expected {expected!r}")
    got, want = np.asarray(actual), np.asarray(expected)
    if got.shape != want.shape:
        return _wrong(path, f"shape {got.shape}, expected {want.shape}")
    kinds = [_KINDS.get(array.dtype.kind, array.dtype.name) for array in (got, want)]
    plain = isinstance(actual, int | float) and isinstance(expected, int | float)
    if kinds[0] != kinds[1] and not (plain and "boolean" not in kinds):
        return _wrong(path, f"{kinds[0]} ({got.dtype}), expected {kinds[1]} ({want.dtype})")
    exact = not {"f", "c"} & {got.dtype.kind, want.dtype.kind}
    bad = np.asarray(got != want) if exact else _outside(got, want, rtol, atol)
    if not bad.any():
        return RIGHT
    tolerance = "exact" if exact else f"rtol {rtol:g}, atol {atol:g}"
    return _wrong(path, f"{_worst(got, want, bad)} ({tolerance})")


def _outside(got: Array, want: Array, rtol: float, atol: float) -> Array:
    """True where the difference is beyond tolerance."""
    import numpy as np

    if got.dtype.itemsize < 4 or want.dtype.itemsize < 4:
        got, want = got.astype(np.float32), want.astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        bad = ~(np.abs(got - want) <= atol + rtol * np.abs(want))
        special = ~np.isfinite(want)
        if special.any():
            same = (got == want) | (np.isnan(got) & np.isnan(want))
            bad = np.where(special, ~same, bad)
    return np.asarray(bad)


def _worst(got: Array, want: Array, bad: Array) -> str:
    import numpy as np

    if got.ndim == 0:
        return f"got {got[()]}, expected {want[()]}"
    where = np.flatnonzero(bad)
    worst = where[0]
    if got.dtype.kind in _KINDS and got.dtype.kind != "b":
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        with np.errstate(invalid="ignore"):
            gaps = np.abs(got.flat[where].astype(wide) - want.flat[where].astype(wide))
        # A NaN or an infinity on one side only is as wrong as can be.
        worst = where[int(np.argmax(np.where(np.isnan(gaps), np.inf, gaps)))]
    index = [int(i) for i in np.unravel_index(worst, got.shape)]
    return (
        f"{len(where)} of {got.size} elements differ, worst at {index}: "
        f"got {got.flat[worst]}, expected {want.flat[worst]}"
    )


def _outline(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"outputs {', '.join(map(repr, value)) or '(none)'}"
    if isinstance(value, list | tuple):
        return f"{len(value)} outputs"
    return f"one {type(value).__name__}"


def _wrong(path: str, text: str) -> Verdict:
    return Verdict(False, f"output {path}: {text}" if path else text)
