"""Arguments that JSON has no word for, written down as text and read back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.core.miss import Argument


def written(value: Any) -> tuple[str, str] | None:
    """The type and the text of such a value: an infinite number, or a dtype of Triton's or torch's.
    None for any other."""
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if isinstance(value, float):
        return None if math.isfinite(value) else ("float", str(value))
    if type(value).__name__ == "dtype" and type(value).__module__.startswith(("torch", "triton")):
        return "dtype", str(value)
    return None


def argument_value(one: Argument) -> Any:
    """What `written` wrote, as it was; any other value as it is. Raises `ValueError` for a dtype
    that is not known here."""
    if not isinstance(one.value, str):
        return one.value
    if one.type == "float":
        return float(one.value)
    return _dtype(one.value) if one.type == "dtype" else one.value


def _dtype(text: str) -> Any:
    library, _, name = text.rpartition(".")
    if library == "torch":
        import torch

        found = getattr(torch, name, None)
        if not isinstance(found, torch.dtype):
            raise ValueError(f"this torch has no dtype {name}")
        return found
    import triton.language as tl

    known = {str(value): value for value in vars(tl).values() if isinstance(value, tl.dtype)}
    if text not in known:
        raise ValueError(f"this Triton has no dtype {text}")
    return known[text]
