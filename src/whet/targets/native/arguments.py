"""What a C function is called with: NumPy arrays and scalars, and their C types."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.errors import UsageError, did_you_mean

# Literals are matched as well, so that a // inside one is not taken for a comment.
_COMMENT_OR_LITERAL = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'""",
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*).*$", re.MULTILINE)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.*)$", re.MULTILINE)
# Each stands for its directive in the code that is left: both branches may open the same body.
_IF, _ELSE, _ENDIF = "\x01", "\x02", "\x03"
_LINKAGE = re.compile(r'\bextern\s+""\s*\{')
_WORD = re.compile(r"[A-Za-z_]\w*")
_ATTRIBUTE = re.compile(
    r"\b(?:__attribute__|__attribute|__declspec|_Alignas|alignas|typeof|__typeof__)\s*(?=\()"
)
_BEFORE_A_CALL = {"return", "else", "do", "case", "goto", "sizeof"}
_QUALIFIERS = {
    *("const", "volatile", "register", "static", "_Atomic"),
    *("restrict", "__restrict", "__restrict__"),
}
_NO_NAMES = _QUALIFIERS | {
    *("void", "char", "short", "int", "long", "float", "double", "signed", "unsigned"),
    *("bool", "_Bool", "_Complex", "struct", "enum", "union"),
}
_TYPEDEF = r"\btypedef\s+([\w\s*]+?)\b{}\s*;"
_DEFINED = r"^[ \t]*#[ \t]*define[ \t]+{}[ \t]+(.*)$"
_WORD_BITS = 8 * ctypes.sizeof(ctypes.c_long)
# By their words in alphabetical order, without an "int" or "signed" that changes nothing.
_DTYPES = {
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("size_t", "uintptr_t", "long unsigned"), f"uint{_WORD_BITS}"),
    **dict.fromkeys(("ssize_t", "ptrdiff_t", "intptr_t", "long"), f"int{_WORD_BITS}"),
    "char": "char",
    "char signed": "int8",
    "char unsigned": "uint8",
    "short": "int16",
    "short unsigned": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    "long long": "int64",
    "long long unsigned": "uint64",
    "_Bool": "bool",
    "bool": "bool",
    "_Float16": "float16",
    "__fp16": "float16",
    "float": "float32",
    "double": "float64",
    "double long": "longdouble",
    "_Complex float": "complex64",
    "_Complex double": "complex128",
    "complex float": "complex64",
    "complex double": "complex128",
}


@dataclass(frozen=True)
class CParameter:
    """`const float *restrict x` is called x. `words` has everything it may be called, since the
    last word can be a macro for an attribute. `dtype` is NumPy's name for what it is or points to:
    "char" fits every byte, and None is a type that only a compiler could tell."""

    text: str
    name: str
    words: frozenset[str]
    dtype: str | None = None
    pointer: bool = False


def check_names(source: str, function: str, given: Sequence[str]) -> tuple[CParameter, ...]:
    """The parameters that `args=` stands for. Raises `UsageError` where it has other names than the
    C function, or another order.

    There are none where the function is not found, its parameters cannot be read without a
    preprocessor, or its declarations have different types: the compiler has the last word.
    """
    declared = declarations(source, function)
    agreeing = [parameters for parameters in declared if _agree(given, parameters)]
    if agreeing or not declared:
        types = {tuple((one.dtype, one.pointer) for one in each) for each in agreeing}
        return agreeing[0] if len(types) == 1 else ()
    parameters = declared[0]
    names = [parameter.name for parameter in parameters]
    if len(given) != len(names):
        raise UsageError(
            f"args= has {_counted(given)} for {function}(), but the C function takes "
            f"{_counted(names)}; give one value for each"
        )
    if sorted(given) == sorted(names):
        raise UsageError(
            f"args= gives {', '.join(given)}, but {function}() in C takes {', '.join(names)}; "
            "use the same order"
        )
    place, wrong = next(
        (place, name)
        for place, name in enumerate(given)
        if not _agree([name], parameters[place : place + 1])
    )
    here = parameters[place]
    valid = ", ".join(names)
    hint = did_you_mean(wrong, names)
    if here.name not in given:  # what stands in the same place is the likeliest of all
        hint = f"; did you mean '{here.name}'? valid: {valid}"
    raise UsageError(
        f"args= calls argument {place + 1} of {function}() '{wrong}', but the C source has "
        f"'{here.text}' there{hint}"
    )


