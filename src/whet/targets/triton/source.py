"""The fingerprint of a kernel: what it does and what it calls, not where it stands.

Triton's own `cache_key` contains the line number, so an edited comment would lose every trial.

To parse a kernel and to write its tree down takes milliseconds, and of a process that finds its
kernels tuned this would be most of what it waits for. It follows from the source's text alone, so
the first process to read a source leaves what it read in the user's cache folder.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import sys
import textwrap
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from functools import cache, lru_cache
from numbers import Number
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from whet._version import __version__
from whet.core.config import Value, freeze_value
from whet.core.errors import SpaceError
from whet.core.files import UntrustedFileError, cache_folder, read_own
from whet.core.frozen import FrozenMap
from whet.targets.fingerprint import Parts, Source, code_text, same_value

_UNWRITTEN = {"ctx", "kind", "type_comment"}
_MISSING = object()

# What comes with these is known by the version of the toolchain; kernels in torch are not.
_TRITON = frozenset({"triton"})
_HOST = frozenset({"triton", "torch", "numpy", *sys.stdlib_module_names})

FOLDER = "sources"
_MOST_BYTES = 16 * 2**20
_MOST_FILES = 1024


def fingerprint(jit_fn: Any) -> str:
    """Covers the kernel, the heuristics around it, the kernels and helpers it calls, directly or
    not, and the values it uses by name; the same in every process.

    Comments, docstrings, decorators, the line, the file and the module do not count. `jit_fn` may
    also be an autotuner or heuristics around a `JITFunction`.
    """
    return _surveyed(_Survey(), jit_fn).fingerprint


def source_of(tuner: Any) -> Source:
    """The source of a tuned kernel. What it captures under the names in `whet_claims` belongs to
    the key, and the fingerprint leaves it out."""
    return _surveyed(_Survey(tuner.whet_claims), tuner.fn)


def claimable(kernel: Any, names: Collection[str]) -> tuple[str, ...]:
    """Those of the names under which a kernel captures a value that a key can hold."""
    if not names:
        return ()
    return tuple(_surveyed(_Survey(names), kernel).claimed)


def strict_fingerprint(jit_fn: Any) -> str:
    """The same, where nothing is covered by its name alone; else `TypeError` says what is.

    Two kernels of one such fingerprint may stand for each other without being compiled.
    """
    survey = _Survey()
    source = _surveyed(survey, jit_fn)
    if survey.vague:
        raise TypeError(f"it uses {survey.vague[0]}, whose contents cannot be compared")
    return source.fingerprint


def _surveyed(survey: _Survey, jit_fn: Any) -> Source:
    survey.number(jit_fn)
    for found in survey.found:  # grows meanwhile
        survey.add(found)
    return replace(survey.parts.source(), claimed=FrozenMap(survey.claimed))


class _Survey:
    """Functions and classes in the order they were met; a text refers to them by that number, so
    that kernels may call each other in circles. `vague` are those known by name only, `claimed`
    the values that were found under the names in `claims`."""

    def __init__(self, claims: Collection[str] = ()) -> None:
        self.found: list[Any] = []
        self.vague: list[str] = []
        self.parts = Parts()
        self.claimed: dict[str, Any] = {}
        self._claims = claims
        self._numbers: dict[int, int] = {}

    def describe(self, value: Any) -> str:
        kind = type(value)
        if isinstance(value, Enum):
            return f"{kind.__qualname__}.{value.name} {self.describe(value.value)}"
        if value is None or isinstance(value, Number):
            return f"{kind.__name__} {value}"
        if isinstance(value, str | bytes):
            return f"{kind.__name__} {value!r}"
        if isinstance(value, dict):
            return f"{{{self._joined(k for item in value.items() for k in item)}}}"
        if isinstance(value, list | tuple):
            return f"{kind.__name__}({self._joined(value)})"
        if isinstance(value, set | frozenset):
            return f"{kind.__name__}({sorted(map(self.describe, value))})"
        if _is_constexpr(value):
            return f"constexpr({self.describe(value.value)})"
        if _is_dtype(value):
            return f"dtype {value}"
        return self._describe_code(value)

    def _describe_code(self, value: Any) -> str:
        if isinstance(value, type):
            if getattr(value, "__triton_aggregate__", False):
                return self.number(value)
            if str(value.__module__).partition(".")[0] not in _HOST:
                self.vague.append(f"the class {value.__qualname__}")
            return f"class {value.__qualname__}"
        function = _innermost(value)
        if function is None:
            if type(value).__module__ != "builtins":
                self.vague.append(f"a {type(value).__qualname__}")
            return f"object {type(value).__qualname__} {getattr(value, '__qualname__', '')}"
        if _is_given(function, _HOST if isinstance(value, FunctionType) else _TRITON):
            return f"given {function.__module__}.{function.__qualname__}"
        return self.number(value)

    def _joined(self, values: Iterable[Any]) -> str:
        return ", ".join(map(self.describe, values))

    def number(self, value: Any) -> str:
        number = self._numbers.setdefault(id(value), len(self.found))
        if number == len(self.found):
            self.found.append(value)
        return f"number {number}"

    def add(self, found: Any) -> None:
        code = self.parts.code
        if isinstance(found, type):
            for name, member in sorted(vars(found).items()):
                if name in ("__annotations__", "__aggregate_defaults__") or name[:2] != "__":
                    code(f"{name} = {self.describe(getattr(member, '__func__', member))}")
            return
        *wrappers, layer = _layers(found)
        for wrapper in wrappers:
            if isinstance(heuristics := getattr(wrapper, "values", None), Mapping):
                code(self.describe(dict(heuristics)))
        function = _innermost(found)
        if function is None:
            raise TypeError(f"{found!r} is not a Triton kernel")
        read = _examined(layer, function)
        code(code_text(function.__code__) if read is None else read.text)
        code(str(getattr(layer, "noinline", False)))
        listed = {one.name: one for one in getattr(layer, "params", ())}
        for name, parameter in inspect.signature(function).parameters.items():
            code(self._parameter(name, parameter, listed.get(name)))
        names = _names(function.__code__) if read is None else read.names
        captured = _captured(function)
        for name in sorted(names):
            value = _resolve(name, captured, function.__globals__)
            if read is not None and name in read.filled and isinstance(value, dict | list):
                value = {} if isinstance(value, dict) else []
            if value is not _MISSING:
                self._use(name, value, function.__name__)

    def _use(self, name: str, value: Any, owner: str) -> None:
        """What the key claims is left out, unless another value was claimed under the name."""
        try:
            plain = _plain(value)
        except SpaceError:
            self.parts.code(f"{name} = {self.describe(value)}")
            return
        if name in self._claims and same_value(self.claimed.setdefault(name, plain), plain):
            return
        self.parts.value(name, plain, f"{name} = {self.describe(value)}", owner)

    def _parameter(self, name: str, parameter: inspect.Parameter, compiled: Any) -> str:
        """`compiled` is what Triton has made of it."""
        default = parameter.default
        text = "" if default is inspect.Parameter.empty else self.describe(default)
        for wish in ("do_not_specialize", "do_not_specialize_on_alignment"):
            if getattr(compiled, wish, False):
                text += f" {wish}"
        return f"{name} {text}"


def _is_constexpr(value: Any) -> bool:
    return type(value).__name__ == "constexpr"


def _is_dtype(value: Any) -> bool:
    return any(base.__name__ == "dtype" for base in type(value).__mro__)


def _plain(value: Any) -> Value:
    """What stands for it in a key; `SpaceError` for what cannot be in one."""
    value = value.value if _is_constexpr(value) else value
    return str(value) if _is_dtype(value) else freeze_value(value)


def _layers(kernel: Any) -> Iterator[Any]:
    """An autotuner, what it wraps, and so on down to what holds the Python function."""
    yield kernel
    while not isinstance(kernel, FunctionType) and hasattr(kernel, "fn"):
        if isinstance(kernel.fn, FunctionType):
            return
        kernel = kernel.fn
        yield kernel


def _innermost(value: Any) -> FunctionType | None:
    *_, layer = _layers(value)
    function = inspect.unwrap(getattr(layer, "fn", layer))
    function = getattr(function, "__func__", function)
    return function if isinstance(function, FunctionType) else None


def _is_given(function: FunctionType, packages: frozenset[str]) -> bool:
    return str(function.__module__).partition(".")[0] in packages


def _examined(layer: Any, function: FunctionType) -> ReadSource | None:
    """What `_read` finds. None where there is no source, and for a lambda, whose source is a piece
    of a statement."""
    if function.__name__ == "<lambda>":
        return None
    try:
        return _read(getattr(layer, "src", None) or textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, IndexError):
        return None


class ReadSource(NamedTuple):
    """The syntax tree as text, the names that the function takes from outside, and of these what
    it puts things into, as `KNOWN[key] = value` does: how full that is depends on what has been
    called so far, and is no part of the source."""

    text: str
    names: frozenset[str]
    filled: frozenset[str]


@lru_cache(maxsize=256)
def _read(source: str) -> ReadSource:
    """From an earlier process where there is one. Whatever is wrong with the folder or a file in
    it, the source is read anew. Every key of a kernel asks for it."""
    name = _name(source)
    path = os.path.join(cache_folder(FOLDER), name)
    with suppress(OSError, UntrustedFileError, ValueError, TypeError, zlib.error):
        return _decoded(read_own(path, _MOST_BYTES), name)
    found = _parsed(source)
    _leave(path, _encoded(found, name))
    return found


def _name(source: str) -> str:
    about = f"{_versions()}\0{source}"
    return hashlib.blake2b(about.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


@cache
def _versions() -> str:
    """Python has trees of its own in every version; who edits this file keeps whet's version."""
    try:
        about = os.stat(__file__)
        edited = f"{about.st_size} {about.st_mtime_ns}"
    except OSError:  # in an archive, which is not edited
        edited = ""
    return f"{__version__} {sys.version} {edited}"


