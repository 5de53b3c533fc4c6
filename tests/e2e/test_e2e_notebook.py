"""`whet.explore` in a notebook: the widget by anywidget's own machinery, in a page that does what a
notebook's front end does, and in a notebook that is run."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from browser import Tab

import whet
from explorer_samples import fill, hostile
from whet.core.errors import UsageError
from whet.core.run import Result
from whet.replay.reading import read_table
from whet.store import MemoryStore

pytestmark = pytest.mark.medium

SIZES = {"M": 4096, "N": 4096, "K": 4096}

# A model as widgets have it: binary values are DataViews, and what is saved is sent to Python.
HOST = """async ({ esm, css, state, binary }) => {
    const view = text => new DataView(Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer)
    for (const name of binary) state[name] = view(state[name])
    const heard = {}
    window.sent = 0
    let changed = {}
    window.model = {
        get: name => state[name],
        set(name, value) {
            state[name] = changed[name] = value
        },
        on: (event, act) => (heard[event] ||= []).push(act),
        off: (event, act) => (heard[event] = heard[event].filter(one => one !== act)),
        save_changes() {
            const packed = Object.entries(changed).map(([name, value]) =>
                [name, value instanceof DataView ? [...new Uint8Array(value.buffer)] : value])
            changed = {}
            window.sent += 1
            window.saved(JSON.stringify(Object.fromEntries(packed)))
        },
        received(name, value) {
            state[name] = value
            for (const act of heard[`change:${name}`] || []) act()
        }
    }
    const style = document.createElement("style")
    style.textContent = css
    document.head.append(style)
    const { default: widget } = await import(
        URL.createObjectURL(new Blob([esm], { type: "text/javascript" })))
    const el = document.createElement("div")
    document.body.append(el)
    window.ended = widget.render({ model: window.model, el })
}"""


@cache
def table() -> Any:
    return read_table("h200-gemm-576")


class Notebook:
    """A page with a widget, whose changes arrive as they do over a kernel's channel."""

    def __init__(self, tab: Tab, widget: Any) -> None:
        self.tab, self._widget, self._received = tab, widget, 0
        tab.page.expose_function("saved", self._saved)
        tab.page.goto("about:blank")
        state = widget.get_state()
        binary = [name for name, value in state.items() if isinstance(value, bytes | memoryview)]
        told = {name: base64.b64encode(state[name]).decode() for name in binary}
        shown = {name: state[name] for name in ("columns", "line", "axes", "brush", "rows")}
        tab.page.evaluate(
            HOST,
            {
                "esm": widget._esm,
                "css": widget._css,
                "state": {**shown, **told},
                "binary": binary,
            },
        )
        tab.until_text("[role=status]", "selected")

    @property
    def widget(self) -> Any:
        """Once it has heard all that the page has said."""
        deadline = time.monotonic() + 20
        while self.tab.page.evaluate("sent") != self._received:
            assert time.monotonic() < deadline
        return self._widget

    def _saved(self, text: str) -> None:
        state = json.loads(text)
        buffers = [bytes(state.pop("rows"))] if "rows" in state else []
        data = {"method": "update", "state": state, "buffer_paths": [["rows"]] * len(buffers)}
        self._widget._handle_msg({"content": {"data": data}, "buffers": buffers})
        self._received += 1

    def axis(self, name: str) -> tuple[float, float]:
        """Where its title is: across, as a share of the chart's width, and the chart's width."""
        head = self.tab.page.locator(f'[data-axis="{name}"]').bounding_box()
        box = self.tab.page.locator(".parallel canvas").bounding_box()
        return (head["x"] + head["width"] / 2 - box["x"]) / box["width"], box["width"]


@pytest.fixture
def anywidget() -> None:
    pytest.importorskip("anywidget", reason="needs the extra notebook")


@pytest.fixture
def shown(anywidget: None, tab: Tab) -> Notebook:
    return Notebook(tab, whet.explore(table(), **SIZES))


def test_a_brush_on_an_axis_selects_trials_that_python_reads(shown: Notebook) -> None:
    assert len(shown.widget.selected) == 576
    assert shown.widget.selected[0].median_ns == min(
        one.median_ns for one in shown.widget.selected if one.median_ns
    )
    across, _ = shown.axis("num_stages")
    shown.tab.drag(".parallel canvas", (across, 0.97), (across, 0.8))
    shown.tab.until_text("[role=status]", "144 of 576")
    selected = shown.widget.selected
    assert len(selected) == 144
    assert {one.config["num_stages"] for one in selected} == {2}
    assert shown.widget.brush == {"num_stages": ["2"]}


def test_a_brush_on_the_time_keeps_the_fast(shown: Notebook) -> None:
    across, _ = shown.axis("median_ns")
    shown.tab.drag(".parallel canvas", (across, 0.95), (across, 0.8))
    shown.tab.until("!document.querySelector('[role=status]').textContent.startsWith('576')")
    selected = shown.widget.selected
    rest = {one.config for one in whet.explore(table(), **SIZES).selected[len(selected) :]}
    assert 0 < len(selected) < 400
    assert not rest & {one.config for one in selected}


