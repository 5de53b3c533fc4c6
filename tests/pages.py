"""The pages people read, and the commands in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
)

_BLOCK = re.compile(r"(?:^<!-- (.*?) -->\n)?^```console\n(.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Command:
    """`line` is what follows `$ `, without its comment; `needs` is gpu, torch, mlir or empty;
    `excuse` says why it is not run anywhere."""

    page: str
    line: str
    needs: str
    excuse: str

    @property
    def words(self) -> list[str]:
        """`WHET_MODE=off python x.py` is `python x.py`."""
        words = shlex.split(self.line)
        return words[next(i for i, word in enumerate(words) if "=" not in word) :]


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def commands(page: str) -> list[Command]:
    found = []
    for mark, block in _BLOCK.findall(text_of(page)):
        kind, _, rest = mark.partition(": ")
        assert kind in ("", "needs", "not run"), f"{page}: <!-- {mark} -->"
        assert bool(kind) == bool(rest), f"{page}: <!-- {mark} --> does not say what or why"
        needs = rest.split(",")[0] if kind == "needs" else ""
        assert needs in ("", "gpu", "torch", "mlir"), f"{page}: <!-- {mark} -->"
        for line in block.splitlines():
            assert line.startswith("$ "), f"{page}: a console block holds commands only"
            plain = line[2:].split("  #")[0].split(" # ")[0].rstrip()
            found.append(Command(page, plain, needs, rest if kind == "not run" else ""))
    return found
