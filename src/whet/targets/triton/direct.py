"""Launches a kernel past Triton's binder, cache and launcher, where that is the same launch.

For one kind of call a function is written from the kernel's signature. It holds the arguments, and
whatever else Triton looks at, against what they were when Triton made this launch itself; then it
calls the C launcher with addresses for tensors. Where anything differs it returns None, and the
call goes Triton's way:

    def launch(_grid, _args, _kwargs):
        if len(_args) != 3 or _kwargs:
            return None
        x, y, n = _args
        if not (
            type(n) is int
            and n % 16 == 0
            …
"""

from __future__ import annotations

import ast
import enum
import inspect
import math
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from keyword import iskeyword
from types import CodeType, FunctionType
from typing import Any

import triton
from triton import knobs
from triton.compiler.compiler import CompiledKernel
from triton.runtime import jit as tritons
from triton.runtime.autotuner import Heuristics
from triton.runtime.driver import driver

from whet.core.buckets import Buckets

Launch = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]


class NotDirect(Exception):
    """Why calls of a kind go Triton's way, in words for people."""


@dataclass(frozen=True)
class Route:
    """What stands between a caller and a compiled kernel. A kernel without a tuner has no config.

    `keywords` are those of the config, and `keys` the parameters by which it was chosen.
    """

    fn: Any
    tuner: Any = None
    config: Any = None
    keywords: Mapping[str, Any] = field(default_factory=dict)
    keys: Sequence[str] = ()
    buckets: Buckets = field(default_factory=Buckets)


@dataclass(frozen=True)
class DirectCall:
    """`launch(grid, args, kwargs)` is the compiled kernel, launched; None if it is not for this."""

    launch: Launch
    text: str


