"""The page in a real browser: what people see, with mouse or keyboard, and what hostile names cannot do."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ring.ring import HashRing
from sharder.live.facts import HandoffFacts
from sharder.live.history import Move
from tests.ringleader.dashboard.conftest import Shoot
from tests.ringleader.dashboard.scenes import NO_QUESTIONS, Leaders, Shown, dashboard_over, shown
from tests.sharder.io.environment import running
from tests.sharder.live.scenes import Scene, play, state_of
from tests.sharder.live.served import published

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = (
    "<img src=x onerror=pwned=1>",
    "</script><script>pwned=2</script>",
    '"><svg onload=pwned=3>',
    "javascript:pwned=4",
    "a\u202egnp.exe\u0000\u200b",
    "{{constructor.constructor('pwned=5')()}}",
    "__proto__",
    "x" * 400,
)
FRAMES = """seconds => new Promise(done => {
  const found = []; let last = performance.now(); const end = last + seconds * 1000;
  const step = at => { found.push(at - last); last = at; at < end ? requestAnimationFrame(step) : done(found); };
  requestAnimationFrame(step);
})"""
CONTRASTS = """() => {
  const linear = x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
  const light = c => [.2126, .7152, .0722].reduce((sum, part, n) => sum + part * linear(c[n] / 255), 0);
  const read = text => { const n = text.match(/[\\d.]+/g).map(Number), k = text.startsWith("color(srgb") ? 255 : 1;
    return [n[0] * k, n[1] * k, n[2] * k, n[3] ?? 1]; };
  const under = e => {
    for (; e; e = e.parentElement) { const c = read(getComputedStyle(e).backgroundColor); if (c[3] > .85) return c; }
    return [255, 255, 255];
  };
  const poor = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const e = node.parentElement, text = node.textContent.trim();
    if (!text || !e.checkVisibility() || e.closest(".skip, .sr, script, style, option")) continue;
    const a = light(read(getComputedStyle(e).color)), b = light(under(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) poor.push([text.slice(0, 30), ratio.toFixed(2)]);
  }
  return poor;
}"""
NAMELESS = """() => [...document.querySelectorAll("button, input, select, canvas[role], [role=region], a")]
  .filter(e => e.checkVisibility() && !(e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim()
    || document.getElementById(e.getAttribute("aria-labelledby"))))
  .map(e => e.outerHTML.slice(0, 80))"""


@asynccontextmanager
async def opened(browser: Browser, url: str, **kw: Any) -> AsyncIterator[Page]:
    """The page, with members in its table; whatever the browser complains about fails the test."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, **kw)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        await page.goto(url)
        yield page
    finally:
        await context.close()
    assert [each for each in complaints if "status of 4" not in each and "ERR_" not in each] == []


@asynccontextmanager
async def showing(browser: Browser, scene: Scene, **kw: Any) -> AsyncIterator[tuple[Shown, Page]]:
    """The page with *scene*, all of whose members stand in its table."""
    async with shown(websites=scene) as served, opened(browser, served.url, **kw) as page:
        await page.locator("#members tr").nth(len(scene.members) - 1).wait_for()
        yield served, page


def playing(served: Shown, scene: Scene, *, per_s: float) -> AbstractAsyncContextManager[None]:
    return running(play(served.state, "websites", scene, per_s=per_s))


def scene_of(count: int) -> Scene:
    return Scene([f"web-{number}" for number in range(count)])


async def rows(page: Page) -> list[str]:
    found: list[str] = await page.locator("#members tr").all_inner_texts()
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("count", [3, 100])
async def test_it_can_be_read_in_light_and_dark(
    browser: Browser, shoot: Shoot, count: int, scheme: Any
) -> None:
    scene = scene_of(count)
    scene.note = "the ring is paused: nothing moves between live replicas"
    async with shown(websites=scene) as served, opened(browser, served.url, color_scheme=scheme) as page:
        scene.states["web-1"] = "expired"
        async with playing(served, scene, per_s=20):
            await page.fill("#where-name", "default/blog")
            await page.press("#where-name", "Enter")
            await page.locator("#where-answer .verdict").wait_for()
            await page.wait_for_timeout(2200)
            assert await page.evaluate(CONTRASTS) == []
            assert await page.evaluate(NAMELESS) == []
            await shoot(page, f"{count}-{scheme}")
        assert len(await rows(page)) == count