def test_a_drag_over_the_heat_map_filters_the_axes_and_the_table(shown: Notebook) -> None:
    heat = '.halves canvas[role="img"]'
    before = shown.tab.pixels(".parallel canvas")
    shown.tab.drag(heat, (0.9, 0.1), (0.9, 0.1))
    shown.tab.until("!document.querySelector('[role=status]').textContent.startsWith('576')")
    x, y = shown.widget.axes[:2]
    (only,) = {(one.config[x], one.config[y]) for one in shown.widget.selected}
    assert shown.widget.brush == {x: [str(only[0])], y: [str(only[1])]}
    assert shown.tab.pixels(".parallel canvas") != before
    rows = shown.tab.page.locator(".rows tbody tr").all_text_contents()
    assert len(rows) == 10
    shown.tab.page.click("text=Clear")
    assert len(shown.widget.selected) == 576


def test_the_keyboard_brushes_too(shown: Notebook) -> None:
    shown.tab.page.focus('[data-axis="num_warps"]')
    shown.tab.page.keyboard.press("ArrowUp")
    assert {one.config["num_warps"] for one in shown.widget.selected} == {2}
    shown.tab.page.keyboard.press("Escape")
    assert shown.widget.brush == {}


def test_python_sets_the_brush(shown: Notebook) -> None:
    shown.widget.brush = {"BLOCK_SIZE_M": ["128"], "median_ns": ["..200000"]}
    state = shown.widget.get_state("brush")
    shown.tab.page.evaluate("brush => model.received('brush', brush)", state["brush"])
    selected = shown.widget.selected
    assert selected
    assert all(one.config["BLOCK_SIZE_M"] == 128 and one.median_ns <= 2e5 for one in selected)


def test_it_leaves_the_page_around_it_alone(shown: Notebook) -> None:
    page = shown.tab.page
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<button>a</button>')")
    of = "getComputedStyle(document.querySelector('{}')).borderRadius"
    assert page.evaluate(of.format("body > button")) == "0px"
    assert page.evaluate(of.format(".whet-widget button")) == "6px"
    page.evaluate("ended()")
    page.evaluate("model.received('brush', {})")


@pytest.mark.parametrize("kind", ["light", "dark"])
def test_it_follows_the_notebook_and_fits_a_narrow_cell(
    anywidget: None, browser: Any, kind: str
) -> None:
    tab = Tab(browser, "dark" if kind == "light" else "light")
    Notebook(tab, whet.explore(table(), **SIZES))
    is_light = json.dumps(str(kind == "light").lower())
    tab.page.evaluate(f"document.body.dataset.jpThemeLight = {is_light}")
    tab.until(f"document.querySelector('.whet-widget').dataset.theme === {json.dumps(kind)}")
    tab.page.set_viewport_size({"width": 390, "height": 900})
    tab.until("document.documentElement.scrollWidth <= 390")
    complaints = tab.complaints
    tab.close()
    assert complaints == []


def test_hostile_text_is_text_in_the_widget(anywidget: None, tab: Tab) -> None:
    store = MemoryStore()
    of = hostile(store)
    Notebook(tab, whet.explore(store, of.kernel))
    assert tab.page.evaluate("window.hacked") is None
    assert tab.page.locator(".whet-widget img, .whet-widget script").count() == 0


def test_a_result_is_explored_and_a_workload_that_is_not_there_is_named() -> None:
    store = MemoryStore()
    run = fill(store)
    best = store.best(run.workload.id)
    assert best is not None
    result = Result(run, best, None, tuple(store.trials(run.workload.id)))
    assert whet.explore(result).selected == whet.explore(store).selected
    assert len(whet.explore(result).selected) == 32
    seen = whet.explore(store)
    with pytest.raises(UsageError, match="no workload fits nothing, M=7; there is matmul"):
        whet.explore(store, "nothing", M=7)
    store.close()
    assert len(seen.selected) == 32
    assert "matmul" in seen._repr_html_()


def test_without_anywidget_there_is_a_titled_picture() -> None:
    code = (
        "import sys; sys.modules['anywidget'] = None\n"
        "import whet; from whet.replay.reading import read_table\n"
        f"seen = whet.explore(read_table('h200-gemm-576'), **{SIZES})\n"
        "print(len(seen.selected), seen._repr_html_())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("576 <div><strong>matmul_kernel(")
    assert "on NVIDIA H200</strong>" in done.stdout
    assert "The best config by BLOCK_SIZE_M and BLOCK_SIZE_N" in done.stdout
    assert "What matters" in done.stdout
    assert "anywidget" in done.stdout
    assert "<script" not in done.stdout


@pytest.mark.slow
def test_a_notebook_that_is_run_has_the_widget_and_a_picture(
    anywidget: None, tmp_path: Path
) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient")
    pytest.importorskip("ipykernel", reason="needs ipykernel")
    new = nbformat.v4
    cells = [
        "import whet\nfrom whet.replay.reading import read_table",
        f"seen = whet.explore(read_table('h200-gemm-576'), **{SIZES})\nseen",
        "len(seen.selected)",
    ]
    notebook = new.new_notebook(cells=[new.new_code_cell(text) for text in cells])
    waits = {"timeout": 300, "startup_timeout": 300}
    at = {"metadata": {"path": tmp_path}}
    nbclient.NotebookClient(notebook, kernel_name="python3", resources=at, **waits).execute()
    data = notebook.cells[1].outputs[0]["data"]
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "<strong>matmul_kernel(" in data["text/html"]
    assert notebook.cells[2].outputs[0]["data"]["text/plain"] == "576"
    (state,) = [
        one["state"]
        for one in notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"][
            "state"
        ].values()
        if "_esm" in one["state"]
    ]
    assert "render" in state["_esm"]
