"""Constraint expressions: a bounded, side-effect-free part of Python, read into terms.

Nothing of the author's text is ever evaluated as it stands: it is parsed, checked against the
grammar below, turned into a `Term`, and only what `render` writes from that term is compiled.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from whet.core.errors import SpaceError, did_you_mean
from whet.core.lazy import cached_property

MAX_LENGTH = 2_000
MAX_DEPTH = 60
MAX_BITS = 4_096


@dataclass(frozen=True)
class Term:
    """An operation over terms.

    `const` keeps its Python source in `text`, `name` the parameter, `call` the function; every
    other `op` is the operator it looks like. `sum` and `product` are + and * of any number of
    integers, in any order; `tuple`, `index` and `if` are what they are in Python.
    """

    op: str
    args: tuple[Term, ...] = ()
    text: str = ""

    @cached_property
    def names(self) -> frozenset[str]:
        if self.op == "name":
            return frozenset((self.text,))
        return frozenset[str]().union(*(arg.names for arg in self.args))

    @cached_property
    def _hash(self) -> int:
        return hash((self.op, self.args, self.text))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Clause:
    """One conjunct of an expression, with the text to show for it."""

    text: str
    term: Term


def parse(text: str, names: Iterable[str]) -> tuple[Clause, ...]:
    """`"a > 1 and b % a == 0"` gives two clauses. Anything outside the grammar: `SpaceError`."""
    source = text.strip()
    if not source:
        raise SpaceError("a constraint is empty; write an expression such as 'a % b == 0'")
    if len(source) > MAX_LENGTH:
        raise SpaceError(
            f"constraint '{source[:60]}…' has {len(source)} characters, more than "
            f"{MAX_LENGTH}; use a Python function instead"
        )
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise SpaceError(
            f"constraint '{source}' has a syntax error at column {error.offset}: {error.msg}"
        ) from None
    except (ValueError, MemoryError, RecursionError):
        raise SpaceError(
            f"constraint '{source[:60]}' cannot be parsed; is it a single line?"
        ) from None
    _refuse_depth(source, tree)
    reader = _TermReader(source, tuple(names))
    # Read first: only what is in the grammar is written down again.
    terms = [(reader.term(node), node) for node in _conjuncts(tree)]
    return tuple(Clause(ast.unparse(node), term) for term, node in terms)


def _conjuncts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [part for value in node.values for part in _conjuncts(value)]
    return [node]


def _refuse_depth(source: str, tree: ast.expr) -> None:
    layer: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        layer = [
            child
            for node in layer
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.expr)
        ]
        if not layer:
            return
    raise SpaceError(f"constraint '{source[:60]}…' is nested more than {MAX_DEPTH} levels deep")


_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_UNARY: dict[type[ast.unaryop], str] = {
    ast.Not: "not",
    ast.USub: "neg",
    ast.UAdd: "pos",
    ast.Invert: "~",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}


class _TermReader:
    """Python's syntax tree to terms; whatever it does not know, it refuses."""

    def __init__(self, source: str, names: tuple[str, ...]) -> None:
        self.source = source
        self.names = names

    def term(self, node: ast.expr) -> Term:
        match node:
            case ast.Constant(value=value):
                return self.constant(node, value)
            case ast.Name(id=name):
                return self.name(name)
            case ast.BoolOp(op=op, values=values):
                joiner = "and" if isinstance(op, ast.And) else "or"
                return Term(joiner, self.terms(values))
            case ast.BinOp(left=left, op=binary, right=right) if type(binary) in _BINARY:
                return Term(_BINARY[type(binary)], self.terms([left, right]))
            case ast.UnaryOp(op=unary, operand=operand):
                return Term(_UNARY[type(unary)], (self.term(operand),))
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return Term("if", self.terms([test, body, orelse]))
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return Term("tuple", self.terms(items))
            case ast.Subscript(value=value, slice=index) if not isinstance(index, ast.Slice):
                return Term("index", self.terms([value, index]))
            case ast.Call(func=ast.Name(id=function), args=args, keywords=[]):
                return self.call(function, args)
        raise self.refusal(node, f"{type(node).__name__} is not allowed in an expression")

    def terms(self, nodes: list[ast.expr]) -> tuple[Term, ...]:
        return tuple(self.term(node) for node in nodes)

    def constant(self, node: ast.expr, value: object) -> Term:
        plain = value is None or isinstance(value, bool | int | float | str)
        if not plain or (isinstance(value, float) and not math.isfinite(value)):
            raise self.refusal(node, f"{value!r} cannot be a parameter's value")
        return Term("const", text=repr(value))

    def name(self, name: str) -> Term:
        if name not in self.names:
            raise SpaceError(
                f"constraint '{self.source}' uses an unknown parameter '{name}'"
                + did_you_mean(name, self.names)
            )
        return Term("name", text=name)

    def comparison(self, node: ast.Compare) -> Term:
        operands = self.terms([node.left, *node.comparators])
        pairs = []
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            if type(op) not in _COMPARE:
                raise self.refusal(node, "'is' compares identity; use ==")
            pairs.append(Term(_COMPARE[type(op)], (left, right)))
        return pairs[0] if len(pairs) == 1 else Term("and", tuple(pairs))

    def call(self, function: str, args: list[ast.expr]) -> Term:
        if function not in FUNCTIONS:
            raise SpaceError(
                f"constraint '{self.source}' calls an unknown function '{function}'"
                + did_you_mean(function, FUNCTIONS)
            )
        return Term("call", self.terms(args), function)

    def refusal(self, node: ast.expr, why: str) -> SpaceError:
        return SpaceError(f"constraint '{self.source}', column {node.col_offset + 1}: {why}")