@pytest.mark.alone
async def test_members_are_there_within_a_second(browser: Browser) -> None:
    """Counted from the navigation, by the browser itself. The best of three: other work only adds."""
    took_ms = []
    for _ in range(3):
        async with shown(websites=scene_of(3)) as served, opened(browser, served.url) as page:
            await page.locator("#members tr").nth(2).wait_for()
            took_ms.append(await page.evaluate("performance.now()"))
            assert await page.inner_text("#t-members") == "3"
            assert await page.inner_text("#contact") == "live"
    print("first view after", *(f"{each:.0f}" for each in took_ms), "ms")
    assert min(took_ms) < 1000


async def test_a_death_is_seen_and_said(browser: Browser) -> None:
    scene = scene_of(3)
    async with showing(browser, scene) as (served, page):
        scene.states["web-1"] = "dead"
        served.state.history("websites").saw(scene.facts().members, at=served.state.at())
        await page.locator("#members tr", has_text="✕ dead").wait_for(timeout=2000)
        assert "1 not ready" in await page.inner_text("#t-members-2")
        assert await page.inner_text("#happened li .name") == "web-1"
        assert await page.text_content("#say") == "web-1 dead"


async def test_a_member_that_joins_and_one_that_leaves(browser: Browser) -> None:
    scene = scene_of(3)
    async with showing(browser, scene) as (_, page):
        scene.change(["web-0", "web-2", "web-10"])
        await page.locator("#members tr", has_text="web-10").wait_for(timeout=2000)
        names = await page.locator("#members .who .name").all_inner_texts()
        assert names == ["web-0", "web-2", "web-10"]
        label = await page.get_attribute("#ring", "aria-label")
        assert label is not None
        assert "web-10" in label


async def test_what_is_in_flight_is_named(browser: Browser) -> None:
    scene = scene_of(3)
    async with showing(browser, scene) as (_, page):
        scene.flights["websites.example.com default/blog"] = HandoffFacts(
            "websites.example.com default/blog", "web-0", "web-2", time.time() - 100, late=True
        )
        await page.locator("#flights tr").wait_for(timeout=2000)
        cells = await page.locator("#flights td").all_inner_texts()
        assert cells == ["websites.example.com default/blog", "web-0", "web-2", "2 min !"]
        scene.flights.clear()
        await page.locator("#flight-none").wait_for(timeout=2000)


async def test_an_object_is_found_with_the_keyboard_alone(browser: Browser) -> None:
    async with showing(browser, scene_of(3)) as (_, page):
        await _tab_to(page, "where-name")
        await page.keyboard.type("default/blog")
        await page.keyboard.press("Enter")
        await page.locator("#where-answer .verdict").wait_for()
        assert "example.com_default_blog" in await page.inner_text("#where-answer")
        assert await page.evaluate("pin.position") > 0
        await page.locator("#where-name").fill("default/nothing")
        await page.keyboard.press("Enter")
        await page.locator("#where-answer", has_text="websites.example.com/nothing does not exist").wait_for()


async def test_the_slider_answers_the_keyboard_and_writes_nothing(browser: Browser) -> None:
    scene = scene_of(3)
    async with shown(websites=scene) as served, opened(browser, served.url) as page:
        methods: list[str] = []
        page.on("request", lambda request: methods.append(request.method))
        await page.locator("#members tr").nth(2).wait_for()
        await _tab_to(page, "if-range")
        for _ in range(2):
            await page.keyboard.press("ArrowRight")
        await page.locator("#if-answer", has_text="web-3, web-4").wait_for()
        assert "would move" in await page.inner_text("#if-answer .verdict")
        scene.change(["web-0", "web-1", "web-2", "web-3"])
        await page.locator("#if-answer dd", has_text=re.compile("^web-4$")).wait_for()
        assert await page.input_value("#if-range") == "5"
        scene.change(["web-0", "web-1", "web-2"])
        await page.locator("#if-answer", has_text="web-3, web-4").wait_for()
        for _ in range(2):
            await page.keyboard.press("ArrowLeft")
        await page.locator("#if-answer", has_text="There are 3").wait_for()
        assert set(methods) == {"GET"}


