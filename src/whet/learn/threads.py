"""Linear algebra on small matrices, on one core."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any


def one_thread() -> AbstractContextManager[Any]:
    """Inside, BLAS uses the calling thread alone. A matrix of a few hundred rows that is shared
    among cores takes three times as long, and more where they are busy."""
    controller = _blas()
    return nullcontext() if controller is None else controller.limit(limits=1)


@cache
def _blas() -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController().select(user_api="blas")
