"""Scripts written in Python: each method is a step, and `text` is the transform-dialect script.

s = ScheduleBuilder(constraints=["bi % ti == 0"])
ti, bi = s.knob("ti", [8, 4, 16]), s.knob("bi", [64, 32])
product = s.match("linalg.matmul")
block = s.parallelize(product, [bi, 64])
tile = s.tile(block.op, [ti, 32])
s.choose("vectorize", {"yes": s.vectorize, "no": lambda: None})
s.bufferize()
s.lower()
target = whet.schedule(payload, s)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from whet.core.config import Value
from whet.core.errors import UsageError

_OP, _NUMBER = "!transform.any_op", "!transform.param<i64>"


@dataclass(frozen=True)
class OpHandle:
    """Operations of the payload, by the name of a value of the script."""

    name: str


@dataclass(frozen=True)
class KnobHandle:
    """A number that is tuned. `options[0]` stands in attributes until a config decides."""

    name: str
    options: tuple[int, ...]


@dataclass(frozen=True)
class Tiled:
    """The operation inside the loops, and the loops from the outermost in."""

    op: OpHandle
    loops: tuple[OpHandle, ...]


Size = int | KnobHandle
Made = OpHandle | Sequence[OpHandle] | Tiled | None


class ScheduleBuilder:
    """A script that grows by a step with each call. An operation that has been tiled, fused, packed
    or padded is gone; go on with what the call returns."""

    def __init__(self, constraints: Iterable[str] = ()) -> None:
        self._constraints = tuple(constraints)
        self._lines: list[str] = []
        self._indent = 2
        self._count = 0
        self._knobs: dict[str, KnobHandle] = {}
        self._root = OpHandle("root")

    @property
    def text(self) -> str:
        limits = ", ".join(json.dumps(one) for one in self._constraints)
        more = f", whet.constraints = [{limits}]" if limits else ""
        return "\n".join(
            [
                f"module attributes {{transform.with_named_sequence{more}}} {{",
                "  transform.named_sequence @__transform_main("
                f"%root: {_OP} {{transform.consumed}}) {{",
                *self._lines,
                "    transform.yield",
                "  }",
                "}",
                "",
            ]
        )

    def knob(self, name: str, options: Sequence[int]) -> KnobHandle:
        """A parameter. It may be used wherever a size is."""
        if name in self._knobs:
            raise UsageError(f"there is a knob '{name}' already; use what that call returned")
        made = KnobHandle(name, tuple(options))
        self._knobs[name] = made
        listed = ", ".join(map(str, options))
        self._line(f'%{name} = transform.tune.knob<"{name}"> options = [{listed}] -> {_NUMBER}')
        return made

    def match(self, operation: str | None = None, *, name: str | None = None) -> OpHandle:
        """All operations of a kind (`"linalg.matmul"`), or those that the payload calls `name`."""
        if (operation is None) == (name is None):
            raise UsageError("match by the kind of the operation or by name=, one of them")
        what = f'ops{{["{operation}"]}}' if operation else f'attributes {{whet.name = "{name}"}}'
        return self._one(f"transform.structured.match {what} in %{self._root.name}", [self._root])

    def tile(
        self, op: OpHandle, sizes: Sequence[Size], interchange: Sequence[int] | None = None
    ) -> Tiled:
        """Loops around the operation, one for each size that is not 0."""
        order = f" interchange = [{', '.join(map(str, interchange))}]" if interchange else ""
        return self._tiled("tile_using_for", op, sizes, sum(size != 0 for size in sizes), order)

    def parallelize(self, op: OpHandle, sizes: Sequence[Size]) -> Tiled:
        """One loop over all tiles, whose iterations are shared by the threads."""
        return self._tiled("tile_using_forall", op, sizes, 1, "")

    def interchange(self, op: OpHandle, order: Sequence[int]) -> OpHandle:
        """The loops of a `linalg.generic` in another order."""
        listed = ", ".join(map(str, order))
        step = f"transform.structured.interchange %{op.name} iterator_interchange = [{listed}]"
        return self._one(step, [op])

    def fuse(self, producer: OpHandle, into: OpHandle) -> Tiled:
        """Computes the producer inside the loop, as much of it as an iteration needs."""
        step = f"transform.structured.fuse_into_containing_op %{producer.name} into %{into.name}"
        op, loop = self._many(step, [producer, into], 2)
        return Tiled(op, (loop,))

    def pad(self, op: OpHandle, multiples: Sequence[int], operands: int = 3) -> OpHandle:
        """The operation on tiles padded with zeros to these multiples, so that their size is fixed.
        `operands` counts its inputs and outputs."""
        zeros = ", ".join(["0.0 : f32"] * operands)
        axes = ", ".join(map(str, range(len(multiples))))
        sizes = ", ".join(map(str, multiples))
        step = (
            f"transform.structured.pad %{op.name} pad_to_multiple_of [{sizes}] "
            f"{{padding_values = [{zeros}], padding_dimensions = [{axes}], "
            'copy_back_op = "linalg.copy"}'
        )
        return self._many(step, [op], 3)[0]

    def pack(self, op: OpHandle, sizes: Sequence[Size]) -> OpHandle:
        """The operation on operands that are copied into tiles; 0 leaves a dimension as it is."""
        first = ", ".join(str(_first(size)) for size in sizes)
        step = (
            f"transform.structured.pack %{op.name} packed_sizes = [{first}]"
            f"{_set('static_packed_sizes', sizes)}"
        )
        generic = '!transform.op<"linalg.generic">'
        name = self._new()
        self._line(f"%{name} = {step} : ({_OP}) -> {generic}")
        self._block(LOWER_PACKS)
        return self._one(f"transform.cast %{name}", [], f"{generic} to {_OP}")

    def unroll(self, loop: OpHandle, factor: Size) -> None:
        """So many iterations become one."""
        named = _set_one("factor", factor)
        self._line(
            f"transform.loop.unroll %{loop.name} {{factor = {_first(factor)}{named}}} : {_OP}"
        )

    def vectorize(self) -> None:
        """Everything whose size is fixed; what is added up stays in registers while it is."""
        func = self.match("func.func")
        self._one(
            f"transform.structured.vectorize_children_and_apply_patterns %{func.name}", [func]
        )
        self._block(HOIST)

    def bufferize(self) -> None:
        """Tensors become buffers. Operations are matched anew after it."""
        func = self.match("func.func")
        self._line(f"transform.apply_patterns to %{func.name} {{")
        self._line("  transform.apply_patterns.canonicalization")
        self._line(f"}} {{apply_cse}} : {_OP}")
        self._line(f"transform.bufferization.eliminate_empty_tensors %{func.name} : {_OP}")
        root = self._root
        self._root = self._one(
            f"transform.bufferization.one_shot_bufferize %{root.name} "
            "{bufferize_function_boundaries = true}",
            [root],
        )

    def lower(self) -> None:
        """Vectors become what the processor has."""
        self._block(LOWER)

    def choose(self, name: str, ways: Mapping[str, Callable[[], Made]]) -> tuple[OpHandle, ...]:
        """One of several ways, each a function that adds its steps and returns the handles to go on
        with: as many of them in each way, since what is returned here is whichever was taken."""
        outer, root, regions, counts = self._lines, self._root, [], {}
        for value, way in ways.items():
            self._lines, self._indent, self._root = [], self._indent + 1, root
            made = _handles(way())
            names = ", ".join(f"%{one.name}" for one in made)
            self._line(
                f"transform.yield {names} : {_types(len(made))}" if made else "transform.yield"
            )
            self._indent -= 1
            regions.append(self._lines)
            counts[value] = len(made)
        self._lines, self._root = outer, root
        if len({*counts.values()}) != 1:
            told = ", ".join(f"{value} {count}" for value, count in counts.items())
            raise UsageError(f"'{name}': every way has to return as many handles ({told})")
        return self._alternatives(name, [*ways], regions, next(iter(counts.values())))

    def _alternatives(
        self, name: str, values: Sequence[Value], regions: Sequence[Sequence[str]], count: int
    ) -> tuple[OpHandle, ...]:
        results = [OpHandle(self._new()) for _ in range(count)]
        given = ", ".join(f"%{one.name}" for one in results) + " = " if results else ""
        types = f" -> {_types(count)}" if results else ""
        listed = ", ".join(f'"{value}"' for value in values)
        head = (
            f'{given}transform.tune.alternatives<"{name}"> '
            f"attributes {{whet.names = [{listed}]}}{types} {{"
        )
        self._line(head)
        for at, lines in enumerate(regions):
            self._lines += lines
            self._line("}" if at + 1 == len(regions) else "}, {")
        return tuple(results)

    def _tiled(
        self, step: str, op: OpHandle, sizes: Sequence[Size], loops: int, more: str
    ) -> Tiled:
        written = ", ".join(
            f"%{one.name}" if isinstance(one, KnobHandle) else str(one) for one in sizes
        )
        numbers = sum(isinstance(one, KnobHandle) for one in sizes)
        names = [self._new() for _ in range(loops + 1)]
        inputs = ", ".join([_OP, *[_NUMBER] * numbers])
        self._line(
            f"{', '.join(f'%{one}' for one in names)} = transform.structured.{step} %{op.name} "
            f"tile_sizes [{written}]{more} : ({inputs}) -> ({_types(loops + 1)})"
        )
        return Tiled(OpHandle(names[0]), tuple(map(OpHandle, names[1:])))

    def _one(self, step: str, operands: Sequence[OpHandle], types: str = "") -> OpHandle:
        name = self._new()
        typed = types or f"({_types(len(operands))}) -> {_OP}"
        self._line(f"%{name} = {step} : {typed}")
        return OpHandle(name)

    def _many(self, step: str, operands: Sequence[OpHandle], count: int) -> list[OpHandle]:
        names = [self._new() for _ in range(count)]
        given = ", ".join(f"%{one}" for one in names)
        self._line(f"{given} = {step} : ({_types(len(operands))}) -> ({_types(count)})")
        return [OpHandle(one) for one in names]

    def _block(self, text: str) -> None:
        """Steps whose values are numbered anew, so that they can come twice."""
        self._count += 1
        for line in text.strip("\n").splitlines():
            self._line(line.replace("@", f"_{self._count}").replace("%root", f"%{self._root.name}"))

    def _line(self, text: str) -> None:
        self._lines.append("  " * self._indent + text)

    def _new(self) -> str:
        self._count += 1
        return f"v{self._count}"


def _types(count: int) -> str:
    return ", ".join([_OP] * count)


def _first(size: Size) -> int:
    return size.options[0] if isinstance(size, KnobHandle) else size


def _set(attribute: str, sizes: Sequence[Size]) -> str:
    if not any(isinstance(one, KnobHandle) for one in sizes):
        return ""
    listed = ", ".join(
        f'"{one.name}"' if isinstance(one, KnobHandle) else str(one) for one in sizes
    )
    return f" {{whet.set = {{{attribute} = [{listed}]}}}}"


def _set_one(attribute: str, size: Size) -> str:
    return f', whet.set = {{{attribute} = "{size.name}"}}' if isinstance(size, KnobHandle) else ""


def _handles(made: Made) -> tuple[OpHandle, ...]:
    if made is None:
        return ()
    if isinstance(made, Tiled):
        return (made.op,)
    return (made,) if isinstance(made, OpHandle) else tuple(made)


# Steps that end most scripts. `@` stands for what tells two copies of a block apart.
HOIST = f"""
%func@ = transform.structured.match ops{{["func.func"]}} in %root : ({_OP}) -> {_OP}
transform.apply_patterns to %func@ {{
  transform.apply_patterns.vector.cast_away_vector_leading_one_dim
  transform.apply_patterns.canonicalization
}} : {_OP}
%hoisted@ = transform.structured.hoist_redundant_vector_transfers %func@ : ({_OP}) -> {_OP}
%loops@ = transform.structured.match ops{{["scf.for"]}} in %root : ({_OP}) -> {_OP}
transform.apply_licm to %loops@ : {_OP}
transform.loop.hoist_loop_invariant_subsets %loops@ : {_OP}
%cleaned@ = transform.structured.match ops{{["func.func"]}} in %root : ({_OP}) -> {_OP}
transform.apply_patterns to %cleaned@ {{
  transform.apply_patterns.canonicalization
}} : {_OP}
"""

_LOWERINGS = (
    'lower_contraction lowering_strategy = "outerproduct"',
    "lower_outerproduct",
    "transfer_to_scf full_unroll = true",
    "lower_transfer max_transfer_rank = 1",
    "lower_shape_cast",
    'lower_transpose lowering_strategy = "shuffle_1d"',
)


def _patterns(name: str) -> str:
    return (
        "transform.apply_patterns to %all@ {\n"
        f"  transform.apply_patterns.vector.{name}\n"
        f"}} : {_OP}\n"
    )


LOWER = (
    f'%all@ = transform.structured.match ops{{["func.func"]}} in %root : ({_OP}) -> {_OP}\n'
    + "".join(map(_patterns, _LOWERINGS))
)


def _op(name: str) -> str:
    return f'!transform.op<"{name}">'


LOWER_PACKS = f"""
%packs@ = transform.structured.match ops{{["linalg.pack"]}} in %root : ({_OP})
  -> {_op("linalg.pack")}
%pads@, %splits@, %turns@ = transform.structured.lower_pack %packs@ : ({_op("linalg.pack")})
  -> ({_op("tensor.pad")}, {_op("tensor.expand_shape")}, {_op("linalg.transpose")})
%unpacks@ = transform.structured.match ops{{["linalg.unpack"]}} in %root : ({_OP})
  -> {_op("linalg.unpack")}
%e@, %t@, %c@, %s@, %o@ = transform.structured.lower_unpack %unpacks@ : ({_op("linalg.unpack")})
  -> ({_op("tensor.empty")}, {_op("linalg.transpose")}, {_op("tensor.collapse_shape")},
      {_op("tensor.extract_slice")}, {_op("linalg.copy")})
"""
