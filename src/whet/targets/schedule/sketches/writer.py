"""A `ScheduleBuilder` with the steps that only the rules of sketches need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from whet.targets.schedule.frontend import KnobHandle, OpHandle, ScheduleBuilder

OP = "!transform.any_op"
NUMBER = "!transform.param<i64>"
PACK, UNPACK = '!transform.op<"linalg.pack">', '!transform.op<"linalg.unpack">'
GENERIC = '!transform.op<"linalg.generic">'


@dataclass(frozen=True)
class Handle(OpHandle):
    """A value of the script with its type: operations, or a number."""

    type: str = OP


# A number that is known, that is tuned, or that a step has computed.
Number = int | KnobHandle | Handle


class SketchWriter(ScheduleBuilder):
    def require(self, constraint: str) -> None:
        if constraint not in self._constraints:
            self._constraints = (*self._constraints, constraint)

    @property
    def root(self) -> Handle:
        return Handle(self._root.name)

    def step(
        self, text: str, operands: Sequence[OpHandle | KnobHandle] = (), results: Sequence[str] = ()
    ) -> list[Handle]:
        """`text` with `{0}`, `{1}`, … for its operands; `results` are types."""
        made = [Handle(self._new(), kind) for kind in results]
        given = ", ".join(f"%{one.name}" for one in made)
        filled = text.format(*(f"%{one.name}" for one in operands))
        taken = ", ".join(map(_type, operands))
        if not results:
            typed = f" : {taken}" if operands else ""
            self._line(f"{filled}{typed}")
            return []
        listed = results[0] if len(results) == 1 else f"({', '.join(results)})"
        typed = f"({taken}) -> {listed}" if operands else f"-> {listed}"
        self._line(f"{given} = {filled}{' :' if operands else ''} {typed}")
        return made

    def cast(self, handle: OpHandle, kind: str) -> Handle:
        name = self._new()
        self._line(f"%{name} = transform.cast %{handle.name} : {OP} to {kind}")
        return Handle(name, kind)

    def function(self) -> Handle:
        return self.step(
            'transform.structured.match ops{{["func.func"]}} in {0}', [self.root], [OP]
        )[0]

    def patterns(self, *names: str, cse: bool = False, within: Handle | None = None) -> None:
        """Patterns on the whole function, or on a part of it, until none applies."""
        function = within or self.function()
        self._line(f"transform.apply_patterns to %{function.name} {{")
        for name in names:
            self._line(f"  transform.apply_patterns.{name}")
        self._line(f"}}{' {apply_cse}' if cse else ''} : {OP}")

    def clean(self) -> None:
        self.patterns("canonicalization", cse=True)

    def named(self, name: str) -> Handle:
        return Handle(self.match(name=name).name)

    def name(self, handle: OpHandle, name: str) -> None:
        """The `whet.name` of an operation, from here on."""
        [text] = self.step(f'transform.param.constant "{name}"', [], ["!transform.any_param"])
        self.step('transform.annotate {0} "whet.name" = {1}', [handle, text])

    def tiled(
        self,
        step: str,
        op: OpHandle,
        sizes: Sequence[Number],
        order: Sequence[int] = (),
    ) -> tuple[Handle, list[Handle]]:
        """The operation inside, and its loops; one loop where they are parallel."""
        count = sum(size != 0 for size in sizes)
        if "forall" in step:
            count = 1
        written = ", ".join(str(s) if isinstance(s, int) else f"%{s.name}" for s in sizes)
        given = [one for one in sizes if not isinstance(one, int)]
        equal = "" if "structured.fuse" in step else "= "
        turned = f" interchange {equal}[{', '.join(map(str, order))}]" if order else ""
        more = " {{use_forall}}" if step == "structured.fuse_forall" else ""
        name = step.removesuffix("_forall") if more else step
        text = f"transform.{name} {{0}} tile_sizes [{written}]{turned}{more}"
        inner, *loops = self.step(text, [op, *given], [OP] * (count + 1))
        return inner, loops

    def constant(self, number: Number) -> Handle:
        """As a value that an alternative can yield."""
        if isinstance(number, int):
            return self.step(f"transform.param.constant {number} : i64", [], [NUMBER])[0]
        return Handle(number.name, NUMBER)

    def pick(self, name: str, options: Sequence[int]) -> int | KnobHandle:
        """A knob, or the number where there is only one."""
        return self.knob(name, options) if len(options) > 1 else options[0]

    def choice(
        self, name: str, ways: Mapping[str, Callable[[], Sequence[Handle]]]
    ) -> tuple[Handle, ...]:
        """Like `choose`, for handles of any type; with one way it is that way."""
        if len(ways) == 1:
            return tuple(next(iter(ways.values()))())
        outer, regions, types = self._lines, [], []
        for way in ways.values():
            self._lines, self._indent = [], self._indent + 1
            made = way()
            types = [one.type for one in made]
            names = ", ".join(f"%{one.name}" for one in made)
            self._line(
                f"transform.yield {names} : {', '.join(types)}" if made else "transform.yield"
            )
            self._indent -= 1
            regions.append(self._lines)
        self._lines = outer
        results = [Handle(self._new(), kind) for kind in types]
        given = ", ".join(f"%{one.name}" for one in results) + " = " if results else ""
        arrow = f" -> {', '.join(types)}" if results else ""
        listed = ", ".join(f'"{value}"' for value in ways)
        self._line(
            f'{given}transform.tune.alternatives<"{name}"> '
            f"attributes {{whet.names = [{listed}]}}{arrow} {{"
        )
        for at, lines in enumerate(regions):
            self._lines += lines
            self._line("}" if at + 1 == len(regions) else "}, {")
        return tuple(results)


def _type(one: OpHandle | KnobHandle) -> str:
    return NUMBER if isinstance(one, KnobHandle) else getattr(one, "type", OP)
