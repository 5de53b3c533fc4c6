"""What 0.1 wrote is read by every version since: stores, bundles, locks, settings and policies.

The files in `formats_0_1` were written before the house was made smaller, and `answers.json` says
what was read from them then. Files are added to a folder of a later version, never changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).with_name("formats_0_1")
BUNDLE = ("--store", "from_bundle.db")
QUESTIONS: dict[str, tuple[str, ...]] = {
    "workloads": ("store", "stats", "--list", "--json", "--store", "store.db"),
    "trials": ("show", "trials", "nap", "--all", "--json", "--store", "store.db"),
    "best": ("best", "nap", "--json", "--store", "store.db"),
    "cost": ("show", "cost", "nap", "--json", "--store", "store.db"),
    "workloads of the bundle": ("store", "stats", "--list", "--json", *BUNDLE),
    "best of the bundle": ("best", "nap", "--json", *BUNDLE),
    "settings": ("settings", "--json"),
    "policy": ("settings", "--kernel", "lib.deep:norm_fwd", "--json"),
    "policy of another": ("settings", "--kernel", "lib.rest:scan", "--json"),
    "lock": ("lock", "check", "--json"),
}
NAMES = {"WHET_CONFIG": "settings.toml", "WHET_POLICY": "whet.toml", "WHET_LOCK": "whet.lock"}

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats") / "0_1"
    shutil.copytree(FOLDER, folder)
    whet(folder, "store", "merge", "results.whet", *BUNDLE)
    return folder


def whet(folder: Path, *words: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("WHET_")}
    env |= {name: str(folder / file) for name, file in NAMES.items()}
    command = [sys.executable, "-m", "whet", *words]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer(folder: Path, words: tuple[str, ...]) -> Any:
    """What is read, without the places where this copy and this user's own files are."""
    return _placeless(json.loads(whet(folder, *words)), str(folder))


def _placeless(value: Any, folder: str) -> Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key not in ("bytes", "size")}
        if kept.get("source") == "default":
            kept.pop("value", None)
        return {key: _placeless(item, folder) for key, item in kept.items()}
    if isinstance(value, list):
        return [_placeless(item, folder) for item in value]
    return value.replace(folder, "FOLDER") if isinstance(value, str) else value


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_the_first_version_wrote_is_read_as_it_was(name: str, folder: Path) -> None:
    answers = json.loads((FOLDER / "answers.json").read_text())
    assert _known_then(answer(folder, QUESTIONS[name]), answers[name]) == answers[name]


def _known_then(now: Any, then: Any) -> Any:
    """Without the settings that came later."""
    if isinstance(now, dict) and isinstance(settings := then.get("settings"), dict):
        return {**now, "settings": {name: now["settings"].get(name) for name in settings}}
    return now
