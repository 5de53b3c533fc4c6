"""`whet verify --missed`: picks of recorded keys, measured with the recorded calls made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.cli.arguments.verifying import Asked, checked
from whet.cli.text.verified import Checked
from whet.core.errors import WhetError

if TYPE_CHECKING:
    from whet.cli.arguments.missed import LocatedMiss
    from whet.targets.files import RecordedFiles
    from whet.targets.triton.target import TritonTarget

RECORDING = "whet run --record SCRIPT.py"
_TUNING = "whet tune --missed"


def recorded(tunable: str | None, asked: Asked, files: RecordedFiles) -> list[Checked]:
    """Of one kernel, or of all."""
    from whet.cli.arguments.missed import MissLocator, recorders

    locator = MissLocator(tunable, asked.inputs, "verify", files, recorders(asked.store))
    return [
        checked_call(locator.locate(miss), asked)
        for miss in locator.named(asked.store.missed(tuned=True))
    ]


def checked_call(one: LocatedMiss, asked: Asked) -> Checked:
    from whet.cli.arguments.missed import making_again
    from whet.cli.arguments.reading import problem_text
    from whet.engine.target import Target
    from whet.targets.files import guarded
    from whet.targets.triton.offline.kernel import make_inputs
    from whet.targets.triton.offline.tuning import check_device, check_ready, with_target

    named, found = problem_text(one.miss.workload), one.found
    if found is None:
        return Checked(named, None, one.why)
    try:
        if isinstance(found, Target):
            return checked(found, named, asked, _TUNING)
        asked = asked.of_kernel(found.tuner)
        with making_again(found, one.miss) as key:
            check_ready(found)
            check_device(one.miss.workload.device)
            grid, args, keywords = guarded(one.path, lambda: make_inputs(found, key))

            def use(target: TritonTarget) -> Checked:
                return checked(target, named, asked, _TUNING)

            return with_target(found, grid, args, keywords, use)
    except WhetError as error:
        return Checked(named, None, str(error))
