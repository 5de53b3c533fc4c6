"""Applies a script to a payload and compiles what comes out. Runs in a pool worker."""

from __future__ import annotations

import hashlib
import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from whet.builds.job import Built
from whet.core.config import Config
from whet.core.errors import ConfigFailure, UsageError
from whet.core.frozen import FrozenMap
from whet.core.intermediate import FACT, keep_stages
from whet.core.status import Status
from whet.targets.native.compile import link_shared, run_compiler, shim
from whet.targets.schedule.analysis import insight
from whet.targets.schedule.bindings import Bindings, bindings, located, lowering
from whet.targets.schedule.script import (
    SetRule,
    apply_rules,
    bind,
    entry,
    operations,
    parsed,
    payload_module,
    place_in,
    prefix,
)
from whet.workers.stages import stage

_RUNTIME = Path(__file__).parent / "runtime.c"


@dataclass(frozen=True)
class ScheduleSource:
    """Everything a worker needs to build any config. `label` is the script's file."""

    payload: str
    script: str
    label: str
    shim: str
    compiler: str
    threads: int = 1
    rules: tuple[SetRule, ...] = ()


def compile_schedule(source: ScheduleSource, config: Config, keep: Path | None = None) -> Built:
    """A shared object of the scheduled payload. The machine code is made here rather than where it
    runs, so that a schedule that compiles for minutes is stopped like any other build. The program
    before and after the script goes to `keep`."""
    mlir, stages = bindings(), {}
    with mlir.context(), mlir.ir.Location.unknown():
        with stage("schedule"):
            payload = scheduled(mlir, source, config, Path())
            if why := excess(mlir, payload):
                place = _where_exceeded(mlir, source, config)
                raise ConfigFailure(Status.BUILD_ERROR, f"{place}: {why}")
        if keep is not None:
            stages = {
                "insight": insight(mlir, payload),
                "script": source.script,
                "payload": source.payload,
                "scheduled": str(payload),
            }
        with stage("lower"):
            _lower(mlir, payload, source.threads)
        with stage("compile"):
            _write_runtime(source)
            _compile(mlir, payload)
    undefined = ["-Wl,-z,defs"] if sys.platform == "linux" else []  # an error elsewhere anyway
    built = link_shared(source.compiler, source.shim, ["runtime.o", *undefined, "-pthread", "-lm"])
    if keep is None or not _kept(keep, config.id, stages):
        return built
    name = code_name(config.id, stages)
    return replace(built, facts=FrozenMap({**built.facts, FACT: name}))


def _kept(folder: Path, config_id: str, stages: Mapping[str, str]) -> bool:
    """A config is worth measuring whether or not its program can be kept."""
    try:
        keep_stages(folder, code_name(config_id, stages), stages)
    except OSError:
        return False
    return True


def code_name(config_id: str, stages: Mapping[str, str]) -> str:
    return hashlib.sha256("\0".join((config_id, *stages.values())).encode()).hexdigest()[:32]


def scheduled(
    mlir: Bindings,
    source: ScheduleSource,
    config: Config,
    folder: Path,
    cut: Callable[[Any], None] | None = None,
) -> Any:
    """The payload as the script leaves it, in the context of the caller. `cut` may shorten the
    sequence before it is applied; `folder` is where files may be left."""
    try:
        script = parsed(mlir, source.script, source.label)
        apply_rules(mlir, script, source.rules, source.label)
        sequence = entry(script, source.label)
        payload = _payload(mlir, source.payload, folder)
        bind(mlir, script, config)
        if cut is not None:
            cut(sequence)
        guard(mlir, script)
        mlir.interpreter.apply_named_sequence(
            payload.operation, sequence.operation, script.operation
        )
    except UsageError as error:
        raise ConfigFailure(Status.BUILD_ERROR, str(error)) from None
    except (ValueError, mlir.ir.MLIRError) as error:
        said = reason(located(error, source.label))
        raise ConfigFailure(Status.BUILD_ERROR, said) from None
    return payload


def _where_exceeded(mlir: Bindings, source: ScheduleSource, config: Config) -> str:
    """The step that makes it too large."""
    script = parsed(mlir, source.script, source.label)
    steps = list(entry(script, source.label).body.operations)[:-1]
    for number, step in enumerate(steps, start=1):
        if excess(mlir, scheduled(mlir, source, config, Path(), prefix(number))):
            return place_in(step, source.label)
    return source.label


