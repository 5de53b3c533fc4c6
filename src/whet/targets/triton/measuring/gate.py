"""Whether a config computes what it should."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from whet.core.errors import TargetError, did_you_mean
from whet.measure import DeviceRoom, Verdict, is_out_of_memory
from whet.targets.callables import asked
from whet.workers import no_forks

# A function from the arguments by name to the expected outputs by name, or "agree": whatever the
# first config that ran has written. The others are about bits.
Check = (
    Literal["agree", "bitwise", "deterministic"] | Callable[[Mapping[str, Any]], Mapping[str, Any]]
)

_RELATIVE = {"float64": 1e-8, "float32": 1e-3, "float16": 2e-2, "bfloat16": 5e-2}


class OutputGate:
    """Compares what a config wrote with a reference, within what its dtype can hold.

    What it has to keep for that is taken from `room`; `notes` are for people."""

    def __init__(self, check: Check, room: DeviceRoom, notes: list[str]) -> None:
        self._check = check
        self._room = room
        self._notes = notes
        self._expected: dict[str, Any] | None = None

    @property
    def settled(self) -> bool:
        """Whether it is known what is right."""
        return self._expected is not None

    def expected(self, named: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What a check function says; None where a config has to run first."""
        self.prepare(named)
        return self._expected

    def prepare(self, named: Mapping[str, Any]) -> None:
        """Asks the reference once, before any config has touched the arguments."""
        if self._expected is None and callable(self._check):
            with no_forks():  # it may well compute its answer with NumPy
                self._expected = _checked(asked("check=", partial(self._check, {**named})), named)

    def judge(self, named: Mapping[str, Any], written: Sequence[str]) -> Verdict:
        if self._expected is None:
            outputs = [name for name in written if hasattr(named.get(name), "clone")]
            self._expected = self._kept({name: named[name] for name in outputs})
            return Verdict(True, "")
        for name, expected in self._expected.items():
            wrong = _compared(name, named[name], expected)
            if wrong:
                return Verdict(False, wrong)
        return Verdict(True, "")

    def let_go(self) -> None:
        """Drops what it compares with; the next to be judged says what that is."""
        self._expected = None

    def _kept(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Copies of what there is memory for."""
        kept = {}
        for name, tensor in outputs.items():
            try:
                kept[name] = self._room.copy_of(tensor)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                self._notes.append(
                    f"not enough memory to copy '{name}' for comparison, so what configs write "
                    "there is not checked; give check= a function, or free some memory"
                )
        return kept


def _compared(name: str, actual: Any, expected: Any) -> str:
    """On the host where the device has no room for it."""
    try:
        return _difference(name, actual, expected)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    return _difference(name, actual.cpu(), expected.cpu())


def _difference(name: str, actual: Any, expected: Any) -> str:
    dtype = str(actual.dtype).removeprefix("torch.")
    relative = _RELATIVE.get(dtype, 0.25 if dtype.startswith("float8") else 0.0)
    one, two = actual.double(), expected.to(actual.device).double()
    allowed = relative * (two.abs() + (two.abs().mean() if two.numel() else 0.0))
    wrong = ~((one - two).abs() <= allowed) & ~(one.isnan() & two.isnan()) & (one != two)
    count = int(wrong.sum())
    if count == 0:
        return ""
    first = int(wrong.flatten().nonzero()[0])
    return (
        f"output '{name}': {count} of {one.numel()} elements differ, the first at {first}: "
        f"got {one.flatten()[first].item():.6g}, expected {two.flatten()[first].item():.6g}"
    )


def _checked(answer: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(answer, Mapping):
        raise TargetError(
            f"check= returned a {type(answer).__name__}; return a dict from the names of the "
            "outputs to what they must hold"
        )
    for name in answer:
        if name not in named:
            raise TargetError(f"check= returned '{name}', no argument{did_you_mean(name, named)}")
    return dict(answer)
