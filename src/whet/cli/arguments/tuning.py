"""A tuning on the command line, and what follows it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.core.run import Result
    from whet.engine.settings import Settings
    from whet.engine.target import Target
    from whet.engine.tuning import Transfer


def teach(results: Sequence[Result], settings: Settings) -> None:
    """Keeps a cost model for keys that will not be tuned, where there are enough to learn from."""
    from whet.engine.fallback.inheritance import refresh_models
    from whet.store import open_store, store_place

    kernels = {result.run.workload.kernel for result in results if result.source == "tuned"}
    if kernels and store_place(settings.store) != ":memory:":
        with open_store(settings.store) as store:
            refresh_models(store, kernels)


def run_tuning(
    target: Target, settings: Settings, *, quiet: bool, transfer: Transfer | None = None
) -> tuple[Result | None, bool]:
    """Tunes with progress on stderr; the result, and whether Ctrl-C ended it.

    A result is None only when Ctrl-C came before anything was measured.
    """
    from whet.cli.terminal.progress import progress
    from whet.engine import Interrupted
    from whet.engine import tune as run

    try:
        with redirect_stdout(sys.stderr), progress(target.space.first, quiet=quiet) as on_event:
            result = run(
                target,
                settings=settings,
                transfer=transfer,
                on_event=on_event,
                progress=False,
                mode="tune",
            )
            return result, False
    except Interrupted as interrupted:
        return interrupted.result, True
    except KeyboardInterrupt:
        return None, True


def nothing_yet(target: Target) -> dict[str, object]:
    return {
        "v": 1,
        "workload": target.workload().to_json(),
        "outcome": "interrupted",
        "best": None,
        "first": None,
        "trials": 0,
    }
