"""Things that show themselves: printed, in a notebook, and while somebody waits for them."""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from whet.core.config import Config
    from whet.core.event import Event
    from whet.core.run import Result

# Named, not imported: what draws lies above all that is drawn, and is loaded when it is asked for.
_DRAWER = "whet.explorer.notebook"
_TELLER = "whet.cli.terminal.summary"
_DISPLAY = "whet.cli.terminal.progress"


def drawn(thing: Any) -> str | None:
    """For a class's `_repr_html_`; None, and so the plain text, where there is nothing to draw."""
    html: str | None = import_module(_DRAWER).html_of(thing)
    return html


def told(result: Result) -> str:
    """For a result's `__str__`."""
    text: str = import_module(_TELLER).brief(result)
    return text


def live_display(first: Config | None) -> AbstractContextManager[Callable[[Event], None]]:
    """A subscriber that shows how far a tuning is: live in a notebook and on a terminal, as plain
    lines on stderr elsewhere."""
    display: AbstractContextManager[Callable[[Event], None]]
    display = import_module(_DISPLAY).progress(first)
    return display


def watched() -> bool:
    """Whether a person waits for this thread, at a terminal or in a notebook."""
    process: Any = sys.modules.get("multiprocessing.process")  # loaded in every child
    if process is not None and process.parent_process() is not None:
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def in_notebook() -> bool:
    """Never imports IPython: whoever is in a notebook has it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")
