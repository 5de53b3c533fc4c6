"""In which line of a TOML file a table or a key stands; `tomllib` does not say."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Strings and comments are taken whole, so that brackets and signs in them mean nothing.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""+'
    r"|'''.*?'''+"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[\]{}=\n]"
    r"|[^\[\]{}=\n\"'#]+",
    re.DOTALL,
)

Lines = dict[tuple[int, str], int]


def rule_lines(text: str, table: str) -> Lines:
    """Of valid TOML with an array of tables `[[table]]`: the line of each of them, by its number
    and "", and of each of its keys, by its number and the key."""
    found: Lines = {}
    number, inside = -1, False
    for line, header, key in _statements(text):
        parts = _parts(key)
        if not header:
            if inside:
                found.setdefault((number, parts[0]), line)
            elif parts[0] == table:  # written as one array
                found.setdefault((-1, ""), line)
        elif header == "[[" and parts == [table]:
            number, inside = number + 1, True
            found[number, ""] = line
        else:
            inside = False
            if parts[0] == table and len(parts) > 1 and number >= 0:
                found.setdefault((number, parts[1]), line)
    return found


def line_of(lines: Lines, number: int, key: str = "") -> int:
    """Of the key, or where it is not known, of its table."""
    for place in ((number, key), (number, ""), (-1, "")):
        if place in lines:
            return lines[place]
    return 1


def top_level_line(text: str, name: str) -> int:
    for line, _, key in _statements(text):
        if _parts(key)[0] == name:
            return line
    return 1


def _statements(text: str) -> Iterator[tuple[int, str, str]]:
    """The line, `[` or `[[` for a header, and the dotted key of each."""
    line, depth, start = 1, 0, 1
    before = ""  # of the statement, up to its `=`
    past_key = False
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n" and depth == 0:
            yield from _statement(start, before)
            before, past_key, start = "", False, line + 1
        elif not token.startswith("#") and not past_key:
            header = before.lstrip().startswith("[") or (token == "[" and not before.strip())
            if token == "=" and not header:
                past_key = True
            else:
                before += token
        elif token in ("[", "{"):
            depth += 1
        elif token in ("]", "}"):
            depth -= 1
        line += token.count("\n")
    yield from _statement(start, before)


def _statement(line: int, before: str) -> Iterator[tuple[int, str, str]]:
    key = before.strip()
    if key:
        header = "[[" if key.startswith("[[") else key[0] if key.startswith("[") else ""
        yield line, header, key.strip("[]").strip()


def _parts(key: str) -> list[str]:
    """`buckets."T"` as `["buckets", "T"]`."""
    found = re.findall(r'"((?:\\.|[^"\\])*)"|\'([^\']*)\'|([^.\s"\']+)', key)
    return ["".join(part) for part in found] or [""]