def _payload(mlir: Bindings, text: str, folder: Path) -> Any:
    """From a file, so that MLIR's messages tell its places from those of the script."""
    path = folder / "payload.mlir"
    path.write_text(text)
    try:
        return payload_module(mlir, text, path)
    except mlir.ir.MLIRError as error:
        raise ConfigFailure(Status.BUILD_ERROR, f"the payload is not valid: {error}") from None


def _lower(mlir: Bindings, payload: Any, threads: int) -> None:
    if any(one.name.startswith("gpu.") for one in operations(mlir, payload)):
        raise ConfigFailure(
            Status.BUILD_ERROR,
            "the schedule maps loops to a GPU, which can be shown (whet schedule) but not run",
        )
    try:
        expand_functions(mlir, payload)
        pipeline = f"builtin.module({','.join(lowering(threads))})"
        mlir.pass_manager.parse(pipeline).run(payload.operation)
    except mlir.ir.MLIRError as error:
        said = str(error).partition("error: ")[2] or str(error)
        raise ConfigFailure(Status.BUILD_ERROR, f"cannot be lowered: {said}") from None


def _compile(mlir: Bindings, payload: Any) -> None:
    """Into `kernel.o`. What LLVM has no word for is found here, and named on stderr only."""
    libraries = [str(Path("runtime.so").absolute())]
    try:
        engine = mlir.execution_engine(payload, opt_level=3, shared_libs=libraries, enable_pic=True)
    except RuntimeError as error:
        left = _left_over(mlir, payload)
        raise ConfigFailure(Status.BUILD_ERROR, f"cannot be compiled: {left or error}") from None
    engine.dump_to_object_file("kernel.o")


def _left_over(mlir: Bindings, payload: Any) -> str:
    """The first operation of a dialect that is not LLVM's."""
    for operation in operations(mlir, payload):
        if operation.name.partition(".")[0] not in ("builtin", "llvm", "omp"):
            said = f"{operation.name} at {operation.location} was not lowered"
            if operation.name not in ("linalg.pack", "linalg.unpack"):
                return said
            return f"{said}; the script must, with transform.structured.lower_{operation.name[7:]}"
    return ""


def _write_runtime(source: ScheduleSource) -> None:
    """As an object to link, and as a library in which MLIR finds that nothing is missing."""
    for name, binary in _runtime(source.compiler, source.threads).items():
        Path(name).write_bytes(binary)


@cache
def _runtime(compiler: str, threads: int) -> dict[str, bytes]:
    """The same for every config, so each worker compiles it once."""
    flags = ["-O2", "-fPIC", "-pthread", f"-DWHET_THREADS={threads}"]
    run_compiler([compiler, *flags, "-c", str(_RUNTIME), "-o", "runtime.o"])
    run_compiler([compiler, *flags, "-shared", "runtime.o", "-o", "runtime.so"])
    return {name: Path(name).read_bytes() for name in ("runtime.o", "runtime.so")}


def schedule_shim(function: str, shapes: Mapping[str, Sequence[int]]) -> str:
    """C that calls the payload with plain pointers: a memref is passed as pointer, aligned pointer,
    offset, sizes and strides."""
    types, values = [], []
    for at, shape in enumerate(shapes.values()):
        strides = [1]
        for size in reversed(shape[1:]):
            strides.insert(0, strides[0] * size)
        numbers = [0, *shape, *strides[: len(shape)]]
        types += ["void *", "void *", *["int64_t"] * len(numbers)]
        values += [f"a{at}", f"a{at}", *map(str, numbers)]
    pointers = ["void *"] * len(shapes)
    named = ", ".join(f"void *a{at}" for at in range(len(shapes)))
    return (
        shim("whet_call", pointers)
        + f"extern void {function}({', '.join(types)});\n"
        + f"void whet_call({named})\n{{ {function}({', '.join(values)}); }}\n"
    )


_MATCH = "transform.structured.match"
_FORALL = "transform.structured.tile_using_forall"
_COPIES = tuple(
    f'!transform.op<"{name}">' for name in ("linalg.pack", "linalg.unpack", "tensor.pad")
)
_SIZES = ("static_num_threads", "static_tile_sizes")

_REASONS = {
    "expected a Linalg op": (
        "this is no linalg operation, so whether its loops may be parallel is not known; if it "
        'packs or pads, give its handle that type: !transform.op<"linalg.pack">'
    ),
    "expected parameter to be greater than or equal to 1, got 0": "the match finds no operation",
    "expects dimension #": (
        "parallel loops over a dimension that is a reduction would race; tile it with "
        "tile_using_for"
    ),
}


