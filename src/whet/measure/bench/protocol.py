"""The bench, where built configs are loaded, checked and timed, one at a time: what it is asked and
answers, whether a result is right, what went wrong with a config in a line that a person can act
on, and the device memory that a tuning takes for itself."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, runtime_checkable

from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.status import Limit, Status
from whet.measure.timer import Hopeless, Reading

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

# An artifact is whatever the target's build made and its loader takes. A bench never looks inside.
Built = tuple[Config, Any]


class Loaded(Protocol):
    """A config that can run: what a target gives for a built artifact.

    It may be a `FirstCall`, `MayCompare`, or `Hooked` as any `Runnable`.
    """

    @property
    def facts(self) -> Mapping[str, Value]:
        """What is known of the artifact once it is loaded: registers, size, hash…"""

    def repeat(self, n: int) -> None:
        """Runs it `n` times back to back, and returns when the last has ended."""

    def check(self) -> Verdict:
        """Runs it once and compares what came out with the reference."""

    def close(self) -> None: ...


@runtime_checkable
class FirstCall(Protocol):
    """A loaded config whose first call does more than the later ones: it compiles, fills a cache,
    starts threads. That part has its own limit and its own place in the ledger."""

    def first_call(self) -> None:
        """Called once after each loading, before anything else."""


@runtime_checkable
class MayCompare(Protocol):
    """A loaded config that says whether it has anything to compare its results with. Where not,
    its `check` merely runs it once, which is booked as warming up."""

    @property
    def compares(self) -> bool: ...


class Loader(Protocol):
    """What a target gives to load its artifacts, in the process that measures; it may be
    `Recovering`."""

    def load(self, config: Config, artifact: Any) -> Loaded: ...


@runtime_checkable
class Recovering(Protocol):
    """A loader that knows whether all is lost with a failure."""

    def recover(self, problem: BaseException) -> bool:
        """Frees what the failure left behind; whether this process can still run anything."""


@dataclass(frozen=True)
class Visit:
    """What is asked of a bench: so many samples of each, in this order, in one round trip.

    With `first`, each config is loaded, checked and warmed up before, whatever was known of it. One
    whose warm-up is `hopeless` then gets no samples: its reading is the warm-up's, marked
    `contaminated`. One of which a single run takes longer than `spare_s` gets one sample. Without
    `first`, one that is named several times is sampled as often. `limit_s` is for one config's part
    of it, but for its first call, whose limit the bench was opened with.
    """

    built: tuple[Built, ...]
    samples: int
    first: bool = False
    limit_s: float | None = None
    hopeless: Hopeless | None = None
    spare_s: float | None = None

    def samples_of(self, ns: float) -> int:
        """How many samples of a config whose single run takes so long."""
        return 1 if self.spare_s is not None and ns > 1e9 * self.spare_s else self.samples

    def of(self, *built: Built) -> Visit:
        """The same for these alone."""
        return replace(self, built=built)

    @property
    def ids(self) -> list[str]:
        """Each config once, in the order of the answers."""
        return list(dict.fromkeys([config.id for config, _ in self.built]))


@dataclass(frozen=True)
class Sampled:
    """`seconds` by phase: `load`, `first_call`, `check`, `warmup`, `measure`; `measure.kernel` is
    part of one. `facts` are those of a first visit.
    `hopeless`: its warm-up was slower than it was allowed to be, and is all there is."""

    reading: Reading
    seconds: FrozenMap[float]
    facts: FrozenMap[Value] = field(default_factory=FrozenMap)
    hopeless: bool = False


Answer = Sampled | ConfigFailure


class Bench(Protocol):
    """What the engine measures on, and leaves with `with`. What is loaded stays so while there is
    room, and is loaded again when needed."""

    @property
    def in_process(self) -> bool:
        """True where a kernel runs in the caller's process, and can take it down."""

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        """One answer for each config, in the order in which they are first named; one that is named
        several times has its samples in the order they were taken.

        A config that cannot be measured is answered with a `ConfigFailure` of status `run_error`,
        `run_timeout`, `resources` or `wrong_result` and a text for people; the bench can be used
        on. One that `spoils` the caller's own process is raised, since nothing can run after it
        and nobody else may be blamed for that.
        """

    def forget(self, config: Config) -> None:
        """The config will not be measured again."""

    def end_call(self) -> None:
        """Ends the call under way, from another thread: its config has crashed. A kernel in the
        caller's process cannot be ended."""

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@runtime_checkable
class ParallelBench(Protocol):
    """A bench that looks at several configs at the same time, on as many devices."""

    @property
    def width(self) -> int:
        """How many are best looked at in one visit."""


_KINDS = {
    "b": "boolean",
    "i": "integer",
    "u": "integer",
    "f": "floating-point",
    "c": "complex",
}


@dataclass(frozen=True)
class Verdict:
    """`message` says what is wrong, and is empty when nothing is."""

    ok: bool
    message: str = ""


RIGHT = Verdict(True)


