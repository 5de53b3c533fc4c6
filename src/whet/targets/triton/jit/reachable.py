"""Specializations that nobody has met yet, and a call with other numbers would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from whet.targets.triton.jit.specialization import CONSTANT, DIVISIBLE, JitArgument, Specialization

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
