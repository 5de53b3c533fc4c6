"""Fingerprints: the same text for the same code, whatever its comments and its place in a file.
And that place, for people to find it by."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from whet.core.config import Value, freeze_value
from whet.core.errors import OtherSourceError, SpaceError
from whet.core.frozen import FrozenMap
from whet.core.workload import Origin, captured_differences

_LONGEST_SHOWN = 60

_MOST_DECORATORS = 8
_LOCAL_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def digest(*parts: str) -> str:
    """Hashes the parts with their boundaries, so that ("ab", "c") is not ("a", "bc")."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode()
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.hexdigest()


@dataclass(frozen=True)
class Source:
    """`claimed` are captured values that the fingerprint leaves out, since the key has them."""

    fingerprint: str
    origin: Origin
    claimed: FrozenMap[Any] = field(default_factory=FrozenMap)


class Parts:
    """What a source is made of, in the order in which it was met: code, and values from around it.

    A value whose name is in `claims` and which is the one that is claimed there is left out.
    """

    def __init__(
        self,
        claims: Mapping[str, Any] | None = None,
        text_of: Callable[[FunctionType], str] | None = None,
    ) -> None:
        self.text_of = text_of or _text
        self._claims = claims or {}
        self._code: list[str] = []
        self._whole: list[str] = []
        self._captured: dict[str, str] = {}

    def code(self, text: str) -> None:
        self._code.append(text)
        self._whole.append(text)

    def value(self, name: str, value: Value, text: str, owner: str = "") -> None:
        """`text` is what the fingerprint covers; `owner` tells two values of one name apart."""
        if name in self._claims and same_value(value, self._claims[name]):
            return
        self._whole.append(text)
        self.captured(name, shown(value), owner)

    def captured(self, name: str, said: str, owner: str = "") -> None:
        if self._captured.setdefault(name, said) != said:
            self._captured[f"{owner}.{name}"] = said

    def source(self) -> Source:
        origin = Origin(digest(*self._code), FrozenMap(self._captured))
        return Source(digest(*self._whole), origin)


def same_value(one: Any, two: Any) -> bool:
    """1 and 1.0 are the same number; True is none."""
    return bool(one == two) and isinstance(one, bool) == isinstance(two, bool)


def shown(value: Any) -> str:
    """As text that can be read, and that tells long values apart."""
    said = repr(value)
    if len(said) <= _LONGEST_SHOWN:
        return said
    return f"{said[: _LONGEST_SHOWN - 20]}… ({digest(said)[:8]})"


def of_callable(fn: Callable[..., Any]) -> str:
    """Covers the function, the Python functions it calls by name, and the plain values it uses."""
    return source_of(fn).fingerprint


def source_of(fn: Callable[..., Any], claims: Mapping[str, Any] | None = None) -> Source:
    """The same, without the values that the key claims: what is captured under a name of `claims`
    and has the value that is given there."""
    parts = Parts(claims)
    _collect(fn, parts, seen=set())
    return parts.source()


def sent_source_of(fn: Callable[..., Any], claims: Mapping[str, Any] | None = None) -> Source:
    """The same by byte code: what is sent as a value has no text where it arrives."""
    parts = Parts(claims, lambda one: code_text(one.__code__))
    _collect(fn, parts, seen=set())
    return parts.source()


def refuse_other(here: Source, there: Source) -> None:
    """Raises where the process that this is called in has another source than `here`, that of the
    one which asks it."""
    if here.fingerprint == there.fingerprint:
        return
    said, remedy = "the source differs", "give both machines the same file"
    if here.origin.code == there.origin.code:
        changes = captured_differences(there.origin, here.origin)
        said = ", ".join(f"{name} is {now}, not {was}" for name, (now, was) in changes.items())
        remedy = "if it comes from an environment variable, send that with --env NAME"
    raise OtherSourceError(f"its code is not the one here: {said}; {remedy}")


def of_c_source(text: str, folder: Path | None, include: tuple[str, ...] = ()) -> str:
    """Covers the source and every local header it includes, directly or not."""
    parts = [text]
    _headers(text, [folder] if folder else [], [Path(path) for path in include], parts, set())
    return digest(*parts)


