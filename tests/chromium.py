"""A headless Chromium for the pages that onelip makes: the report and the documentation site."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

PATIENCE = 600_000
"""Milliseconds: a loaded machine may take long, a broken page does not hang the suite."""

needs_chromium = pytest.mark.skipif(
    not CHROMIUM.exists() and "CI" not in os.environ, reason="chromium is not installed (apt-get install chromium)"
)


@contextmanager
def started_browser() -> Iterator[Browser]:
    """A browser, closed at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS, timeout=PATIENCE)
        yield browser
        browser.close()


def barriers(page: Page) -> list[Any]:
    """What axe-core finds: contrast, labels, headings, tables; a rule and the first element that breaks it."""
    found = Axe().run(page).response["violations"]
    return [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found]
