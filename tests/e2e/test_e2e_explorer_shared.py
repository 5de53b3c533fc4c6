"""What is taken out of the explorer: configs, pictures, prints."""

from __future__ import annotations

import ast
import json
import struct
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from browser import Tab

pytestmark = pytest.mark.slow

pytest.importorskip("uvicorn", reason="needs the extra explorer")

READ = "whetTimings.app.ds?.complete"


def saved(tab: Tab, selector: str) -> tuple[str, bytes]:
    with tab.page.expect_download() as download:
        tab.page.locator(selector).first.click()
    with open(download.value.path(), "rb") as file:
        return str(download.value.suggested_filename), file.read()


def test_a_config_is_copied_as_python_triton_and_json(sample: str, browser: Any) -> None:
    tab = Tab(browser)
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = tab.open(sample, "#trial")
    tab.until_text('[data-trial="verdict"]', "The best config")
    copied = {}
    for name in ("dict", "triton.Config", "JSON"):
        page.click(f'[data-copy="{name}"]')
        tab.until_text(f'[data-copy="{name}"]', "Copied")
        copied[name] = str(page.evaluate("navigator.clipboard.readText()"))
    tab.close()
    config = ast.literal_eval(copied["dict"])
    assert config["BLOCK_SIZE_M"] == 128
    assert json.loads(copied["JSON"]) == config
    call = ast.parse(copied["triton.Config"], mode="eval").body
    assert isinstance(call, ast.Call)
    own = ast.literal_eval(call.args[0])
    options = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
    assert {**own, **options} == config
    assert set(options) == {"num_warps", "num_stages", "num_ctas"}


@pytest.mark.parametrize("view", ["space", "search", "cost", "trial", "compare"])
def test_pictures_say_what_they_show(sample: str, tab: Tab, view: str) -> None:
    page = tab.open(sample, f"#{view}?lanes=random:0,grid:0")
    tab.until(READ)
    page.wait_for_timeout(1500)
    buttons = page.locator('[data-export="svg"]:visible')
    ids = buttons.evaluate_all("all => all.map(one => one.closest('.figure').id)")
    assert ids
    for id in ids:
        name, data = saved(tab, f'#{id} [data-export="svg"]')
        ElementTree.fromstring(data)
        text = data.decode()
        assert name.startswith("matmul_kernel-h200-gemm-576-K=4096-M=4096-N=4096-"), name
        assert "matmul_kernel h200-gemm-576 · K=4096" in text
        for part in (">NVIDIA<", ">H200<", ">tuned<", ">2026-"):
            assert part in text, (id, part)
        assert "NaN" not in text
        name, data = saved(tab, f'#{id} [data-export="png"]')
        assert name.endswith(".png")
        wide, high = struct.unpack(">II", data[16:24])
        box = page.locator(f"#{id} canvas").first.bounding_box()
        assert wide == 2 * (round(box["width"]) + 28)
        assert high > 2 * box["height"] + 80


def test_the_heat_map_is_named_after_its_axes_and_has_its_legend(sample: str, tab: Tab) -> None:
    tab.open(sample, "#space?x=BLOCK_SIZE_M&y=num_warps")
    tab.until(READ)
    name, data = saved(tab, '#heat [data-export="svg"]')
    assert name.endswith("Heat-map-of-BLOCK_SIZE_M-and-num_warps-in-TFLOP-s.svg")
    text = data.decode()
    for part in ("★ the pick", "slow", "TFLOP/s", "BLOCK_SIZE_M"):
        assert part in text


def test_no_config_is_cut(sample: str, tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 1010, "height": 720})
    page = tab.open(sample, "#space")
    tab.until(READ)
    cut = page.evaluate(
        "[...document.querySelectorAll('.answer p')].filter(one =>"
        " one.scrollHeight > one.clientHeight + 1 || one.scrollWidth > one.clientWidth + 1).length"
    )
    assert cut == 0


def test_a_print_has_no_controls_and_is_light(sample: str, browser: Any) -> None:
    tab = Tab(browser, "dark")
    page = tab.open(sample, "#space")
    tab.until(READ)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert page.locator("#tabs:visible, .figure .tools:visible, #foot:visible").count() == 0
    assert page.locator("#rows .scroll").evaluate("one => one.scrollHeight <= one.clientHeight + 1")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.close()
