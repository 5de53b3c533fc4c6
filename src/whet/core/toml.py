"""TOML from a file that may be anybody's. The time that `tomllib` takes for a dotted key grows with
the square of its parts, so a file with too many of them is refused before."""

from __future__ import annotations

import re
import tomllib
from typing import Any

# Some tenths of a second. Whether a dot is one of a key is not looked at: no file that somebody
# has written has so many in a line, be they of numbers or of text.
_MOST = 2000**2

# Keys of a line with fewer take no time; neither does looking for such lines.
_DOTTED = re.compile(r"^(?:[^.\n]*+\.){100}.*", re.MULTILINE)


def parse_toml(text: str) -> dict[str, Any]:
    """Raises `tomllib.TOMLDecodeError`, also for what is past Python's limits."""
    check_keys(text)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("Nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:
        raise tomllib.TOMLDecodeError(str(error)) from None


def check_keys(text: str) -> None:
    """Raises `tomllib.TOMLDecodeError` where the parts of keys may be too many."""
    spent = 0
    for found in _DOTTED.finditer(text):
        spent += found[0].count(".") ** 2
        if spent > _MOST:
            line = text.count("\n", 0, found.start()) + 1
            raise tomllib.TOMLDecodeError(f"Too many dots, as of keys (at line {line}, column 1)")