def guard(mlir: Bindings, module: Any) -> None:
    """Makes a script fail where a match finds nothing, since every later step would silently do
    nothing, and where a reduction is made parallel, of which the interpreter merely warns."""
    for operation in operations(mlir, module):
        if operation.name == _MATCH:
            _guard_match(mlir, operation)
        elif operation.name == _FORALL or "use_forall" in operation.attributes:
            _guard_parallel(mlir, operation)


def reason(said: str) -> str:
    """What MLIR said, in the words of the step where one of the guards has failed."""
    for words, plain in _REASONS.items():
        if words in said:
            return said[: said.index(words)] + plain
    return said


def _guard_match(mlir: Bindings, operation: Any) -> None:
    ir, transform = mlir.ir, mlir.transform
    number, one = ir.Type.parse("!transform.param<i64>"), ir.Attribute.parse("1 : i64")
    with ir.InsertionPoint.after(operation), operation.location:
        count = transform.NumAssociationsOp(number, operation.results[0])
        least = transform.ParamConstantOp(number, one)
        at_least = transform.MatchCmpIPredicate.ge
        transform.MatchParamCmpIOp(count.result, least.result, at_least)


def _guard_parallel(mlir: Bindings, operation: Any) -> None:
    """A size that the script computes counts as one that is not 0. What is known not to be a linalg
    operation (copies, for packing) has no reductions."""
    ir, target = mlir.ir, operation.operands[0]
    if str(target.type) in _COPIES:
        return
    lists = [list(operation.attributes[n]) for n in _SIZES if n in operation.attributes]
    axes = sorted({at for sizes in lists for at, size in enumerate(sizes) if size != 0})
    if not axes:
        return
    with ir.InsertionPoint(operation), operation.location:
        each = ir.Operation.create("transform.foreach", operands=[target], regions=1)
        block = each.regions[0].blocks.append(target.type)
        with ir.InsertionPoint(block):
            structured = ir.Operation.create(
                "transform.match.structured",
                operands=[block.arguments[0]],
                attributes={"failure_propagation_mode": ir.Attribute.parse("1 : i32")},
                regions=1,
            )
            ir.Operation.create("transform.yield")
        inner = structured.regions[0].blocks.append(target.type)
        with ir.InsertionPoint(inner):
            ir.Operation.create(
                "transform.match.structured.dim",
                operands=[inner.arguments[0]],
                attributes={
                    "raw_dim_list": ir.DenseI64ArrayAttr.get(axes),
                    "parallel": ir.UnitAttr.get(),
                },
            )
            ir.Operation.create("transform.match.structured.yield")


# Beyond this, compiling takes minutes.
MOST_OPERATIONS = 20_000
MOST_ELEMENTS = 4_096


def excess(mlir: Bindings, payload: Any) -> str:
    """What is too large, or nothing."""
    found = operations(mlir, payload)
    if len(found) > MOST_OPERATIONS:
        return (
            f"the program now has {len(found):,} operations, more than {MOST_OPERATIONS:,}; "
            "unroll less or take smaller tiles"
        )
    vectors = {one.type for operation in found for one in operation.results}
    for kind in vectors:
        if not isinstance(kind, mlir.ir.VectorType):
            continue
        if math.prod(kind.shape) > MOST_ELEMENTS:
            return (
                f"{kind} has more than {MOST_ELEMENTS:,} elements; tile before vectorizing, or "
                "take smaller tiles"
            )
    return ""


# exp(x) = 2^n p(r) with n = round(x / ln 2) and r = x - n ln 2, where ln 2 is the sum of two
# numbers of which the first has few digits. The polynomial is Cephes' (expf).
_LOWEST, _HIGHEST = -104.0, 89.0  # beyond them the result is 0 or infinite
_PER_LN2 = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_POLYNOMIAL = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)


# Quotients of polynomials in x², times x, for x up to a bound beyond which the result is 1.
_TANH = (
    7.90531110763549805,
    (
        -2.76076847742355e-16,
        2.00018790482477e-13,
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
    ),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
)
_ERF = (
    4.0,
    (
        -2.72614225801306e-10,
        2.77068142495902e-08,
        -2.10102402082508e-06,
        -5.69250639462346e-05,
        -7.34990630326855e-04,
        -2.95459980854025e-03,
        -1.60960333262415e-02,
    ),
    (
        -1.45660718464996e-05,
        -2.13374055278905e-04,
        -1.68282697438203e-03,
        -7.37332916720468e-03,
        -1.42647390514189e-02,
    ),
)


