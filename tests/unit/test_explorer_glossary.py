"""The words of the explorer: the documentation has them as the page does."""

from __future__ import annotations

from pathlib import Path

from whet.explorer.glossary import GLOSSARY

PAGE = Path(__file__).parents[2] / "docs" / "explorer.md"


def test_the_documentation_has_the_same_words() -> None:
    words = PAGE.read_text().partition("## Words")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ", 1) for line in words.splitlines() if line[:1] == "|"]
    assert dict(rows[2:]) == GLOSSARY