def declarations(source: str, function: str) -> list[tuple[CParameter, ...]]:
    """The parameters of every definition, then of every other declaration; nothing at all where
    a definition cannot be read."""
    spliced = source.replace("\\\r\n", "").replace("\\\n", "")
    bare = _COMMENT_OR_LITERAL.sub(_blank, spliced)
    macros = {name: body.strip() for name, body in _MACRO.findall(bare)}
    code = _LINKAGE.sub(" ", _DIRECTIVE.sub(_branch, bare))
    found: dict[bool, list[tuple[CParameter, ...]]] = {True: [], False: []}
    for inside, defined in _signatures(code, function):
        parameters = _parameters(inside, macros, bare)
        if parameters is not None:
            found[defined].append(parameters)
        elif defined:
            return []
    return found[True] + found[False]


def _agree(given: Sequence[str], parameters: Sequence[CParameter]) -> bool:
    return len(given) == len(parameters) and all(
        name in parameter.words for name, parameter in zip(given, parameters, strict=True)
    )


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "none"


def _blank(found: re.Match[str]) -> str:
    text = found[0]
    return '""' if text[0] == '"' else "0" if text[0] == "'" else " "


def _branch(found: re.Match[str]) -> str:
    kind = found[1]
    if kind.startswith("if"):
        return _IF
    return _ELSE if kind.startswith("el") else _ENDIF if kind == "endif" else ""


def _signatures(code: str, function: str) -> Iterator[tuple[str, bool]]:
    """What is between the parentheses outside of any body, and whether a body follows."""
    depth = end = 0
    branches: list[int] = []
    for found in re.finditer(rf"[{{}}{_IF}{_ELSE}{_ENDIF}]|\b{function}\b\s*\(", code):
        match found[0]:
            case "{":
                depth += 1
            case "}":
                depth = max(0, depth - 1)
            case "\x01":
                branches.append(depth)
            case "\x02":
                depth = branches[-1] if branches else depth
            case "\x03":
                branches = branches[:-1]
            case _ if depth == 0 and found.start() >= end and _after_a_type(code[: found.start()]):
                end = _closing(code, found.end() - 1)
                if end:
                    follows = code[end:].lstrip()[:1]
                    yield code[found.end() : end - 1], follows not in (";", ",")


def _after_a_type(before: str) -> bool:
    """`float *` and `EXPORT void` are types; `x = ` and `return` make it a call."""
    before = before.rstrip()
    word = re.search(r"[A-Za-z_]\w*$", before)
    return word[0] not in _BEFORE_A_CALL if word else before.endswith(("*", ")"))


def _closing(code: str, opening: int) -> int:
    """One past the parenthesis that closes the one at `opening`; 0 where there is none."""
    depth = 0
    for at in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            return at + 1
    return 0


def _parameters(inside: str, macros: dict[str, str], bare: str) -> tuple[CParameter, ...] | None:
    inside = _without_attributes(inside)
    if inside.strip() in ("", "void"):
        return ()
    if re.search(rf"\.\.\.|[<>&:{_IF}]", inside):  # variadic, C++, or with an #if in it
        return None
    parts = [_parameter(part, macros, bare) for part in _split(inside)]
    found = tuple(part for part in parts if part is not None)
    return found if len(found) == len(parts) else None


def _without_attributes(text: str) -> str:
    while found := _ATTRIBUTE.search(text):
        end = _closing(text, found.end())
        if not end:
            break
        kind = " int " if "typeof" in found[0] else " "
        text = text[: found.start()] + kind + text[end:]
    return text


