"""Valid choices of many parameters: listed, counted and sampled without the cartesian product.

Parameters that no constraint connects are independent, so each connected `Component` is treated
on its own. A component whose states fit a budget gets a decision diagram, which shares states
wherever they are equal: exact counts, and a rank for every valid choice. One that does not is
sampled by a Metropolis walk, approximately.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from whet.core.config import Value
from whet.core.constraint import Constraint
from whet.core.errors import SpaceError
from whet.core.expression import ENVIRONMENT, Term, render
from whet.core.interval import Bounds, Facts, Reducer
from whet.core.lazy import cached_property
from whet.core.space import Parameter, value_key

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


Values = tuple[Value, ...]

BURN_IN = 200
STEPS_PER_DRAW = 10
FRUITLESS_WALKS = 5_000
REMEMBERED_STATES = 50_000
# What `at_most` tries before it gives up on a space that cannot be counted.
VALUES_TRIED = 100_000


class ValidChoices:
    """The choices of all parameters that satisfy all constraints, as tuples of values."""

    def __init__(self, parameters: Sequence[Parameter], constraints: Sequence[Constraint]) -> None:
        values = {parameter.name: parameter.values for parameter in parameters}
        self.names = tuple(values)
        self._sizes = [len(offered) for offered in values.values()]
        self.combinations = math.prod(self._sizes)
        self._components = [
            Component(names, values, [one for one in constraints if one.names[0] in names])
            for names in connected(self.names, constraints)
        ]

    @cached_property
    def count(self) -> int | None:
        """None where a component is too intricate to count."""
        counted = [component.counted for component in self._components]
        known = [diagram.count for diagram in counted if diagram is not None]
        return math.prod(known) if len(known) == len(counted) or 0 in known else None

    def at_most(self, limit: int) -> bool:
        """False also where that cannot be told with reasonable effort."""
        if self.combinations <= limit:
            return True
        if self.count is not None:
            return self.count <= limit
        try:
            listing = self._listing(VALUES_TRIED + 4 * limit)
            found = sum(1 for _ in itertools.islice(listing, limit + 1))
        except _EffortSpent:
            return False
        return found <= limit

    def __iter__(self) -> Iterator[Values]:
        """In the author's order, the first parameter slowest."""
        return self._listing(math.inf)

    def _listing(self, max_tried: float) -> Iterator[Values]:
        plan = self._plan()
        last = len(plan) - 1
        nodes: list[Any] = [None] * len(plan)
        tried = 0
        if any(not graph.expand(0, graph.root)[0] for graph, _, _ in plan):
            return

        def batches(at: int, prefix: Values) -> Iterator[tuple[Values, list[Value]]]:
            nonlocal tried
            graph, depth, previous = plan[at]
            tried += self._sizes[at]
            if tried > max_tried:
                raise _EffortSpent
            node = graph.root if previous is None else nodes[previous]
            values, children = graph.expand(depth, node)
            if at == last:
                yield prefix, values
                return
            for value, child in zip(values, children, strict=True):
                nodes[at] = child
                yield from batches(at + 1, (*prefix, value))

        for prefix, values in batches(0, ()):
            for value in values:
                yield (*prefix, value)

    def _plan(self) -> list[tuple[Any, int, int | None]]:
        """For every parameter: the graph that binds it, at which depth, and after which one."""
        home = {name: component for component in self._components for name in component.names}
        plan: list[tuple[Any, int, int | None]] = []
        for name in self.names:
            component = home[name]
            depth = component.names.index(name)
            previous = self.names.index(component.names[depth - 1]) if depth else None
            plan.append((component.listed, depth, previous))
        return plan

    def sample(self, rng: np.random.Generator, n: int, *, replace: bool) -> list[Values]:
        """Uniform; distinct unless `replace`, and then all of them where there are fewer than n.

        Only approximately uniform, and possibly fewer than n, where `count` is None.
        """
        total = self.count
        if total is None:
            return self._approximate_sample(rng, n, replace=replace)
        if replace:
            return [self._unrank(rank) for rank in _ranks(rng, total, n if total else 0)]
        return [self._unrank(rank) for rank in _distinct_ranks(rng, total, n)]

    def _unrank(self, rank: int) -> Values:
        chosen: dict[str, Value] = {}
        for component in self._components:
            diagram = component.counted
            assert diagram is not None
            rank, own = divmod(rank, diagram.count)
            chosen.update(zip(diagram.order, diagram.unrank(own), strict=True))
        return tuple(chosen[name] for name in self.names)

    def _approximate_sample(
        self, rng: np.random.Generator, n: int, *, replace: bool
    ) -> list[Values]:
        draws = zip(*(_draws(component, rng) for component in self._components), strict=False)
        choices = (self._merged(parts) for parts in draws)
        if replace:
            return list(itertools.islice(choices, n))
        distinct: dict[tuple[int | str, ...], Values] = {}
        for choice in itertools.islice(choices, 20 * n + 1_000):
            if len(distinct) == n:
                break
            distinct.setdefault(tuple(map(value_key, choice)), choice)
        return list(distinct.values())

    def _merged(self, parts: tuple[dict[str, Value], ...]) -> Values:
        chosen = {name: value for part in parts for name, value in part.items()}
        return tuple(chosen[name] for name in self.names)


