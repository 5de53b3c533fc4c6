"""From what was typed to what is to be looked at."""

from __future__ import annotations

from collections.abc import Sequence

from whet.cli.arguments.options import resolved
from whet.explorer.library import Library, StorePlace
from whet.replay import read_table, shipped
from whet.replay.table import Table


def library_of(store: str | None, *, sample: bool = False, tables: Sequence[str] = ()) -> Library:
    """The store, unless a sample is asked for, and tables. There need not be a store yet."""
    named = [*(shipped() if sample else ()), *tables]
    found: dict[str, Table] = {name: read_table(name) for name in named}
    if sample and store is None:
        return Library(None, found)
    settings = resolved(store=store).settings
    return Library(StorePlace(settings.store, settings.bundle), found)
