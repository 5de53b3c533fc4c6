"""Follows a call through the files of `src/whet`: which are entered, and how often it changes file.

    python tests/unit/call_trace.py       the figures for a Triton kernel and a plain function
    python tests/unit/call_trace.py -v    how often each file was entered
    python tests/unit/call_trace.py -vv   and by which of its functions

Only calls of Python functions in the calling process count, and none while a module is being
imported.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import whet

SOURCE = str(Path(whet.__file__).parent) + os.sep


@dataclass
class Trace:
    """`hops` counts the calls that went from one file to another; `files` how often each was
    entered, `entrances` by which function; `functions` are all that were called."""

    files: Counter[str] = field(default_factory=Counter)
    entrances: Counter[tuple[str, str]] = field(default_factory=Counter)
    functions: set[tuple[str, str]] = field(default_factory=set)
    hops: int = 0

    @property
    def lines(self) -> int:
        return sum(len(Path(SOURCE, name).read_text().splitlines()) for name in self.files)

    def __str__(self) -> str:
        fake = sum(times for name, times in self.files.items() if name.startswith("testing"))
        return (
            f"{len(self.files)} files ({self.lines:,} lines), {len(self.functions)} functions, "
            f"{self.hops:,} hops" + (f" ({fake} of them into the fake device)" if fake else "")
        )


@contextmanager
def traced() -> Iterator[Trace]:
    trace = Trace()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCE):
            return
        if code.co_name == "<module>" or _importing(frame):
            return
        name = code.co_filename[len(SOURCE) :]
        trace.functions.add((name, code.co_qualname))
        if name != _caller(frame):
            trace.files[name] += 1
            trace.entrances[name, code.co_qualname] += 1
            trace.hops += 1

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _caller(frame: FrameType) -> str:
    """The file of ours that called, through whatever library lies between."""
    above = frame.f_back
    while above is not None and not above.f_code.co_filename.startswith(SOURCE):
        above = above.f_back
    return "" if above is None else above.f_code.co_filename[len(SOURCE) :]


def _importing(frame: FrameType) -> bool:
    above: FrameType | None = frame
    while above is not None:
        if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(SOURCE):
            return True
        above = above.f_back
    return False


def triton_call() -> tuple[Trace, Trace]:
    """The first call of a decorated kernel on a fake driver, and the second; its two configs are
    6 % apart, so that there is a duel."""
    import triton
    import triton.language as tl

    from whet.testing.fake_triton import FakeTensor, fake_driver, told

    @triton.jit
    def scale(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)

    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]
    kernel = whet.autotune(configs=configs, key=["n"])(scale)
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    x = FakeTensor([1.0] * 4)
    with fake_driver():
        return _twice(lambda: kernel[(1,)](x, 4))


def function_call() -> tuple[Trace, Trace]:
    """`whet.tune` of a plain function with two configs, and once more from its store."""
    target = whet.function(lambda a: sum(range(1000 * a)), {"a": [1, 2]}, key={}, name="adding")
    return _twice(lambda: whet.tune(target))


def _twice(call: Callable[[], Any]) -> tuple[Trace, Trace]:
    with traced() as first:
        call()
    with traced() as second:
        call()
    return first, second


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            TRITON_DEFAULT_FP_FUSION="1",
            WHET_STORE=str(Path(folder, "store.db")),
            TRITON_CACHE_DIR=str(Path(folder, "triton")),
        )
        for name, call in (("a Triton kernel", triton_call), ("a function", function_call)):
            first, second = call()
            print(f"{name}, first call: {first}")
            print(f"{name}, second call: {second}")
            _list(first, files="-v" in sys.argv, functions="-vv" in sys.argv)


def _list(trace: Trace, *, files: bool, functions: bool) -> None:
    for file, entered in trace.files.most_common() if files or functions else ():
        print(f"  {entered:5} {file}")
        for (home, function), times in trace.entrances.most_common() if functions else ():
            if home == file:
                print(f"        {times:5} {function}")


if __name__ == "__main__":
    main()
