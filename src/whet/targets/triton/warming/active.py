"""The warm-up that is under way, if any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from whet.builds.shared import SharedPool
    from whet.core.budget import Budget
    from whet.core.config import Config
    from whet.core.mode import Effort
    from whet.core.run import Result

# In place of a config: the call is not launched, and its outputs stay as they are.
SKIPPED = object()


@dataclass(frozen=True)
class UntunedCall:
    """A call of a kernel whose `key`, that of its cache, has no config yet; `passed` are the
    kernel's arguments by name, `configs` what is left of its list for this call."""

    tuner: Any
    key: tuple[Any, ...]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    passed: Mapping[str, Any]
    configs: Sequence[Any]


class ActiveWarmup(Protocol):
    """What a kernel asks where a program is being warmed up."""

    @property
    def pool(self) -> SharedPool: ...

    def effort(self, own: Effort | None) -> Effort | None:
        """That of a tuning; `own` is the kernel's."""

    def search(self, own: Any) -> Any:
        """The strategy of a tuning; `own` is the kernel's."""

    @property
    def built_ahead(self) -> Sequence[Config]:
        """For the kernel that this thread was last told to tune."""

    def met(self, call: UntunedCall) -> Any:
        """The config to launch a call with that is not tuned, or `SKIPPED`; None where it is to be
        tuned now."""

    def measures(self, tuner: Any, arguments: Iterable[Any]) -> None:
        """A kernel whose subclass decides by itself when to tune is about to measure a call with
        these arguments."""

    def budget(self, own: Budget | str | float | None) -> Budget | str | float | None:
        """What a tuning may take; `own` is the kernel's."""

    def tuned(self, target: Any, result: Result) -> None:
        """What came of the tuning that this thread was last told to do; `target` is what it
        tuned."""

    def may_choose(self, choice: str) -> bool:
        """Whether a choice between implementations is to be tuned now. Not before all kernels are:
        until then each call of it calls all implementations, so that their kernels are met."""

    def chose(self, choice: str, pick: str) -> None:
        """What came of that."""


# For the whole process, not a context: backward passes run in threads of torch's own.
_active: ActiveWarmup | None = None


def active() -> ActiveWarmup | None:
    return _active


def set_active(warmup: ActiveWarmup | None) -> None:
    global _active
    _active = warmup


@contextmanager
def suspended() -> Iterator[None]:
    """Kernels that are called within are not the program's."""
    before = active()
    set_active(None)
    try:
        yield
    finally:
        set_active(before)
