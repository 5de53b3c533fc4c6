"""Lists every message a user can meet, to be read in one go.

    python tests/unit/list_messages.py             all of them, by file
    python tests/unit/list_messages.py --count     how many of each kind

Taken from the sources: what errors say, what is logged, noted and warned of, what help texts and
docstrings of commands and public names say. An f-string's holes are shown as `{name}`.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import whet

SOURCE = Path(whet.__file__).parent

# What is called with a text for people, by the kind of message that makes it.
SAYERS = {
    "warn": "warning",
    "warning": "warning",
    "say_once": "warning",
    "note": "note",
    "log_note": "log",
    "log_event": "log",
    "info": "log",
    "print": "output",
    "print_lines": "output",
    "Option": "help",
    "Argument": "help",
}


@dataclass(frozen=True, order=True)
class Message:
    file: str
    line: int
    kind: str
    text: str


def messages() -> list[Message]:
    found: set[Message] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if name.startswith("testing/"):
            continue
        for line, kind, text in _in(ast.parse(path.read_text()), commands=name.startswith("cli/")):
            found.add(Message(name, line, kind, text))
    return sorted(found)


def _in(tree: ast.Module, *, commands: bool) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from _texts(node.exc, "error")
        elif isinstance(node, ast.Call):
            kind = SAYERS.get(_name(node.func))
            if kind is not None:
                yield from _texts(node, kind)
        elif isinstance(node, ast.Assign) and commands:
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if any(name.lstrip("_").isupper() for name in names):
                yield from _texts(node.value, "text")
        elif isinstance(node, ast.FunctionDef) and commands and _is_command(node):
            text = ast.get_docstring(node)
            if text:
                yield node.lineno, "help", text


def _is_command(node: ast.FunctionDef) -> bool:
    return any("Annotated" in ast.dump(argument) for argument in node.args.args)


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _texts(node: ast.AST, kind: str) -> Iterator[tuple[int, str, str]]:
    """The texts in an expression that are long enough to be a sentence's part."""
    inside: set[int] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.JoinedStr):
            inside.update(id(part) for part in ast.walk(child) if part is not child)
    for child in ast.walk(node):
        text = _text(child) if id(child) not in inside else ""
        if " " in text.strip():
            yield getattr(child, "lineno", 0), kind, text


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _text(part) or "{" + ast.unparse(getattr(part, "value", part)) + "}"
            for part in node.values
        )
    return ""


def main() -> None:
    found = messages()
    if "--count" in sys.argv:
        for kind, count in Counter(message.kind for message in found).most_common():
            print(f"{count:5} {kind}")
        return
    for message in found:
        text = message.text.replace("\n", "\n      ")
        print(f"{message.file}:{message.line} [{message.kind}]\n      {text}")


if __name__ == "__main__":
    main()
