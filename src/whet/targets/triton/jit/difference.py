"""Why Triton tells two specializations of a kernel apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.targets.triton.jit.constants import shown
from whet.targets.triton.jit.specialization import CONSTANT, JitArgument, Specialization


@dataclass(frozen=True)
class ArgumentDifference:
    """`what` is an argument, an option or the target; `line` is how it would be typed."""

    kind: str
    what: str
    before: str
    after: str
    line: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.what}: {self.before} → {self.after}"


def differences(one: Specialization, other: Specialization) -> list[ArgumentDifference]:
    """What `other` has in the place of what `one` has."""
    found = []
    if one.target != other.target:
        found.append(ArgumentDifference("target", "target", _target(one), _target(other)))
    known = {argument.name: argument for argument in one.arguments}
    for argument in other.arguments:
        before = known.get(argument.name)
        if before is None or _told(before) != _told(argument):
            kind = "constant" if argument.declared == CONSTANT else "argument"
            was = "absent" if before is None else _valued(before)
            found.append(
                ArgumentDifference(kind, argument.name, was, _valued(argument), typed(argument))
            )
    before_options, after_options = dict(one.options), dict(other.options)
    for name in dict.fromkeys((*before_options, *after_options)):
        was, now = before_options.get(name, "absent"), after_options.get(name, "absent")
        if was != now:
            line = f"{name}={shown(now)}"
            found.append(ArgumentDifference("option", name, shown(was), shown(now), line))
    if not found and list(one.options) != list(other.options):
        found.append(ArgumentDifference("option", "order", _order(one), _order(other)))
    return found


def nearest(
    one: Specialization, known: Sequence[Specialization]
) -> tuple[Specialization, list[ArgumentDifference]] | None:
    """The known specialization of the same kernel that differs in the fewest things."""
    compared = [(other, differences(other, one)) for other in known if other.kernel == one.kernel]
    return min(compared, key=lambda pair: len(pair[1]), default=None)


def typed(argument: JitArgument) -> str:
    """`n=1`, `x=*fp16`: for `whet jit add`."""
    if argument.type == CONSTANT:
        return f"{argument.name}={shown(argument.special)}"
    if argument.value is not None:
        return f"{argument.name}={argument.value}"
    unaligned = ":unaligned" if argument.is_pointer and argument.special == "" else ""
    return f"{argument.name}={shown(argument.type).strip(chr(39))}{unaligned}"


def _told(argument: JitArgument) -> tuple[object, object]:
    return argument.type, argument.special


def _valued(argument: JitArgument) -> str:
    """`i32, divisible by 16 (8192)`."""
    said = argument.value is None or argument.type == CONSTANT or argument.is_one
    return argument.property_text if said else f"{argument.property_text} ({argument.value})"


def _target(one: Specialization) -> str:
    return " ".join(map(str, one.target[:2]))


def _order(one: Specialization) -> str:
    return ", ".join(name for name, _ in one.options)
