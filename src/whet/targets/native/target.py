"""`whet.native`: a C function whose macros and compiler flags are tuned."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whet.builds.job import Job
from whet.core.config import Config, Value
from whet.core.errors import UsageError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.mode import Mode, checked_mode
from whet.core.space import Space
from whet.core.workload import Origin, Workload
from whet.engine.target import BenchLimits
from whet.measure.bench.bits import BIT_CHECKS, BitCheck, checked_key
from whet.measure.bench.protocol import Bench
from whet.measure.bench.remote import RemoteBench
from whet.measure.timers import CpuTimer, MakeTimer, timer_maker
from whet.targets.base import HostTarget, asked, host_device, space_from
from whet.targets.fingerprint import Source, digest, of_c_source, same_value, shown
from whet.targets.key import key_of
from whet.targets.native.arguments import c_type, check_names, checked
from whet.targets.native.compile import (
    CSource,
    compile_shared,
    compiler_version,
    shim,
)
from whet.targets.native.loader import NativeLoader

_NUMBER = r"[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[uUlLfF]*"
_DEFINE = re.compile(rf"^([ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+)({_NUMBER})[ \t]*$", re.MULTILINE)
_OPTION = re.compile(r"-D(\w+)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class NativeSource:
    """`#define M 512` in the text and `-DM=512` among the options are values from outside where a
    Python function made them; the key may claim them as it may claim what a function captures."""

    text: str
    folder: Path | None
    include: tuple[str, ...]
    function: str
    options: tuple[str, ...]
    libraries: tuple[str, ...]

    def source(self, claims: Mapping[str, Any]) -> Source:
        captured: dict[str, str] = {}

        def is_claimed(name: str, value: Any) -> bool:
            if name in claims and same_value(value, claims[name]):
                return True
            captured[name] = shown(value)
            return False

        def left(found: re.Match[str]) -> str:
            return found[1] if is_claimed(found[2], _literal(found[3])) else found[0]

        text = _DEFINE.sub(left, self.text)
        options = [one for one in self.options if not _is(one, is_claimed)]
        code = _DEFINE.sub(lambda found: found[1], self.text)
        bare = [one for one in self.options if _OPTION.fullmatch(one) is None]
        origin = Origin(self._digest(code, bare), FrozenMap(captured))
        return Source(self._digest(text, options), origin)

    def _digest(self, text: str, options: Sequence[str]) -> str:
        whole = of_c_source(text, self.folder, self.include)
        return digest(whole, self.function, *options, *self.libraries)


def _is(option: str, is_claimed: Any) -> bool:
    found = _OPTION.fullmatch(option)
    return found is not None and bool(is_claimed(found[1], _literal(found[2])))


def _literal(literal: str) -> Any:
    """`0x40u` is 64, `1.5f` is 1.5; anything else is text, and so is an octal number."""
    if re.fullmatch(_NUMBER, literal) is None or re.match(r"[-+]?0\d", literal):
        return literal
    bare = literal.rstrip("uUlL")
    try:
        return int(bare, 0)
    except ValueError:
        return float(bare.rstrip("fF"))


class SharedObjectTarget(HostTarget):
    """Built in pool workers, loaded and run in a process of its own. A base of frozen dataclasses,
    which have these as fields or properties."""

    compiler: str

    build_mode = "spawn"

    if TYPE_CHECKING:  # a dataclass would take them for the defaults of its fields

        @property
        def args(self) -> Mapping[str, Any]: ...

        @property
        def rtol(self) -> float: ...

        @property
        def atol(self) -> float: ...

        @property
        def expected(self) -> dict[str, Any] | None:
            """What the outputs must hold, by name; None where the author gave no reference."""

    @property
    def compared_bits(self) -> tuple[str, ...] | None:
        """The arrays whose bits are to be known; None where nobody asks for them."""
        return None

    def compiler_version(self) -> str:
        version = compiler_version(self.compiler)
        if version is None:
            raise UsageError(
                f"C compiler '{self.compiler}' not found; install one or pass compiler="
            )
        return version

    def bench(self, limits: BenchLimits) -> Bench:
        loader = NativeLoader(self.args, self.expected, self.rtol, self.atol, self.compared_bits)
        return RemoteBench(
            _Constant(loader),
            self.make_timer,
            mode="spawn",
            memory_bytes=limits.memory_bytes,
            open_session=limits.open_session,
        )

    def twin(self, config: Config, facts: Mapping[str, Value]) -> Hashable | None:
        return facts.get("sha256")

    def call_arguments(self) -> Mapping[str, Any]:
        return self.args


@dataclass(frozen=True)
class _Constant:
    """A factory that can be sent to another process: `_Constant(x)()` is x."""

    value: NativeLoader

    def __call__(self) -> NativeLoader:
        return self.value


Arguments = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class NativeTarget(SharedObjectTarget):
    """Built by the compiler in pool workers, loaded and run in a process of its own."""

    name: str
    space: Space
    text: str
    folder: str | None
    function: str
    arguments: Arguments
    outputs: tuple[str, ...]
    flags: tuple[str, ...]
    compiler: str
    options: tuple[str, ...]
    include: tuple[str, ...]
    libraries: tuple[str, ...]
    given_key: Mapping[str, Any] | None
    reference: Any
    rtol: float
    atol: float
    mode: Mode | None = None
    lock: str | None = None
    bit_check: BitCheck | None = None
    file: str = ""
    place: str = ""
    make_timer: MakeTimer = CpuTimer

    @property
    def source_text(self) -> str:
        return self.text

    @cached_property
    def args(self) -> dict[str, Any]:
        made: Any = self.arguments
        if callable(made):
            made = asked(f"args= of {self.name}", made)
        if not isinstance(made, Mapping):
            raise UsageError(
                f"args= of {self.name} is a {type(made).__name__}; give a dict from the names of "
                "the C function's parameters to values"
            )
        declared = check_names(self.text, self.function, list(made))
        args = checked(made, self.function, declared)
        for output in self.outputs:
            if not isinstance(args.get(output), np.ndarray):
                arrays = [name for name, value in args.items() if isinstance(value, np.ndarray)]
                raise UsageError(
                    f"output '{output}' is not an array argument{did_you_mean(output, arrays)}"
                )
        return args

    @cached_property
    def expected(self) -> dict[str, Any] | None:
        """What the outputs must hold, by name; None where the author gave no reference."""
        if self.reference is None:
            return None
        answer = self.reference
        if callable(answer):
            copies = {
                name: value.copy() if isinstance(value, np.ndarray) else value
                for name, value in self.args.items()
            }
            answer = asked(f"reference= of {self.name}", lambda: self.reference(**copies))
        if isinstance(answer, Mapping):
            for output in answer:
                if output not in self.outputs:
                    raise UsageError(
                        f"reference= of {self.name} has '{output}', which is no output"
                        f"{did_you_mean(output, self.outputs)}"
                    )
            return dict(answer)
        values = answer if isinstance(answer, tuple | list) else (answer,)
        if len(values) != len(self.outputs):
            raise UsageError(
                f"the reference of {self.name} returns {len(values)} values for "
                f"{len(self.outputs)} outputs; name the outputs in the same order"
            )
        return dict(zip(self.outputs, values, strict=True))

    def workload(self) -> Workload:
        version = self.compiler_version()
        folder = Path(self.folder) if self.folder else None
        source = NativeSource(
            self.text, folder, self.include, self.function, self.options, self.libraries
        ).source(self.claims)
        return Workload(
            kernel=self.name,
            fingerprint=source.fingerprint,
            device=host_device(),
            key=FrozenMap({**key_of(self.given_key, self.args), **checked_key(self.bit_check)}),
            toolchain=FrozenMap({self.compiler: version}),
            origin=source.origin,
        )

    @property
    def compared_bits(self) -> tuple[str, ...] | None:
        if self.bit_check is None:
            return None
        arrays = [name for name, value in self.args.items() if isinstance(value, np.ndarray)]
        return self.outputs or tuple(arrays)

    @property
    def claims(self) -> Mapping[str, Any]:
        return {} if self.given_key is None else key_of(self.given_key)

    def job(self, config: Config) -> Job | None:
        return Job(compile_shared, (self._source, self.compiler_arguments(config)))

    def compiler_arguments(self, config: Config) -> tuple[str, ...]:
        """`BM=64 opt=-O2` becomes `-O3 -march=native -DBM=64 -O2`: flags last, so that they win."""
        macros = [f"-D{n}={_macro(v)}" for n, v in config.items() if n not in self.flags]
        flags = [word for name in self.flags for word in shlex.split(str(config[name]))]
        return (*self.options, *macros, *flags)

    @cached_property
    def _source(self) -> CSource:
        signature = [c_type(name, value) for name, value in self.args.items()]
        return CSource(
            text=self.text,
            shim=shim(self.function, signature),
            folder=self.folder,
            include=self.include,
            libraries=self.libraries,
            compiler=self.compiler,
        )


def native(
    source: str | Path,
    space: Space | Mapping[str, Sequence[Any]] | Iterable[Mapping[str, Any]],
    *,
    function: str,
    args: Arguments,
    outputs: Sequence[str] = (),
    constraints: Sequence[Any] = (),
    flags: Sequence[str] = (),
    compiler: str = "cc",
    options: Sequence[str] = ("-O3", "-march=native"),
    include: Sequence[str | Path] = (),
    libraries: Sequence[str] = ("m",),
    name: str | None = None,
    key: Mapping[str, Any] | None = None,
    reference: Any = None,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    mode: Mode | None = None,
    timer: str | MakeTimer = CpuTimer,
    lock: str | Path | None = None,
    check: BitCheck | None = None,
) -> NativeTarget:
    """Makes a C function tunable.

    `source` is a C file, relative to the calling file, or C code. Every parameter becomes a macro
    (`-DBM=64`), except those named in `flags`, whose values are passed to the compiler as they are.
    `args` are the arguments of the function in order, named as in the C source, or a function that
    creates them: arrays are passed as pointers, and numbers as the type that the C function takes
    (where the source does not show it, a Python int as `int`, a float as `double`, and NumPy
    scalars as their own type). The arrays named in `outputs` are compared with `reference`,
    which is values or a function of the arguments that returns them. `key` names the problem; an
    entry with the name and value of a `#define` or `-D` option makes that part of the key instead
    of the source. `mode` overrides the context and the settings. `timer` is the name of a timer of
    an installed package, or a timer class that another process can import. `lock` is a lock file,
    from which alone the modes `cached` and `require` then choose. With `check="bitwise"` only
    configs can win whose outputs (all arrays, where none are named) are bit for bit those of the
    first config, with `check="deterministic"` only those that repeat their own.
    """
    file = sys._getframe(1).f_code.co_filename
    caller = Path(file).parent
    text, folder = _read(source, caller)
    whole = space_from(space, constraints)
    for flag in flags:
        if flag not in whole.names:
            raise UsageError(
                f"flags names '{flag}', which is not a parameter{did_you_mean(flag, whole.names)}"
            )
    if check not in (None, *BIT_CHECKS):
        raise UsageError(f'check is {check!r}; give "bitwise" or "deterministic"')
    if reference is not None and not outputs:
        raise UsageError("a reference needs outputs=, the names of the arrays to compare")
    if not callable(args):
        args = checked(args, function, check_names(text, _identifier(function), list(args)))
    return NativeTarget(
        name=name or function,
        space=whole,
        text=text,
        folder=folder,
        function=_identifier(function),
        arguments=args,
        outputs=tuple(outputs),
        flags=tuple(flags),
        compiler=compiler,
        options=tuple(options),
        include=tuple(str((caller / path).resolve()) for path in include),
        libraries=tuple(libraries),
        given_key=key,
        reference=reference,
        rtol=rtol,
        atol=atol,
        mode=None if mode is None else checked_mode(mode),
        lock=None if lock is None else str(lock),
        bit_check=check,
        file=file,
        make_timer=timer_maker(timer),
    )


def _read(source: str | Path, caller: Path) -> tuple[str, str | None]:
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return inspect.cleandoc(source) + "\n", None
    path = caller / source
    if not path.is_file():
        near = [p.name for p in path.parent.glob("*.c")] if path.parent.is_dir() else []
        raise UsageError(f"no such C file: {path}{did_you_mean(path.name, near)}")
    return path.read_text(), str(path.parent.resolve())


def _identifier(function: str) -> str:
    if not function.isidentifier():
        raise UsageError(f"'{function}' is not a valid C function name")
    return function


def _macro(value: Value) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple):
        return ",".join(_macro(item) for item in value)
    return "" if value is None else str(value)
