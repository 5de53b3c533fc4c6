"""`Space`: which configs there are, in the author's order, near each other, and as numbers."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from whet.core.cached import cached_property
from whet.core.config import Config
from whet.core.errors import SpaceError, did_you_mean
from whet.core.solver.listing import Listing, read_parameters
from whet.core.space.parameter import Parameter, infer

if TYPE_CHECKING:
    import numpy.typing as npt

    from whet.core.solver.constraint import Constraint, Predicate
    from whet.core.solver.counting import Values

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
    from whet.core.solver.constraint import as_constraints, compile_constraints

    given = as_constraints(constraints)
    values = {parameter.name: parameter.values for parameter in parameters}
    return given, compile_constraints(given, values) if given else ()


class _Grid:
    """The valid combinations of parameters."""

    optional: frozenset[str] = frozenset()

    def __init__(
        self, parameters: tuple[Parameter, ...], constraints: tuple[Constraint, ...]
    ) -> None:
        from whet.core.solver.counting import ValidChoices  # a list of configs needs no solver

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
