"""Which configs there are: parameters with their values, and the `Space` that they make, in the
author's order, near each other, and as numbers for models."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from whet.core.config import Config, Value, freeze_value
from whet.core.errors import SpaceError, did_you_mean
from whet.core.lazy import cached_property

if TYPE_CHECKING:
    import numpy.typing as npt

    from whet.core.constraint import Constraint, Predicate
    from whet.core.counting import Values

MAX_PERMUTED_ITEMS = 8
LOG_SCALE_RATIO = 8


def value_key(value: Value) -> int | str:
    """A dictionary key that tells 1, 1.0 and True apart, as configs do."""
    return value if type(value) is int else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, eq=False)
class Parameter(ABC):
    """A name and the values it may take, in the author's order, each once.

    A subclass adds the geometry: `neighbours` and `encode`. Values that are not among `values`
    are refused with a `SpaceError` by both.
    """

    name: str
    values: tuple[Value, ...]

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _listed(self.name, self.values))

    @abstractmethod
    def neighbours(self, value: Value) -> tuple[Value, ...]:
        """The values one move away, never `value` itself."""

    @abstractmethod
    def encode(self, value: Value) -> tuple[float, ...]:
        """`width` numbers between 0 and 1."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """What each number of `encode` is, for people."""

    @property
    def width(self) -> int:
        return len(self.columns)

    def position(self, value: Value) -> int:
        """Where `value` stands in `values`."""
        found = self._positions.get(value_key(value))
        if found is None:
            raise SpaceError(self.refusal(value))
        return found

    def offers(self, value: Value) -> bool:
        return value_key(value) in self._positions

    def refusal(self, value: Value) -> str:
        """Why `value` will not do, for a message."""
        shown = ", ".join(str(offered) for offered in self.values[:12])
        more = f", … ({len(self.values)} in total)" if len(self.values) > 12 else ""
        return f"{self.name}={value} is not a possible value; valid: {shown}{more}"

    @property
    def identity(self) -> str:
        """Equal for parameters that mean the same; stable across processes and releases."""
        return json.dumps([self.kind, self.name, self.values], ensure_ascii=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parameter) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @cached_property
    def _positions(self) -> dict[int | str, int]:
        return {value_key(value): position for position, value in enumerate(self.values)}


@dataclass(frozen=True, eq=False)
class Ordered(Parameter):
    """Ordered values: with `Ordered("BM", [64, 16, 32])`, 16 and 64 are the neighbours of 32.

    Numbers are sorted by size, and encoded on a log2 scale if they are positive and span a factor
    of eight or more. Other values keep the order in which they are listed and are encoded by rank.
    """

    kind: ClassVar[str] = "ordered"

    def neighbours(self, value: Value) -> tuple[Value, ...]:
        rank = self._ranks[self.position(value)]
        around = (rank - 1, rank + 1)
        return tuple(self.values[self._sorted[at]] for at in around if 0 <= at < len(self.values))

    def encode(self, value: Value) -> tuple[float, ...]:
        return (self._scaled[self.position(value)],)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    @cached_property
    def _numbers(self) -> list[float] | None:
        numbers = [value for value in self.values if _is_number(value)]
        if len(numbers) < len(self.values):
            return None
        try:
            return [float(number) for number in numbers]  # type: ignore[arg-type]
        except OverflowError:
            raise SpaceError(f"parameter '{self.name}' has a number larger than 1e308") from None

    @cached_property
    def _sorted(self) -> list[int]:
        """Positions in `values`, from the least to the greatest."""
        numbers = self._numbers
        positions = range(len(self.values))
        return list(positions) if numbers is None else sorted(positions, key=numbers.__getitem__)

    @cached_property
    def _ranks(self) -> list[int]:
        ranks = [0] * len(self.values)
        for rank, position in enumerate(self._sorted):
            ranks[position] = rank
        return ranks

    @cached_property
    def _scaled(self) -> list[float]:
        numbers = self._numbers or [float(rank) for rank in self._ranks]
        low, high = min(numbers), max(numbers)
        if low > 0 and high / low >= LOG_SCALE_RATIO:
            numbers = [math.log2(number) for number in numbers]
            low, high = min(numbers), max(numbers)
        span = high - low
        return [(number - low) / span if span else 0.0 for number in numbers]


@dataclass(frozen=True, eq=False)
class Categorical(Parameter):
    """Unordered values: `Categorical("layout", ["row", "col"])`.

    Every other value is a neighbour, and values are encoded one-hot.
    """

    kind: ClassVar[str] = "categorical"

    def neighbours(self, value: Value) -> tuple[Value, ...]:
        here = self.position(value)
        return self.values[:here] + self.values[here + 1 :]

    def encode(self, value: Value) -> tuple[float, ...]:
        here = self.position(value)
        return tuple(float(position == here) for position in range(len(self.values)))

    @property
    def columns(self) -> tuple[str, ...]:
        labels = [str(value) for value in self.values]
        if len(set(labels)) < len(labels):
            labels = [repr(value) for value in self.values]
        return tuple(f"{self.name}={label}" for label in labels)


@dataclass(frozen=True, eq=False, init=False)
class Permutation(Parameter):
    """Every order of some items: `Permutation("loops", "mnk")`. The given order comes first.

    A neighbour swaps two positions; the encoding is the position of each item. At most eight items
    are allowed, because all orders are kept in memory (8! = 40,320).
    """

    items: tuple[Value, ...]

    kind: ClassVar[str] = "permutation"

    def __init__(self, name: str, items: Iterable[Any]) -> None:
        listed = _listed(name, tuple(items))
        if len(listed) > MAX_PERMUTED_ITEMS:
            raise SpaceError(
                f"parameter '{name}' permutes {len(listed)} items, more than "
                f"{MAX_PERMUTED_ITEMS}; list the orders that matter in a Categorical instead"
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "items", listed)
        object.__setattr__(self, "values", tuple(itertools.permutations(listed)))

    def neighbours(self, value: Value) -> tuple[Value, ...]:
        self.position(value)
        assert isinstance(value, tuple)
        swapped: list[Value] = []
        for left, right in itertools.combinations(range(len(value)), 2):
            order = list(value)
            order[left], order[right] = order[right], order[left]
            swapped.append(tuple(order))
        return tuple(swapped)

    def encode(self, value: Value) -> tuple[float, ...]:
        self.position(value)
        assert isinstance(value, tuple)
        keys = [value_key(item) for item in value]
        last = max(len(keys) - 1, 1)
        return tuple(keys.index(value_key(item)) / last for item in self.items)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.name}[{item}]" for item in self.items)


def infer(name: str, values: Any) -> Parameter:
    """Numbers give `Ordered`; booleans, strings, None, tuples or a mixture give `Categorical`."""
    listed = _listed(name, values)
    numeric = bool(listed) and all(_is_number(value) for value in listed)
    return Ordered(name, listed) if numeric else Categorical(name, listed)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _listed(name: str, values: Any) -> tuple[Value, ...]:
    """The values as a tuple of frozen ones, after every check a list of values must pass."""
    if not isinstance(name, str) or not name:
        raise SpaceError(f"a parameter name must be a string, not {name!r}")
    if isinstance(values, AbstractSet):
        raise SpaceError(f"parameter '{name}' is a set, which has no order; give a list of values")
    if isinstance(values, str | bytes | Mapping) or not _iterable(values):
        raise SpaceError(f"parameter '{name}' is {values!r}; give a list of values: [{values!r}]")
    listed = tuple(freeze_value(value, f"parameter '{name}'") for value in values)
    _refuse_duplicates(name, listed)
    return listed


def _iterable(values: Any) -> bool:
    if isinstance(values, Sequence):
        return True
    try:
        iter(values)
    except TypeError:
        return False
    return True


def _refuse_duplicates(name: str, values: tuple[Value, ...]) -> None:
    seen: set[int | str] = set()
    for value in values:
        key = value_key(value)
        if key in seen:
            raise SpaceError(f"parameter '{name}' lists {value!r} twice")
        seen.add(key)


SpaceSpec: TypeAlias = "Mapping[str, Any] | Iterable[Parameter | Mapping[str, Any]]"

# `with_configs` writes a space out as a list up to this many configs.
ENUMERABLE = 100_000


class UncountedError(SpaceError, TypeError):
    """The space has no length. A TypeError too, so that `list(space)` goes on without one."""


class Space:
    """A search space: a list of configs, a dict of lists, or typed parameters, with constraints.

    `Space({"a": [1, 2, 4], "b": [1, 2]}, constraints=["a % b == 0"])` has five valid configs: a=1
    b=1, a=2 b=1, a=2 b=2, a=4 b=1, a=4 b=2. The first parameter varies slowest, and values keep the
    given order. A constraint is an expression over parameter names (a division by zero makes it
    false), or a predicate whose argument names are parameters; it may also take the whole config as
    one argument or as **keywords. Constraints are applied as soon as their parameters are bound, so
    iterating only visits valid prefixes; counting and sampling do not enumerate the space.
    """

    def __init__(
        self,
        spec: SpaceSpec,
        constraints: Iterable[str | Predicate] | str | Predicate = (),
    ) -> None:
        self.parameters, configs = _read(spec)
        self.names = tuple(parameter.name for parameter in self.parameters)
        self._spec = configs or self.parameters
        self._given: tuple[str | Predicate, ...] = ()
        compiled: tuple[Constraint, ...] = ()
        if constraints != ():
            self._given, compiled = _compiled(constraints, self.parameters)
        self.constraints = tuple(constraint.text for constraint in compiled)
        nothing = not all(parameter.values for parameter in self.parameters)
        self._body: _Grid | Listing = (
            Listing(configs, self.parameters, compiled)
            if configs or nothing or not self.parameters
            else _Grid(self.parameters, compiled)
        )

    @property
    def count(self) -> int | None:
        """The exact number of valid configs; None if that is too expensive to compute."""
        return self._body.count

    @property
    def exact_sampling(self) -> bool:
        """Whether `sample` is exactly uniform. It is if `count` is known."""
        return self._body.count is not None

    @cached_property
    def first(self) -> Config | None:
        """The author's first valid config; None in a space without any."""
        return next(iter(self), None)

    @cached_property
    def id(self) -> str:
        """Changes with the configs a space holds or with the order it tries them in.

        For a list of configs the order does not matter. A predicate counts with its source
        text, and with the plain values it closes over.
        """
        text = json.dumps(self._body.identity, ensure_ascii=False)
        return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()

    def __iter__(self) -> Iterator[Config]:
        return iter(self._body)

    def __len__(self) -> int:
        count = self.count
        if count is None:
            raise UncountedError(f"{self!r} is too large to count; use is_small() and sample()")
        if count > sys.maxsize:
            raise UncountedError(f"{self!r} has {count} configs, too many for len(); use count")
        return count

    def __bool__(self) -> bool:
        return self.first is not None

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Mapping) and self.explain(config) is None

    def __repr__(self) -> str:
        return f"Space({', '.join(self.names)}; {len(self.constraints)} constraints)"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Space, (self._spec, self._given))

    def is_small(self, limit: int) -> bool:
        """Whether the space is known to have at most `limit` configs; stops enumerating soon after
        it.
        """
        return self._body.at_most(limit)

    def explain(self, config: Mapping[str, Any]) -> str | None:
        """Why a config is not in the space; None if it is."""
        config = config if isinstance(config, Config) else Config(config)
        return self._stranger(config) or self._body.explain(config)

    def sample(self, rng: np.random.Generator, n: int, *, replace: bool = False) -> list[Config]:
        """Draws `n` valid configs uniformly; they are distinct unless `replace` is set.

        Returns all of them, shuffled, if there are no more than `n`. If `exact_sampling` is False,
        a Metropolis walk makes the draw approximately uniform, and may find fewer than `n`.
        """
        if n < 0:
            raise SpaceError(f"cannot sample {n} configs")
        return self._body.sample(rng, n, replace=replace)

    def neighbours(self, config: Mapping[str, Any]) -> list[Config]:
        """The valid configs that are one move of one parameter away.

        In a list of configs: those that differ in exactly one parameter.
        """
        config = Config(config)
        if reason := self._stranger(config):
            raise SpaceError(reason)
        return self._body.neighbours(config)

    def _stranger(self, config: Config) -> str | None:
        for name in config:
            if name not in self.names:
                return f"unknown parameter '{name}'{did_you_mean(name, self.names)}"
        return None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """What the columns of `encode` are; `BM?` says whether a config has a BM at all."""
        return tuple(
            column
            for parameter in self.parameters
            for column in (*parameter.columns, *self._presence(parameter))
        )

    def encode(self, configs: Iterable[Mapping[str, Any]]) -> npt.NDArray[np.float64]:
        """Encodes configs for models: one row per config, with numbers between 0 and 1."""
        rows = list(configs)
        blocks = [self._encode_one(parameter, rows) for parameter in self.parameters]
        return np.hstack([np.empty((len(rows), 0)), *blocks])

    def _encode_one(
        self, parameter: Parameter, configs: list[Mapping[str, Any]]
    ) -> npt.NDArray[np.float64]:
        name = parameter.name
        optional = bool(self._presence(parameter))
        missing = len(parameter.values)
        positions = []
        for config in configs:
            if name not in config and not optional:
                raise SpaceError(f"parameter '{name}' is missing from {config}")
            positions.append(parameter.position(config[name]) if name in config else missing)
        return self._tables[name][np.array(positions, dtype=np.intp)]

    @cached_property
    def _tables(self) -> dict[str, npt.NDArray[np.float64]]:
        """For each parameter its values encoded, and a last row for configs without it."""
        tables = {}
        for parameter in self.parameters:
            present = [1.0 for _ in self._presence(parameter)]
            rows = [[*parameter.encode(value), *present] for value in parameter.values]
            tables[parameter.name] = np.array([*rows, [0.0] * len(rows[0])])
        return tables

    def _presence(self, parameter: Parameter) -> tuple[str, ...]:
        optional = parameter.name in self._body.optional
        return (f"{parameter.name}?",) if optional else ()

    def with_configs(self, configs: Iterable[Mapping[str, Any]]) -> Space:
        """Returns a list space: the valid configs of this space, followed by `configs`.

        Constraints do not apply to the added configs. Raises `SpaceError` if this space is too
        large to list.
        """
        if not self.is_small(ENUMERABLE):
            raise SpaceError(
                f"configs can only be added to a space of at most {ENUMERABLE} configs; give "
                f"{self!r} as a list, or add the values to its parameters"
            )
        return Space([*self, *configs])