def _encoded(found: ReadSource, name: str) -> bytes:
    text = json.dumps([found.text, sorted(found.names), sorted(found.filled)])
    return f"{name}\n".encode() + zlib.compress(text.encode(), 1)


def _decoded(data: bytes, name: str) -> ReadSource:
    """Raises `ValueError` for what is not the reading of that name; zlib has a checksum."""
    first = f"{name}\n".encode()
    if not data.startswith(first):
        raise ValueError(name)
    text, names, filled = json.loads(zlib.decompress(data[len(first) :]))
    return ReadSource(text, frozenset(names), frozenset(filled))


def _leave(path: str, data: bytes) -> None:
    """Without it all works as well, only slower."""
    from whet.core.files import write_whole

    folder = Path(path).parent
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(Path(path), data)
        if len(os.listdir(folder)) > _MOST_FILES:
            files = sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime_ns)
            for old in files[: -_MOST_FILES // 2]:  # not one by one
                old.unlink(missing_ok=True)


def _parsed(source: str) -> ReadSource:
    tree = ast.parse(source).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise TypeError("not a function")
    tree.decorator_list = []
    reader = _Reader()
    text = reader.function(tree)
    return ReadSource(text, frozenset(reader.references()), frozenset(reader.filled))


class _Reader:
    """Writes a tree down like `ast.dump`, but the same in every Python: fields that are empty are
    left out. Names are collected on the way, since a second walk would take as long again."""

    def __init__(self) -> None:
        self._local: set[str] = set()
        self._found: list[str] = []
        self._names = self._found
        self.filled: set[str] = set()

    def function(self, tree: ast.FunctionDef) -> str:
        fields = []
        for name in _fields(ast.FunctionDef):
            # Defaults are left to the signature, which holds what they were when the kernel was
            # defined.
            self._names = self._found if name == "body" else []
            if text := self._field(getattr(tree, name, None)):
                fields.append(f"{name}={text}")
        return f"FunctionDef({', '.join(fields)})"

    def references(self) -> Iterator[str]:
        """Names from outside, with their attributes: `BLOCK`, `helpers.f`."""
        return (name for name in self._found if name.partition(".")[0] not in self._local)

    def _field(self, value: Any) -> str:
        """Nothing for what is empty."""
        if value is None or value == []:
            return ""
        if isinstance(value, ast.AST):
            return self._node(value)
        if isinstance(value, list):
            written = [self._field(item) or repr(item) for item in value if not _is_remark(item)]
            return f"[{', '.join(written)}]"
        return repr(value)

    def _node(self, node: Any) -> str:
        kind = type(node)
        if kind is ast.Constant:
            return "Constant()" if node.value is None else f"Constant(value={node.value!r})"
        if kind is ast.Name or kind is ast.Attribute:
            return self._name(node)
        if kind is ast.arg:
            self._local.add(node.arg)
            before, self._names = self._names, self._found
            try:
                return self._plain(node, kind)
            finally:
                self._names = before
        if kind is ast.Subscript and type(node.ctx) is ast.Store and type(node.value) is ast.Name:
            self.filled.add(node.value.id)
        return self._plain(node, kind)

    def _plain(self, node: ast.AST, kind: Any) -> str:
        fields = [
            f"{name}={text}"
            for name in _fields(kind)
            if (text := self._field(getattr(node, name, None)))
        ]
        return f"{kind.__name__}({', '.join(fields)})"

    def _name(self, node: Any) -> str:
        """`a`, or `a.b.c`, which is one name."""
        attributes = []
        while type(node) is ast.Attribute:
            attributes.append(node.attr)
            node = node.value
        attributes.reverse()
        if type(node) is ast.Name:
            text = f"Name(id={node.id!r})"
            self._names.append(".".join((node.id, *attributes)))
            if type(node.ctx) is ast.Store:
                self._local.add(node.id)
        else:
            text = self._node(node)
        for attribute in attributes:
            text = f"Attribute(value={text}, attr={attribute!r})"
        return text


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(name for name in kind._fields if name not in _UNWRITTEN)


def _is_remark(node: object) -> bool:
    """A docstring, or a string that stands for a comment."""
    return (
        type(node) is ast.Expr
        and type(node.value) is ast.Constant
        and isinstance(node.value.value, str)
    )


def _names(code: CodeType) -> set[str]:
    nested = (item for item in code.co_consts if isinstance(item, CodeType))
    return {*code.co_names, *code.co_freevars}.union(*map(_names, nested))


def _resolve(dotted: str, captured: Mapping[str, Any], outside: Mapping[str, Any]) -> Any:
    """What the name stands for; missing for builtins, modules and all that is in Triton's."""
    first, *attributes = dotted.split(".")
    value = captured.get(first, outside.get(first, _MISSING))
    for attribute in attributes:
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] == "triton":
            return _MISSING
        try:
            value = getattr(value, attribute)
        except Exception:  # a user's property may raise anything; the object itself is described
            break
    return _MISSING if isinstance(value, ModuleType) else value


def _captured(function: FunctionType) -> dict[str, Any]:
    captured = {}
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            captured[name] = cell.cell_contents
        except ValueError:  # not yet assigned: a helper defined below the kernel
            continue
    return captured