def render(term: Term, variables: Mapping[Term, str], *, guarded: bool = False) -> str:
    """Python source for `term`, where each term among `variables` is that variable.

    `guarded` keeps * and % from repeating or formatting text; it may be left out only where
    their operands are known to be numbers.
    """
    if term in variables:
        return variables[term]
    if term.op == "const":
        return term.text
    args = [render(arg, variables, guarded=guarded) for arg in term.args]
    if guarded and term.op in _GUARDED:
        return f"{_GUARDED[term.op]}({', '.join(args)})"
    match term.op:
        case "**":
            return f"_power({args[0]}, {args[1]})"
        case "<<":
            return f"_shift({args[0]}, {args[1]})"
        case "call":
            return f"{term.text}({', '.join(args)})"
        case "tuple":
            return f"({''.join(arg + ', ' for arg in args)})"
        case "index":
            return f"{args[0]}[{args[1]}]"
        case "if":
            return f"({args[1]} if {args[0]} else {args[2]})"
        case "not" | "neg" | "pos" | "~":
            return f"({_PREFIXES[term.op]}{args[0]})"
        case _:
            return f"({f' {_JOINERS.get(term.op, term.op)} '.join(args)})"


_PREFIXES = {"not": "not ", "neg": "-", "pos": "+", "~": "~"}
_JOINERS = {"sum": "+", "product": "*"}
_GUARDED = {"*": "_times", "%": "_modulo"}


def _power(base: Any, exponent: Any) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and abs(base) > 1 and base.bit_length() * exponent > MAX_BITS:
        raise ValueError(f"the power has more than {MAX_BITS} bits")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("the power is not a real number")
    return result


def _shift(number: Any, places: Any) -> Any:
    if places > MAX_BITS:
        raise ValueError(f"the shift is wider than {MAX_BITS} bits")
    return number << places


def _times(left: Any, right: Any) -> Any:
    if isinstance(left, str | tuple) or isinstance(right, str | tuple):
        raise TypeError("strings and tuples cannot be repeated")
    return left * right


def _modulo(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        raise TypeError("strings cannot be formatted")
    return left % right


def _int(number: Any) -> int:
    if not isinstance(number, int | float):
        raise TypeError(f"int() takes a number, not {number!r}")
    return int(number)


def _round(number: Any, digits: int = 0) -> Any:
    if abs(digits) > 300:
        raise ValueError("round() takes at most 300 digits")
    return round(number, digits) if digits else round(number)


def _ceil_div(left: int, right: int) -> int:
    return -(-left // right)


def _is_pow2(number: Any) -> bool:
    return isinstance(number, int) and number > 0 and number & (number - 1) == 0


def _index(items: Any, item: Any) -> int:
    position: int = items.index(item)
    return position


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "all": all,
    "any": any,
    "ceil": math.ceil,
    "ceil_div": _ceil_div,
    "floor": math.floor,
    "gcd": math.gcd,
    "index": _index,
    "int": _int,
    "is_pow2": _is_pow2,
    "lcm": math.lcm,
    "len": len,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": _round,
    "sum": sum,
}

# What rendered source may refer to, and nothing else.
ENVIRONMENT: dict[str, Any] = {
    "__builtins__": {},
    "_modulo": _modulo,
    "_power": _power,
    "_shift": _shift,
    "_times": _times,
    **FUNCTIONS,
}
