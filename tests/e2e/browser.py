"""A real browser for tests of the explorer's page: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

WIDE, HIGH = 1280, 720
STARTED = "Boolean(window.whetTimings && window.whetTimings.last.started)"


@contextmanager
def chromium() -> Iterator[Any]:
    """Skips where there is no Playwright or no Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("needs Playwright: pip install playwright")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One page, which must not complain on its console."""

    def __init__(self, browser: Any, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": WIDE, "height": HIGH}, color_scheme=scheme, accept_downloads=True
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.complaints: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} {message.location}")

    def open(self, url: str, link: str = "") -> Any:
        """The page at a deep link, once its first drawing is there."""
        self.page.goto("about:blank")
        self.page.goto(f"{url}/{link}")
        self.until(STARTED)
        return self.page

    def again(self) -> None:
        self.page.reload()
        self.until(STARTED)

    def until(self, expression: str, seconds: float = 20.0) -> None:
        """Until it is true in the page; its policy forbids Playwright's own way of waiting."""
        deadline = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, f"not within {seconds} s: {expression}"
            time.sleep(0.02)

    def until_text(self, selector: str, part: str) -> None:
        wanted = f"(document.querySelector({selector!r})?.textContent ?? '').includes({part!r})"
        self.until(wanted)

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.text_content() or "")

    def answer(self, name: str) -> str:
        return self.text(f'[data-answer="{name}"]')

    def selected(self) -> int:
        return int(self.text("#selected-count").split()[0].replace(",", ""))

    def hash(self) -> str:
        return str(self.page.evaluate("location.hash"))

    def pixels(self, selector: str) -> int:
        """How many colours a canvas shows: one is an empty canvas."""
        return int(
            self.page.locator(selector).first.evaluate(
                """canvas => {
                    const {data} = canvas.getContext("2d").getImageData(
                        0, 0, canvas.width, canvas.height);
                    const seen = new Set();
                    for (let i = 0; i < data.length; i += 4)
                        seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
                    return seen.size;
                }"""
            )
        )

    def saved(self, selector: str) -> bytes:
        """The file that a click downloads."""
        with self.page.expect_download() as download:
            self.page.locator(selector).first.click()
        with open(download.value.path(), "rb") as file:
            return file.read()

    def drag(self, selector: str, start: tuple[float, float], end: tuple[float, float]) -> None:
        """From one place to another, as shares of the element's box."""
        self.page.locator(selector).first.scroll_into_view_if_needed()
        box = self.page.locator(selector).first.bounding_box()
        mouse = self.page.mouse
        mouse.move(box["x"] + start[0] * box["width"], box["y"] + start[1] * box["height"])
        mouse.down()
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        for x, y in (middle, end):
            mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        mouse.up()

    def leave(self) -> None:
        """Before its server stops, which the page would complain about."""
        self.page.goto("about:blank")

    def close(self) -> None:
        self.context.close()