class _EffortSpent(Exception):
    """A listing has tried more values than it was allowed."""


def _draws(component: Component, rng: np.random.Generator) -> Iterator[dict[str, Value]]:
    """Endless, but for a component without a valid choice."""
    diagram = component.counted
    if diagram is None:
        levels = component.levels(component.best_order)
        for chosen in _MetropolisWalk(levels).draws(rng):
            yield dict(zip(levels.order, chosen, strict=True))
    else:
        while diagram.count:
            [rank] = _ranks(rng, diagram.count, 1)
            yield dict(zip(diagram.order, diagram.unrank(rank), strict=True))


class _MetropolisWalk:
    """Draws from a component too intricate to count, approximately uniformly.

    A proposal binds one parameter after another, each to a value drawn from those not yet ruled
    out, and is thrown away at a dead end. It favours choices in sparse regions in a known way;
    accepting it with the right probability takes the favour out as the walk goes on.
    """

    def __init__(self, levels: Levels) -> None:
        self._levels = levels
        self._known: dict[tuple[int, State], tuple[list[Value], list[State]]] = {}

    def draws(self, rng: np.random.Generator) -> Iterator[list[Value]]:
        chosen, weight = self._proposal(rng)
        steps = BURN_IN
        while True:
            for _ in range(steps):
                proposed, proposed_weight = self._proposal(rng)
                if rng.random() < math.exp(min(0.0, proposed_weight - weight)):
                    chosen, weight = proposed, proposed_weight
            yield chosen
            steps = STEPS_PER_DRAW

    def _proposal(self, rng: np.random.Generator) -> tuple[list[Value], float]:
        """A valid choice, and the log of how rarely it is proposed."""
        depths = len(self._levels.order)
        for _ in range(FRUITLESS_WALKS):
            state = self._levels.root
            chosen: list[Value] = []
            weight = 0.0
            for depth, fraction in enumerate(rng.random(depths).tolist()):
                values, states = self._expand(depth, state)
                if not values:
                    break
                at = int(fraction * len(values))
                chosen.append(values[at])
                state = states[at]
                weight += math.log(len(values))
            else:
                return chosen, weight
        raise SpaceError(
            f"no valid config found in {FRUITLESS_WALKS} random walks over "
            f"{', '.join(self._levels.order)}; write the constraints as expressions, or over "
            "fewer parameters"
        )

    def _expand(self, depth: int, state: State) -> tuple[list[Value], list[State]]:
        known = self._known.get((depth, state))
        if known is None:
            known = self._levels.expand(depth, state)
            if len(self._known) < REMEMBERED_STATES:
                self._known[depth, state] = known
        return known


def _ranks(rng: np.random.Generator, total: int, n: int) -> list[int]:
    """Numbers below `total`, which may be beyond what 64 bits hold."""
    if total < 1 << 63:
        ranks: list[int] = rng.integers(total, size=n).tolist() if n else []
        return ranks
    bits = total.bit_length()
    found: list[int] = []
    while len(found) < n:
        rank = int.from_bytes(rng.bytes((bits + 7) // 8), "little") & ((1 << bits) - 1)
        if rank < total:
            found.append(rank)
    return found


def _distinct_ranks(rng: np.random.Generator, total: int, n: int) -> list[int]:
    if 2 * n >= total:
        shuffled: list[int] = rng.permutation(total)[:n].tolist()
        return shuffled
    found: dict[int, None] = {}
    while len(found) < n:
        found.update(dict.fromkeys(_ranks(rng, total, n - len(found))))
    return list(found)
