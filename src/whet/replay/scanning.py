"""JSON read member by member, so that a file that is cut off still gives what it has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_BLANKS = re.compile(r"[ \t\n\r]*")
_CLOSING = {"{": "}", "[": "]"}


class CutOff(Exception):
    """From here on the text is no JSON."""


class Scanner:
    """Goes through nested objects and arrays one level at a time, each value as it is wanted."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._decode = json.JSONDecoder().raw_decode

    def value(self) -> Any:
        self._peek()
        try:
            value, self._at = self._decode(self._text, self._at)
        except (ValueError, RecursionError):
            raise CutOff from None
        return value

    def members(self) -> Iterator[str]:
        """The names in an object, or empty texts in an array.

        Between two of them the caller must take what the name stands for, with `value` or with
        `members`.
        """
        opening = self._peek()
        if opening not in _CLOSING:
            raise CutOff
        self._at += 1
        if self._peek() == _CLOSING[opening]:
            self._at += 1
            return
        while True:
            yield self._name() if opening == "{" else ""
            mark = self._peek()
            self._at += 1
            if mark == _CLOSING[opening]:
                return
            if mark != ",":
                raise CutOff

    def _name(self) -> str:
        name = self.value()
        if not isinstance(name, str) or self._peek() != ":":
            raise CutOff
        self._at += 1
        return name

    def _peek(self) -> str:
        blanks = _BLANKS.match(self._text, self._at)
        assert blanks is not None
        self._at = blanks.end()
        return self._text[self._at : self._at + 1]
