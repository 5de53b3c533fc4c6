"""Every error a user can meet. `exit_code` is what the command line returns for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.core.status import Limit, Status


class WhetError(Exception):
    """Base class of all errors for users; the message names the problem and a remedy."""

    exit_code = 1


class UsageError(WhetError):
    """The caller's input is wrong: a name, a value, a file."""

    exit_code = 2


class SpaceError(UsageError):
    """A parameter or a constraint is not valid."""


class BudgetError(UsageError):
    """A budget is not valid."""


class SettingsError(UsageError):
    """A setting with an unknown name or an impossible value."""


class TargetError(UsageError):
    """What is to be tuned is wrong whatever the config: its reference raises, or a call of it only
    makes a coroutine."""


class NotTunedError(UsageError):
    """There is no stored result, and tuning is not allowed."""


class RanksDifferError(WhetError):
    """Ranks of a process group have made different choices; the message names the kernel."""


class UnforeseenCompileError(WhetError):
    """A kernel would be compiled after `whet.serving.sealed()`."""


class StoreError(WhetError):
    """The store is locked, read-only, too new or not a store. It was not changed."""


class BundleError(UsageError, StoreError):
    """A bundle that is damaged, forged, too new or none. Nothing was taken from it."""


class HostFailure(WhetError):
    """The machine has run out of something that every config needs, so none is to blame."""


class OtherSourceError(HostFailure):
    """A process has imported something else than the one that asks it, under the same name."""


_RUN_OUT = {
    "No space left on device": "free some space, or set TMPDIR to a directory on another disk",
    "Disk quota exceeded": "free some space, or set TMPDIR to a directory on another disk",
    "Too many open files": "raise the limit on open files (ulimit -n)",
}


def host_failure(what: str, text: str) -> HostFailure | None:
    """Where `text`, of an error or a compiler, says that the machine was short of something."""
    for words, remedy in _RUN_OUT.items():
        if re.search(words, text, re.IGNORECASE):
            return HostFailure(
                f"{what}: {words.lower()}; {remedy}. Results so far are stored, and the next "
                "run continues from them"
            )
    return None


class TuningFailedError(WhetError):
    """Tuning found no working config."""


class ConfigFailure(Exception):
    """Raised by a target, in any process, when it knows the status a config deserves.

    Crosses process boundaries, so it is rebuilt from its arguments alone. `spoils`: the process it
    ran in can run nothing more, as after an illegal access on a GPU.
    """

    def __init__(
        self, status: Status, message: str, limit: Limit | None = None, spoils: bool = False
    ) -> None:
        super().__init__(status, message, limit, spoils)
        self.status = status
        self.message = message
        self.limit = limit
        self.spoils = spoils

    def __str__(self) -> str:
        return f"{self.status}: {self.message}"


_typed = False


@contextmanager
def at_command_line() -> Iterator[None]:
    """What is said in here is read by somebody who types options, not arguments."""
    global _typed
    before, _typed = _typed, True
    try:
        yield
    finally:
        _typed = before


def option(name: str, value: object = None) -> str:
    """`--budget 30s` at the command line, `budget="30s"` in a Python program."""
    if _typed:
        return f"--{name}" if value is None else f"--{name} {value}"
    return f"{name}=…" if value is None else f'{name}="{value}"'


def did_you_mean(wrong: str, valid: Iterable[str]) -> str:
    """`"; did you mean 'BM'? valid: BM, BN"`, for the end of an error message."""
    import difflib  # for those who made a mistake

    names = [str(name) for name in valid]
    close = difflib.get_close_matches(wrong, names, n=1, cutoff=0.5)
    hint = f"; did you mean '{close[0]}'?" if close else ";"
    return f"{hint} valid: {', '.join(names) if names else '(none)'}"


def install_extra(extra: str) -> str:
    """The command that works wherever it is read: no package index has whet under its own name."""
    return f"pip install '.[{extra}]' in a clone of whet"


def no_triton(error: BaseException) -> str | None:
    """What to do about an import that failed for want of Triton; None of any other error."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "triton":
        return "Triton is not installed; install it with pip install triton"
    return None