def _compiled(
    constraints: Iterable[str | Predicate] | str | Predicate, parameters: tuple[Parameter, ...]
) -> tuple[tuple[str | Predicate, ...], tuple[Constraint, ...]]:
    """As they were given, and as they are checked."""
    from whet.core.constraint import as_constraints, compile_constraints

    given = as_constraints(constraints)
    values = {parameter.name: parameter.values for parameter in parameters}
    return given, compile_constraints(given, values) if given else ()


class _Grid:
    """The valid combinations of parameters."""

    optional: frozenset[str] = frozenset()

    def __init__(
        self, parameters: tuple[Parameter, ...], constraints: tuple[Constraint, ...]
    ) -> None:
        from whet.core.counting import ValidChoices  # a list of configs needs no solver

        self._parameters = parameters
        self._constraints = constraints
        self._choices = ValidChoices(parameters, constraints)
        self.at_most = self._choices.at_most

    @property
    def count(self) -> int | None:
        return self._choices.count

    @property
    def identity(self) -> list[list[str]]:
        return [
            [parameter.identity for parameter in self._parameters],
            sorted(constraint.fingerprint for constraint in self._constraints),
        ]

    def __iter__(self) -> Iterator[Config]:
        names, wrap = self._choices.names, Config.from_frozen
        for values in self._choices:
            yield wrap(zip(names, values, strict=True))

    def sample(self, rng: np.random.Generator, n: int, *, replace: bool) -> list[Config]:
        return [self._config(values) for values in self._choices.sample(rng, n, replace=replace)]

    def explain(self, config: Config) -> str | None:
        return self._unfit(config) or self._broken(config)

    def neighbours(self, config: Config) -> list[Config]:
        if reason := self._unfit(config):
            raise SpaceError(reason)
        found = []
        for at, parameter in enumerate(self._parameters):
            values = [config[one.name] for one in self._parameters]
            for value in parameter.neighbours(values[at]):
                values[at] = value
                moved = self._config(tuple(values))
                if self._broken(moved) is None:
                    found.append(moved)
        return found

    def _config(self, values: Values) -> Config:
        return Config.from_frozen(zip(self._choices.names, values, strict=True))

    def _unfit(self, config: Config) -> str | None:
        for parameter in self._parameters:
            if parameter.name not in config:
                return f"parameter '{parameter.name}' is missing"
            if not parameter.offers(config[parameter.name]):
                return parameter.refusal(config[parameter.name])
        return None

    def _broken(self, config: Config) -> str | None:
        for constraint in self._constraints:
            if not constraint.holds_for(config):
                return f"breaks the constraint '{constraint.text}'"
        return None


