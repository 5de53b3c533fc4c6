"""Components: parameters that constraints connect, and the order that makes them countable."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from whet.core.cached import cached_property
from whet.core.config import Value
from whet.core.solver.constraint import Constraint
from whet.core.solver.diagram import Diagram, Levels, SortedRows
from whet.core.solver.expression import Term
from whet.core.solver.interval import Facts
from whet.core.solver.reduction import Reducer
from whet.core.space.parameter import value_key


@dataclass(frozen=True)
class Effort:
    """How far a diagram may grow: states held, and values tried while it is built."""

    states: int
    work: int


COUNTING_EFFORT = Effort(states=300_000, work=10_000_000)
# A component of so few combinations is always worked out in full.
SMALL_COMPONENT = 1_000_000
# Enumeration wants its first config at once; without a diagram it only meets more dead ends.
LISTING_EFFORT = Effort(states=20_000, work=200_000)
SORTABLE_ROWS = 200_000


class Component:
    """Parameters that constraints connect, in the author's order."""

    def __init__(
        self,
        names: Sequence[str],
        values: Mapping[str, tuple[Value, ...]],
        constraints: Sequence[Constraint],
    ) -> None:
        self.names = tuple(names)
        self.combinations = math.prod(len(values[name]) for name in names)
        self._values = values
        self._reducer = Reducer(Facts(values))
        self._checks: dict[str, Callable[..., object]] = {"_tag": value_key}
        self._terms = self._collect(constraints)

    def _collect(self, constraints: Sequence[Constraint]) -> tuple[Term, ...]:
        terms: dict[Term, None] = {}
        for at, constraint in enumerate(constraints):
            if constraint.term is None:
                terms[self._opaque(f"_check{at}", constraint)] = None
            else:
                terms.update(dict.fromkeys(_conjuncts(constraint.term)))
        return tuple(terms)

    def _opaque(self, label: str, constraint: Constraint) -> Term:
        """A call with the raw values; where two of these are equal (1 and True), with their keys.

        The keys are not for the call but for the state, which must keep such values apart.
        """
        names = [Term("name", text=name) for name in constraint.names]
        tags = [
            Term("call", (name,), "_tag")
            for name in names
            if len(set(self._values[name.text])) < len(self._values[name.text])
        ]
        width = len(names)
        self._checks[label] = (
            (lambda *args: constraint.holds(*args[:width])) if tags else constraint.holds
        )
        return Term("call", (*names, *tags), label)

    def levels(self, order: Sequence[str]) -> Levels:
        return Levels(order, self._values, self._terms, self._reducer, self._checks)

    @cached_property
    def counted(self) -> Diagram | None:
        """Exact, in the order that promises the fewest states; None where even that is too many."""
        if self.best_order == self.names and self._cheap is not None:
            return self._cheap
        effort = COUNTING_EFFORT
        if self.combinations <= SMALL_COMPONENT:
            effort = Effort(states=2 * SMALL_COMPONENT, work=3 * SMALL_COMPONENT)
        return Diagram.build(self.levels(self.best_order), effort.states, effort.work)

    @property
    def listed(self) -> Diagram | Levels | SortedRows:
        """In the author's order; without dead ends where that can be arranged."""
        if self._cheap is not None:
            return self._cheap
        if self.best_order == self.names:
            already = "counted" in self.__dict__ and self.counted
            return already or self._author_levels
        return self._sorted or self._author_levels

    @cached_property
    def _author_levels(self) -> Levels:
        return self.levels(self.names)

    @cached_property
    def _cheap(self) -> Diagram | None:
        return Diagram.build(self._author_levels, LISTING_EFFORT.states, LISTING_EFFORT.work)

    @cached_property
    def _sorted(self) -> SortedRows | None:
        """What another order finds without dead ends, put back into the author's."""
        diagram = self.counted
        if diagram is None or diagram.count > SORTABLE_ROWS:
            return None
        columns = [diagram.order.index(name) for name in self.names]
        return SortedRows(
            [self._values[name] for name in self.names],
            ([row[at] for at in columns] for row in map(diagram.unrank, range(diagram.count))),
        )

    @cached_property
    def best_order(self) -> tuple[str, ...]:
        """The author's own, unless another one promises far fewer states."""
        author = self._burden(self.names)
        if not self._terms or author < math.log2(LISTING_EFFORT.states):
            return self.names
        greedy = [self._greedy_order(start) for start in self.names[:12]]
        best = min(greedy, key=self._burden)
        return best if self._burden(best) < author - 1 else self.names

    def _greedy_order(self, start: str) -> tuple[str, ...]:
        order = [start]
        left = [name for name in self.names if name != start]
        while left:
            bound = frozenset(order)
            following = min(left, key=lambda name: self._breadth(bound | {name}))
            order.append(following)
            left.remove(following)
        return tuple(order)

    def _burden(self, order: Sequence[str]) -> float:
        """log2 of the states that an order is expected to need at its widest."""
        return max(self._breadth(frozenset(order[:depth])) for depth in range(1, len(order) + 1))

    def _breadth(self, bound: frozenset[str]) -> float:
        slots: dict[Term, None] = {}
        for term in self._terms:
            if not term.names <= bound:
                slots.update(dict.fromkeys(self._reducer.reduce(term, bound)[1]))
        remembered = frozenset[str]().union(*(slot.names for slot in slots))
        return min(sum(map(self._bits, slots)), self._raw_bits(remembered))

    def _bits(self, slot: Term) -> float:
        fact = self._reducer.facts.of(slot)
        bits = self._raw_bits(slot.names)
        if fact.kind == "int" and fact.range is not None:
            bits = min(bits, math.log2(fact.range[1] - fact.range[0] + 1))
        return bits

    def _raw_bits(self, names: frozenset[str]) -> float:
        # One logarithm of the exact product: a sum would depend on the order of the set.
        return math.log2(math.prod(len(self._values[name]) for name in names))


def _conjuncts(term: Term) -> list[Term]:
    if term.op != "and" or not all(arg.names for arg in term.args):
        return [term]
    return [part for arg in term.args for part in _conjuncts(arg)]


def connected(names: Sequence[str], constraints: Sequence[Constraint]) -> list[tuple[str, ...]]:
    """Groups of names that share constraints, directly or through others."""
    group = {name: at for at, name in enumerate(names)}
    for constraint in constraints:
        joined = {group[name] for name in constraint.names}
        for name, at in group.items():
            if at in joined:
                group[name] = min(joined)
    members: dict[int, list[str]] = {}
    for name in names:
        members.setdefault(group[name], []).append(name)
    return [tuple(member) for member in members.values()]
