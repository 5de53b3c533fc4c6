"""Takes the pictures of the explorer in docs/pictures, with Playwright, Chromium and Pillow.

python docs/tools/screens.py

Two are of the tables that come with whet; the third is of a C kernel that is tuned for it here,
which takes a minute.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

PICTURES = Path(__file__).parents[1] / "pictures"
WHET = (sys.executable, "-m", "whet")

# How high the window is, and a text that is there once all is drawn.
SAMPLE = {"space": (1090, "then BLOCK_SIZE_N"), "search": (990, "median of 20 seeds")}
OWN = {"cost": (1130, "Build workers were busy")}


@contextmanager
def explorer(*source: str) -> Iterator[str]:
    command = [*WHET, "explore", "--no-open", "--port", "0", *source]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1].rstrip("/")
    finally:
        process.terminate()
        process.wait()


def sizes(key: dict[str, Any]) -> set[int]:
    return {value for value in key.values() if isinstance(value, int)}


def take(page: Page, url: str, rows: int, n: int, views: dict[str, tuple[int, str]]) -> None:
    lines = page.request.get(f"{url}/api/workloads").json()
    wanted = next(one for one in lines if one["rows"] > rows and sizes(one["key"]) == {n})
    for view, (high, text) in views.items():
        page.set_viewport_size({"width": 1280, "height": high})
        page.goto("about:blank")
        page.goto(f"{url}/#{view}?w={wanted['id']}")
        page.get_by_text(text).first.wait_for(timeout=180_000)
        page.wait_for_timeout(1000)
        taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        # A third of the size, and no difference to see.
        taken.quantize(256).save(PICTURES / f"explorer-{view}.png", optimize=True)


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(color_scheme="light").new_page()
        with explorer("--sample") as url:
            take(page, url, 500, 4096, SAMPLE)
        store = f"{folder}/store.db"
        tuned = ("demo", "--cpu", "--n", "192", "--store", store)
        subprocess.run([*WHET, *tuned], check=True, stdout=subprocess.DEVNULL)
        with explorer("--store", store) as url:
            take(page, url, 1, 192, OWN)
        browser.close()


if __name__ == "__main__":
    main()
