"""A page in a real browser: Debian's chromium or any other, without a window, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def browser_there() -> str:
    """The path of a browser; skips the test, saying what is missing, where there is none."""
    pytest.importorskip("playwright", reason="needs the extra `browser`")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("needs chromium: apt-get install chromium")
    return found


class Seen:
    """A page that was opened, and what should never happen in it: words on the console, requests, errors."""

    def __init__(self, page: Any, file: Path) -> None:
        self.page, self.wrong = page, []
        page.on("console", lambda message: self.wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", lambda request: self._asked(request.url, file))
        page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def _asked(self, url: str, file: Path) -> None:
        if not url.startswith((file.as_uri(), "blob:", "data:")):
            self.wrong.append(f"request: {url}")


@contextmanager
def opened(browser: Any, file: Path, *, width: int = 1400, theme: str = "light", view: str = "") -> Iterator[Seen]:
    """The page in a window of its own; afterwards nothing of `Seen.wrong` may have happened."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    seen = Seen(context.new_page(), file)
    try:
        seen.page.goto(file.as_uri() + (f"#{view}" if view else ""))
        yield seen
        assert seen.wrong == []
    finally:
        context.close()


def axe() -> str:
    """axe-core's script: of the package that has it, or where $AXE says; skips where neither is there."""
    if told := os.environ.get("AXE"):
        return Path(told).read_text(encoding="utf-8")
    package = pytest.importorskip("axe_playwright_python", reason="needs the extra `browser`, for axe-core")
    (file,) = Path(package.__file__).parent.rglob("axe.min.js")
    return file.read_text(encoding="utf-8")
