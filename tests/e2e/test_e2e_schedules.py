"""Schedules in a real browser: tuned by MLIR, then looked at side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browser import Tab

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install '.[mlir]'")
pytest.importorskip("uvicorn", reason="needs the extra explorer")
pytestmark = pytest.mark.medium

NAMES = ["tiled", "fused", "vectorized"]
KERNEL = """
import whet
from whet.targets.schedule.frontend import ScheduleBuilder
from whet.targets.schedule.payloads import matmul_bias_relu


def script(fuse, vectorize):
    s = ScheduleBuilder()
    t = s.knob("t", [8, 4])
    last, product = s.match("linalg.generic"), s.match("linalg.matmul")
    fill = s.match("linalg.fill")
    tile = s.tile(last, [t, 16])
    if fuse:
        inner = s.fuse(product, into=tile.loops[1])
        s.fuse(fill, into=inner.loops[0])
    else:
        inner = s.tile(product, [t, 16])
    s.tile(inner.op, [0, 0, 4])
    if vectorize:
        s.vectorize()
    s.bufferize()
    s.lower()
    return s


small = matmul_bias_relu(32, 32, 32)
tiled = whet.schedule(small, script(False, False), name="tiled")
fused = whet.schedule(small, script(True, False), name="fused")
vectorized = whet.schedule(small, script(True, True), name="vectorized")
"""


@dataclass
class Comparison:
    """What was said in the terminal, and where the page is."""

    folder: Path
    said: str
    address: str

    @property
    def link(self) -> str:
        return "#" + self.address.partition("#")[2]

    def whet(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "whet", *arguments, "--store", "s.db"]
        done = subprocess.run(
            command, cwd=self.folder, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    """`whet schedule A B … --explore`, with a browser that does nothing."""
    folder = tmp_path_factory.mktemp("schedules")
    (folder / "kernel.py").write_text(KERNEL)
    arguments = ["kernel.py:tiled", ":fused", ":vectorized", "--explore"]
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", "schedule", *arguments, "--store", "s.db"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "BROWSER": "true"},
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "http" in line:
            break
    assert lines, "nothing was compared"
    yield Comparison(folder, "".join(lines[:-1]), lines[-1].split()[-1])
    process.terminate()
    process.wait(10)
    process.stdout.close()


def cells(tab: Tab, fact: str) -> list[str]:
    tab.page.wait_for_selector("#beside:not([hidden])")
    found: list[str] = tab.page.locator(f'#beside [data-fact="{fact}"] td').all_text_contents()
    return found[1:]


def code(tab: Tab) -> list[str]:
    found: list[str] = tab.page.locator("#beside [data-beside]").all_text_contents()
    return found


def opened(tab: Tab, compared: Comparison, more: str = "") -> Any:
    address, _, link = compared.address.partition("/#")
    return tab.open(address, f"#{link}{more}")


@pytest.mark.whole
def test_three_schedules_stand_side_by_side_with_what_was_measured(
    compared: Comparison, tab: Tab
) -> None:
    opened(tab, compared)
    times = cells(tab, "time")
    said = [line.split() for line in compared.said.splitlines() if "×" in line]
    assert tab.page.locator("#beside thead th").all_text_contents() == ["", *NAMES]
    assert [line[0] for line in said] == NAMES
    for shown, line in zip(times, said, strict=True):
        assert shown.split()[1] == line[2]
        assert float(shown.split()[0]) == pytest.approx(float(line[1]), rel=0.01)
    assert all(" to " in interval for interval in cells(tab, "95 % interval"))
    assert cells(tab, "against the slowest") == [line[3] for line in said]
    assert cells(tab, "config") == [line[4] for line in said]
    tiled, fused, vectorized = cells(tab, "insight")
    assert "2 nests, one number at a time" in tiled
    assert "1 nest, one number at a time" in fused
    assert "vectors of up to" in vectorized


def test_their_programs_are_shown_before_and_after(compared: Comparison, tab: Tab) -> None:
    page = opened(tab, compared)
    page.wait_for_selector("#beside:not([hidden])")
    tiled, fused, vectorized = code(tab)
    assert "linalg.matmul" in tiled
    assert "linalg.matmul" in fused
    assert "linalg." not in vectorized
    assert "vector." in vectorized
    page.click('#beside [data-stage="payload"]')
    assert len({*code(tab)}) == 1
    assert "linalg.generic" in code(tab)[0]
    page.click('#beside [data-stage="script"]')
    assert ["fuse_into_containing_op" in one for one in code(tab)] == [False, True, True]
    assert "ir=script" in tab.hash()


def test_any_two_of_them_are_told_apart_line_by_line(compared: Comparison, tab: Tab) -> None:
    page = opened(tab, compared, "&ir=script")
    page.wait_for_selector("#beside:not([hidden])")
    page.select_option("#beside-diff", label="fused → vectorized")
    added = page.locator("#beside .plus").all_text_contents()
    assert any("vectorize_children" in line for line in added)
    page.select_option("#beside-diff", label="tiled → fused")
    added = page.locator("#beside .plus").all_text_contents()
    assert any("fuse_into_containing_op" in line for line in added)
    page.click('#beside [data-stage="scheduled"]')
    tab.until_text("#beside .fact", "scheduled: ")
    assert page.locator("#beside .minus").count() > 0
    page.click('#beside [data-stage="payload"]')
    tab.until_text("#beside .fact", "payload is the same in both")
    tab.again()
    tab.until_text("#beside .fact", "payload is the same in both")


def test_any_two_workloads_of_the_store_can_be_chosen(compared: Comparison, tab: Tab) -> None:
    page = opened(tab, compared)
    page.wait_for_selector("#beside:not([hidden])")
    page.select_option("#compare-c", "")
    heads = page.locator("#beside thead th")
    tab.until("document.querySelectorAll('#beside thead th').length === 3")
    vectorized = page.locator("#compare-b option", has_text="vectorized").get_attribute("value")
    page.select_option("#compare-b", vectorized)
    tab.until_text("#beside thead", "vectorized")
    assert heads.all_text_contents() == ["", "tiled", "vectorized"]


def test_a_trial_of_a_schedule_shows_its_program(compared: Comparison, tab: Tab) -> None:
    page = opened(tab, compared)
    page.click('[data-view="trial"]')
    tab.until_text("#ir [data-ir]", "linalg.matmul")
    stages = page.locator("#ir [data-stage]").all_text_contents()
    assert stages == ["insight", "script", "payload", "scheduled"]
    page.click('#ir [data-stage="insight"]')
    tab.until_text("#ir [data-ir]", "one number at a time")


def test_a_report_has_it_too(compared: Comparison, tab: Tab) -> None:
    compared.whet("explore", "--out", "r.html", "--quiet")
    tab.context.set_offline(True)
    tab.open(f"file://{compared.folder}", f"r.html{compared.link}&ir=scheduled&diff=12")
    assert "vectors of up to" in cells(tab, "insight")[2]
    assert "vector." in "".join(tab.page.locator("#beside .plus").all_text_contents())
    tab.page.click('[data-view="trial"]')
    tab.until_text("#ir [data-ir]", "linalg.matmul")