def _headers(
    text: str, near: list[Path], search: list[Path], parts: list[str], seen: set[Path]
) -> None:
    for name in _LOCAL_INCLUDE.findall(text):
        for folder in (*near, *search):
            header = (folder / name).resolve()
            if header in seen or not header.is_file():
                continue
            seen.add(header)
            body = header.read_text(errors="replace")
            parts.append(body)
            _headers(body, [header.parent], search, parts, seen)
            break


def _collect(fn: Any, parts: Parts, seen: set[int]) -> None:
    fn = inspect.unwrap(fn) if callable(fn) else fn
    fn = getattr(fn, "__func__", fn)
    if id(fn) in seen:
        return
    seen.add(id(fn))
    if not isinstance(fn, FunctionType):  # a callable object, a builtin, a partial
        parts.code(f"{type(fn).__module__}.{getattr(fn, '__qualname__', type(fn).__qualname__)}")
        if isinstance(fn, partial):
            _values({**dict(enumerate(fn.args)), **fn.keywords}, parts, "partial")
            _collect(fn.func, parts, seen)
        elif isinstance(call := type(fn).__dict__.get("__call__"), FunctionType):
            _collect(call, parts, seen)
        return
    parts.code(parts.text_of(fn))
    used = dict(sorted(_used_values(fn).items()))
    _values(used, parts, fn.__name__)
    for value in used.values():
        if isinstance(value, FunctionType) and value.__module__ == fn.__module__:
            _collect(value, parts, seen)


def _values(used: Mapping[Any, Any], parts: Parts, owner: str) -> None:
    for name, value in used.items():
        with contextlib.suppress(SpaceError):  # arrays and objects are the key's business
            plain = freeze_value(value)
            parts.value(str(name), plain, f"{name}={plain!r}", owner)


def _used_values(fn: FunctionType) -> dict[str, Any]:
    captured = inspect.getclosurevars(fn) if _has_cells(fn) else None
    if captured is not None:
        return {**captured.globals, **captured.nonlocals}
    names = _names(fn.__code__)
    return {name: fn.__globals__[name] for name in names if name in fn.__globals__}


def _has_cells(fn: FunctionType) -> bool:
    """False also for a cell that is still empty: `getclosurevars` cannot read those."""
    try:
        return bool([cell.cell_contents for cell in fn.__closure__ or ()])
    except ValueError:
        return False


def _names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _text(fn: FunctionType) -> str:
    """The syntax tree without positions and docstrings; the byte code where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return code_text(fn.__code__)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def code_text(code: CodeType) -> str:
    """The byte code with its names and constants, whatever line it stands on."""
    constants = [
        code_text(item)
        if isinstance(item, CodeType)
        else repr(sorted(map(repr, item)) if isinstance(item, frozenset) else item)
        for item in code.co_consts
    ]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def place_of(file: str, thing: Any, module: str = "") -> str:
    """`FILE.py:NAME` for the first module-level name in `file` that stands for the thing, or for
    what is around it: decorators keep what they decorate as `fn`. `module` is where to look first:
    to look at all of them takes a millisecond."""
    if not file:
        return ""
    name = _name_in(sys.modules.get(module), file, thing)
    if not name:
        others = (_name_in(one, file, thing) for one in list(sys.modules.values()))
        name = next(filter(None, others), "")
    return f"{file}:{name}" if name else ""


def _name_in(module: Any, file: str, thing: Any) -> str:
    # Not by getattr: asked for any name, a module that loads itself lazily may load.
    names = getattr(module, "__dict__", {})
    if names.get("__file__") != file:
        return ""
    for name, value in list(names.items()):
        for _ in range(_MOST_DECORATORS):
            if value is thing:
                return str(name)
            value = getattr(value, "__dict__", {}).get("fn")
            if value is None:
                break
    return ""


def python_text(fn: Any) -> str:
    """The source of a Python function; empty where nobody knows it."""
    try:
        return inspect.getsource(fn)
    except (OSError, TypeError):
        return ""
