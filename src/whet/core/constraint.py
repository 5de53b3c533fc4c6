"""Constraints: expression strings and Python predicates, compiled to one shape."""

from __future__ import annotations

import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeAlias

from whet.core.config import Config, Value
from whet.core.errors import SpaceError, did_you_mean
from whet.core.expression import ENVIRONMENT, Clause, Term, parse, render
from whet.core.interval import Facts, flatten

Predicate: TypeAlias = Callable[..., object]


@dataclass(frozen=True)
class Constraint:
    """What must hold for the values of `names`.

    `term` lets the counting evaluate it in parts; it is None where only a call can tell, for a
    predicate and for an expression that may raise. `fingerprint` changes when the meaning does.
    """

    text: str
    names: tuple[str, ...]
    fingerprint: str
    test: Callable[..., object]
    term: Term | None = None
    reads_config: bool = False
    forgives_zero_division: bool = False

    def holds(self, *values: Value) -> bool:
        """For values in the order of `names`; an exception becomes a `SpaceError`."""
        if self.reads_config:
            return self._outcome(dict(zip(self.names, values, strict=True)))
        try:
            return bool(self.test(*values))
        except Exception as error:
            return self._forgive(error, dict(zip(self.names, values, strict=True)))

    def holds_for(self, config: Config) -> bool:
        """A constraint on a parameter that the config does not have says nothing about it."""
        if self.reads_config:
            return self._outcome(dict(config))
        if not all(name in config for name in self.names):
            return True
        return self.holds(*(config[name] for name in self.names))

    def _outcome(self, values: dict[str, Value]) -> bool:
        try:
            return bool(self.test(Config.from_frozen(values)))
        except Exception as error:
            return self._forgive(error, values)

    def _forgive(self, error: Exception, values: dict[str, Value]) -> bool:
        if isinstance(error, ZeroDivisionError) and self.forgives_zero_division:
            return False
        raise SpaceError(
            f"constraint '{self.text}' fails for {Config.from_frozen(values)}: "
            f"{type(error).__name__}: {error}"
        ) from error


def as_constraints(
    given: Iterable[str | Predicate] | str | Predicate,
) -> tuple[str | Predicate, ...]:
    return (given,) if isinstance(given, str) or callable(given) else tuple(given)


def compile_constraints(
    given: Iterable[str | Predicate], values: Mapping[str, Sequence[Value]]
) -> tuple[Constraint, ...]:
    """Checks every constraint against the parameters and splits expressions at each `and`."""
    facts = Facts(values)
    compiled: list[Constraint] = []
    for constraint in given:
        if isinstance(constraint, str):
            compiled.extend(_from_expression(constraint, facts))
        elif callable(constraint):
            compiled.append(_from_predicate(constraint, tuple(values)))
        else:
            raise SpaceError(
                f"constraint {constraint!r} must be a string with an expression, or a function"
            )
    return tuple(compiled)


def _from_expression(text: str, facts: Facts) -> list[Constraint]:
    clauses = sorted(parse(text, facts.values), key=lambda clause: bool(clause.term.names))
    constants = [clause for clause in clauses if not clause.term.names]
    if len(constants) == len(clauses):
        raise SpaceError(
            f"constraint '{text.strip()}' uses no parameter; valid: {', '.join(facts.values)}"
        )
    constraints = []
    for position, clause in enumerate(clauses):
        if not clause.term.names:
            continue
        # What may raise stays behind the conjuncts that guard it: "t != None and t > 8".
        # What names no parameter cannot stand alone, and goes with the first that does.
        if not facts.of(clause.term).safe or position == len(constants):
            clause = _joined(clauses[: position + 1])
        constraints.append(_from_clause(clause, facts))
    return constraints


def _joined(clauses: Sequence[Clause]) -> Clause:
    if len(clauses) == 1:
        return clauses[0]
    return Clause(
        " and ".join(clause.text for clause in clauses),
        Term("and", tuple(clause.term for clause in clauses)),
    )