def compare(actual: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Verdict:
    """Arrays, scalars, and tuples, lists and dicts of them, to any depth.

    Floating-point and complex numbers may differ by `atol + rtol * |expected|`; everything else
    must be the same. NaN is right exactly where it is expected, and so is each infinity. The
    first output that is wrong is reported:

        output 'c': 12 of 4096 elements differ, worst at [3, 7]: got 1.5, expected 2.5 (rtol …)
    """
    return _compare(actual, expected, rtol, atol, "")


def _compare(actual: Any, expected: Any, rtol: float, atol: float, path: str) -> Verdict:
    if isinstance(expected, Mapping):
        if not isinstance(actual, Mapping) or actual.keys() != expected.keys():
            return _wrong(path, f"got {_outline(actual)}, expected {_outline(expected)}")
        pairs = [(repr(key), actual[key], expected[key]) for key in expected]
    elif isinstance(expected, list | tuple):
        if not isinstance(actual, list | tuple) or len(actual) != len(expected):
            return _wrong(path, f"got {_outline(actual)}, expected {_outline(expected)}")
        pairs = [(str(i), a, e) for i, (a, e) in enumerate(zip(actual, expected, strict=True))]
    else:
        return _compare_leaf(actual, expected, rtol, atol, path)
    for name, a, e in pairs:
        verdict = _compare(a, e, rtol, atol, f"{path}.{name}" if path else name)
        if not verdict.ok:
            return verdict
    return RIGHT


def _compare_leaf(actual: Any, expected: Any, rtol: float, atol: float, path: str) -> Verdict:
    import numpy as np

    if expected is None or isinstance(expected, str | bytes):
        same = type(actual) is type(expected) and actual == expected
        return RIGHT if same else _wrong(path, f"got {actual!r}, expected {expected!r}")
    got, want = _known(np.asarray(actual)), _known(np.asarray(expected))
    if got.shape != want.shape:
        return _wrong(path, f"shape {got.shape}, expected {want.shape}")
    kinds = [_KINDS.get(array.dtype.kind, array.dtype.name) for array in (got, want)]
    plain = isinstance(actual, int | float) and isinstance(expected, int | float)
    if kinds[0] != kinds[1] and not (plain and "boolean" not in kinds):
        return _wrong(path, f"{kinds[0]} ({got.dtype}), expected {kinds[1]} ({want.dtype})")
    exact = not {"f", "c"} & {got.dtype.kind, want.dtype.kind}
    bad = np.asarray(got != want) if exact else _outside(got, want, rtol, atol)
    if not bad.any():
        return RIGHT
    tolerance = "exact" if exact else f"rtol {rtol:g}, atol {atol:g}"
    return _wrong(path, f"{_worst(got, want, bad)} ({tolerance})")


def _known(array: Array) -> Array:
    """NumPy does not take the bfloat16 of another package for a number."""
    import numpy as np

    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _outside(got: Array, want: Array, rtol: float, atol: float) -> Array:
    """True where the difference is beyond tolerance."""
    import numpy as np

    if got.dtype.itemsize < 4 or want.dtype.itemsize < 4:
        got, want = got.astype(np.float32), want.astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        bad = ~(np.abs(got - want) <= atol + rtol * np.abs(want))
        special = ~np.isfinite(want)
        if special.any():
            same = (got == want) | (np.isnan(got) & np.isnan(want))
            bad = np.where(special, ~same, bad)
    return np.asarray(bad)


def _worst(got: Array, want: Array, bad: Array) -> str:
    import numpy as np

    if got.ndim == 0:
        return f"got {got[()]}, expected {want[()]}"
    where = np.flatnonzero(bad)
    worst = where[0]
    if got.dtype.kind in _KINDS and got.dtype.kind != "b":
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        with np.errstate(invalid="ignore"):
            gaps = np.abs(got.flat[where].astype(wide) - want.flat[where].astype(wide))
        # A NaN or an infinity on one side only is as wrong as can be.
        worst = where[int(np.argmax(np.where(np.isnan(gaps), np.inf, gaps)))]
    index = [int(i) for i in np.unravel_index(worst, got.shape)]
    return (
        f"{len(where)} of {got.size} elements differ, worst at {index}: "
        f"got {got.flat[worst]}, expected {want.flat[worst]}"
    )


def _outline(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"outputs {', '.join(map(repr, value)) or '(none)'}"
    if isinstance(value, list | tuple):
        return f"{len(value)} outputs"
    return f"one {type(value).__name__}"


def _wrong(path: str, text: str) -> Verdict:
    return Verdict(False, f"output {path}: {text}" if path else text)


_OUT_OF_MEMORY = re.compile(
    r"bad_alloc|out of memory|cannot allocate memory|memory exhausted|MemoryError", re.IGNORECASE
)
# What CUDA and HIP say when a context is gone: from then on every call in it fails like this.
# ("device-side assertions" alone is advice that torch adds to whatever CUDA says.)
_SPOILT = re.compile(
    r"illegal memory access|device-side assert triggered|unspecified launch failure"
    r"|illegal instruction|misaligned address|invalid program counter|illegal address"
    r"|invalid address space"
    r"|hardware stack error|launch timed out|memory access fault|uncorrectable",
    re.IGNORECASE,
)
_TAIL_LINES = 5
_OURS = str(Path(__file__).resolve().parents[2]) + os.sep


def from_exception(problem: BaseException) -> ConfigFailure:
    """`ValueError: no such tile (in kernel.py, line 12: check(tile))`"""
    name, text = type(problem).__name__, str(problem)
    said = f"{name}: {text}" if text else name
    where = _own_line(problem)
    message = f"{said} (in {where})" if where else said
    if isinstance(problem, MemoryError) or name == "OutOfMemoryError":
        return ConfigFailure(Status.RESOURCES, f"out of memory: {message}")
    if isinstance(problem, RuntimeError) and _OUT_OF_MEMORY.search(text):
        return ConfigFailure(Status.RESOURCES, message)
    spoils = isinstance(problem, RuntimeError) and _SPOILT.search(text) is not None
    return ConfigFailure(Status.RUN_ERROR, message, spoils=spoils)


def is_out_of_memory(problem: BaseException) -> bool:
    """The host's or a device's; torch's own error has had more than one name."""
    if isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError":
        return True
    return isinstance(problem, RuntimeError) and bool(_OUT_OF_MEMORY.search(str(problem)))


def from_death(
    signal_number: int | None, exitcode: int | None, stderr: str, memory_bytes: int | None
) -> ConfigFailure:
    """`killed by SIGSEGV (segmentation fault)`, and the last lines the process wrote."""
    limit = None if memory_bytes is None else Limit("memory_bytes", memory_bytes)
    tail = "\n".join(stderr.strip().splitlines()[-_TAIL_LINES:])
    if _OUT_OF_MEMORY.search(stderr):
        return ConfigFailure(Status.RESOURCES, _with_tail("out of memory", tail), limit)
    if signal_number == signal.SIGKILL:
        text = "killed by SIGKILL, most likely because the machine ran out of memory"
        return ConfigFailure(Status.RESOURCES, _with_tail(text, tail), limit)
    if signal_number is None and exitcode is None:
        text = "its process sent an invalid answer"
    elif signal_number is None:
        text = f"its process ended with exit code {exitcode}"
    else:
        text = f"killed by {_signal_text(signal_number)}"
    return ConfigFailure(Status.RUN_ERROR, _with_tail(text, tail))


def from_timeout(limit_s: float) -> ConfigFailure:
    return ConfigFailure(
        Status.RUN_TIMEOUT,
        f"still running after {limit_s:g} s and was killed",
        Limit("run_s", limit_s),
    )


def from_first_call_timeout(limit_s: float) -> ConfigFailure:
    return ConfigFailure(
        Status.RUN_TIMEOUT,
        f"its first call was still running after {limit_s:g} s and was killed; if the first "
        "call compiles, raise first_call_limit (WHET_FIRST_CALL_LIMIT)",
        Limit("first_call_s", limit_s),
    )


def _signal_text(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    meaning = signal.strsignal(number)
    return f"{name} ({meaning.lower()})" if meaning else name


def _with_tail(text: str, tail: str) -> str:
    return f"{text}\n{tail}" if tail else text


def _own_line(problem: BaseException) -> str:
    """The innermost line of the user's own code, or of a library where none of it is theirs."""
    import sysconfig
    import traceback

    paths = sysconfig.get_paths()
    libraries = tuple(paths[key] + os.sep for key in ("stdlib", "purelib", "platlib"))
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if not os.path.abspath(frame.filename).startswith(_OURS)
    ]
    own = [frame for frame in frames if not frame.filename.startswith(libraries)]
    for frame in (*reversed(own), *reversed(frames)):
        line = f": {frame.line}" if frame.line else ""
        return f"{os.path.basename(frame.filename)}, line {frame.lineno}{line}"
    return ""


T = TypeVar("T")


class NoRoom(MemoryError):
    """More than the tuning may take."""


class DeviceRoom:
    """At most `limit_bytes` in all; None is as much as there is.

    Where the device has no memory left, what is merely cached is given back, and it is tried once
    more. `empty` does that.
    """

    def __init__(
        self, limit_bytes: int | None = None, empty: Callable[[], None] | None = None
    ) -> None:
        self._left = limit_bytes
        self._empty = empty or empty_caches

    def limit(self, limit_bytes: int | None) -> None:
        """From now on, whatever was taken before."""
        self._left = limit_bytes

    def copy_of(self, tensor: Any) -> Any:
        return self.take(int(getattr(tensor, "nbytes", 0)), tensor.clone)

    def take(self, size: int, make: Callable[[], T]) -> T:
        """What `make` allocates, which is `size` bytes."""
        if self._left is not None and size > self._left:
            raise NoRoom(f"{size} bytes needed, but device_memory leaves {self._left}")
        try:
            made = make()
        except Exception as problem:
            if not is_out_of_memory(problem):
                raise
            problem.__traceback__ = None  # its frames may hold what is to be freed
            self._empty()
            made = make()
        if self._left is not None:
            self._left -= size
        return made


def empty_caches() -> None:
    """Gives back what torch has freed and keeps for later; nothing where nobody uses torch."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
