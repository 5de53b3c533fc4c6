"""The fingerprint of a kernel: what it does and what it calls, not where it stands.

Triton's own `cache_key` contains the line number, so an edited comment would lose every trial.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from numbers import Number
from types import CodeType, FunctionType, ModuleType
from typing import Any

from whet.core.config import Value, freeze_value
from whet.core.errors import SpaceError
from whet.core.frozen import FrozenMap
from whet.targets.fingerprint import Parts, Source, code_text, same_value

_UNWRITTEN = {"ctx", "kind", "type_comment"}
_MISSING = object()

# What comes with these is known by the version of the toolchain; kernels in torch are not.
_TRITON = frozenset({"triton"})
_HOST = frozenset({"triton", "torch", "numpy", *sys.stdlib_module_names})


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
        tree = _tree(layer, function)
        code(code_text(function.__code__) if tree is None else _written(tree))
        code(str(getattr(layer, "noinline", False)))
        for name, parameter in inspect.signature(function).parameters.items():
            code(self._parameter(name, parameter, layer))
        names = _names(function.__code__) if tree is None else _references(tree)
        filled = set() if tree is None else _filled(tree)
        for name in sorted(names):
            value = _resolve(name, function)
            if name in filled and isinstance(value, dict | list):
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

    def _parameter(self, name: str, parameter: inspect.Parameter, layer: Any) -> str:
        default = parameter.default
        text = "" if default is inspect.Parameter.empty else self.describe(default)
        for listed in ("do_not_specialize", "do_not_specialize_on_alignment"):
            for compiled in getattr(layer, "params", ()):
                if compiled.name == name and getattr(compiled, listed, False):
                    text += f" {listed}"
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


def _tree(layer: Any, function: FunctionType) -> ast.FunctionDef | None:
    """None where there is no source, and for a lambda, whose source is a piece of a statement."""
    if function.__name__ == "<lambda>":
        return None
    try:
        source = getattr(layer, "src", None) or textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    if not isinstance(tree, ast.FunctionDef):
        return None
    tree.decorator_list = []
    return tree


def _written(node: object) -> str:
    """Like `ast.dump`, but the same in every Python: fields that are empty are left out."""
    if isinstance(node, ast.AST):
        fields = (
            f"{name}={_written(value)}"
            for name, value in ast.iter_fields(node)
            if value is not None and value != [] and name not in _UNWRITTEN
        )
        return f"{type(node).__name__}({', '.join(fields)})"
    if isinstance(node, list):
        return f"[{', '.join(_written(item) for item in node if not _is_remark(item))}]"
    return repr(node)


def _is_remark(node: object) -> bool:
    """A docstring, or a string that stands for a comment."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _references(function: ast.FunctionDef) -> set[str]:
    """Names from outside, with their attributes: `BLOCK`, `helpers.f`.

    Defaults are left to the signature, which holds what they were when the kernel was defined.
    """
    nodes = list(ast.walk(function))
    local = {node.arg for node in nodes if isinstance(node, ast.arg)} | {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    annotations = [node.annotation for node in nodes if isinstance(node, ast.arg)]
    found: set[str] = set()
    pending: list[ast.AST] = [*function.body, *(item for item in annotations if item)]
    while pending:
        node = pending.pop()
        dotted = _dotted(node)
        if dotted is None:
            pending.extend(ast.iter_child_nodes(node))
        elif dotted.partition(".")[0] not in local:
            found.add(dotted)
    return found


def _filled(function: ast.FunctionDef) -> set[str]:
    """Names of what the function puts things into, as `KNOWN[key] = value` does: how full that is
    depends on what has been called so far, and is no part of the source."""
    return {
        node.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
    }


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


def _names(code: CodeType) -> set[str]:
    nested = (item for item in code.co_consts if isinstance(item, CodeType))
    return {*code.co_names, *code.co_freevars}.union(*map(_names, nested))


def _resolve(dotted: str, function: FunctionType) -> Any:
    """What the name stands for; missing for builtins, modules and all that is in Triton's."""
    first, *attributes = dotted.split(".")
    value = _captured(function).get(first, function.__globals__.get(first, _MISSING))
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
