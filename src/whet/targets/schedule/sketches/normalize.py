"""Normalize: what does not matter goes, so that the other rules see the same of equal programs.

Named operations become `linalg.generic`, loops of extent 1 and the dimensions they walk are
dropped, and elementwise operations whose result has one reader are computed in its body. A product
must stay one of two arrays: where fusing would put more into its body, it is kept out. Softmax,
padding and packing become linalg operations. Each operation gets a `whet.name`, by which the rest
of the script finds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.core.errors import UsageError
from whet.targets.schedule.bindings import Bindings, located
from whet.targets.schedule.script import entry, operations, payload_module
from whet.targets.schedule.sketches.program import Kind, Operation, read_program
from whet.targets.schedule.sketches.writer import OP, Handle, SketchWriter

_LOWERED = {
    "linalg.pack": ("lower_pack", ("tensor.pad", "tensor.expand_shape", "linalg.transpose")),
    "linalg.unpack": (
        "lower_unpack",
        (
            "tensor.empty",
            "linalg.transpose",
            "tensor.collapse_shape",
            "tensor.extract_slice",
            "linalg.copy",
        ),
    ),
}


def normalize(writer: SketchWriter, mlir: Bindings, payload: str) -> tuple[Operation, ...]:
    """Writes the steps, and returns the operations that there are after them."""
    names = {one.name for one in operations(mlir, payload_module(mlir, payload))}
    first = SketchWriter()
    _general(first, names)
    before = _applied(mlir, payload, first.text)
    products = sum(one.heavy for one in before)
    for kept in ((), before):
        trial = SketchWriter()
        _general(trial, names)
        _fused(trial, kept)
        program = _applied(mlir, payload, trial.text)
        if sum(one.heavy for one in program) >= products:
            break
    _general(writer, names)
    _fused(writer, kept)
    _name(writer, program)
    return program


def _general(writer: SketchWriter, names: set[str]) -> None:
    for packed, (step, made) in _LOWERED.items():
        if packed in names:
            given = writer.cast(_all(writer, packed), f'!transform.op<"{packed}">')
            types = [f'!transform.op<"{one}">' for one in made]
            writer.step(f"transform.structured.{step} {{0}}", [given], types)
    if "linalg.softmax" in names:
        step = "transform.structured.decompose_interface {0}"
        writer.step(step, [_all(writer, "linalg.softmax")], [OP])
    if "tensor.pad" in names:
        writer.patterns("linalg.decompose_pad")
    writer.step("transform.structured.generalize {0}", [_linalg(writer)], [OP])
    _passes(writer, "canonicalize", "cse")


def _fused(writer: SketchWriter, kept: Sequence[Operation]) -> None:
    """Products among `kept` stand in a loop of their own meanwhile, which nothing is fused into and
    which is gone at the end."""
    if kept:
        for one, handle in zip(kept, _each(writer, len(kept)), strict=True):
            if one.heavy:
                loop = min({*range(len(one.extents))} - one.reduced)
                threads = [int(at == loop) for at in range(loop + 1)]
                step = f"transform.structured.tile_using_forall {{0}} num_threads {threads}"
                writer.step(step, [handle], [OP, OP])
        _passes(writer, "linalg-fold-unit-extent-dims", "linalg-fuse-elementwise-ops")
    else:
        _passes(
            writer,
            *("linalg-fold-unit-extent-dims", "canonicalize", "cse"),
            "linalg-fuse-elementwise-ops",
        )
    writer.clean()


def _passes(writer: SketchWriter, *names: str) -> None:
    function = writer.function()
    for name in names:
        step = f'transform.apply_registered_pass "{name}" to {{0}}'
        [function] = writer.step(step, [function], [OP])


def _each(writer: SketchWriter, count: int) -> list[Handle]:
    found = [_linalg(writer)]
    if count > 1:
        found = writer.step("transform.split_handle {0}", found, [OP] * count)
    return found


def _name(writer: SketchWriter, program: Sequence[Operation]) -> None:
    """Each operation by its number. Filling is a named operation again, which packing folds."""
    for handle, one in zip(_each(writer, len(program)), program, strict=True):
        if one.kind is Kind.FILL:
            [handle] = writer.step("transform.structured.specialize {0}", [handle], [OP])
        writer.name(handle, one.name)


def _linalg(writer: SketchWriter) -> Handle:
    text = "transform.structured.match interface{{LinalgOp}} in {0}"
    return writer.step(text, [writer.root], [OP])[0]


def _all(writer: SketchWriter, name: str) -> Handle:
    text = f'transform.structured.match ops{{{{["{name}"]}}}} in {{0}}'
    return writer.step(text, [writer.root], [OP])[0]


def _applied(mlir: Bindings, payload: str, text: str) -> tuple[Operation, ...]:
    module, script = payload_module(mlir, payload), mlir.ir.Module.parse(text)
    sequence = entry(script, "script")
    try:
        mlir.interpreter.apply_named_sequence(
            module.operation, sequence.operation, script.operation
        )
    except (ValueError, mlir.ir.MLIRError) as error:
        raise UsageError(located(error, "the payload")) from None
    return read_program(mlir, module)
