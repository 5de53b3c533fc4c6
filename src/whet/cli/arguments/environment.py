"""Options for a user's file that is run in this process, and tunes by itself."""

from __future__ import annotations

import os

from whet.cli.arguments.options import resolved


def pass_on(store: str | None, **given: str | None) -> None:
    """As settings of this process; the file may well change its folder before it tunes."""
    from whet.store import store_place

    settings = resolved(store=store, **given).settings
    if store is not None:
        place = store_place(settings.store)
        # A place does not show a password, which processes started by the file may need.
        os.environ["WHET_STORE"] = str(settings.store) if "://" in place else place
    for name, value in given.items():
        if value is not None:
            os.environ[f"WHET_{name.upper()}"] = value
