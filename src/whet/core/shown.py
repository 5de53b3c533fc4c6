"""Things that show themselves in a notebook."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Named, not imported: what draws lies above all that is drawn, and is loaded when it is asked for.
_DRAWER = "whet.explorer.notebook"


def drawn(thing: Any) -> str | None:
    """For a class's `_repr_html_`; None, and so the plain text, where there is nothing to draw."""
    html: str | None = import_module(_DRAWER).html_of(thing)
    return html
