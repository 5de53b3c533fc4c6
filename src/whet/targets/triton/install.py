"""Puts whet in the place of `triton.autotune`, and takes it out again."""

from __future__ import annotations

from typing import Any

_replaced: dict[str, Any] = {}


def install() -> None:
    """Replaces `@triton.autotune` with `@whet.autotune`; call it before kernels are decorated.

    `triton.runtime.autotuner.autotune` stays Triton's own, because Dynamo re-wraps kernels with it.
    """
    import triton

    from whet.targets.triton.decorator import autotune

    if not _replaced:
        _replaced.update(triton=triton.autotune, runtime=triton.runtime.autotune)
        triton.autotune = autotune
        triton.runtime.autotune = autotune


def uninstall() -> None:
    """Restores Triton's own decorator. Kernels decorated in the meantime stay with whet."""
    import triton

    if _replaced:
        triton.autotune = _replaced["triton"]
        triton.runtime.autotune = _replaced["runtime"]
        _replaced.clear()
