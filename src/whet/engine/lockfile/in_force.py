"""The choices that this process has made so far, and one hash of them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whet.engine.log import warn

if TYPE_CHECKING:
    from whet.core.config import Config
    from whet.core.run import Choice
    from whet.core.workload import Workload


@dataclass(frozen=True)
class UnlockedChoice:
    """A choice that the lock file did not make, and why not."""

    workload: Workload
    config: Config
    reason: str

    def __str__(self) -> str:
        return f"{self.workload}: [{self.config}], {self.reason}"


@dataclass(frozen=True)
class InForce:
    """`name` is for people; `config` what is launched."""

    name: str
    config: Config


# By workload, the latest last. Few programs ask for them, so nothing is hashed before that.
_choices: dict[str, tuple[Workload, Config]] = {}
_unlocked: dict[str, UnlockedChoice] = {}


def in_force(workload: Workload, config: Config) -> None:
    """The latest choice for a workload is the one that counts."""
    _choices.pop(workload.id, None)
    _choices[workload.id] = workload, config


def not_locked(workload: Workload, choice: Choice, complain: Callable[[str], None] = warn) -> None:
    """Lists the choice; the first of each kernel is also said."""
    from whet.engine.lockfile.entries import entry_id

    new = all(one.workload.kernel != workload.kernel for one in _unlocked.values())
    _unlocked[entry_id(workload)] = UnlockedChoice(workload, choice.config, choice.reason)
    if new:
        complain(f"{workload}: {choice.reason} (whet.unlocked() lists all of these)")


def unlocked() -> tuple[UnlockedChoice, ...]:
    """Every choice of this process that its lock file did not make, with the reason."""
    return tuple(sorted(_unlocked.values(), key=str))


def choices_in_force() -> dict[str, InForce]:
    from whet.engine.lockfile.entries import entry_id  # few ask, and every program tunes

    return {
        entry_id(workload): InForce(str(workload), config)
        for workload, config in list(_choices.values())
    }


def own_digest() -> str:
    from whet.engine.lockfile.entries import choices_digest

    return choices_digest({id: one.config for id, one in choices_in_force().items()})


def forget_choices() -> None:
    """For tests, and for programs that begin anew."""
    _choices.clear()
    _unlocked.clear()
