"""Which pointer parameters a kernel reads, writes and updates, found in the text of its TTIR."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat

_NAME = r"%[\w$.\-]+"
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_VALUE = re.compile(rf"{_NAME}(?:#\d+)?")
_RESULT = re.compile(rf"({_NAME})(?::(\d+))?")
_PARAMETER = re.compile(rf"({_NAME}): (\S+)")
_BINDING = re.compile(rf"({_NAME}) = ({_NAME}(?:#\d+)?)")
_BRANCH = re.compile(r"\^(\w+)\(([^)]*)\)")
_SYMBOL = re.compile(r'@("[^"]*"|[\w$.\-]+)')
_FUNCTION = re.compile(r'tt\.func\s+(?:(public|private|nested)\s+)?@("[^"]*"|[\w$.\-]+)')
_OPERATION = re.compile(r'(?:(%[^=]*?) = )?"?([a-z_]\w*(?:\.\w+)+)"?(.*)')
_TOP_LEVEL_COMMA = re.compile(r",(?![^<]*>)")

# The address is the first operand of each.
_READS = {
    "tt.load",
    "tt.descriptor_load",
    "tt.descriptor_gather",
    "ttg.async_copy_global_to_local",
    "ttng.async_tma_copy_global_to_local",
    "ttng.async_tma_gather",
}
_WRITES = {
    "tt.store",
    "tt.descriptor_store",
    "tt.descriptor_scatter",
    "ttng.async_tma_copy_local_to_global",
    "ttng.async_tma_scatter",
}
_ATOMICS = {"tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce", "ttng.async_tma_reduce"}

_HARMLESS_DIALECTS = ("arith.", "math.", "ub.", "cf.")
_HARMLESS = re.compile(
    r"tt\.(splat|unsplat|addptr|broadcast|bitcast|expand_dims|reshape|trans|split|gather|advance"
    r"|make_tensor_ptr|make_tensor_descriptor|reinterpret_tensor_descriptor|ptr_to_int|int_to_ptr"
    r"|reduce|scan|map_elementwise|assert|print)"
)
# Far more than any kernel's loop carries.
_MOST_RESULTS = 10_000
_EITHER_OPERAND = {"arith.select", "tt.cat", "tt.join"}


@dataclass(frozen=True, slots=True)
class Effects:
    """What a kernel may do to its pointers, given as positions in the signature of its TTIR.

    Only parameters that reach the compiler are counted: a constexpr has no position there.
    Pointers and tensor descriptors are followed. `reads` holds every pointer once a load goes
    through an address of unknown origin; where a store or an atomic does, `unknown` is set, and
    any pointer may be updated.
    """

    reads: frozenset[int]
    writes: frozenset[int]
    atomics: frozenset[int]
    unknown: bool

    @property
    def updated(self) -> frozenset[int]:
        """Pointers whose contents after a launch may depend on their contents before it."""
        return (self.reads & self.writes) | self.atomics


def effects(ttir: str) -> Effects:
    """Errs towards more: what it does not understand counts as read, written or unknown."""
    reader = _Reader(ttir)
    try:
        for line in ttir.splitlines():
            reader.read(line.strip())
    except (LookupError, ValueError):  # names and counts that contradict each other
        return Effects(frozenset(), frozenset(), frozenset(), unknown=True)
    return reader.graph.effects(reader.kernel_pointers)


@dataclass(slots=True)
class _Graph:
    """Values and the parameters they may point into.

    A value has one or more definitions, each a tuple of the values it is computed from: a loop
    variable has two of one value each, an offset pointer has one of two values.
    """

    sources: list[set[int]] = field(default_factory=list)
    definitions: list[list[tuple[int, ...]]] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    atomics: list[int] = field(default_factory=list)
    opaque: list[tuple[int, bool]] = field(default_factory=list)

    def new(self, *definitions: tuple[int, ...]) -> int:
        self.sources.append(set())
        self.definitions.append(list(definitions))
        return len(self.sources) - 1

    def widen(self, values: list[int], count: int) -> list[int]:
        values.extend(self.new() for _ in range(count - len(values)))
        return values

    def flow(self, origins: Iterable[int], destinations: Iterable[int]) -> None:
        for origin, destination in zip(origins, destinations, strict=False):
            self.definitions[destination].append((origin,))

    def effects(self, pointers: frozenset[int]) -> Effects:
        self._trace()
        foreign = self._foreign()
        opaque = {value for value, _ in self.opaque}
        everything = pointers if not foreign.isdisjoint(self.reads) else frozenset()
        return Effects(
            reads=self._sources_of({*self.reads, *opaque}) | everything,
            writes=self._sources_of({*self.writes, *opaque}),
            atomics=self._sources_of(self.atomics),
            unknown=not pointers
            or not foreign.isdisjoint(self.writes + self.atomics)
            or any(is_pointer and value in foreign for value, is_pointer in self.opaque),
        )

    def _sources_of(self, values: Iterable[int]) -> frozenset[int]:
        return frozenset[int]().union(*(self.sources[value] for value in values))

    def _trace(self) -> None:
        changed = True
        while changed:
            changed = False
            for known, definitions in zip(self.sources, self.definitions, strict=True):
                before = len(known)
                for definition in definitions:
                    for value in definition:
                        known |= self.sources[value]
                changed |= len(known) > before

    def _foreign(self) -> set[int]:
        """Values that may come from elsewhere: loaded, or made of numbers only.

        A number added to a pointer does not make it foreign, hence only traced operands count
        where a definition has any.
        """
        foreign: set[int] = set()

        def is_foreign(definition: tuple[int, ...]) -> bool:
            traced = [value for value in definition if self.sources[value]]
            return not traced or not foreign.isdisjoint(traced)

        size = -1
        while len(foreign) > size:
            size = len(foreign)
            for value, definitions in enumerate(self.definitions):
                if value not in foreign and any(map(is_foreign, definitions)):
                    foreign.add(value)
        return foreign


@dataclass(slots=True)
class _Region:
    """A brace pair. `targets` take the operands of its terminator, `entry` defines its arguments;
    `following` is the region that the same operation opens after it."""

    outer: _Region | None = None
    targets: list[int] = field(default_factory=list)
    entry: Iterable[tuple[int, ...]] = ()
    following: _Region | None = None
    entered: bool = False
    names: dict[str, list[int]] = field(default_factory=dict)
    blocks: dict[str, list[int]] = field(default_factory=dict)

    def next(self) -> _Region:
        return self.following or _Region(self.outer, self.targets, self.entry)

    def find(self, name: str) -> list[int] | None:
        region: _Region | None = self
        while region is not None:
            if name in region.names:
                return region.names[name]
            region = region.outer
        return None


class _Reader:
    """Reads one line after another into a graph; regions scope the names, as in MLIR."""

    def __init__(self, ttir: str) -> None:
        self.graph = _Graph()
        self.kernel_pointers: frozenset[int] = frozenset()
        self._elsewhere = self.graph.new(())
        self._region = _Region()
        self._parameters: dict[str, list[int]] = {}
        self._returns: dict[str, list[int]] = {}
        functions = map(_FUNCTION.match, map(str.strip, ttir.splitlines()))
        self._defined = {found[2] for found in functions if found and found.string.endswith("{")}

    def read(self, line: str) -> None:
        if not line or line.startswith("#"):
            return
        text = _STRING.sub('""', line).partition("//")[0].rstrip()
        if text.startswith("}"):
            closed, self._region = self._region, self._region.outer or self._region
            if text.endswith("{"):
                self._region = closed.next()
        elif text.startswith("^"):
            self._label(text)
        elif function := _FUNCTION.match(line):
            self._function(function, text)
        elif operation := _OPERATION.match(line):
            self._operation(operation, text)
        elif text.endswith("{"):
            self._region = _Region(self._region)

    def _function(self, function: re.Match[str], header: str) -> None:
        visibility, name = function.groups()
        if name not in self._defined:
            return
        parameters = _PARAMETER.findall(header)
        values = self.graph.widen(self._parameters.setdefault(name, []), len(parameters))
        region = _Region(self._region, self._returns.setdefault(name, []))
        region.names = {
            parameter: [value] for (parameter, _), value in zip(parameters, values, strict=True)
        }
        self._region = region
        if visibility in (None, "public") and not self.kernel_pointers:
            pointers = {i for i, (_, kind) in enumerate(parameters) if _is_address(kind)}
            self.kernel_pointers = frozenset(pointers)
            for position, value in enumerate(values):
                if position in pointers:
                    self.graph.sources[value].add(position)
                else:
                    self.graph.definitions[value].append(())

    def _label(self, text: str) -> None:
        is_entry, self._region.entered = not self._region.entered, True
        label = re.split(r"\W", text[1:], maxsplit=1)[0]
        names = _VALUE.findall(text)
        arguments = self._block(label, len(names))
        for name, argument in zip(names, arguments, strict=False):
            self._region.names[name] = [argument]
        if is_entry:
            for definition, argument in zip(self._region.entry, arguments, strict=False):
                self.graph.definitions[argument].append(definition)

    def _block(self, label: str, count: int) -> list[int]:
        return self.graph.widen(self._region.blocks.setdefault(label, []), count)

    def _operation(self, operation: re.Match[str], text: str) -> None:
        declared, name, rest = operation.groups()
        name = name.replace("experimental_", "")
        rest = _STRING.sub('""', rest)
        scope = self._region
        operands = self._operands(rest)
        results: list[int] = []
        groups = {
            result: [self.graph.new() for _ in range(_results(count))]
            for result, count in _RESULT.findall(declared or "")
        }
        for group in groups.values():
            results.extend(group)
        if name == "scf.for":
            self._for(rest, results)
        elif name == "scf.while":
            self._while(rest, results)
        elif name == "scf.condition":
            self._terminate(operands[1:])
        elif name.endswith((".yield", ".return")):
            self._terminate(operands)
        elif name.startswith("scf."):
            self._region = _Region(scope, results)
        elif name != "tt.call" or not self._call(operation.string, operands, results):
            self._effect(name, rest, operands, results)
            if text.endswith("{"):
                self._region = _Region(scope, results, repeat(tuple(operands)))
        scope.names.update(groups)

    def _operands(self, text: str) -> list[int]:
        operands = []
        for reference in _VALUE.findall(text):
            name, _, position = reference.partition("#")
            group = self._region.find(name)
            operands.append(group[int(position or 0)] if group else self._elsewhere)
        return operands

    def _for(self, rest: str, results: list[int]) -> None:
        body = self._loop(rest.partition("iter_args(")[2])
        self.graph.flow(body.targets, results)
        self._region = body

    def _while(self, rest: str, results: list[int]) -> None:
        """Its first region passes values on, to the results and to the second, which yields back
        to the first."""
        condition = self._loop(rest)
        passed_on = [(value,) for value in results]
        condition.following = _Region(self._region, condition.targets, passed_on)
        condition.targets = results
        self._region = condition

    def _loop(self, carried: str) -> _Region:
        """A region whose arguments start as bound in the text, and are yielded to."""
        bindings = _BINDING.findall(carried)
        arguments = [
            self.graph.new((start,)) for _, name in bindings for start in self._operands(name)
        ]
        names = {name: [value] for (name, _), value in zip(bindings, arguments, strict=True)}
        return _Region(self._region, arguments, names=names)

    def _call(self, line: str, operands: list[int], results: list[int]) -> bool:
        symbol = _SYMBOL.search(line)
        if symbol is None or symbol[1] not in self._defined:
            return False
        parameters = self._parameters.setdefault(symbol[1], [])
        self.graph.flow(operands, self.graph.widen(parameters, len(operands)))
        returns = self._returns.setdefault(symbol[1], [])
        self.graph.flow(self.graph.widen(returns, len(results)), results)
        return True

    def _terminate(self, operands: list[int]) -> None:
        self.graph.flow(operands, self.graph.widen(self._region.targets, len(operands)))

    def _effect(self, name: str, rest: str, operands: list[int], results: list[int]) -> None:
        graph = self.graph
        known = (
            (_READS, graph.reads),
            (_WRITES, graph.writes),
            (_ATOMICS, graph.atomics),
        )
        for names, addresses in known:
            if name in names:
                addresses.extend(operands[:1])
                for result in results:
                    graph.definitions[result].append(())
                return
        for label, passed in _BRANCH.findall(rest):
            values = self._operands(passed)
            graph.flow(values, self._block(label, len(values)))
        definitions: list[tuple[int, ...]] = [tuple(operands)]
        if name in _EITHER_OPERAND:
            choices = operands[1:] if name == "arith.select" else operands
            definitions = [(choice,) for choice in choices]
        elif not _HARMLESS.fullmatch(name) and not name.startswith(_HARMLESS_DIALECTS):
            graph.opaque.extend(zip(operands, _address_operands(rest, len(operands)), strict=True))
            definitions.append(())
        for result in results:
            graph.definitions[result].extend(definitions)


def _results(count: str) -> int:
    number = int(count or 1)
    if number > _MOST_RESULTS:
        raise ValueError(f"{number} results of one operation")
    return number


def _is_address(kind: str) -> bool:
    return "!tt.ptr" in kind or "tensordesc" in kind


def _address_operands(rest: str, count: int) -> list[bool]:
    """Which operands are pointers by the types at the end; all, where those cannot be told apart.

    `%p, %n : !tt.ptr<f32>, i32 -> i32` gives [True, False].
    """
    types = rest.rpartition(" : ")[2].partition("->")[0]
    kinds = _TOP_LEVEL_COMMA.split(types)
    if len(kinds) == count:
        return [_is_address(kind) for kind in kinds]
    return [_is_address(types)] * count