_ABSENT = -1
_UNLISTED = -2


class Listing:
    """The listed configs that satisfy the constraints, each once, in the order given."""

    def __init__(
        self,
        configs: Sequence[Config],
        parameters: Sequence[Parameter],
        constraints: Sequence[Constraint],
    ) -> None:
        self._parameters = parameters
        self._constraints = constraints
        self._listed = dict.fromkeys(configs)
        self._valid = {config: None for config in self._listed if not self._broken(config)}
        self._configs = list(self._valid)
        self.count = len(self._valid)

    @cached_property
    def optional(self) -> frozenset[str]:
        """Parameters that some of the configs do without."""
        names = (parameter.name for parameter in self._parameters)
        return frozenset(
            name for name in names if not all(name in config for config in self._listed)
        )

    @property
    def identity(self) -> list[str]:
        return sorted(config.json for config in self._valid)

    def __iter__(self) -> Iterator[Config]:
        return iter(self._configs)

    def at_most(self, limit: int) -> bool:
        return self.count <= limit

    def sample(self, rng: np.random.Generator, n: int, *, replace: bool) -> list[Config]:
        if replace and self.count:
            return [self._configs[at] for at in rng.integers(self.count, size=n)]
        return [self._configs[at] for at in rng.permutation(self.count)[:n]]

    def explain(self, config: Config) -> str | None:
        if config in self._valid:
            return None
        if config in self._listed:
            return f"breaks the constraint '{self._broken(config)}'"
        for parameter in self._parameters:
            if parameter.name in config and not parameter.offers(config[parameter.name]):
                return parameter.refusal(config[parameter.name])
            if parameter.name not in config and parameter.name not in self.optional:
                return f"parameter '{parameter.name}' is missing"
        return f"this combination is not among the {len(self._listed)} listed configs"

    def neighbours(self, config: Config) -> list[Config]:
        differing = (self._codes != self._code(config)).sum(axis=1)
        return [self._configs[at] for at in np.flatnonzero(differing == 1)]

    @cached_property
    def _codes(self) -> npt.NDArray[np.int64]:
        rows = [self._code(config) for config in self._configs]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(self._parameters))

    def _code(self, config: Config) -> list[int]:
        """For each parameter the position of its value, so that rows can be compared at once."""
        codes = []
        for parameter in self._parameters:
            if parameter.name not in config:
                codes.append(_ABSENT)
            elif parameter.offers(config[parameter.name]):
                codes.append(parameter.position(config[parameter.name]))
            else:
                codes.append(_UNLISTED)
        return codes

    def _broken(self, config: Config) -> str | None:
        texts = (one.text for one in self._constraints if not one.holds_for(config))
        return next(texts, None)


