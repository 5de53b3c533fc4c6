"""Takes the pictures of the explorer in docs/pictures, with Playwright, Chromium and Pillow.

python docs/tools/screens.py

All are of the sample: a matrix product, and attention, of which a run with its timeline was kept.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

PICTURES = Path(__file__).parents[1] / "pictures"

# Of which kernel, how high the window is, and a text that is there once all is drawn.
VIEWS = {
    "space": ("matmul_kernel", 1090, "Then BLOCK_SIZE_N"),
    "search": ("matmul_kernel", 990, "median of 20 seeds"),
    "cost": ("attention_kernel", 1330, "Build workers were busy"),
}


@contextmanager
def explorer() -> Iterator[str]:
    command = [sys.executable, "-m", "whet", "explore", "--sample", "--no-open", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1].rstrip("/")
    finally:
        process.terminate()
        process.wait()


def take(page: Page, url: str) -> None:
    lines = page.request.get(f"{url}/api/workloads").json()
    lines.sort(key=lambda one: (one["flops"] or 0, one["rows"]))
    of = {one["kernel"]: one["id"] for one in lines}
    for view, (kernel, high, text) in VIEWS.items():
        page.set_viewport_size({"width": 1280, "height": high})
        page.goto("about:blank")
        page.goto(f"{url}/#{view}?w={of[kernel]}")
        page.get_by_text(text).first.wait_for(timeout=180_000)
        page.wait_for_timeout(1000)
        taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        # A third of the size, and no difference to see.
        taken.quantize(256).save(PICTURES / f"explorer-{view}.png", optimize=True)


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright, explorer() as url:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take(browser.new_context(color_scheme="light").new_page(), url)
        browser.close()


if __name__ == "__main__":
    main()
