"""The page of a real sharder, over a fleet of real processes: what it shows, and how soon."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from devcluster.embedded import embedded_plane
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.held import held
from tests.sharder.page.conftest import Shoot

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.fleet, pytest.mark.alone]

OBJECTS = 200


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """As in the demo: four replicas; one sharder, with its page."""
    folder = tmp_path_factory.mktemp("page-fleet")
    flags = ("--page-bind", "127.0.0.1:0", "--page-port-file", str(folder / "page.port"))
    spec = FleetSpec(lease_s=3, sharders=1, sharder_flags=flags)
    async with (
        held(embedded_plane(folder / "plane")) as plane,
        held(open_fleet(plane, folder / "fleet", spec=spec)) as fleet,
    ):
        await fleet.start(replicas=4)
        for number in range(OBJECTS):
            await fleet.objects.create(f"site-{number}")
        await fleet.wait_converged()
        yield fleet


def page_url(fleet: Fleet) -> str:
    port = (fleet.directory.parent / "page.port").read_text().strip()
    return f"http://127.0.0.1:{port}/"


def expired(fleet: Fleet) -> float:
    """How many Leases the sharder has seen expire."""
    port = (fleet.directory / "sharder-1.port").read_text().strip()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found = re.search(r'shard_state_changes_total\{[^}]*state="expired"[^}]*\} (\S+)', text)
    return float(found[1]) if found else 0.0


async def test_the_first_view_takes_less_than_a_second(browser: Browser, fleet: Fleet, shoot: Shoot) -> None:
    """From the navigation, counted by the browser; the best of three, since other work only adds."""
    page = await browser.new_page(viewport={"width": 1280, "height": 900})
    took_ms = []
    for _ in range(3):
        await page.goto(page_url(fleet))
        await page.locator("#members tr").nth(3).wait_for()
        took_ms.append(await page.evaluate("performance.now()"))
    print("first view after", *(f"{each:.0f}" for each in took_ms), "ms")
    assert min(took_ms) < 1000
    assert await page.locator("#members .state.ready").count() == 4
    await page.wait_for_timeout(2000)
    await shoot(page, "fleet")
    await page.fill("#where-name", "sites/site-7")
    await page.press("#where-name", "Enter")
    await page.locator("#where-answer .verdict", has_text="is with replica-").wait_for()
    await page.close()


async def test_a_kill_is_seen_within_two_seconds_of_the_sharders_knowing(
    browser: Browser, fleet: Fleet, shoot: Shoot
) -> None:
    page = await browser.new_page(viewport={"width": 1280, "height": 900})
    await page.goto(page_url(fleet))
    await page.locator("#members tr").nth(3).wait_for()
    before = await asyncio.to_thread(expired, fleet)
    seen = asyncio.create_task(page.locator("#members tr", has_text="expired").wait_for(timeout=30_000))
    seen_at: list[float] = []
    seen.add_done_callback(lambda _: seen_at.append(time.monotonic()))
    await fleet.kill("replica-2")
    while await asyncio.to_thread(expired, fleet) <= before:  # noqa: ASYNC110 - another process knows it
        await asyncio.sleep(0.02)
    known_at = time.monotonic()
    await seen
    print(f"seen {seen_at[0] - known_at:+.3f} s after the sharder knew")
    assert seen_at[0] - known_at < 2
    await page.locator("#happened li", has_text="left").wait_for(timeout=30_000)
    await shoot(page, "fleet-kill")
    await page.close()


async def test_a_sharder_with_its_page_open_is_hardly_larger(browser: Browser, fleet: Fleet) -> None:
    process = fleet.sharders["sharder-1"].current
    assert process is not None
    page = await browser.new_page()
    await page.goto(page_url(fleet))
    await page.locator("#members tr").nth(2).wait_for()
    status = Path(f"/proc/{process.pid}/status").read_text()  # noqa: ASYNC240 - a file of the kernel's
    kilobytes = int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]
    print(f"{kilobytes / 1000:.1f} MB")
    assert kilobytes < 70_000
    await page.close()
