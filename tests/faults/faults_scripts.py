"""Schedule scripts with random mistakes, and what becomes of them."""

from __future__ import annotations

import random
from dataclasses import replace

from whet.core.errors import TuningFailedError, UsageError
from whet.engine import tune
from whet.engine.settings import resolve_settings
from whet.store import MemoryStore
from whet.targets.schedule.payloads import Payload
from whet.targets.schedule.target import schedule

BUILD_LIMIT_S = 60.0


def mutate_script(text: str, rng: random.Random) -> str:
    """One line dropped, repeated, exchanged with another, or with another word in it. The lines
    that open and close the module and the sequence stay."""
    lines = text.splitlines()
    begins = next(i for i, line in enumerate(lines) if "transform.named_sequence" in line) + 1
    body = range(begins, len(lines) - 3)
    one, other = rng.choice(body), rng.choice(body)
    kind = rng.choice(["drop", "repeat", "swap", "word"])
    if kind == "drop":
        del lines[one]
    elif kind == "repeat":
        lines.insert(other, lines[one])
    elif kind == "swap":
        lines[one], lines[other] = lines[other], lines[one]
    else:
        words = lines[one].split(" ")
        words[rng.randrange(len(words))] = rng.choice(text.split())
        lines[one] = " ".join(words)
    return "\n".join(lines)


def fate(payload: Payload, text: str) -> str:
    """`right`, `refused` with a place in the script, `stopped` by the limit of a build; anything
    else is what went wrong. The first config is built, run and compared with the reference."""
    settings = replace(resolve_settings().settings, build_limit_s=BUILD_LIMIT_S)
    try:
        first = schedule(payload, text).space.first
        if first is None:
            return "refused"
        only = [f"{name} == {value!r}" for name, value in first.items()]
        target = schedule(payload, text, constraints=only)
        tune(target, store=MemoryStore(), jobs=1, settings=settings, mode="tune")
    except UsageError as error:
        return "refused" if str(error).startswith("script:") else f"UsageError: {error}"
    except TuningFailedError as error:
        said = str(error)
        if "build_error" in said and "script:" in said:
            return "refused"
        return "stopped" if "build_timeout" in said else said
    return "right"
