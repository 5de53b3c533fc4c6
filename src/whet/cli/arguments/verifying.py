"""One target, measured again as `whet verify` was asked to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from whet.cli.terminal.output import say
from whet.cli.text.verified import Checked

if TYPE_CHECKING:
    from whet.engine.settings import Settings
    from whet.engine.target import Target
    from whet.store import Store


@dataclass(frozen=True)
class Asked:
    """What every tunable is verified with."""

    store: Store
    settings: Settings
    fail_over: float
    record: bool
    quiet: bool
    inputs: str | None = None
    flags: tuple[str, ...] = ()

    def of_kernel(self, tuner: Any) -> Asked:
        """With what the policy says of the kernel; options of the command outrank it."""
        from whet.targets.triton.policy import apply_policy, settings_for

        apply_policy(tuner, self.flags)
        return replace(self, settings=settings_for(tuner))


def checked(target: Target, what: str, asked: Asked, command: str | None = None) -> Checked:
    """`command` is what would tune it, where that is not `whet tune` with the same words."""
    from whet.engine.review.verify import verify as measure_again

    if not asked.quiet:
        say(f"verifying {what}")
    done = measure_again(
        target,
        asked.store,
        fail_over=asked.fail_over,
        settings=asked.settings,
        record=asked.record,
    )
    why = "" if done is not None else nothing_stored(command or f"whet tune {what}")
    return Checked(what, done, why)


def nothing_stored(command: str) -> str:
    return f"no stored result for this device; tune it first with '{command}'"
