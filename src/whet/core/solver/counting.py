"""Valid choices of many parameters: listed, counted and sampled without the cartesian product.

Parameters that no constraint connects are independent, so each connected component is treated
on its own. A component whose states fit a budget gets a decision diagram: exact counts, and a
rank for every valid choice. One that does not is sampled by a Metropolis walk, approximately.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from whet.core.cached import cached_property
from whet.core.config import Value
from whet.core.errors import SpaceError
from whet.core.solver.component import Component, connected
from whet.core.solver.constraint import Constraint
from whet.core.solver.diagram import Levels, State
from whet.core.space.parameter import Parameter, value_key

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