def _from_clause(clause: Clause, facts: Facts) -> Constraint:
    safe = facts.of(clause.term).safe
    names = tuple(name for name in facts.values if name in clause.term.names)
    arguments = {Term("name", text=name): f"a{at}" for at, name in enumerate(names)}
    body = render(clause.term, arguments, guarded=not safe)
    source = f"lambda {', '.join(arguments.values())}: {body}"
    return Constraint(
        text=clause.text,
        names=names,
        fingerprint=clause.text,
        test=eval(source, dict(ENVIRONMENT)),
        term=flatten(clause.term, facts) if safe else None,
        forgives_zero_division=True,
    )


def _from_predicate(predicate: Predicate, names: tuple[str, ...]) -> Constraint:
    label = getattr(predicate, "__name__", type(predicate).__name__).strip("<>")
    try:
        arguments = inspect.signature(predicate).parameters.values()
    except (TypeError, ValueError):
        raise SpaceError(
            f"cannot determine the arguments of constraint {label}; wrap it in a lambda"
        ) from None
    kinds = {argument.kind for argument in arguments}
    required = [
        argument.name
        for argument in arguments
        if argument.default is argument.empty
        and argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
    ]
    picked = [argument.name for argument in arguments if argument.name in names]
    unknown = [name for name in required if name not in names]
    whole = functools.partial(
        Constraint,
        text=f"{label}({', '.join(argument.name for argument in arguments)})",
        fingerprint=_fingerprint(predicate),
    )
    if inspect.Parameter.VAR_KEYWORD in kinds and not unknown:
        return whole(names=names, test=lambda config: predicate(**config), reads_config=True)
    if len(required) == 1 and unknown and not picked and _positional(arguments, unknown[0]):
        return whole(names=names, test=predicate, reads_config=True)
    if unknown:
        raise SpaceError(
            f"constraint {label} takes an unknown parameter '{unknown[0]}'"
            + did_you_mean(unknown[0], names)
        )
    if not picked:
        raise SpaceError(f"constraint {label} takes no parameter; valid: {', '.join(names)}")
    return whole(names=tuple(picked), test=_positional_call(predicate, arguments, picked))


def _positional(arguments: Iterable[inspect.Parameter], name: str) -> bool:
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(argument.name == name and argument.kind in by_position for argument in arguments)


def _positional_call(
    predicate: Predicate, arguments: Iterable[inspect.Parameter], picked: Sequence[str]
) -> Predicate:
    """`predicate` as a function of `picked`, in that order and by position."""
    leading = [argument.name for argument in arguments][: len(picked)]
    if leading == list(picked) and all(_positional(arguments, name) for name in picked):
        return predicate

    def call(*values: Value) -> object:
        return predicate(**dict(zip(picked, values, strict=True)))

    return call


def _fingerprint(predicate: Any) -> str:
    """The source text, or the bytecode where there is none, with what the function closes over."""
    if isinstance(predicate, functools.partial):
        return f"{_fingerprint(predicate.func)}{predicate.args!r}{predicate.keywords!r}"
    predicate = inspect.unwrap(predicate)
    code = getattr(predicate, "__code__", None)
    if not isinstance(code, CodeType):
        return f"{type(predicate).__module__}.{type(predicate).__qualname__}"
    try:
        text = textwrap.dedent(inspect.getsource(predicate)).strip()
    except (OSError, TypeError):
        text = _code_digest(code)
    cells = [cell.cell_contents for cell in predicate.__closure__ or () if _filled(cell)]
    bound = [*cells, *(predicate.__defaults__ or ()), *(predicate.__kwdefaults__ or {}).items()]
    plain = [repr(value) for value in bound if _is_plain(value)]
    return "\n".join([text, *plain])


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading an empty cell raises
    except ValueError:
        return False
    return True


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _code_digest(code: CodeType) -> str:
    parts = [code.co_code.hex(), repr(code.co_names)]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            parts.append(_code_digest(constant))
        elif isinstance(constant, frozenset):  # its own order changes from process to process
            parts.extend(sorted(map(repr, constant)))
        else:
            parts.append(repr(constant))
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