def _split(inside: str) -> list[str]:
    parts, depth = [""], 0
    for character in inside:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _parameter(part: str, macros: dict[str, str], bare: str) -> CParameter | None:
    """None for what only a preprocessor could read, and for a parameter without a name."""
    if re.match(r"\s*\w+\s*\((?!\s*\*)", part):  # PAIR(x, y) may be two of them
        return None
    # `float (*rows)[N]` and `void (*call)(int)` have their name in the first parentheses.
    pointer = re.search(r"\(\s*\*([^()]*)\)", part)
    declarator = f"*{pointer[1]}" if pointer else re.sub(r"\[.*", "", part, flags=re.DOTALL)
    words = _WORD.findall(declarator)
    bodies = [macros[word] for word in words if word in macros]
    if any("," in body for body in bodies):
        return None
    _, star, tail = declarator.rpartition("*")
    names = [word for word in _WORD.findall(tail) if word not in _NO_NAMES]
    types = [word for word in words if word not in _QUALIFIERS]
    needed = 3 if {"struct", "enum", "union"} & {*words} else 2
    if not names or not (star or len(types) >= needed):
        return None
    every = {*words, *(word for body in bodies for word in _WORD.findall(body))}
    text = re.sub(r"\s+", " ", part).strip()
    before = part[: pointer.start()] if pointer else declarator.partition("*")[0]
    if not (pointer or star):
        before = before[: before.rindex(names[-1])]
    kind = _expanded(before, bare)
    called = pointer is not None and part[pointer.end() :].lstrip().startswith("(")
    stars = declarator.count("*") + kind.count("*") + ("[" in part and not pointer)
    dtype = None if called or stars > 1 else _dtype(kind)
    return CParameter(text, names[-1], frozenset(every), dtype, stars > 0)


def _expanded(kind: str, bare: str) -> list[str]:
    """Its words and stars, without qualifiers, and with the source's own typedefs and macros put
    in; what is defined twice, or under a condition, is left as it is."""
    tokens = re.findall(r"\w+|\S", kind)
    for _ in range(8):  # of one another; a macro may also name itself
        found: list[str] = []
        for token in tokens:
            body = _definition(token, bare) if token.isidentifier() else None
            found += [token] if body is None else re.findall(r"\w+|\S", body)
        if found == tokens:
            break
        tokens = found
    return [token for token in tokens if token not in _QUALIFIERS]


def _definition(word: str, bare: str) -> str | None:
    if word in _NO_NAMES:
        return None
    patterns = (re.compile(one.format(word), re.MULTILINE) for one in (_TYPEDEF, _DEFINED))
    found = [each for pattern in patterns for each in pattern.finditer(bare)]
    if len(found) != 1:
        return None
    conditions = [each[1] for each in _DIRECTIVE.finditer(bare[: found[0].start()])]
    open_ones = sum(one.startswith("if") for one in conditions) - conditions.count("endif")
    return found[0][1] if open_ones == 0 else None


def _dtype(kind: list[str]) -> str | None:
    words = [word for word in kind if word != "*"]
    if {"short", "long", "signed", "unsigned"} & {*words} and "double" not in words:
        short = [word for word in words if word != "int" and (word != "signed" or "char" in words)]
        words = short or ["int"]
    return _DTYPES.get(" ".join(sorted(words)))


_SCALARS: dict[str, tuple[str, Any]] = {
    "bool": ("_Bool", ctypes.c_bool),
    "int8": ("int8_t", ctypes.c_int8),
    "int16": ("int16_t", ctypes.c_int16),
    "int32": ("int32_t", ctypes.c_int32),
    "int64": ("int64_t", ctypes.c_int64),
    "uint8": ("uint8_t", ctypes.c_uint8),
    "uint16": ("uint16_t", ctypes.c_uint16),
    "uint32": ("uint32_t", ctypes.c_uint32),
    "uint64": ("uint64_t", ctypes.c_uint64),
    "float32": ("float", ctypes.c_float),
    "float64": ("double", ctypes.c_double),
}
_CTYPES: dict[str, Any] = dict(_SCALARS.values()) | {
    "int": ctypes.c_int,
    "double": ctypes.c_double,
    "void *": ctypes.c_void_p,
}
_PYTHONS = {bool: "bool", int: "int32", float: "float64"}
# Not every C has a half of its own, and NumPy's bool is a byte of 0 or 1.
_SAME_BITS = {("float16", "uint16"), ("bool", "uint8")}


