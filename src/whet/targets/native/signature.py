"""What the C source calls a function's parameters, and whether `args=` calls them the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class CParameter:
    """`const float *restrict x` is called x. `words` has everything it may be called, since the
    last word can be a macro for an attribute."""

    text: str
    name: str
    words: frozenset[str]


def check_names(source: str, function: str, given: Sequence[str]) -> None:
    """Raises `UsageError` where `args=` has other names than the C function, or another order.

    A function that is not found, or whose parameters cannot be read without a preprocessor, is
    let through: the compiler has the last word.
    """
    declared = declarations(source, function)
    if not declared or any(_agree(given, parameters) for parameters in declared):
        return
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
        parameters = _parameters(inside, macros)
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


def _parameters(inside: str, macros: dict[str, str]) -> tuple[CParameter, ...] | None:
    inside = _without_attributes(inside)
    if inside.strip() in ("", "void"):
        return ()
    if re.search(rf"\.\.\.|[<>&:{_IF}]", inside):  # variadic, C++, or with an #if in it
        return None
    parts = [_parameter(part, macros) for part in _split(inside)]
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


def _parameter(part: str, macros: dict[str, str]) -> CParameter | None:
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
    return CParameter(re.sub(r"\s+", " ", part).strip(), names[-1], frozenset(every))
