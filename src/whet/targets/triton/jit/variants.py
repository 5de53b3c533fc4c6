"""Other specializations of a kernel: how two differ, those asked for by hand (`whet jit add scale
n=1`), and those that nobody has met yet and a call with other numbers would meet.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from whet.core.errors import UsageError, did_you_mean
from whet.targets.triton.jit.specialization import (
    CONSTANT,
    DIVISIBLE,
    JitArgument,
    Specialization,
    encoded,
    shown,
)


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


def asked_for(like: Specialization, changes: Sequence[str]) -> Specialization:
    """A recorded specialization with other arguments: `n=1`, `x=*fp16`, `x=*fp16:unaligned`,
    `BLOCK=128`, `num_warps=8`."""
    arguments: dict[str, JitArgument] = {}
    options = dict(like.options)
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise UsageError(f"{change!r} is not valid; use NAME=VALUE, such as n=1 or x=*fp16")
        known = like.argument(name)
        if known is not None:
            arguments[name] = _changed_to(known, text)
        elif name in options:
            options[name] = _constant(text, options[name])
        else:
            names = [*(one.name for one in like.arguments), *options]
            raise UsageError(f"kernel {like.kernel} has no '{name}'{did_you_mean(name, names)}")
    return replace(like.changed(arguments), options=tuple(options.items()))


def _changed_to(argument: JitArgument, text: str) -> JitArgument:
    if argument.declared == CONSTANT:
        return replace(argument, special=_constant(text, argument.special))
    if text.startswith("*"):
        kind, _, alignment = text.partition(":")
        if alignment not in ("", "unaligned"):
            raise UsageError(f"{text!r} is not valid; use a type such as *fp16 or *fp16:unaligned")
        special = None if not argument.specialize else "" if alignment else DIVISIBLE
        return replace(argument, type=kind, special=special)
    value = _constant(text)
    if value is None:
        return replace(argument, type=CONSTANT, special=None, value=None)
    if type(value) is int and (argument.is_integer or argument.type == CONSTANT):
        return valued(argument, value)
    raise UsageError(
        f"argument {argument.name} is {argument.property_text}; {text!r} is not valid for it"
    )


def _constant(text: str, like: object = None) -> object:
    """As messages show it. A dtype, a member of an enum or a kernel is typed by its name alone, and
    is one where the recorded constant is."""
    if isinstance(like, dict) and text != "None":
        for kind in ("dtype", "torch", "kernel"):
            if kind in like:
                return {kind: text}
        if "enum" in like:
            return {**like, "member": text.rpartition(".")[2]}
        if "constexpr" in like:
            return {"constexpr": _constant(text, like["constexpr"])}
    try:
        return encoded(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text


MOST = 8

# In the order in which they are likely: a batch of one first, numbers beyond 32 bits last.
_ONE, _ODD, _ROUND, _WIDE = "1", "odd", "round", "wide"
_CHANGES = (_ONE, _ODD, _ROUND, _WIDE)
_ODD_VALUE, _ROUND_VALUE, _WIDE_VALUE = 17, 16, 1 << 33


@dataclass(frozen=True)
class Reachable:
    """`found` are at most as many a kernel as were asked for; `left` counts the rest."""

    found: tuple[Specialization, ...]
    left: int


def reachable(
    recorded: Sequence[Specialization], *, most: int = MOST, pointers: bool = False
) -> Reachable:
    """For each recorded specialization, one integer argument at a time becomes 1, divisible by 16,
    neither, or 64 bits wide, and so do together those that were always equal. With `pointers`, one
    pointer at a time loses or gains its alignment. Constants and options stay."""
    kernels: dict[str, list[Specialization]] = {}
    for one in recorded:
        kernels.setdefault(one.kernel, []).append(one)
    known = {one.id for one in recorded}
    found: list[Specialization] = []
    left = 0
    for group in kernels.values():
        variants = {one.id: one for one in _variants(group, pointers) if one.id not in known}
        found += list(variants.values())[:most]
        left += max(0, len(variants) - most)
    return Reachable(tuple(found), left)


def _variants(group: Sequence[Specialization], pointers: bool) -> Iterator[Specialization]:
    """The likeliest first: arguments that are known to vary, then the same change for all arguments
    and specializations, then the next."""
    alone = [(argument.name,) for argument in group[0].arguments]
    ranked: dict[int, list[tuple[str, ...]]] = {}
    for names in (*_always_equal(group), *alone):
        ranked.setdefault(min(_rank(name, group) for name in names), []).append(names)
    usual = [(rank, change) for rank in sorted(ranked) for change in _CHANGES if change != _WIDE]
    for rank, change in (*usual, *((rank, _WIDE) for rank in sorted(ranked))):
        for one in group:
            for names in ranked[rank]:
                arguments = [one.argument(name) for name in names]
                changed = [_changed(a, change) for a in arguments if a is not None]
                if changed and all(a is not None for a in changed):
                    yield one.changed({a.name: a for a in changed if a is not None})
    for one in group if pointers else ():
        for argument in one.arguments:
            if argument.is_pointer and argument.specialize and argument.align:
                other = "" if argument.special == DIVISIBLE else DIVISIBLE
                yield one.changed({argument.name: replace(argument, special=other)})


def _rank(name: str, group: Sequence[Specialization]) -> int:
    """A batch or a length has varied already; a stride follows from a layout and seldom does."""
    seen = [one.argument(name) for one in group]
    told = {(str(a.type), str(a.special), a.value) for a in seen if a is not None and a.is_integer}
    return 2 * (len(told) < 2) + ("stride" in name.lower())


def _always_equal(group: Sequence[Specialization]) -> list[tuple[str, ...]]:
    """Arguments that had the same integer in every recorded call, and not always the same as one
    call alone would say: two of them at least."""
    columns: dict[tuple[int | None, ...], list[str]] = {}
    for argument in group[0].arguments:
        values = tuple(_integer(one.argument(argument.name)) for one in group)
        if None not in values:
            columns.setdefault(values, []).append(argument.name)
    return [tuple(names) for names in columns.values() if len(names) > 1]


def _integer(argument: JitArgument | None) -> int | None:
    if argument is None or not argument.is_integer:
        return None
    return 1 if argument.type == CONSTANT else argument.value


def _changed(argument: JitArgument, change: str) -> JitArgument | None:
    """None where Triton would not notice, or the argument cannot be so."""
    if not argument.is_integer:
        return None
    declared = argument.declared
    if change == _WIDE:
        if declared or argument.type in ("i64", "u64"):
            return None
        return valued(argument, _WIDE_VALUE + (argument.special != DIVISIBLE))
    if not argument.specialize:
        return None
    value = {_ONE: 1, _ODD: _ODD_VALUE, _ROUND: _ROUND_VALUE}[change]
    if argument.type in ("i64", "u64") and not declared and value != 1:
        value += _WIDE_VALUE
    found = valued(argument, value)
    same = (found.type, found.special) == (argument.type, argument.special)
    return None if same else found


def valued(argument: JitArgument, value: int) -> JitArgument:
    """The argument as Triton takes it with this integer."""
    if argument.specialize and value == 1:
        return replace(argument, type=argument.declared or CONSTANT, special=1, value=1)
    wide = "i32" if -(1 << 31) <= value < 1 << 31 else "i64" if value < 1 << 63 else "u64"
    kind = argument.declared or wide
    divisible = DIVISIBLE if argument.align and value % 16 == 0 else ""
    return replace(
        argument, type=kind, special=divisible if argument.specialize else None, value=value
    )


def by_kernel(found: Iterable[Specialization]) -> dict[str, list[Specialization]]:
    groups: dict[str, list[Specialization]] = {}
    for one in found:
        groups.setdefault(one.kernel, []).append(one)
    return groups
