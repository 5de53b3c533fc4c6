"""Decision diagrams: all valid choices of a few parameters, shared wherever states are equal."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from whet.core.config import Value
from whet.core.solver.expression import ENVIRONMENT, Term, render
from whet.core.solver.reduction import Bounds, Reducer
from whet.core.space.parameter import value_key

State = tuple[Any, ...]
Node = tuple[list[Value], list[int]]


class Levels:
    """One generated function a parameter: from a state to the values that may follow it.

    `expand(depth, state)` gives the values of parameter `order[depth]` that no constraint rules
    out and, for each, the state after it. States before the first parameter: only `root`.
    """

    root: State = ()

    def __init__(
        self,
        order: Sequence[str],
        values: Mapping[str, Sequence[Value]],
        terms: Sequence[Term],
        reducer: Reducer,
        checks: Mapping[str, Callable[..., object]],
    ) -> None:
        self.order = tuple(order)
        self.sizes = tuple(len(values[name]) for name in order)
        domains = {f"values{depth}": tuple(values[name]) for depth, name in enumerate(order)}
        environment: dict[str, Any] = {
            **ENVIRONMENT,
            **checks,
            **domains,
            "ZeroDivisionError": ZeroDivisionError,
            # Takes the place of slots whose constraints hold whatever comes, so that states merge.
            "_decided": object(),
        }
        exec(_Writer(self.order, terms, reducer).source(), environment)
        self._functions = [environment[f"level{depth}"] for depth in range(len(order))]

    def expand(self, depth: int, state: State) -> tuple[list[Value], list[State]]:
        values, states = self._functions[depth](*state)
        return values, states


class _Writer:
    """Writes the functions of `Levels`. For `a * b <= 8`, the one that binds `a` first:

    def level0():
        values, states = [], []
        for v in values0:
            try:
                n0 = v
                if not (n0 * 1) <= 8: continue
                if (n0 * 4) <= 8: n0 = _decided
            except ZeroDivisionError: continue
            values.append(v); states.append((n0,))
        return values, states
    """

    def __init__(self, order: tuple[str, ...], terms: Sequence[Term], reducer: Reducer) -> None:
        self.order = order
        self.terms = terms
        self.reducer = reducer
        self.bound = [frozenset(order[:depth]) for depth in range(len(order) + 1)]
        # The slots at each depth, and the constraints that each of them serves.
        self.served: list[dict[Term, list[Term]]] = [{} for _ in self.bound]
        for term in terms:
            self._trace(term)

    def _trace(self, term: Term) -> None:
        wanted: tuple[Term, ...] = (term,)
        for depth in range(max(self.order.index(name) for name in term.names), -1, -1):
            slots: dict[Term, None] = {}
            for part in wanted:
                slots.update(dict.fromkeys(self.reducer.reduce(part, self.bound[depth])[1]))
            for slot in slots:
                self.served[depth].setdefault(slot, []).append(term)
            wanted = (term, *slots)

    def source(self) -> str:
        lines: list[str] = []
        erasable: set[Term] = set()
        for depth in range(len(self.order)):
            slots = [f"s{at}" for at in range(len(self.served[depth]))]
            lines += [
                f"def level{depth}({', '.join(slots)}):",
                "  values, states = [], []",
                f"  for v in values{depth}:",
                "    try:",
            ]
            body, erasable = self._body(depth, erasable)
            lines += [f"      {line}" for line in body or ["pass"]]
            state = "".join(f"n{at}, " for at in range(len(self.served[depth + 1])))
            lines += [
                "    except ZeroDivisionError: continue",
                f"    values.append(v); states.append(({state}))",
                "  return values, states",
            ]
        return "\n".join(lines)

    def _body(self, depth: int, erasable: set[Term]) -> tuple[list[str], set[Term]]:
        """The checks and the new state; and which of the new slots may be `_decided`."""
        name = self.order[depth]
        before = {slot: f"s{at}" for at, slot in enumerate(self.served[depth])}
        after = {slot: f"n{at}" for at, slot in enumerate(self.served[depth + 1])}
        now = {**before, Term("name", text=name): "v"}
        lines: list[str] = []
        inherited: set[Term] = set()
        for term in self.terms:
            if name in term.names and term.names <= self.bound[depth + 1]:
                regrouped, slots = self.reducer.reduce(term, self.bound[depth])
                unless = _any_decided(slots, before, erasable)
                lines.append(f"if not ({unless}{render(regrouped, now)}): continue")
        for slot, variable in after.items():
            regrouped, slots = self.reducer.reduce(slot, self.bound[depth])
            unless = _any_decided(slots, before, erasable)
            if unless:
                inherited.add(slot)
                unless = f"_decided if {unless.removesuffix(' or ')} else "
            lines.append(f"{variable} = {unless}{render(regrouped, now)}")
        pruning, erased = self._pruning(depth + 1, after, inherited)
        return lines + pruning, inherited | erased

    def _pruning(
        self, depth: int, after: dict[Term, str], inherited: set[Term]
    ) -> tuple[list[str], set[Term]]:
        """Drops what can no longer hold, and forgets what can no longer fail."""
        bounds = Bounds(self.reducer.facts, self.bound[depth], after)
        lines: list[str] = []
        certain: dict[Term, str] = {}
        for term in self.terms:
            if term.names <= self.bound[depth] or not term.names & self.bound[depth]:
                continue
            regrouped, slots = self.reducer.reduce(term, self.bound[depth])
            may, must = bounds.verdict(regrouped)
            unless = _any_decided(slots, after, inherited)
            if may != "True" and self.order[depth - 1] in term.names:
                lines.append(f"if not ({unless}{may}): continue")
            if must != "False":
                certain[term] = f"({unless}{must})"
        erasures = {
            slot: " and ".join(certain[term] for term in served)
            for slot, served in self.served[depth].items()
            if all(term in certain for term in served)
        }
        # Tests read the slots, so all are made before the first slot is overwritten.
        tests = {test: f"h{at}" for at, test in enumerate(dict.fromkeys(erasures.values()))}
        lines += [f"{flag} = {test}" for test, flag in tests.items()]
        lines += [f"if {tests[test]}: {after[slot]} = _decided" for slot, test in erasures.items()]
        return lines, set(erasures)


def _any_decided(slots: Iterable[Term], variables: Mapping[Term, str], erasable: set[Term]) -> str:
    return "".join(f"{variables[slot]} is _decided or " for slot in slots if slot in erasable)


class Diagram:
    """`Levels` worked out in full: nodes instead of states, and no dead ends.

    Every path from `root` through all depths is a valid choice, so `count` is exact and
    `unrank` turns each number below it into a choice of its own.
    """

    root: int = 0

    def __init__(self, order: tuple[str, ...], layers: list[list[Node]]) -> None:
        self.order = order
        self._layers = layers
        self._sums = _prune(layers)
        self.count = self._sums[0][0][-1] if self._sums[0][0] else 0

    @classmethod
    def build(cls, levels: Levels, max_states: int, max_work: int) -> Diagram | None:
        """None where it would take more states, or more values tried, than that."""
        layers: list[list[Node]] = []
        frontier: dict[State, int] = {levels.root: 0}
        work = states = 0
        for depth, size in enumerate(levels.sizes):
            work += size * len(frontier)
            following: dict[State, int] = {}
            layer: list[Node] = []
            if work > max_work:
                return None
            for state in frontier:
                values, after = levels.expand(depth, state)
                layer.append((values, [following.setdefault(s, len(following)) for s in after]))
                if states + len(following) > max_states:
                    return None
            states += len(following)
            layers.append(layer)
            frontier = following
        return cls(levels.order, layers)

    def expand(self, depth: int, node: int) -> Node:
        return self._layers[depth][node]

    def unrank(self, rank: int) -> list[Value]:
        """The choice number `rank`, with its values in the order of `order`."""
        node = self.root
        chosen: list[Value] = []
        for layer, sums in zip(self._layers, self._sums, strict=True):
            running = sums[node]
            at = bisect_right(running, rank)
            if at:
                rank -= running[at - 1]
            values, children = layer[node]
            chosen.append(values[at])
            node = children[at]
        return chosen


def _prune(layers: list[list[Node]]) -> list[list[list[int]]]:
    """Takes the edges to dead ends out of `layers`, and gives the running counts of the rest."""
    sums: list[list[list[int]]] = [[] for _ in layers]
    totals: list[int] | None = None
    for depth in range(len(layers) - 1, -1, -1):
        layer = layers[depth]
        for at, (values, children) in enumerate(layer):
            counts = [1] * len(values) if totals is None else [totals[node] for node in children]
            if 0 in counts:
                values = list(itertools.compress(values, counts))
                children = list(itertools.compress(children, counts))
                layer[at] = (values, children)
                counts = [count for count in counts if count]
            sums[depth].append(list(itertools.accumulate(counts)))
        totals = [running[-1] if running else 0 for running in sums[depth]]
    return sums


class SortedRows:
    """Choices known in full, as a graph in the author's order: a node is a range of sorted rows."""

    def __init__(
        self, values: Sequence[tuple[Value, ...]], rows: Iterable[Sequence[Value]]
    ) -> None:
        self._values = values
        places = [{value_key(value): at for at, value in enumerate(one)} for one in values]
        self._rows = sorted(
            tuple(place[value_key(value)] for place, value in zip(places, row, strict=True))
            for row in rows
        )
        self.root = (0, len(self._rows))

    def expand(
        self, depth: int, node: tuple[int, int]
    ) -> tuple[list[Value], list[tuple[int, int]]]:
        values: list[Value] = []
        ranges: list[tuple[int, int]] = []
        start, end = node
        for at, group in itertools.groupby(self._rows[start:end], key=itemgetter(depth)):
            values.append(self._values[depth][at])
            ranges.append((start, start + sum(1 for _ in group)))
            start = ranges[-1][1]
        return values, ranges
