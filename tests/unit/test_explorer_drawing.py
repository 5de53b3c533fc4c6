"""Heat maps and curves without a browser: in notebooks and in the terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from explorer_samples import HOSTILE, fill, hostile, trial, workload
from whet.cli import main
from whet.core.errors import UsageError
from whet.core.run import Result
from whet.core.status import Status
from whet.explorer.columns import TrialColumns
from whet.explorer.drawings import Convergence, curve_lines, grid_of, heat_lines, places_for
from whet.replay import read_table
from whet.store import MemoryStore, OverlayStore, SqliteStore, Store
from whet.store.scanning import rows_of

Whet = Callable[..., tuple[int, str, str]]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def _seen(html: str | None) -> _Tags:
    assert html is not None
    parser = _Tags()
    parser.feed(html)
    return parser


@pytest.fixture
def whet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Whet:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def _columns(*configs: tuple[dict[str, Any], float | None]) -> TrialColumns:
    columns = TrialColumns()
    of = workload()
    columns.extend(
        rows_of(
            [
                trial(of, config, ns)
                if ns is not None
                else trial(of, config, status=Status.RESOURCES, error="no room")
                for config, ns in configs
            ]
        )
    )
    return columns


def test_a_cell_is_the_fastest_config_with_its_two_values() -> None:
    columns = _columns(
        ({"a": 1, "b": 1, "c": 1}, 200.0),
        ({"a": 1, "b": 1, "c": 2}, 100.0),
        ({"a": 2, "b": 1, "c": 1}, 400.0),
        ({"a": 1, "b": 2, "c": 1}, None),
    )
    grid = grid_of(columns, "a", "b")
    assert grid is not None
    assert (grid.x.places, grid.y.places, grid.others) == (("1", "2"), ("1", "2"), ("c",))
    (fast, slow), (failed, untried) = grid.cells
    assert grid.share(fast) == 1
    assert fast.tried == 2
    assert grid.share(slow) == pytest.approx(0.25, rel=0.05)
    assert (failed.failed, untried.tried) == ("resources", 0)
    assert (grid.depth(fast), grid.depth(slow)) == (1, 0)


def test_terminal_cells_say_how_fast_what_failed_and_what_was_not_tried() -> None:
    columns = _columns(
        ({"a": 1, "b": 1}, 100.0), ({"a": 2, "b": 1}, 200.0), ({"a": 1, "b": 2}, None)
    )
    grid = grid_of(columns, "a", "b")
    assert grid is not None
    lines = heat_lines(grid, 80)
    assert lines[0].split() == ["b", "1", "2", "a"]
    assert re.fullmatch(r"1 +█ 100\* ░  5\d", lines[1])
    assert re.fullmatch(r"2 +res +·", lines[2])
    assert "res: resources" in lines
    assert "·: not tried" in lines


@pytest.mark.medium
@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("many", [2, 9, 30, 500])
def test_no_line_is_wider_than_the_terminal(width: int, many: int) -> None:
    columns = _columns(*(({"across": n, "down": n % 3}, 100.0 + n) for n in range(many)))
    grid = grid_of(columns, "across", "down", most=places_for(width))
    assert grid is not None
    assert max(map(len, heat_lines(grid, width))) <= width
    curve = Convergence.of(columns)
    assert curve.final_ns is not None
    for by_seconds in (False, True):
        lines = curve_lines(curve, curve.final_ns, width, by_seconds=by_seconds)
        assert max(map(len, lines)) <= width


def test_a_curve_rises_to_the_best() -> None:
    columns = _columns(({"a": 1}, None), ({"a": 2}, 400.0), ({"a": 3}, 100.0), ({"a": 4}, 300.0))
    curve = Convergence.of(columns)
    assert curve.final_ns is not None
    assert curve.shares(curve.final_ns) == pytest.approx([0, 0.25, 1, 1], rel=0.05)
    top = curve_lines(curve, curve.final_ns, 47)[0]
    assert top.startswith(" 100 %")
    assert top[7:].rstrip() == " " * 20 + "█" * 20


def test_a_parameter_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"no parameter 'aa'; .*a"):
        grid_of(_columns(({"a": 1}, 1.0), ({"a": 2}, 2.0)), "aa")


def test_of_nothing_nothing_is_drawn() -> None:
    assert grid_of(TrialColumns()) is None
    assert grid_of(_columns(({"a": 1}, 5.0))) is None


@pytest.mark.medium
def test_a_store_and_a_result_show_themselves_in_a_notebook(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        run = fill(store)
        best = store.best(run.workload.id)
        assert best is not None
        assert run.first is not None
        first = store.latest(run.workload.id, run.first.id)
        result = Result(run, best, first, tuple(store.trials(run.workload.id)))
        shown, told = _seen(store._repr_html_()), _seen(result._repr_html_())
    assert {"svg", "table"} <= shown.tags & told.tags
    assert "matmul" in shown.text
    for text in (
        "BM=128 BN=128 num_warps=4",
        "with 95 %",
        "× the first config",
        "2× out of resource",
    ):
        assert text in told.text
    assert "script" not in shown.tags | told.tags


@pytest.mark.medium
def test_a_table_shows_itself() -> None:
    shown = _seen(read_table("h200-gemm-paper")._repr_html_())
    assert "64 workloads" in shown.text
    assert "matmul_kernel" in shown.text
    assert "and 44 more" in shown.text


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["memory", "overlay", "empty"])
def test_every_store_shows_itself(tmp_path: Path, kind: str) -> None:
    store: Store = MemoryStore()
    if kind == "overlay":
        store = OverlayStore(SqliteStore(tmp_path / "s.db"), store)
    if kind != "empty":
        fill(store)
    shown = _seen(store._repr_html_())  # type: ignore[attr-defined]
    assert ("0 workloads" if kind == "empty" else "1 workload") in shown.text


@pytest.mark.medium
def test_hostile_text_is_text_in_a_notebook(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        of = hostile(store)
        best = store.best(of.id)
        assert best is not None
        run = fill(store)
        result = Result(run, best, None, tuple(store.trials(of.id)), notes=(HOSTILE,))
        for html in (store._repr_html_(), result._repr_html_()):
            seen = _seen(html)
            assert not seen.tags & {"script", "img", "iframe"}
            assert not any(name.startswith("on") for name in seen.attributes)
            assert "window.hacked" in seen.text


@pytest.mark.medium
def test_drawing_needs_only_the_core() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['starlette', 'uvicorn', 'sklearn']));"
        "from whet.store import MemoryStore; print(MemoryStore()._repr_html_())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "0 workloads" in done.stdout


@pytest.mark.medium
def test_space_show_and_history_draw_within_eighty_columns(whet: Whet) -> None:
    with SqliteStore("s.db") as store:
        run = fill(store)
    for view in (["space"], [], ["history"]):
        code, out, _ = whet("show", *view, "matmul", "--store", "s.db")
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
        assert "matmul(M=512" in out
    _, out, _ = whet("show", "space", "--store", "s.db", "--x", "BN", "--y", "num_warps")
    heads = [line.split() for line in out.splitlines() if line.startswith("num_warps")]
    assert heads == [["num_warps", "32", "64", "128", "256", "BN"]]
    _, out, _ = whet("show", "--store", "s.db")
    assert "BM=128 BN=128 num_warps=4" in out
    assert "with 95 % (12 samples)" in out
    assert "2× resources: out of resource: shared memory" in out
    assert re.search(r"BM +█+ \d+ %", out)
    _, out, _ = whet("show", "history", "--store", "s.db")
    assert run.id[:8] in out
    assert "32 evaluations" in out
    assert "3.2 s" in out


@pytest.mark.medium
def test_they_speak_json(whet: Whet) -> None:
    import json

    with SqliteStore("s.db") as store:
        fill(store)
    space = json.loads(whet("show", "space", "--store", "s.db", "--json")[1])["space"]
    assert space["x"]["parameter"] == "BM"
    assert space["cells"][3][3] == {"ns": None, "tried": 2, "failed": "resources"}
    history = json.loads(whet("show", "history", "--store", "s.db", "--json")[1])
    assert len(history["runs"][0]["best_ns"]) == 32
    show = json.loads(whet("show", "--store", "s.db", "--json")[1])
    assert show["importance"][0]["parameter"] == "BM"
    assert show["workload"]["trials"] == {"ok": 30, "resources": 2}


@pytest.mark.medium
def test_hostile_text_does_not_steer_the_terminal(whet: Whet) -> None:
    with SqliteStore("s.db") as store:
        of = workload("evil\033[2Jkernel")
        store.put_workload(of)
        store.append([trial(of, {"a\033[31m": f"x\033]0;{n}\a"}, 100.0 + n) for n in range(9)])
    for view in (["space"], []):
        code, out, _ = whet("show", *view, "--store", "s.db")
        assert code == 0
        assert "\033" not in out
        assert "\a" not in out


def test_without_results_one_line_says_so(whet: Whet) -> None:
    for view in (["space"], [], ["history"]):
        code, out, err = whet("show", *view, "--store", "none.db")
        assert (code, out) == (1, "")
        assert re.fullmatch(r"whet: no results yet in \S+; 'whet tune' creates some\n", err)
    assert not Path("none.db").exists()
