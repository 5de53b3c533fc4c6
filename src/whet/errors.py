"""What whet raises and a program may catch. `WhetError` is the base class of all of them."""

from whet.core.errors import (
    BudgetError,
    NotTunedError,
    RanksDifferError,
    SpaceError,
    StoreError,
    TuningFailedError,
    UnforeseenCompileError,
    UsageError,
    WhetError,
)
from whet.engine.guard import (
    DeviceLostError,
    HostLostError,
    Interrupted,
    StoreLostError,
)

__all__ = [
    "BudgetError",
    "DeviceLostError",
    "HostLostError",
    "Interrupted",
    "NotTunedError",
    "RanksDifferError",
    "SpaceError",
    "StoreError",
    "StoreLostError",
    "TuningFailedError",
    "UnforeseenCompileError",
    "UsageError",
    "WhetError",
]
