"""Installs a small package of parts for a test: modules and entry points in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(
    folder: Path,
    points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str],
    package: str = "some-parts",
) -> Path:
    """`points` are by group: `{"whet.strategies": {"mine": "parts:Mine"}}`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = []
    for group, named in points.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in named.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder
