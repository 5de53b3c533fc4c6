"""The coverage-guided loop that needs nothing installed: inputs that reach new lines are kept, and
what comes next is made from those that were kept."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn

from fuzzing.mutation import LONGEST, mutator
from fuzzing.target import Crash, Target, attempt

# Tracing costs several times what it watches, so that only one input in so many is traced.
TRACED = 10
LARGEST_CORPUS = 2_000


@dataclass
class Fuzzed:
    """`crashes` has the shortest input of each kind."""

    target: str
    inputs: int = 0
    seconds: float = 0.0
    lines: int = 0
    crashes: dict[str, Crash] = field(default_factory=dict)

    def add(self, crash: Crash | None) -> None:
        if crash is None:
            return
        known = self.crashes.get(crash.where)
        if known is None or len(crash.data) < len(known.data):
            self.crashes[crash.where] = crash


class Lines:
    """The lines of the watched parts of whet that anything has reached."""

    def __init__(self, watched: Iterable[str]) -> None:
        self.reached: set[tuple[CodeType, int]] = set()
        self._parts = tuple(f"/whet/{part}" for part in watched)
        self._mine: dict[CodeType, bool] = {}

    def traced(self, work: Callable[[], Crash | None]) -> tuple[Crash | None, bool]:
        """What `work` gives, and whether it has reached a line that nothing had."""
        before = len(self.reached)
        outer = sys.gettrace()
        sys.settrace(self._call)
        try:
            crash = work()
        finally:
            sys.settrace(outer)
        return crash, len(self.reached) > before

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        mine = self._mine.get(code)
        if mine is None:
            mine = any(part in code.co_filename for part in self._parts)
            self._mine[code] = mine
        return self._line if mine else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.reached.add((frame.f_code, frame.f_lineno))
        return self._line


def fuzz(
    target: Target, inputs: int, seed: int = 0, stop_s: float = float("inf"), traced: int = TRACED
) -> Fuzzed:
    """So many inputs, the seeds among them; fewer only where `stop_s` is over."""
    rng = random.Random(f"{target.name} {seed}")
    mutate = mutator(target.shape, target.words)
    lines, found = Lines(target.watched), Fuzzed(target.name)
    seeds = list(target.seeds())
    corpus = list(seeds)
    started = time.perf_counter()
    for number in range(inputs):
        given = number < len(seeds)
        if given:
            data = seeds[number]
        else:
            # The newest are the likeliest to lead on.
            recent = corpus[-8:] if rng.random() < 0.3 else corpus
            data = mutate(rng.choice(recent), rng.choice(corpus), rng)
        if given or number % traced == 0:
            crash, new = lines.traced(partial(attempt, target, data))
            if new and not given and len(corpus) < LARGEST_CORPUS:
                corpus.append(data)
        else:
            crash = attempt(target, data)
        found.add(crash)
        found.inputs += 1
        if number % 64 == 0 and time.perf_counter() - started > stop_s:
            break
    found.seconds = time.perf_counter() - started
    found.lines = len(lines.reached)
    return found


def is_installed() -> bool:
    return find_spec("atheris") is not None


def fuzz_with_atheris(
    make: Callable[[], Target], inputs: int, seed: int, done: Callable[[Fuzzed], None]
) -> NoReturn:
    """The same targets under atheris, where that is installed: libFuzzer chooses what to go on
    from, and our mutations know the formats. Calls `done` with what was found and ends the process,
    as libFuzzer does.

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
