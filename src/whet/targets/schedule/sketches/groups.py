"""Groups: which operations are computed together, block by block.

A group has a sink, whose blocks are walked, and producers that are computed inside them, so that
what passes between them stays in a cache. An operation may join the group of its readers if all of
them are in it and some loops remain whose blocks read blocks of it, none twice. "together" joins
all that may; "anchors" starts a group at each product, which so keeps the blocks of its own loops.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.targets.schedule.sketches.program import Kind, Operand, Operation

# The loop of the sink that each loop of a member is.
Walked = Mapping[int, int]


@dataclass(frozen=True)
class Group:
    """`members` end with the sink; filling is no member. `loops` of the sink may be walked in
    blocks."""

    members: tuple[Operation, ...]
    walked: Mapping[int, Walked]
    loops: tuple[int, ...]

    @property
    def sink(self) -> Operation:
        return self.members[-1]

    @property
    def product(self) -> Operation | None:
        """The only one, which is what its blocks are for."""
        found = [one for one in self.members if one.heavy]
        return found[0] if len(found) == 1 else None


Grouping = tuple[Group, ...]

_CACHED = 2**17  # elements


def groupings(program: Sequence[Operation]) -> dict[str, Grouping]:
    """By name; one of them where both are the same."""
    made = {way: _grouped(program, way) for way in ("together", "anchors")}
    if len({tuple(one.sink.number for one in way) for way in made.values()}) == 1:
        return {"together": made["together"]}
    return made


def _grouped(program: Sequence[Operation], way: str) -> Grouping:
    readers: dict[int, list[Operation]] = {one.number: [] for one in program}
    for one in program:
        for operand in one.operands:
            if operand.maker is not None:
                readers[operand.maker].append(one)
    groups: dict[int, Group] = {}  # by the number of the sink
    sinks: dict[int, int] = {}  # of each operation
    for one in reversed(program):
        if one.kind is Kind.FILL:
            continue
        of = {sinks[reader.number] for reader in readers[one.number]}
        joined = None
        if len(of) == 1 and not one.shared:
            joined = _joined(groups[next(iter(of))], one, readers[one.number], way)
        if joined is None:
            every = {loop: loop for loop in range(len(one.extents))}
            loops = tuple(loop for loop in every if loop not in one.reduced)
            joined = Group((one,), {one.number: every}, loops)
        groups[joined.sink.number] = joined
        sinks[one.number] = joined.sink.number
    return tuple(groups[number] for number in sorted(groups))


def _joined(group: Group, one: Operation, readers: Sequence[Operation], way: str) -> Group | None:
    """The group with one more member, or None where that is not allowed."""
    # A product is filled with its tiles, so nothing else may start from the same zeros.
    for other in group.members:
        if (one.heavy or other.heavy) and _zeros(one) & _zeros(other):
            return None
    found: dict[int, int] | None = None
    for reader in readers:
        if any(each.maker == one.number for each in reader.outputs):
            return None
        for operand in reader.inputs:
            if operand.maker != one.number:
                continue
            walked = _walked(one, operand, group.walked[reader.number])
            if walked is None:
                return None
            before = walked if found is None else found
            found = {loop: at for loop, at in walked.items() if before.get(loop) == at}
    if found is None:
        return None
    loops = tuple(loop for loop in group.loops if loop in found.values())
    members = (one, *group.members)
    if not loops or _largest(members, group.sink, loops) > _CACHED:
        return None
    if one.heavy and loops != group.loops[: len(loops)]:
        return None
    if loops != group.loops and one.kind is Kind.ELEMENTWISE and one.work * 4 > group.sink.work:
        return None
    if way == "anchors":
        others = [each for each in group.members if each.kind is not Kind.ELEMENTWISE]
        own = [loop for loop in range(len(one.extents)) if loop not in one.reduced]
        if one.heavy and (others or {found.get(loop) for loop in own} - {*loops}):
            return None
        if others and any(each.heavy for each in others):
            return None
    return Group(members, {**group.walked, one.number: found}, loops)


def _largest(members: Sequence[Operation], sink: Operation, loops: Sequence[int]) -> int:
    """The elements of the largest result of which a block is computed at a time."""
    blocks = math.prod(sink.extents[loop] for loop in loops)
    return max(math.prod(each.shape) // blocks for one in members for each in one.outputs)


def _zeros(one: Operation) -> set[int]:
    return {each.maker for each in one.outputs if each.maker is not None}


def _walked(one: Operation, read: Operand, outer: Walked) -> dict[int, int] | None:
    """None where a block of the reader wants more than a block of it."""
    found = {}
    for at in range(len(read.shape)):
        made, wanted = one.outputs[read.result].plain(at), read.plain(at)
        if wanted is None:
            return None
        if made is not None and wanted in outer:
            found[made] = outer[wanted]
    return found
