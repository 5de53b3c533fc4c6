"""What people should know about their kernels, said once."""

from __future__ import annotations

import warnings

_said: set[str] = set()


def say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)