async def test_a_member_is_lit_with_the_keyboard(browser: Browser) -> None:
    async with showing(browser, scene_of(3)) as (_, page):
        await page.locator(".who").nth(1).focus()
        await page.keyboard.press("Enter")
        assert await page.locator(".who").nth(1).get_attribute("aria-pressed") == "true"
        assert "of the hash space" in await page.inner_text("#hover")
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"


async def _tab_to(page: Page, wanted: str) -> None:
    for _ in range(40):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.id") == wanted:
            return
    pytest.fail(f"Tab does not come to #{wanted}")


async def test_hostile_names_are_text(browser: Browser, shoot: Shoot) -> None:
    scene = Scene(HOSTILE, resource="<b>websites</b>.example.com")
    scene.note = HOSTILE[0]
    name = f"{scene.resource} default/{HOSTILE[1]}"
    scene.flights[name] = HandoffFacts(name, HOSTILE[0], HOSTILE[2], time.time())
    async with (
        shown(websites=scene, **{HOSTILE[2]: Scene(["a"])}) as served,
        opened(browser, f"{served.url}#websites") as page,
    ):
        await page.locator("#members tr").nth(len(HOSTILE) - 1).wait_for()
        history = served.state.history("websites")
        for each in HOSTILE:
            history.moved(Move("handedOver", each, HOSTILE[0], each), at=time.time())
        history.saw({}, at=time.time())
        await page.locator("#happened li").nth(len(HOSTILE) - 1).wait_for()
        await page.fill("#where-name", f"default/{HOSTILE[0]}")
        await page.press("#where-name", "Enter")
        await page.locator("#where-answer .verdict").wait_for()
        await page.evaluate("document.getElementById('if-range').value = 9, whatIf()")
        await page.locator("#if-answer .verdict").wait_for()
        await page.wait_for_timeout(300)
        assert await page.evaluate("typeof pwned") == "undefined"
        assert await page.locator("img, iframe, object, main svg, main b b").count() == 0
        assert await page.locator("script").count() == 1
        texts = await page.locator("#members .who .name").all_text_contents()
        assert HOSTILE[0] in texts
        assert "__proto__" in texts
        assert max(map(len, texts)) == 120
        assert not any("\u202e" in text for text in await page.locator("body").all_text_contents())
        await shoot(page, "hostile")


async def test_what_is_known_stays_when_the_server_goes_and_is_renewed_when_it_is_back(
    browser: Browser,
) -> None:
    scene = scene_of(3)
    async with showing(browser, scene) as (served, page):
        await page.context.set_offline(True)
        for connection in list(served.dashboard.server.connections):
            connection.abort()
        await page.locator("#contact", has_text="lost contact").wait_for(timeout=5000)
        await page.locator("#age", has_text="as of").wait_for(timeout=5000)
        assert len(await rows(page)) == 3
        scene.change(["web-0", "web-1"])
        await page.context.set_offline(False)
        await page.locator("#contact", has_text="live").wait_for(timeout=10_000)
        assert len(await rows(page)) == 2


async def test_the_last_state_stays_with_its_age_and_the_reason_until_another_sharder_leads(
    browser: Browser,
) -> None:
    leaders = Leaders()
    async with AsyncExitStack() as first, dashboard_over(leaders.way, NO_QUESTIONS) as served:
        sharder = await first.enter_async_context(published(state_of(websites=scene_of(3))))
        leaders.port = sharder.port
        async with opened(browser, served.url) as page:
            await page.locator("#members tr").nth(2).wait_for()
            leaders.port = 0
            await first.aclose()
            await page.locator("#link", has_text="no sharder leads").wait_for(timeout=10_000)
            await page.locator("#age", has_text="as of").wait_for(timeout=5000)
            assert await page.inner_text("#contact") == "lost contact"
            assert len(await rows(page)) == 3
            async with published(state_of(websites=scene_of(2))) as second:
                leaders.port = second.port
                await page.locator("#contact", has_text="live").wait_for(timeout=15_000)
                assert len(await rows(page)) == 2
                assert await page.locator("#link").is_hidden()


async def test_nothing_flies_for_those_who_want_it_still(browser: Browser) -> None:
    scene = scene_of(10)
    async with (
        shown(websites=scene) as served,
        opened(browser, served.url, reduced_motion="reduce") as page,
        playing(served, scene, per_s=50),
    ):
        await page.locator("#members tr").nth(9).wait_for()
        await page.locator("#t-rate", has_text=re.compile("[1-9]")).wait_for()
        assert await page.evaluate("[flying.length, gatherAt]") == [0, -1]