def read_parameters(configs: Sequence[Config]) -> tuple[Parameter, ...]:
    """The names in the order of their first mention, each with every value it is given."""
    values: dict[str, dict[int | str, Value]] = {}
    for config in configs:
        for name, value in config.items():
            values.setdefault(name, {}).setdefault(value_key(value), value)
    return tuple(infer(name, list(listed.values())) for name, listed in values.items())


def _read(spec: Any) -> tuple[tuple[Parameter, ...], tuple[Config, ...]]:
    """The parameters, and the configs where the space is a list of these."""
    items: tuple[Any, ...]
    if isinstance(spec, Mapping):
        items = tuple(_parameter(name, values) for name, values in spec.items())
    elif isinstance(spec, Iterable) and not isinstance(spec, str | bytes):
        items = tuple(spec)
    else:
        raise SpaceError(f"{spec!r} is not a space; {_FORMS}")
    if all(isinstance(item, Parameter) for item in items):
        _refuse_namesakes(items)
        return items, ()
    if all(isinstance(item, Mapping) for item in items):
        configs = tuple(item if isinstance(item, Config) else Config(item) for item in items)
        return read_parameters(configs), configs
    strange = [item for item in items if not isinstance(item, Parameter | Mapping)]
    if strange:
        raise SpaceError(f"{strange[0]!r} is neither a config nor a parameter; {_FORMS}")
    raise SpaceError(f"a space cannot mix configs and parameters; {_FORMS}")


_FORMS = "give a dict of lists, a list of configs, or a list of parameters"


def _parameter(name: str, values: Any) -> Parameter:
    if not isinstance(values, Parameter):
        return infer(name, values)
    if values.name != name:
        raise SpaceError(f"parameter '{values.name}' is listed under a different name, '{name}'")
    return values


def _refuse_namesakes(parameters: Iterable[Parameter]) -> None:
    seen: set[str] = set()
    for parameter in parameters:
        if parameter.name in seen:
            raise SpaceError(f"parameter '{parameter.name}' is given twice")
        seen.add(parameter.name)
