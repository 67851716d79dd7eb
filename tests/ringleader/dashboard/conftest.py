"""A real browser for the page's tests: the system's Chromium, driven by Playwright; skipped where either is missing.

Screenshots are kept in `build/dashboard` of this folder, or where `DASHBOARD_PICTURES` says.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

ROOT = Path(__file__).resolve().parents[3]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
Shoot = Callable[["Page", str], Awaitable[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """Chromium without a window. `page.example.com` is this machine to it, by another name."""
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        pytest.skip("Playwright is not installed; pip install playwright (its own browsers are not needed)")
    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium on this machine; apt-get install chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path,
            # in a container as root there is no sandbox to be had; nothing but our own page is opened
            args=["--no-sandbox", "--host-resolver-rules=MAP page.example.com 127.0.0.1"],
        )
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def shoot() -> Shoot:
    """Keep a picture of the whole page."""
    folder = Path(os.environ.get("DASHBOARD_PICTURES") or ROOT / "build" / "dashboard")
    folder.mkdir(parents=True, exist_ok=True)

    async def shoot(page: Page, name: str) -> None:
        await page.screenshot(path=folder / f"{name}.png", full_page=True)

    return shoot