async def test_a_stranger_gives_a_token(browser: Browser, shoot: Shoot) -> None:
    async with (
        shown(websites=scene_of(3)) as served,
        opened(browser, f"http://page.example.com:{served.port}/") as page,
    ):
        await page.locator("#login").wait_for()
        assert await page.locator("main").is_hidden()
        await page.fill("#token", "bad")
        await page.keyboard.press("Enter")
        await page.locator("#login-why", has_text="does not accept this token").wait_for()
        await shoot(page, "login")
        await page.fill("#token", "good")
        await page.keyboard.press("Enter")
        await page.locator("#members tr").nth(2).wait_for()
        await page.fill("#where-name", "default/blog")
        await page.press("#where-name", "Enter")
        await page.locator("#where-answer .verdict").wait_for()
        assert (
            await page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0
        )


async def test_a_narrow_window_does_not_scroll_sideways(browser: Browser, shoot: Shoot) -> None:
    async with shown(websites=scene_of(3)) as served, opened(browser, served.url) as page:
        await page.set_viewport_size({"width": 380, "height": 800})
        await page.locator("#members tr").nth(2).wait_for()
        await page.wait_for_timeout(2000)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 380
        await shoot(page, "narrow")


async def test_rings_are_chosen_and_remembered_in_the_address(browser: Browser) -> None:
    async with shown(alpha=scene_of(3), beta=scene_of(5)) as served, opened(browser, served.url) as page:
        await page.locator("#members tr").nth(2).wait_for()
        await page.get_by_role("button", name="beta").click()
        await page.locator("#members tr").nth(4).wait_for()
        assert page.url.endswith("#beta")
        await page.reload()
        await page.locator("#members tr").nth(4).wait_for()


@pytest.mark.alone
async def test_a_hundred_members_and_fifty_events_a_second_are_drawn_in_time(browser: Browser) -> None:
    scene = scene_of(100)
    blank = await browser.new_page()
    before = await _p95_ms(blank, 3)
    async with (
        shown(websites=scene) as served,
        opened(browser, served.url) as page,
        playing(served, scene, per_s=50),
    ):
        await page.locator("#members tr").nth(99).wait_for()
        found = await _p95_ms(page, 30)
    after = await _p95_ms(blank, 3)
    await blank.close()
    print(f"p95 {found:.1f} ms; of an empty page {before:.1f} ms before, {after:.1f} ms after")
    if max(before, after) > 25:
        pytest.skip(
            f"this machine is busy: an empty page has a p95 of {max(before, after):.0f} ms; run it alone"
        )
    assert found <= 33


async def _p95_ms(page: Page, seconds: float) -> float:
    await page.bring_to_front()
    took: list[float] = sorted(await page.evaluate(FRAMES, seconds))
    return took[int(len(took) * 0.95)]


async def test_the_circle_of_a_main_resource_is_chosen(browser: Browser) -> None:
    scene = scene_of(3)
    async with showing(browser, scene) as (_, page):
        assert await page.locator("#circle-label").is_hidden()
        bases = HashRing(["base-0", "base-1"])
        scene.others = {"databases.example.com": bases}
        await page.locator("#circle-label").wait_for(timeout=2000)
        await page.locator("#members tr", has_text="base-1").wait_for()
        assert await page.locator("#circle-kind option").all_inner_texts() == [
            "websites.example.com",
            "databases.example.com",
        ]
        assert (await page.get_attribute("#ring", "aria-label") or "").startswith("Ring of 3 members: web-0")
        await page.select_option("#circle-kind", "databases.example.com")
        await page.locator("#ring[aria-label^='Ring of 2 members: base-0']").wait_for(timeout=2000)
        share = f"{float(bases.shares()['base-0']):.1%}".removesuffix("%")
        await page.locator("#members tr", has_text="base-0").get_by_text(share).wait_for(timeout=2000)
        assert "–" in await page.locator("#members tr", has_text="web-0").inner_text()
        assert "Shares are those of databases.example.com." in await page.inner_text("#members-sub")
        assert await page.input_value("#if-range") == "2"
        await page.fill("#if-range", "3")
        await page.locator("#if-answer", has_text="base-2").wait_for()
        assert await page.evaluate(NAMELESS) == []
