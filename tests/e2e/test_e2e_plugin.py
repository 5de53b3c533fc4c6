"""The package of examples/plugin: built as a wheel, installed, and used as docs/plugins.md says."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from test_e2e_pages import Ran, Scratch

from pages import ROOT, commands
from whet.store import open_store

PLUGIN = ROOT / "examples" / "plugin"
PAGE = "docs/plugins.md"

pytestmark = [pytest.mark.timeout(600), pytest.mark.medium]


def pip(*words: object) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    command = [sys.executable, "-m", "pip", *map(str, words), *quiet]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def a_wheel(folder: Path) -> Path:
    if importlib.util.find_spec("hatchling") is not None:
        pip("wheel", PLUGIN, "--no-build-isolation", "--wheel-dir", folder)
        [wheel] = folder.glob("*.whl")
        return wheel
    return packed_by_hand(folder)


def packed_by_hand(folder: Path) -> Path:
    """What the build backend would make of the package, where there is none."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    name = f"{project['name'].replace('-', '_')}-{project['version']}"
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{one} = {value}" for one, value in points.items()), ""]
    info = {
        "METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\n"
        f"Version: {project['version']}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "\n".join(lines),
    }
    wheel = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        written = [f"{name}.dist-info/{file}" for file in info]
        for file, text in info.items():
            archive.writestr(f"{name}.dist-info/{file}", text)
        for path in sorted((PLUGIN / "src").rglob("*.py")):
            written.append(path.relative_to(PLUGIN / "src").as_posix())
            archive.write(path, written[-1])
        record = f"{name}.dist-info/RECORD"
        archive.writestr(record, "".join(f"{one},,\n" for one in (*written, record)))
    return wheel


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    """A folder with the examples, and the package installed beside whet."""
    folder = tmp_path_factory.mktemp("plugin")
    pip("install", a_wheel(tmp_path_factory.mktemp("wheel")), "--target", folder / "site")
    made = Scratch(folder)
    made.environ["LOGNAME"] = "somebody"
    made.environ["PYTHONPATH"] = f"{folder / 'site'}:{made.environ['PYTHONPATH']}"
    return made


def lines() -> list[str]:
    return [one.line for one in commands(PAGE) if not one.line.startswith("pip ")]


@pytest.fixture(scope="module")
def ran(scratch: Scratch) -> dict[str, Ran]:
    return {line: scratch.run(line) for line in lines()}


@pytest.mark.slow
@pytest.mark.parametrize("line", lines())
def test_every_command_of_the_page_runs_with_it(ran: dict[str, Ran], line: str) -> None:
    assert ran[line].code == 0, ran[line].err[-2000:]
    assert "Traceback" not in ran[line].err


def test_the_team_has_what_was_tuned_and_imported(ran: dict[str, Ran], scratch: Scratch) -> None:
    listed = ran[lines()[-1]].out
    assert all(kernel in listed for kernel in ("gzip", "dot", "imported"))
    [own] = (scratch.folder / "team").glob("*.db")
    assert own.name == f"somebody@{platform.node()}.db"
    header = (scratch.folder / "results" / "gzip.csv").read_text().splitlines()[0]
    assert header == "device,key.command,config.level,median_ns"


def test_what_a_colleague_found_is_known(ran: dict[str, Ran], scratch: Scratch) -> None:
    [own] = (scratch.folder / "team").glob("*.db")
    (scratch.folder / "theirs").mkdir()
    (scratch.folder / "theirs" / "colleague@elsewhere.db").write_bytes(own.read_bytes())
    asked = scratch.run(f"whet best gzip --store team://{scratch.folder}/theirs")
    assert "level=" in asked.out
    assert len([*(scratch.folder / "theirs").glob("*.db")]) == 1


def test_a_tuning_by_its_strategy_and_timer_says_so(scratch: Scratch) -> None:
    (scratch.folder / "sums.py").write_text(
        "import whet\n"
        "def work(n):\n    return sum(range(n))\n"
        "sums = whet.function(work, {'n': [4000, 200]}, timer='cpu-seconds')\n"
    )
    one = scratch.run("whet tune sums.py --search nearby --store sums.db")
    assert one.code == 0, one.err
    with open_store(scratch.folder / "sums.db", read_only=True) as store:
        [known] = store.workloads()
        assert [run.search for run in store.runs(known.workload.id)] == ["nearby"]
        timers = {trial.timing.timer for trial in store.trials(known.workload.id) if trial.timing}
    assert timers == {"cpu-seconds"}


def test_a_broken_installation_costs_one_line(scratch: Scratch) -> None:
    """One of its files is gone."""
    module = scratch.folder / "site" / "whet_example" / "nearby.py"
    kept = module.read_text()
    module.unlink()
    try:
        one = scratch.run("whet tune examples/dot.py:dot --search nearby")
    finally:
        module.write_text(kept)
    assert one.code == 2
    assert one.err == (
        "whet: cannot import the strategy 'nearby' of package whet-example: "
        "ModuleNotFoundError: No module named 'whet_example.nearby'\n"
    )


@pytest.mark.whole
def test_every_part_passes_its_kit(scratch: Scratch) -> None:
    tests = scratch.folder / "examples" / "plugin" / "tests"
    one = scratch.run(f"python -m pytest -q -p no:cacheprovider -c /dev/null {tests}")
    assert one.code == 0, one.out[-3000:]
    assert " passed" in one.out
