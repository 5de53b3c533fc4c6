"""What became of one workload that `whet verify` was asked about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.engine.review.verify import Verification


@dataclass(frozen=True)
class Checked:
    """One workload, `what` in the user's words; without a verification, `why` there is none."""

    what: str
    done: Verification | None
    why: str = ""
