"""The same targets under atheris, where that is installed: libFuzzer chooses what to go on from,
and our mutations know the formats."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from fuzzing.loop import Fuzzed, Lines
from fuzzing.mutation import LONGEST, mutator
from fuzzing.target import Target, attempt


def is_installed() -> bool:
    return find_spec("atheris") is not None


def fuzz_with_atheris(
    make: Callable[[], Target], inputs: int, seed: int, done: Callable[[Fuzzed], None]
) -> NoReturn:
    """Calls `done` with what was found and ends the process, as libFuzzer does.

    `make` imports the target, so that what it imports is instrumented.
    """
    import atheris

    with atheris.instrument_imports(include=["whet"]):
        target = make()
    folder = Path(tempfile.mkdtemp(prefix="whet-corpus-"))
    for at, data in enumerate(target.seeds()):
        (folder / f"seed-{at}").write_bytes(data)
    mutate = mutator(target.shape, target.words)
    seeds = target.seeds()
    found = Fuzzed(target.name)
    started = time.perf_counter()

    def one(data: bytes) -> None:
        found.add(attempt(target, data))
        found.inputs += 1
        if found.inputs >= inputs:
            found.seconds = time.perf_counter() - started
            found.lines = _lines(target, folder)
            done(found)
            os._exit(0)

    def another(data: bytes, longest: int, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < 0.2:
            return bytes(atheris.Mutate(data, longest))
        return mutate(data, rng.choice(seeds), rng)[:longest]

    options = [f"-seed={seed + 1}", f"-max_len={LONGEST}", "-timeout=60", "-rss_limit_mb=3000"]
    atheris.Setup([target.name, *options, str(folder)], one, custom_mutator=another)
    atheris.Fuzz()
    raise AssertionError("libFuzzer does not return")


def _lines(target: Target, corpus: Path) -> int:
    lines = Lines(target.watched)
    for path in sorted(corpus.iterdir()):
        lines.traced(partial(attempt, target, path.read_bytes()))
        path.unlink()
    corpus.rmdir()
    return len(lines.reached)
