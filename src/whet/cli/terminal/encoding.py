"""What a terminal or file that knows only some characters gets instead of the others."""

from __future__ import annotations

import codecs
import io
import sys
import unicodedata
from typing import Any

READABLE = "whet.readable"

_INSTEAD = {
    **dict.fromkeys("█▉▊▋▌", "#"),
    **dict.fromkeys("▍▎▏", "."),
    **dict(zip("▁▂▃▄▅▆▇", "_..--==", strict=True)),
    "━": "=",
    "─": "-",
    "┤": "|",
    "└": "+",
    "–": "-",
    "—": "-",
    "·": "|",
    "…": "...",
    "×": "x",
    "µ": "u",
    "μ": "u",
    "±": "+-",
    "≤": "<=",
    "≥": ">=",
    "→": "->",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
}


def replacement(text: str) -> str:
    """`12.3 µs ▋` is `12.3 us #`: letters without their accents, a question mark at worst."""
    return "".join(_INSTEAD.get(mark) or _plain(mark) for mark in text)


def speak_readably() -> None:
    """What stdout and stderr cannot encode is printed in other characters, and never fails."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=READABLE)


def readable(text: str, stream: Any) -> str:
    """`text` in characters that the stream knows, for who does not print to it by itself."""
    name = getattr(stream, "encoding", None) or "ascii"
    return text.encode(name, READABLE).decode(name)


def knows_all_characters(stream: Any) -> bool:
    name = getattr(stream, "encoding", None) or "ascii"
    return codecs.lookup(name).name.startswith("utf")


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return _encodable(replacement(error.object[error.start : error.end])), error.end


def _encodable(text: str) -> str:
    """The replacement is encoded in its turn, and must not fail."""
    return text.encode("ascii", "replace").decode("ascii")


def _plain(mark: str) -> str:
    letters = unicodedata.normalize("NFKD", mark).encode("ascii", "ignore").decode("ascii")
    return letters or "?"


codecs.register_error(READABLE, _replaced)
