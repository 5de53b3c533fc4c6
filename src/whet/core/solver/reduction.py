"""Partial evaluation: what must be remembered of the parameters bound so far, and no more.

After `a` and `b`, the constraint `a*b*c*d <= 1024` depends on `a*b` alone. The state between two
parameters is therefore not the values bound so far but the values of the *slots*: the largest
bound parts of every constraint still open. Prefixes with equal slots have equal completions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whet.core.solver.expression import Term
from whet.core.solver.interval import Facts, Number

UNKNOWN = ("True", "False")

# Operators that may leave all but their first operand unevaluated.
_LAZY = frozenset(("and", "or", "if"))


class Reducer:
    """Finds the slots of constraints for any set of bound parameters."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._known: dict[tuple[Term, frozenset[str]], tuple[Term, tuple[Term, ...]]] = {}

    def reduce(self, term: Term, bound: frozenset[str]) -> tuple[Term, tuple[Term, ...]]:
        """`term` regrouped so that its slots are subterms, and these slots."""
        key = (term, term.names & bound)
        if key not in self._known:
            slots: dict[Term, None] = {}
            regrouped = self._reduce(term, key[1], True, slots)
            self._known[key] = (regrouped, tuple(slots))
        return self._known[key]

    def _reduce(
        self, term: Term, bound: frozenset[str], sure: bool, slots: dict[Term, None]
    ) -> Term:
        if not term.names & bound:
            return term
        if self._ready(term, bound, sure):
            slots[term] = None
            return term
        args = term.args
        if term.op in ("sum", "product"):
            ready = tuple(arg for arg in args if arg.names and self._ready(arg, bound, sure))
            if len(ready) > 1:
                group = Term(term.op, ready)
                args = (group, *(arg for arg in args if arg not in ready))
        reduced = tuple(
            self._reduce(arg, bound, sure and (at == 0 or term.op not in _LAZY), slots)
            for at, arg in enumerate(args)
        )
        return Term(term.op, reduced, term.text)

    def _ready(self, term: Term, bound: frozenset[str], sure: bool) -> bool:
        """Bound, and not to be left alone because it may divide by zero where Python skips it."""
        return term.names <= bound and (sure or not self.facts.of(term).zero)


@dataclass(frozen=True)
class Estimate:
    """The extremes a term can take, as source over the current slots."""

    low: str
    high: str


class Bounds:
    """Source that tells from the slots alone how an open constraint can still end."""

    def __init__(self, facts: Facts, bound: frozenset[str], variables: Mapping[Term, str]) -> None:
        self.facts = facts
        self.bound = bound
        self.variables = variables

    def verdict(self, term: Term) -> tuple[str, str]:
        """(may still hold, must hold whatever comes): `UNKNOWN` where nothing can be said."""
        if term in self.variables:
            source = self.variables[term]
            return source, source
        match term.op:
            case "and" | "or":
                pairs = [self.verdict(arg) for arg in term.args]
                may = _joined(term.op, [pair[0] for pair in pairs])
                must = _joined(term.op, [pair[1] for pair in pairs])
            case "not":
                inner_may, inner_must = self.verdict(term.args[0])
                may, must = _inverted(inner_must), _inverted(inner_may)
            case "<" | "<=" | ">" | ">=" | "==" | "!=":
                may, must = self._comparison(term)
            case _:
                return UNKNOWN
        return may, "False" if self.facts.of(term).zero else must

    def _comparison(self, term: Term) -> tuple[str, str]:
        left, right = (self.extremes(arg) for arg in term.args)
        if left is None or right is None:
            return UNKNOWN
        match term.op:
            case "<" | "<=":
                return f"{left.low} {term.op} {right.high}", f"{left.high} {term.op} {right.low}"
            case ">" | ">=":
                return f"{left.high} {term.op} {right.low}", f"{left.low} {term.op} {right.high}"
            case "==":
                return f"({left.low} <= {right.high} and {right.low} <= {left.high})", "False"
            case _:
                return "True", f"({left.high} < {right.low} or {right.high} < {left.low})"

    def extremes(self, term: Term) -> Estimate | None:
        """None where the term is no number, or may have no value at all."""
        fact = self.facts.of(term)
        if not fact.numeric:
            return None
        if term in self.variables:
            return Estimate(self.variables[term], self.variables[term])
        if fact.zero:
            return None
        if not term.names & self.bound:
            return None if fact.range is None else _constants(*fact.range)
        parts = [self.extremes(arg) for arg in term.args]
        known = [part for part in parts if part]
        combined = self._combined(term, known) if len(known) == len(parts) else None
        if combined is None and fact.range is not None:
            return _constants(*fact.range)
        return combined

    def _combined(self, term: Term, parts: list[Estimate]) -> Estimate | None:
        nonnegative = all(self.facts.of(arg).low >= 0 for arg in term.args)
        match term.op:
            case "sum" | "+":
                return _chain(" + ", parts)
            case "product" | "*" if nonnegative:
                return _chain(" * ", parts)
            case "-" | "/" | "//" if nonnegative or term.op == "-":
                left, right = parts
                return Estimate(
                    f"({left.low} {term.op} {right.high})", f"({left.high} {term.op} {right.low})"
                )
            case "neg":
                return Estimate(f"(-{parts[0].high})", f"(-{parts[0].low})")
            case "call" if term.text in ("min", "max"):
                chain = _chain(", ", parts)
                return Estimate(term.text + chain.low, term.text + chain.high)
        return None


def _chain(joiner: str, parts: list[Estimate]) -> Estimate:
    lows, highs = (part.low for part in parts), (part.high for part in parts)
    return Estimate(f"({joiner.join(lows)})", f"({joiner.join(highs)})")


def _constants(low: Number, high: Number) -> Estimate:
    return Estimate(f"({low!r})", f"({high!r})")


def _joined(op: str, sources: list[str]) -> str:
    neutral, absorbing = ("True", "False") if op == "and" else ("False", "True")
    if absorbing in sources:
        return absorbing
    telling = [source for source in sources if source != neutral]
    return f"({f' {op} '.join(telling)})" if telling else neutral


def _inverted(source: str) -> str:
    return {"True": "False", "False": "True"}.get(source, f"(not {source})")
