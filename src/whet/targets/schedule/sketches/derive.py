"""Applies the rules to a payload."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from whet.targets.schedule.bindings import Bindings, bindings
from whet.targets.schedule.frontend import KnobHandle
from whet.targets.schedule.payloads import Payload
from whet.targets.schedule.sketches.blocks import block_sizes, extents_in, tile_blocks
from whet.targets.schedule.sketches.elements import tile_elements
from whet.targets.schedule.sketches.groups import Group, groupings
from whet.targets.schedule.sketches.normalize import normalize
from whet.targets.schedule.sketches.packing import lower_unpack, pack, packings, unpack
from whet.targets.schedule.sketches.products import TI, TJ, Tile, own_zeros, roles, tile_product
from whet.targets.schedule.sketches.program import Kind, Operation
from whet.targets.schedule.sketches.rows import along, beside, tile_rows
from whet.targets.schedule.sketches.sizes import offered
from whet.targets.schedule.sketches.vectors import vectorize
from whet.targets.schedule.sketches.writer import OP, UNPACK, Handle, SketchWriter

_LANES = (64, 16, 32, 128, 8)
_FILLED = (16, 8, 4, 2, 1)
_MOST_SUMS = 1024  # numbers of a register tile: beyond, vectors spill and take long to compile


def sketch(payload: Payload) -> str:
    """The script."""
    mlir = bindings()
    with mlir.context(), mlir.ir.Location.unknown():
        return _Sketch(mlir, payload.text).text()


class _Sketch:
    def __init__(self, mlir: Bindings, text: str) -> None:
        self._writer = SketchWriter()
        self._program = normalize(self._writer, mlir, text)
        self._ways = groupings(self._program)
        self._tiles: dict[int, Tile] = {}
        self._packings: dict[int, list[str]] = {}
        self._lanes: dict[tuple[int, int], int | KnobHandle] = {}
        self._blocks: dict[str, dict[int, dict[int, int | KnobHandle]]] = {}
        self._products = [one for one in self._program if in_registers(one)]

    def text(self) -> str:
        sinks = {one.number: self._packed(one) for one in self._products}
        self._block(sinks)
        for group in next(iter(self._ways.values())):
            for one in group.members if group.loops else ():
                self._inner(one)
        vectorize(self._writer)
        return self._writer.text

    def _suffix(self, one: Operation) -> str:
        return "" if len(self._products) == 1 else f"_{one.number}"

    def _packed(self, one: Operation) -> Handle | None:
        """What is last of a product; nothing where that is the product itself."""
        writer, suffix, (i, j, _) = self._writer, self._suffix(one), roles(one)
        ti = 1 if i is None else writer.pick("ti" + suffix, offered(one.extents[i], TI))
        tj = 1 if j is None else writer.pick("tj" + suffix, offered(one.extents[j], TJ))
        self._packings[one.number] = ways = packings(one, list(self._ways.values()))
        if ways == ["none"]:
            self._tiles[one.number] = Tile(ti, tj, ti, tj)
            return None
        if len(ways) == 1:
            self._tiles[one.number] = Tile(ti, tj, ti, 1)
            return pack(writer, one, ways[0], ti, tj)

        def made(way: str) -> list[Handle]:
            if way == "none":
                last, si, sj = writer.named(one.name), ti, tj
            else:
                last = pack(writer, one, way, ti, tj)
                si, sj = (1 if way == "both" else ti), 1
            return [last, writer.constant(si), writer.constant(sj)]

        last, si, sj = writer.choice("pack" + suffix, {way: partial(made, way) for way in ways})
        self._tiles[one.number] = Tile(ti, tj, si, sj)
        return last

    def _block(self, sinks: Mapping[int, Handle | None]) -> None:
        writer = self._writer

        for group in next(iter(self._ways.values())):
            if not group.loops:
                self._inner(group.sink)

        def made(way: str) -> list[Handle]:
            self._blocks[way] = {}
            count = sum(bool(group.loops) for group in self._ways[way])
            for group in self._ways[way]:
                tail = f"_{group.sink.number}" if count > 1 else ""
                if len(self._ways) > 1:
                    tail += f"_{way}"
                sizes = block_sizes(writer, group, tail) if group.loops else {}
                self._blocks[way][group.sink.number] = sizes
                if any(sizes.values()):
                    self._tile_blocks(group, sinks.get(group.sink.number), sizes)
            writer.clean()
            for group in self._ways[way]:
                self._fill(group, self._blocks[way][group.sink.number])
            return []

        writer.choice("fuse", {way: partial(made, way) for way in self._ways})
        for way, blocks in self._blocks.items():
            for sizes in blocks.values():
                for knob in sizes.values():
                    if isinstance(knob, KnobHandle) and len(self._ways) > 1:
                        writer.require(f"fuse == '{way}' or {knob.name} == {knob.options[0]}")

    def _tile_blocks(
        self, group: Group, last: Handle | None, sizes: Mapping[int, int | KnobHandle]
    ) -> None:
        writer, sink = self._writer, group.sink

        def tiled(way: str) -> list[Handle]:
            op = writer.named(sink.name)
            if last is not None and way != "none":
                op = writer.cast(last, UNPACK)
            tile_blocks(writer, group, op, sizes)
            for one in group.members:
                if one in self._products and self._starts_from_zeros(one):
                    own_zeros(writer, one)
            return []

        ways = self._packings.get(sink.number, ["none"])
        writer.choice("pack" + self._suffix(sink), {way: partial(tiled, way) for way in ways})

    def _fits(self, one: Operation, loop: int, size: int | KnobHandle) -> None:
        """That the size divides what a block holds of the loop."""
        for way, groups in self._ways.items():
            group = next(each for each in groups if one in each.members)
            sizes = self._blocks.get(way, {}).get(group.sink.number, {})
            held = extents_in(group, one, sizes)[loop]
            if isinstance(held, int) and isinstance(size, int):
                continue
            left = held if isinstance(held, int) else held.name
            right = size if isinstance(size, int) else size.name
            if isinstance(size, KnobHandle) and isinstance(held, int):
                if all(held % option == 0 for option in size.options):
                    continue
            elif size == 1:
                continue
            other = f"fuse != '{way}' or " if len(self._ways) > 1 else ""
            self._writer.require(f"{other}{left} % {right} == 0")

    def _fill(self, group: Group, sizes: Mapping[int, int | KnobHandle]) -> None:
        """What its reductions start from; products are filled with their tiles."""
        filled = set()
        for one in group.members:
            held = 1 if one.inner is None else extents_in(group, one, sizes)[one.inner]
            options = [held] if isinstance(held, int) else held.options
            lanes = next(s for s in _FILLED if all(option % s == 0 for option in options))
            for at, zeros in enumerate(one.outputs):
                skipped = zeros.maker in filled or not zeros.shape or one in self._products
                if (
                    zeros.maker is None
                    or skipped
                    or self._program[zeros.maker].kind is not Kind.FILL
                ):
                    continue
                filled.add(zeros.maker)
                step = f"transform.get_producer_of_operand {{0}}[{len(one.inputs) + at}]"
                [found] = self._writer.step(step, [self._writer.named(one.name)], [OP])
                tiles = [*[1] * (len(zeros.shape) - 1), lanes]
                self._writer.tiled("structured.tile_using_for", found, tiles)

    def _inner(self, one: Operation) -> None:
        writer = self._writer
        if one.kind is Kind.FILL:
            return
        if one in self._products:
            i, j, _ = roles(one)
            tile, suffix = self._tiles[one.number], self._suffix(one)
            for loop, size in ((i, tile.ti), (j, tile.tj)):
                if loop is not None:
                    self._fits(one, loop, size)
            if any(isinstance(size, KnobHandle) for size in (tile.ti, tile.tj)):
                ti, tj = (s if isinstance(s, int) else s.name for s in (tile.ti, tile.tj))
                writer.require(f"{ti} * {tj} <= {_MOST_SUMS}")
            if (ways := self._packings[one.number]) != ["none"] and not self._reader(one):

                def unpacked(way: str) -> list[Handle]:
                    if way != "none":
                        unpack(writer, one, tile.ti, tile.tj)
                    return []

                writer.choice("pack" + suffix, {way: partial(unpacked, way) for way in ways})
            tile_product(writer, one, tile, suffix, self._starts_from_zeros(one))
            return
        if not tileable(one):
            return
        for each in self._products:
            if self._reader(each) is one:
                self._read(each, one)
                return
        self._by_lanes(one)

    def _by_lanes(self, one: Operation) -> None:
        writer = self._writer
        loop = along(one) if one.reduced else None
        loop = beside(one) if loop is None else loop
        lanes = 1 if loop is None else self._lanes_of(one, loop)
        if one.reduced:
            tile_rows(writer, one, lanes)
        else:
            tile_elements(writer, one, lanes)

    def _reader(self, product: Operation) -> Operation | None:
        """What reads a packed product tile by tile, inside the same blocks: it unpacks it."""
        ways = self._packings[product.number]
        if ways == ["none"] or product.windows or roles(product)[0] is None:
            return None
        for one in self._program:
            if product.number not in {each.maker for each in one.inputs}:
                continue
            inside = all(
                any(product in group.members and one in group.members for group in groups)
                for groups in self._ways.values()
            )
            rank = len(product.outputs[0].shape)
            whole = one.kind is Kind.ELEMENTWISE and len(one.extents) == rank
            return one if inside and whole else None
        return None

    def _read(self, product: Operation, one: Operation) -> None:
        writer, tile, (i, j, _) = self._writer, self._tiles[product.number], roles(product)
        at, read = next(
            (at, each) for at, each in enumerate(one.inputs) if each.maker == product.number
        )
        sizes: list[int | KnobHandle] = [1] * len(one.extents)
        for place in range(len(read.shape)):
            made, loop = product.outputs[0].plain(place), read.plain(place)
            if loop is not None and made in (i, j):
                sizes[loop] = tile.ti if made == i else tile.tj

        def tiled(way: str) -> list[Handle]:
            if way == "none":
                self._by_lanes(one)
            else:
                op, _ = writer.tiled("structured.fuse", writer.named(one.name), sizes)
                step = f"transform.get_producer_of_operand {{0}}[{at}]"
                [found] = writer.step(step, [op], [OP])
                lower_unpack(writer, found)
            return []

        ways = self._packings[product.number]
        if (loop := beside(one)) is not None:
            lanes = self._lanes_of(one, loop)  # a value that "none" uses stands before both
            group = next(each for each in next(iter(self._ways.values())) if one in each.members)
            if isinstance(lanes, KnobHandle) and len(group.members) == 2:
                pack = f"pack{self._suffix(product)}"
                writer.require(f"{pack} == 'none' or {lanes.name} == {lanes.options[0]}")
        writer.choice("pack" + self._suffix(product), {way: partial(tiled, way) for way in ways})

    def _starts_from_zeros(self, one: Operation) -> bool:
        maker = one.outputs[0].maker
        return maker is not None and self._program[maker].kind is Kind.FILL

    def _lanes_of(self, one: Operation, loop: int) -> int | KnobHandle:
        groups = next(iter(self._ways.values()))
        at = next(number for number, group in enumerate(groups) if one in group.members)
        key = (at, one.extents[loop])
        if key not in self._lanes:
            name = "lanes" if not self._lanes else f"lanes_{len(self._lanes)}"
            self._lanes[key] = self._writer.pick(name, offered(one.extents[loop], _LANES))
        lanes = self._lanes[key]
        self._fits(one, loop, lanes)
        return lanes


def in_registers(one: Operation) -> bool:
    """A product of which each number of a factor is read for several results."""
    if not one.heavy or not tileable(one):
        return False
    i, j, _ = roles(one)
    if j is None:
        return False
    return i is not None or bool(one.windows) or along(one) is None


def tileable(one: Operation) -> bool:
    """Whether every dimension that it reads or writes is understood."""
    return all(index is not None for each in one.operands for index in each.index)