def expand_functions(mlir: Bindings, module: Any) -> None:
    """Writes `math.exp`, `math.tanh` and `math.erf` in arithmetic, in place, so that vectors of
    them stay vectors: the C library has them for one number at a time. Only those of float32;
    others are left to the library."""
    for operation in operations(mlir, module):
        if operation.name not in ("math.exp", "math.tanh", "math.erf"):
            continue
        value = operation.operands[0]
        kind = str(value.type)
        if kind != "f32" and not (kind.startswith("vector<") and kind.endswith("xf32>")):
            continue
        with mlir.ir.InsertionPoint(operation), operation.location:
            arithmetic = _Arithmetic(mlir, value.type)
            if operation.name == "math.exp":
                made = arithmetic.exp(value)
            else:
                made = arithmetic.odd(value, *(_TANH if operation.name == "math.tanh" else _ERF))
            operation.results[0].replace_all_uses_with(made)
        operation.erase()


class _Arithmetic:
    """Writes operations on values of one type."""

    def __init__(self, mlir: Bindings, kind: Any) -> None:
        self._ir, self._kind = mlir.ir, kind
        self._whole = mlir.ir.Type.parse(str(kind).replace("f32", "i32"))

    def exp(self, value: Any) -> Any:
        number = self._number
        inside = self._do("arith.maxnumf", value, number(_LOWEST))
        inside = self._do("arith.minnumf", inside, number(_HIGHEST))
        n = self._do("math.roundeven", self._do("arith.mulf", inside, number(_PER_LN2)))
        # From the value itself, so that a NaN stays one.
        bounded = self._do("arith.maximumf", value, number(_LOWEST))
        bounded = self._do("arith.minimumf", bounded, number(_HIGHEST))
        r = self._do("math.fma", n, number(-_LN2_HIGH), bounded)
        r = self._do("math.fma", n, number(-_LN2_LOW), r)
        p = self._polynomial(r, _POLYNOMIAL)
        p = self._do("math.fma", p, self._do("arith.mulf", r, r), r)
        p = self._do("arith.addf", p, number(1.0))
        whole = self._do("arith.fptosi", n, to=self._whole)
        # In two factors, each of them a normal number.
        half = self._do("arith.shrsi", whole, self._integer(1), to=self._whole)
        rest = self._do("arith.subi", whole, half, to=self._whole)
        return self._do(
            "arith.mulf", self._do("arith.mulf", p, self._two_to(half)), self._two_to(rest)
        )

    def odd(self, value: Any, most: float, over: Sequence[float], under: Sequence[float]) -> Any:
        """A quotient of polynomials; `maximumf` and `minimumf` let a NaN through."""
        x = self._do("arith.maximumf", value, self._number(-most))
        x = self._do("arith.minimumf", x, self._number(most))
        square = self._do("arith.mulf", x, x)
        above, below = (self._polynomial(square, one) for one in (over, under))
        return self._do("arith.divf", self._do("arith.mulf", x, above), below)

    def _polynomial(self, x: Any, coefficients: Sequence[float]) -> Any:
        """By Horner's rule, from the highest power."""
        found = self._number(coefficients[0])
        for coefficient in coefficients[1:]:
            found = self._do("math.fma", found, x, self._number(coefficient))
        return found

    def _two_to(self, exponent: Any) -> Any:
        biased = self._do("arith.addi", exponent, self._integer(127), to=self._whole)
        bits = self._do("arith.shli", biased, self._integer(23), to=self._whole)
        return self._do("arith.bitcast", bits)

    def _do(self, name: str, *operands: Any, to: Any = None) -> Any:
        results = [self._kind if to is None else to]
        return self._ir.Operation.create(name, results=results, operands=list(operands)).result

    def _number(self, value: float) -> Any:
        rounded = struct.unpack("f", struct.pack("f", value))[0]
        return self._constant(f"{rounded!r}", self._kind)

    def _integer(self, value: int) -> Any:
        return self._constant(str(value), self._whole)

    def _constant(self, text: str, kind: Any) -> Any:
        text = text if str(kind)[0] in "fi" else f"dense<{text}>"
        value = self._ir.Attribute.parse(f"{text} : {kind}")
        created = self._ir.Operation.create(
            "arith.constant", results=[kind], attributes={"value": value}
        )
        return created.result
