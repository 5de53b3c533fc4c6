"""What becomes of the compiled kernel that a launch returns."""

from __future__ import annotations

import dis
import sys
from types import CodeType, FrameType
from typing import Any, Literal

Returned = Literal["dropped", "used", "kept"]

# Between a launch and whoever asked for it.
_BETWEEN = frozenset(("whet", "triton", "torch"))


def returned(tuner: Any) -> Returned:
    """Asked while a call of the kernel `tuner` is under way: what its caller does with the result.

    Most callers drop it. One that calls `run` in place of `kernel[grid]` is a wrapper, such as
    FlagGems's `LibEntry`: it keeps what it got for all later calls, which never come here.
    """
    below, frame = sys._getframe(1), sys._getframe(1).f_back
    while frame is not None and _is_between(frame, tuner):
        below, frame = frame, frame.f_back
    if frame is None:
        return "dropped"
    if below.f_code.co_name == "run":
        return "kept"
    return "dropped" if _drops(frame.f_code, frame.f_lasti) else "used"


def _is_between(frame: FrameType, tuner: Any) -> bool:
    """Also where it is a method of the kernel's own class: a subclass may have a `run`."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in _BETWEEN or any(
        getattr(vars(kind).get(frame.f_code.co_name), "__code__", None) is frame.f_code
        for kind in type(tuner).__mro__
    )


def _drops(code: CodeType, place: int) -> bool:
    """Whether the result of the call at this place of the byte code is thrown away."""
    after = (one.opname for one in dis.get_instructions(code) if one.offset > place)
    return next(after, "") == "POP_TOP"
