"""What is known of a term: before any parameter is bound its kind, its range and how it can fail
(`Facts`), and what must be remembered of the parameters bound so far (`Reducer`).

After `a` and `b`, the constraint `a*b*c*d <= 1024` depends on `a*b` alone. The state between two
parameters is therefore not the values bound so far but the values of the *slots*: the largest
bound parts of every constraint still open. Prefixes with equal slots have equal completions.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from whet.core.config import Value
from whet.core.expression import MAX_BITS, Term

COMPARISONS = frozenset(("<", "<=", ">", ">=", "==", "!="))

# Integers beyond this cannot be relied on to mix with floats.
_HUGE = 1 << 1000

Number = int | float
Range = tuple[Number, Number]


@dataclass(frozen=True)
class Fact:
    """`range` is None where unknown; `safe` terms raise nothing, but for a division by zero."""

    kind: str  # int (booleans included), float, or other
    range: Range | None = None
    zero: bool = False
    safe: bool = True

    @property
    def numeric(self) -> bool:
        return self.kind != "other"

    @property
    def low(self) -> Number:
        return -math.inf if self.range is None else self.range[0]

    @property
    def high(self) -> Number:
        return math.inf if self.range is None else self.range[1]


_BOOL = Fact("int", (0, 1))
_FLOAT = Fact("float")
_OTHER = Fact("other")
_UNSAFE = Fact("other", safe=False)


class Facts:
    """Facts of terms over parameters with these values; each is worked out once."""

    def __init__(self, values: Mapping[str, Sequence[Value]]) -> None:
        self.values = values
        self._known: dict[Term, Fact] = {}

    def of(self, term: Term) -> Fact:
        known = self._known.get(term)
        if known is None:
            known = self._known[term] = self._derive(term)
        return known

    def _derive(self, term: Term) -> Fact:
        if term.op == "const":
            return _fact_of_values([ast.literal_eval(term.text)])
        if term.op == "name":
            return _fact_of_values(self.values[term.text])
        operands = term.args
        if term.op in ("in", "not in") and operands[1].op != "tuple":
            return _UNSAFE
        if term.op == "call" and term.text in ("all", "any", "sum"):
            if [operand.op for operand in operands] != ["tuple"]:
                return _UNSAFE
            operands = operands[0].args
        rule = _FUNCTION_RULES.get(term.text) if term.op == "call" else _RULES[term.op]
        if rule is None:
            return _UNSAFE
        args = [self.of(operand) for operand in operands]
        fact = rule(args)
        if fact.range is not None and not all(abs(end) < math.inf for end in fact.range):
            fact = replace(fact, range=None)
        return replace(
            fact,
            zero=fact.zero or any(arg.zero for arg in args),
            safe=fact.safe and all(arg.safe for arg in args),
        )


def flatten(term: Term, facts: Facts) -> Term:
    """Writes integer chains as `sum` and `product`, which may be regrouped at will.

    `a + b - (c - 1)` becomes sum(a, b, -c, 1), and `a + b <= c` becomes sum(a, b, -c) <= 0.
    Floats are left as they are written, for their sums depend on the order.
    """
    args = tuple(flatten(arg, facts) for arg in term.args)
    plain = Term(term.op, args, term.text)
    if not args or not all(facts.of(arg).kind == "int" for arg in args):
        if term.op == "call" and term.text == "sum" and facts.of(term).kind == "int":
            return _sum([part for item in args[0].args for part in _parts("sum", item)])
        return plain
    match term.op:
        case "+":
            return _sum(_parts("sum", args[0]) + _parts("sum", args[1]))
        case "-":
            return _sum(_parts("sum", args[0]) + _negated(args[1]))
        case "neg":
            return _sum(_negated(args[0]))
        case "*":
            return Term("product", tuple(_parts("product", args[0]) + _parts("product", args[1])))
        case op if op in COMPARISONS and any(arg.op == "sum" for arg in args) and args[1].names:
            left = _sum(_parts("sum", args[0]) + _negated(args[1]))
            return Term(op, (left, Term("const", text="0")))
    return plain


def _sum(parts: list[Term]) -> Term:
    return parts[0] if len(parts) == 1 else Term("sum", tuple(parts))


def _parts(op: str, term: Term) -> list[Term]:
    return list(term.args) if term.op == op else [term]


def _negated(term: Term) -> list[Term]:
    return [
        part.args[0] if part.op == "neg" else Term("neg", (part,)) for part in _parts("sum", term)
    ]


def _fact_of_values(values: Sequence[Value]) -> Fact:
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) < len(values) or not numbers:
        return _OTHER
    kind = "int" if all(isinstance(number, int) for number in numbers) else "float"
    return Fact(kind, (min(numbers), max(numbers)))


def _overflows(fact: Fact) -> bool:
    if fact.range is None:
        return fact.kind == "int"
    return max(-fact.low, fact.high) >= _HUGE


def _joint_kind(args: Sequence[Fact]) -> str:
    if all(arg.kind == "int" for arg in args):
        return "int"
    mixable = all(arg.numeric and not _overflows(arg) for arg in args)
    return "float" if mixable else "other"


def _ranges(args: Sequence[Fact]) -> list[Range] | None:
    known = [arg.range for arg in args if arg.range is not None]
    return known if len(known) == len(args) else None


def _arithmetic(combine: Callable[[list[Range]], Range]) -> Callable[[Sequence[Fact]], Fact]:
    """A rule for numbers only, whose range follows from the ranges of the operands."""

    def rule(args: Sequence[Fact]) -> Fact:
        kind = _joint_kind(args)
        if kind == "other" or not args:
            return _UNSAFE
        ranges = _ranges(args)
        return Fact(kind, None if ranges is None else combine(ranges))

    return rule


def _add(ranges: list[Range]) -> Range:
    return sum(low for low, _ in ranges), sum(high for _, high in ranges)


def _subtract(ranges: list[Range]) -> Range:
    (low, high), (less, more) = ranges
    return low - more, high - less


def _multiply(ranges: list[Range]) -> Range:
    low, high = ranges[0]
    for other in ranges[1:]:
        corners = [here * there for here in (low, high) for there in other]
        low, high = min(corners), max(corners)
    return low, high


def _negate(ranges: list[Range]) -> Range:
    return -ranges[0][1], -ranges[0][0]


def _absolute(ranges: list[Range]) -> Range:
    low, high = ranges[0]
    return max(low, -high, 0), max(abs(low), abs(high))


def _choice(args: Sequence[Fact]) -> Fact:
    """One of the operands, whichever."""
    kind = _joint_kind(args)
    ranges = _ranges(args)
    if kind == "other" or ranges is None:
        return Fact(kind)
    return Fact(kind, (min(low for low, _ in ranges), max(high for _, high in ranges)))


def _boolean(args: Sequence[Fact]) -> Fact:
    return _BOOL


def _inequality(args: Sequence[Fact]) -> Fact:
    return _BOOL if all(arg.numeric for arg in args) else _UNSAFE


def _division(args: Sequence[Fact]) -> Fact:
    left, right = args
    if _joint_kind([*args, _FLOAT]) == "other":
        return _UNSAFE
    zero = right.low <= 0 <= right.high
    if zero or left.range is None or right.range is None:
        return Fact("float", zero=zero)
    corners = [here / there for here, there in itertools.product(left.range, right.range)]
    return Fact("float", (min(corners), max(corners)))


def _floor_division(args: Sequence[Fact]) -> Fact:
    left, right = args
    kind = _joint_kind(args)
    if kind == "other":
        return _UNSAFE
    zero = right.low <= 0 <= right.high
    if zero or kind == "float" or left.range is None or right.range is None:
        return Fact(kind, zero=zero)
    corners = [here // there for here, there in itertools.product(left.range, right.range)]
    return Fact("int", (min(corners), max(corners)))


def _remainder(args: Sequence[Fact]) -> Fact:
    left, right = args
    kind = _joint_kind(args)
    if kind == "other":
        return _UNSAFE
    zero = right.low <= 0 <= right.high
    if kind == "float" or right.range is None:
        return Fact(kind, zero=zero)
    low = min(right.range[0] + 1, 0)
    high = max(right.range[1] - 1, 0)
    if low == 0 and left.low >= 0 and left.range is not None:
        high = min(high, left.range[1])
    return Fact("int", (low, high), zero)


def _exponentiation(args: Sequence[Fact]) -> Fact:
    base, exponent = args
    if _joint_kind(args) != "int" or base.range is None or exponent.range is None:
        return _UNSAFE
    bits = int(max(abs(base.range[0]), abs(base.range[1]))).bit_length()
    if base.range[0] < 0 or exponent.range[0] < 0 or bits * exponent.range[1] > MAX_BITS:
        return _UNSAFE
    if base.range[0] == 0:
        return Fact("int", (0, max(base.range[1], 1) ** exponent.range[1]))
    return Fact("int", (base.range[0] ** exponent.range[0], base.range[1] ** exponent.range[1]))


def _shifting(args: Sequence[Fact]) -> Fact:
    places = args[1]
    if _joint_kind(args) != "int" or places.low < 0 or places.high > MAX_BITS:
        return _UNSAFE
    return Fact("int")


def _bitwise(args: Sequence[Fact]) -> Fact:
    if _joint_kind(args) != "int":
        return _UNSAFE
    if any(arg.range is None or arg.range[0] < 0 for arg in args):
        return Fact("int")
    return Fact("int", (0, (1 << int(max(arg.high for arg in args)).bit_length()) - 1))


def _extreme(pick: Callable[..., Number]) -> Callable[[Sequence[Fact]], Fact]:
    rule = _arithmetic(
        lambda ranges: (pick(low for low, _ in ranges), pick(high for _, high in ranges))
    )
    return lambda args: rule(args) if len(args) > 1 else _UNSAFE


def _integers(args: Sequence[Fact]) -> Fact:
    return Fact("int") if _joint_kind(args) == "int" else _UNSAFE


def _divisor(args: Sequence[Fact]) -> Fact:
    if _joint_kind(args) != "int" or any(arg.range is None for arg in args):
        return _UNSAFE
    return Fact("int", (0, max((max(abs(arg.low), abs(arg.high)) for arg in args), default=0)))


def _logarithm(args: Sequence[Fact]) -> Fact:
    positive = len(args) == 1 and args[0].numeric and args[0].low > 0
    return Fact("float") if positive else _UNSAFE


def _rounding(args: Sequence[Fact]) -> Fact:
    if len(args) != 1 or not args[0].numeric or args[0].range is None:
        return _UNSAFE
    return Fact("int", (math.floor(args[0].low), math.ceil(args[0].high)))


def _rounding_up(args: Sequence[Fact]) -> Fact:
    if len(args) != 2 or _joint_kind(args) != "int":
        return _UNSAFE
    return Fact("int", zero=args[1].low <= 0 <= args[1].high)


def _power_of_two(args: Sequence[Fact]) -> Fact:
    return _BOOL if len(args) == 1 else _UNSAFE


_RULES: dict[str, Callable[[Sequence[Fact]], Fact]] = {
    "+": _arithmetic(_add),
    "sum": _arithmetic(_add),
    "-": _arithmetic(_subtract),
    "*": _arithmetic(_multiply),
    "product": _arithmetic(_multiply),
    "neg": _arithmetic(_negate),
    "pos": _arithmetic(lambda ranges: ranges[0]),
    "/": _division,
    "//": _floor_division,
    "%": _remainder,
    "**": _exponentiation,
    "<<": _shifting,
    ">>": _shifting,
    "&": _bitwise,
    "|": _bitwise,
    "^": _bitwise,
    "~": _integers,
    "<": _inequality,
    "<=": _inequality,
    ">": _inequality,
    ">=": _inequality,
    "==": _boolean,
    "!=": _boolean,
    "in": _boolean,
    "not in": _boolean,
    "not": _boolean,
    "and": _choice,
    "or": _choice,
    "if": lambda args: _choice(args[1:]),
    "index": lambda args: _UNSAFE,
    "tuple": lambda args: _OTHER,
}
_FUNCTION_RULES: dict[str, Callable[[Sequence[Fact]], Fact]] = {
    "abs": lambda args: _arithmetic(_absolute)(args) if len(args) == 1 else _UNSAFE,
    "all": _boolean,
    "any": _boolean,
    "ceil": _rounding,
    "ceil_div": _rounding_up,
    "floor": _rounding,
    "gcd": _divisor,
    "int": _rounding,
    "is_pow2": _power_of_two,
    "log2": _logarithm,
    "max": _extreme(max),
    "min": _extreme(min),
    "round": _rounding,
    "sum": _arithmetic(_add),
}


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