def checked(
    args: Mapping[str, Any], function: str, declared: Sequence[CParameter]
) -> dict[str, Any]:
    """Refuses what cannot be handed to C, naming the argument; a number becomes what the C function
    takes. `declared` has its parameters, or nothing where they are not known."""
    passed = dict(args)
    known: Sequence[CParameter | None] = declared or [None] * len(args)
    for name, parameter in zip(args, known, strict=True):
        value = args[name]
        if isinstance(value, np.ndarray):
            _check_array(name, value)
        if parameter is not None and parameter.dtype is not None:
            passed[name] = _as_declared(name, value, function, parameter, parameter.dtype)
        if not isinstance(value, np.ndarray):
            c_type(name, passed[name])
    return passed


def _check_array(name: str, value: Any) -> None:
    if not value.flags.c_contiguous:
        raise UsageError(
            f"argument '{name}' is not contiguous; pass numpy.ascontiguousarray({name})"
        )
    if value.dtype.hasobject:
        raise UsageError(f"argument '{name}' holds Python objects, which C cannot read")
    if not value.dtype.isnative:
        raise UsageError(
            f"argument '{name}' has the bytes of its numbers in another order than this machine; "
            f'pass {name}.astype({name}.dtype.newbyteorder("="))'
        )


def _as_declared(name: str, value: Any, function: str, parameter: CParameter, dtype: str) -> Any:
    """`value` as C reads it: an array of the right type as it is, a number with the right width."""
    takes = f"{function}() in C takes '{parameter.text}'"
    if isinstance(value, np.ndarray):
        if not parameter.pointer:
            raise UsageError(f"argument '{name}' is an array, but {takes}; pass a number")
        if not _reads(dtype, value.dtype):
            raise UsageError(
                f"argument '{name}' is an array of {value.dtype}, but {takes}; pass "
                f"{name}.astype(numpy.{'int8' if dtype == 'char' else dtype})"
            )
        return value
    if parameter.pointer:
        raise UsageError(
            f"argument '{name}' is a {type(value).__name__}, but {takes}; pass a NumPy array"
        )
    if dtype not in _SCALARS or not isinstance(value, bool | int | float | np.generic):
        return value
    return _as_number(name, value, takes, dtype)


def _reads(dtype: str, given: np.dtype[Any]) -> bool:
    """Whether C that takes `dtype` makes sense of an array of `given`: of structs, bytes and dates
    only its author knows."""
    if given.kind not in "biufc":
        return True
    if dtype == "char":
        return given.itemsize == 1
    wanted = np.dtype(dtype)
    parts = given.kind == "c" and wanted.kind == "f" and given.itemsize == 2 * wanted.itemsize
    return given == wanted or parts or (given.name, dtype) in _SAME_BITS


def _as_number(name: str, value: Any, takes: str, dtype: str) -> Any:
    wanted = np.dtype(dtype)
    number = value.item() if isinstance(value, np.generic) else value
    if wanted.kind == "f":
        fits = isinstance(number, int | float)
    else:
        least, most = (0, 1) if wanted.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        fits = isinstance(number, int) and least <= number <= most
    if not fits:
        raise UsageError(f"argument '{name}' is {number!r}, but {takes}, which cannot hold it")
    own = value.dtype.name if isinstance(value, np.generic) else _PYTHONS.get(type(value))
    return value if own == dtype else wanted.type(number)


def c_type(name: str, value: Any) -> str:
    """`int` for a Python int, `double` for a float, `float` for numpy.float32, a pointer for
    an array."""
    if isinstance(value, np.ndarray):
        return "void *"
    if isinstance(value, np.generic) and value.dtype.name in _SCALARS:
        return _SCALARS[value.dtype.name][0]
    if isinstance(value, bool):
        return "_Bool"
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise UsageError(f"argument '{name}' does not fit a C int; pass numpy.int64({value})")
        return "int"
    if isinstance(value, float):
        return "double"
    raise UsageError(
        f"argument '{name}' is a {type(value).__name__}; C kernels take NumPy arrays and scalars"
    )


def as_ctypes(name: str, value: Any) -> Any:
    """A value ctypes can pass again and again. The array must outlive it."""
    kind = _CTYPES[c_type(name, value)]
    if isinstance(value, np.ndarray):
        return kind(value.ctypes.data)
    return kind(value.item() if isinstance(value, np.generic) else value)