def direct_call(
    route: Route, kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> DirectCall:
    """For calls like this one, which has just been made Triton's way and launched `kernel`.

    Raises `NotDirect` where no function can tell such calls from all others.
    """
    writer = _Writer(route, kernel, grid, args, kwargs)
    text = writer.written()
    return DirectCall(FunctionType(_compiled(text), writer.held), text)


@cache
def _compiled(text: str) -> CodeType:
    """Kinds that differ in what is held share their code."""
    module = compile(text, "<whet: direct launch>", "exec")
    return next(code for code in module.co_consts if isinstance(code, CodeType))


# Those in whose sources the conditions below were looked up.
_VERSIONS = ("3.6", "3.7", "3.8", "3.9")

# What `JITFunction.run` gives to the launcher, in a direct launch. Hooks are known to have nothing
# to call then, and without them nobody looks at the launch's metadata.
_GIVEN = ("_x", "_y", "_z", "_stream", "_function", "_metadata", "None", "None", "None")
_RUN = (
    "kernel.run(grid_0, grid_1, grid_2, stream, kernel.function, kernel.packed_metadata, "
    "launch_metadata, knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook, "
    "*bound_args.values())"
)
_OF_LAUNCHER = (
    "self.launch_cooperative_grid",
    "self.launch_pdl",
    "self.arg_annotations",
    "self.kernel_signature",
)
# Local names of the function, which nothing that is held may have.
_LOCAL = (
    "_grid",
    "_args",
    "_kwargs",
    "_sizes",
    "_x",
    "_y",
    "_z",
    "_stream",
    "_named",
    "_given",
    "_name",
    "_of",
)
_RUN_HERE = vars(tritons.JITFunction)["run"]


@cache
def _order(kind: type) -> tuple[str, ...]:
    """How launchers of this class call the C function: for each argument its name in `_GIVEN`, the
    name of an attribute after `self.`, `*` for the kernel's arguments or `(*)` for their tuple."""
    if ".".join(triton.__version__.split(".")[:2]) not in _VERSIONS:
        raise NotDirect(f"how Triton {triton.__version__} launches is not known")
    if _call_in(_RUN_HERE, "kernel.run") != _RUN or not _is_tritons(_RUN_HERE):
        raise NotDirect("JITFunction.run is not as Triton wrote it")
    named = [*inspect.signature(kind.__call__).parameters.values()][1:]
    places = [one.name for one in named if one.kind is one.POSITIONAL_OR_KEYWORD]
    known = dict(zip(places, _GIVEN, strict=False))
    known |= {"global_scratch": "None", "profile_scratch": "None"}
    rest = "*" if len(places) == len(_GIVEN) else ""
    order: list[str] = []
    call = ast.parse(_call_in(kind.__call__, "self.launch"), mode="eval").body
    assert isinstance(call, ast.Call)
    for one in call.args:
        word = ast.unparse(one)
        if word in known:
            order.append(known[word])
        elif word in _OF_LAUNCHER:
            order.append(word)
        elif word == "*args":
            order += [*_GIVEN[len(places) :], "*"]
        elif word in ("args", "kernel_args") and rest:
            order.append("(*)")
        else:
            raise NotDirect(f"the launcher hands over '{word}', which is not known")
    return tuple(order)


def _is_tritons(function: Any) -> bool:
    return bool(function.__code__.co_filename == tritons.__file__)


def _call_in(function: Any, name: str) -> str:
    """The one call of `name` in the source of a function, in one line."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError) as error:
        raise NotDirect("the source of the launcher cannot be read") from error
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    found = [one for one in calls if ast.unparse(one.func) == name]
    if len(found) != 1 or found[0].keywords:
        raise NotDirect(f"the launcher does not call {name} once, as those that are known do")
    return ast.unparse(found[0])


@dataclass(frozen=True)
class _Argument:
    """`text` stands for the value in the function that is written, and `launched` for what the C
    launcher gets. `given` by a caller, it may be another value next time; a tensor that is given
    twice is the `same_as` the first."""

    name: str
    value: Any
    text: str
    launched: str
    given: bool
    same_as: str = ""


class _Writer:
    """Writes one function. `held` are the objects it names: all such names start with `_`."""

    def __init__(
        self,
        route: Route,
        kernel: Any,
        grid: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self.route = route
        self.kernel = kernel
        self.args = args
        self.kwargs = kwargs
        self.heuristics, self.jit = _chain(route.fn)
        self.computed = _computed(self.heuristics, grid, args, {**kwargs, **route.keywords})
        self.held: dict[str, Any] = {}
        self.lines = ["def launch(_grid, _args, _kwargs):"]
        self.otherwise = "None"
        self.names = _local_names([*self.jit.arg_names, *kwargs])
        self._find_launcher()

    def _find_launcher(self) -> None:
        if type(self.kernel) is not CompiledKernel:
            raise NotDirect("the kernel is not one that Triton compiled")
        self.active = driver.active
        self.device = self.active.get_current_device()
        self.entry = self.jit.device_caches.get(self.device)
        kernels = self.entry[0] if self.entry else {}
        keys = [key for key, kernel in kernels.items() if kernel is self.kernel]
        if not keys:
            raise NotDirect("its kernel is not in Triton's cache")
        self.key = keys[0]
        if self.entry[2].backend != "cuda":
            raise NotDirect(f"only launches for CUDA are known, not for {self.entry[2].backend}")
        self.launcher = self.kernel.run
        kind: Any = type(self.launcher)
        self.order = _order(kind)
        sizes = [getattr(self.launcher, f"{name}_scratch_size") for name in ("global", "profile")]
        if any(sizes) or getattr(self.launcher, "gsan_enabled", False):
            raise NotDirect("it needs memory of its own for every launch")

    def hold(self, name: str, value: Any) -> str:
        """A name for this object; one object has one name, and none has another's."""
        word = f"_{name.strip('_')}"
        while word in _LOCAL or self.held.get(word, value) is not value:
            word += "_"
        self.held[word] = value
        return word

    def unless(self, conditions: Sequence[str]) -> None:
        """Leaves where one of these does not hold."""
        first, *others = conditions
        each = [f"        {first}", *(f"        and {one}" for one in others)]
        self.lines += ["    if not (", *each, "    ):", f"        return {self.otherwise}"]

    def written(self) -> str:
        arguments = self._arguments()
        self._unpack()
        tensors = [one for one in arguments if one.launched != one.text and not one.same_as]
        if conditions := self._of_arguments(arguments):
            self.unless(conditions)
        self.unless(self._of_surroundings())
        self._read(tensors)
        if self.route.config is not None:
            self._prepare(tensors)
        self._compute()
        self._enter_grid(arguments, tensors)
        self._launch(arguments)
        return "\n".join(self.lines) + "\n"

    # What the caller gave.

    def _arguments(self) -> list[_Argument]:
        """The kernel's own, in order, by way of Triton's binder."""
        every = {**self.kwargs, **self.route.keywords, **self.computed}
        bound, specialized, _ = self.entry[4](*self.args, **every)
        self.specialized = dict(zip(bound, specialized, strict=True))
        given = {*self.jit.arg_names[: len(self.args)], *self.kwargs} - self.computed.keys()
        torch = sys.modules.get("torch")
        found: list[_Argument] = []
        for name, value in bound.items():
            known = name in given or name in self.computed
            text = self.names[name] if known else self.hold(name, value)
            is_tensor = torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)
            if is_tensor and name not in given:
                raise NotDirect(f"'{name}' is a tensor that no caller gives")
            twice = [one for one in found if is_tensor and self._is_again(one, name, value)]
            launched = self._address(text) if is_tensor else text
            same_as = twice[0].text if twice else ""
            launched = twice[0].launched if twice else launched
            found.append(_Argument(name, value, text, launched, name in given, same_as))
        return found

    def _is_again(self, one: _Argument, name: str, value: Any) -> bool:
        params = {one.name: one.do_not_specialize_on_alignment for one in self.jit.params}
        return one.value is value and params[one.name] == params[name]

    def _address(self, text: str) -> str:
        word = f"{text}_at"
        while word in self.names.values():
            word += "_"
        return word

    def _unpack(self) -> None:
        count, names = len(self.args), self.jit.arg_names
        keywords = f"len(_kwargs) == {len(self.kwargs)}" if self.kwargs else "not _kwargs"
        self.unless([f"len(_args) == {count}", keywords])
        if count > len(names):
            raise NotDirect("it gets more arguments than it names")
        if count:
            places = ", ".join(self.names[name] for name in names[:count])
            self.lines.append(f"    {places}{',' * (count == 1)} = _args")
        if self.kwargs:
            self.lines.append("    try:")
            self.lines += [f"        {self.names[n]} = _kwargs[{n!r}]" for n in self.kwargs]
            self.lines += ["    except KeyError:", "        return None"]

    def _of_arguments(self, arguments: Sequence[_Argument]) -> list[str]:
        """What tells values apart comes before what all calls of a program share."""
        own = {one.name for one in arguments}
        conditions = [
            word
            for name, value in self.kwargs.items()
            if name not in own and name not in self.computed
            for word in self.same(self.names[name], name, value)  # an option, such as num_warps
        ]
        given = [one for one in arguments if one.given]
        for one in sorted(given, key=lambda one: one.launched != one.text):
            conditions += self._of(one)
        for one in arguments:
            if not one.given and one.name not in self.computed:
                conditions += [w for w in self.same(one.text, one.name, one.value) if ".hash" in w]
        return conditions

    def _of(self, one: _Argument) -> list[str]:
        kind, trait = self.specialized[one.name]
        in_key = one.name in self.route.keys
        if one.launched != one.text:
            if in_key:
                raise NotDirect(f"'{one.name}' is a tensor in the key")
            return [f"{one.text} is {one.same_as}"] if one.same_as else self._of_tensor(one)
        if in_key and one.name in self.route.buckets.by_name:
            return [*self._of_number(one, kind, trait), self._in_bucket(one)]
        if in_key or kind == "constexpr":
            return self.same(one.text, one.name, one.value)
        return self._of_number(one, kind, trait)

    def _in_bucket(self, one: _Argument) -> str:
        """Asking for a number's bucket takes longer than all else that is asked of it."""
        buckets, bounds = self.route.buckets, self.route.buckets.bounds(one.name, one.value)
        if bounds is not None:
            return f"{bounds[0]!r} < {one.text} <= {bounds[1]!r}"
        bucket = self.hold("bucket", buckets.value)
        at = self.hold(f"{one.name}_bucket", buckets.value(one.name, one.value))
        return f"{bucket}({one.name!r}, {one.text}) == {at}"

    def _of_tensor(self, one: _Argument) -> list[str]:
        text, value = one.text, one.value
        if value.get_device() != self.device:
            raise NotDirect(f"'{one.name}' is not on the device of the launch")
        return [
            f"type({text}) is {self.hold(type(value).__name__, type(value))}",
            f"{text}.dtype is {self.hold(str(value.dtype).rpartition('.')[2], value.dtype)}",
            f"{text}.get_device() == {self.device}",
        ]

    def _of_number(self, one: _Argument, kind: Any, trait: Any) -> list[str]:
        """By kind, as Triton specializes numbers: any other of its kind runs the same program."""
        text, value = one.text, one.value
        if type(value) in (bool, float):
            if trait is not None:
                raise NotDirect(f"'{one.name}' is specialized in a way that is not known")
            return [f"type({text}) is {type(value).__name__}"]
        if type(value) is not int:
            return self.same(text, one.name, value)
        param = self.jit.params[self.jit.arg_names.index(one.name)]
        conditions = [f"type({text}) is int"]
        if not param.annotation_type:
            low, high = _range(value)
            if kind != ("i32" if high < 2**31 else "i64"):
                raise NotDirect(f"'{one.name}' is a {kind}")
            conditions.append(f"{low} <= {text} <= {high}")
        expected: int | str | None = None
        if param.do_not_specialize:
            pass
        elif value == 1:
            expected = 1
            conditions.append(f"{text} == 1")
        elif param.do_not_specialize_on_alignment:
            expected = ""
            conditions.append(f"{text} != 1")
        else:
            expected = "" if value % 16 else "D"
            conditions.append(f"{text} % 16 and {text} != 1" if value % 16 else f"not {text} % 16")
        if trait != expected and (trait or expected):
            raise NotDirect(f"'{one.name}' is specialized in a way that is not known")
        return conditions

    def same(self, text: str, name: str, value: Any) -> list[str]:
        """The same value of the same type: of constants, Triton makes a program for each."""
        kind = type(value)
        if value is None or kind is bool:
            return [f"{text} is {value}"]
        if kind in (int, str) or (kind is float and math.isfinite(value)):
            return [f"type({text}) is {kind.__name__}", f"{text} == {value!r}"]
        held = self.hold(name, value)
        if isinstance(value, tritons.JITCallable):
            return [f"{text} is {held}", f"{held}.hash is {self.hold(f'{name}_hash', value.hash)}"]
        torch = (kind.__module__, kind.__name__) == ("torch", "dtype")
        if torch or isinstance(value, triton.language.dtype | enum.Enum):
            return [f"{text} is {held}"]
        raise NotDirect(f"'{name}' is of type {kind.__module__}.{kind.__qualname__}")

    # What surrounds a call.

    def _of_surroundings(self) -> list[str]:
        jit, runtime = self.hold("jit", self.jit), self.hold("runtime", knobs.runtime)
        compilation = self.hold("compilation", knobs.compilation)
        holds = self.hold
        conditions = []
        if self.route.tuner is not None:
            conditions += [
                f"{holds('tuner', self.route.tuner)}.fn is {holds('fn', self.route.fn)}",
                f"{holds('config', self.route.config)}.pre_hook is "
                f"{holds('pre_hook', self.route.config.pre_hook)}",
            ]
        for one, below in pairwise([*self.heuristics, self.jit]):
            conditions.append(f"{holds('heuristic', one)}.fn is {holds('below', below)}")
        conditions += [
            f"{holds('driver', driver)}._active is {holds('active', self.active)}",
            f"{holds('current_device', _device_of(self.active))}() == {self.device}",
            f"{jit}.run.__func__ is {holds('run', _RUN_HERE)}",
            f"{jit}.hash is {holds('hash', self.jit.hash)}",
            f"{jit}.device_caches.get({self.device}) is {holds('of_device', self.entry)}",
            f"{holds('kernels', self.entry[0])}.get({holds('key', self.key)}) is "
            f"{holds('kernel', self.kernel)}",
            f"not {jit}.pre_run_hooks",
            f"{jit}.debug is {holds('debug', self.jit.debug)}",
            f"{runtime}.debug is {holds('debug_all', knobs.runtime.debug)}",
            f"{compilation}.instrumentation_mode == {knobs.compilation.instrumentation_mode!r}",
        ]
        for which in ("launch_enter_hook", "launch_exit_hook"):
            chain = getattr(knobs.runtime, which)
            conditions += [
                f"{runtime}.{which} is {holds(which, chain)}",
                f"not {holds(which, chain)}.calls",
            ]
        if hasattr(knobs.runtime, "add_stages_inspection_hook"):
            conditions.append(f"{runtime}.add_stages_inspection_hook is None")
        if hasattr(knobs.compilation, "fpsan_homomorphic_casts"):
            # A look into the environment by way of Triton's knob takes ten times as long.
            conditions += [
                f"'fpsan_homomorphic_casts' not in {holds('compiling', vars(knobs.compilation))}",
                f"b'TRITON_FPSAN_HOMOMORPHIC_CASTS' not in {holds('environment', _environment())}",
            ]
        return conditions + self._of_globals()

    def _of_globals(self) -> list[str]:
        """Triton refuses to launch where a global that the kernel used has changed."""
        used = self.jit.used_global_vals
        conditions = [f"{self.hold('jit', self.jit)}.used_global_vals is {self.hold('used', used)}"]
        for (name, _), (value, where) in used.items():
            now = f"{self.hold(f'where_{name}', where)}.get({name!r})"
            then = self.hold(f"global_{name}", value)
            plain = value is None or type(value) in (bool, int, float, str)
            same = plain and where.get(name) is value
            conditions.append(f"{now} is {then}" if same else f"not {now} != {then}")
        return conditions

    # What is done, in Triton's order.

    def _read(self, tensors: Sequence[_Argument]) -> None:
        """The addresses, and whether they are aligned as they were."""
        self.lines += [f"    {one.launched} = {one.text}.data_ptr()" for one in tensors]
        params = {one.name: one for one in self.jit.params}
        told = [one for one in tensors if not params[one.name].do_not_specialize_on_alignment]
        aligned = [one.launched for one in told if self.specialized[one.name][1] == "D"]
        others = [f"{one.launched} & 15" for one in told if self.specialized[one.name][1] == ""]
        if aligned:
            self.lines.append(f"    if ({' | '.join(aligned)}) & 15:")
            self.lines.append(f"        return {self.otherwise}")
        if others:
            self.unless(others)

    def _ordinarily(self) -> str:
        """Triton's way from here on, where hooks and the grid's function have run already."""
        run, keywords = self.route.fn.run, self.route.keywords

        def go_on(grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            return run(*args, grid=grid, warmup=False, **kwargs, **keywords)

        return f"{self.hold('go_on', go_on)}(_grid, _args, _kwargs)"

    def _prepare(self, tensors: Sequence[_Argument]) -> None:
        tuner, config = self.hold("tuner", self.route.tuner), self.hold("config", self.route.config)
        if self.route.config.pre_hook is None:
            return
        self.lines += [
            f"    {tuner}.best_config = {config}",
            f"    {tuner}._call_hook("
            f"{config}, _args, {{**_kwargs, 'grid': _grid, 'warmup': False}})",
        ]
        self.otherwise = self._ordinarily()
        self.unless(self._of_surroundings())
        self._read(tensors)

    def _compute(self) -> None:
        """Heuristics are asked at every call."""
        if not self.heuristics:
            return
        names = self.hold("names", tuple(self.heuristics[0].arg_names))
        keywords = self.hold("keywords", dict(self.route.keywords))
        self.lines += [
            f"    _named = {{**_kwargs, **{keywords}, 'grid': _grid, 'warmup': False}}",
            f"    _given = dict(zip({names}, _args))",
        ]
        for one in self.heuristics:
            self.lines += [
                f"    for _name, _of in {self.hold('heuristic', one)}.values.items():",
                "        _named[_name] = _of({**_given, **_named})",
            ]
        conditions = [
            f"len(_named) == {len({**self.kwargs, **self.route.keywords, **self.computed}) + 2}"
        ]
        for name, value in self.computed.items():
            self.lines.append(f"    {self.names[name]} = _named.get({name!r})")
            conditions += self.same(self.names[name], name, value)
        self.unless(conditions)

    def _enter_grid(self, arguments: Sequence[_Argument], tensors: Sequence[_Argument]) -> None:
        if self.route.config is not None and self.route.config.pre_hook is None:
            tuner, config = (
                self.hold("tuner", self.route.tuner),
                self.hold("config", self.route.config),
            )
            self.lines.append(f"    {tuner}.best_config = {config}")
        bound = ", ".join(f"{one.name!r}: {one.text}" for one in arguments)
        before, self.lines = self.lines, []
        self.otherwise = self._ordinarily()
        self._read(tensors)  # a function may have moved them
        again = [f"    {line}" for line in self.lines]
        self.lines = [
            *before,
            "    if callable(_grid):",
            f"        _grid = _grid({{{bound}}})",
            *again,
            "    _sizes = len(_grid)",
            "    _x = _grid[0]",
            "    _y = _grid[1] if _sizes > 1 else 1",
            "    _z = _grid[2] if _sizes > 2 else 1",
        ]

    def _launch(self, arguments: Sequence[_Argument]) -> None:
        stream = f"{self.hold('current_stream', self.active.get_current_stream)}({self.device})"
        every = "".join(f"{one.launched}, " for one in arguments)
        words = {
            "_function": self.hold("function", self.kernel.function),
            "_metadata": self.hold("metadata", self.kernel.packed_metadata),
            "*": every.removesuffix(", "),
            "(*)": f"({every})",
        }
        for word in _OF_LAUNCHER:
            name = word.removeprefix("self.")
            if word in self.order:
                words[word] = self.hold(name, getattr(self.launcher, name))
        handed = ", ".join(filter(None, (words.get(word, word) for word in self.order)))
        launch = self.hold("launch", self.launcher.launch)
        self.lines += [
            f"    _stream = {stream}",
            f"    {launch}({handed})",
            f"    return {self.hold('kernel', self.kernel)}",
        ]


def _chain(fn: Any) -> tuple[list[Any], Any]:
    """The heuristics below a tuner, outermost first, and the kernel."""
    heuristics = []
    while type(fn) is Heuristics:
        heuristics.append(fn)
        fn = fn.fn
    if type(fn) is not tritons.JITFunction:
        raise NotDirect(f"it is behind a {type(fn).__name__}, of which nothing is known")
    return heuristics, fn


def _computed(
    heuristics: Sequence[Any], grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    named, found = {**kwargs, "grid": grid, "warmup": False}, {}
    for one in heuristics:
        for name, of in one.values.items():
            value = of({**dict(zip(one.arg_names, args, strict=False)), **named})
            named[name] = found[name] = value
    return found


def _local_names(names: Sequence[str]) -> dict[str, str]:
    """Parameters keep their names, where these are no words that the function needs itself."""
    needed = {"type", "len", "callable", "int", "float", "bool", "str", "dict", "zip", "KeyError"}
    found: dict[str, str] = {}
    for name in names:
        word = name.lstrip("_") or "given"
        while word in needed or iskeyword(word) or (word != name and word in names):
            word += "_"
        found[name] = word
    return found


def _range(value: int) -> tuple[int, int]:
    """The integers that Triton gives the same type."""
    if -(2**31) <= value < 2**31:
        return -(2**31), 2**31 - 1
    if 2**31 <= value < 2**63:
        return 2**31, 2**63 - 1
    if -(2**63) <= value < -(2**31):
        return -(2**63), -(2**31) - 1
    raise NotDirect(f"{value} takes more than 64 bits with a sign")


def _environment() -> Mapping[Any, Any]:
    """As `os.environ` keeps it: its own look-up encodes the name each time."""
    kept: Mapping[Any, Any] = getattr(os.environ, "_data", {})
    if {os.fsdecode(name) for name in kept} != set(os.environ):
        raise NotDirect("this Python keeps its environment in another way")
    return kept


def _device_of(driver: Any) -> Callable[[], int]:
    """Triton asks torch, which first makes sure that CUDA has been set up. It has, by now."""
    torch = sys.modules.get("torch")
    asked: Callable[[], int] = driver.get_current_device
    if torch is not None and asked is torch.cuda.current_device:
        return getattr(torch._C, "_cuda_getDevice", asked)  # type: ignore[no-any-return]
    return asked
