"""The page as a service: what it sends, what it answers, and what a browser may do with it."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack

import pytest

from sharder.page import live
from sharder.page.service import home, policy
from tests.sharder.io.ground import running
from tests.sharder.page.scenes import Scene, play, shown
from tests.sharder.page.streams import ask, get, listening


async def test_who_comes_gets_everything_then_what_changes() -> None:
    scene = Scene(["web-0", "web-1"])
    async with shown(websites=scene) as page, listening(page) as events:
        name, picture, _ = await events.next()
        assert (name, picture["title"]) == ("picture", "sharder-1")
        assert set(picture["rings"]["websites"]["members"]) == {"web-0", "web-1"}
        assert len(picture["rings"]["websites"]["sectors"]) == 720
        scene.states["web-1"] = "expired"
        change = await events.change()
        members = change["rings"]["websites"]["members"]
        assert {member: facts["state"] for member, facts in members.items()} == {"web-1": "expired"}
        assert set(change["rings"]["websites"]) == {"members"}


async def test_a_ring_that_goes_is_told() -> None:
    scene = Scene(["web-0"])
    async with shown(websites=scene, other=Scene(["b"])) as page, listening(page) as events:
        await events.next()
        page.board.forget("other")
        assert (await events.change())["gone"] == ["other"]


async def test_a_quiet_page_hears_that_somebody_is_there() -> None:
    async with shown(websites=Scene(["web-0"])) as page, listening(page) as events:
        await events.next()
        began = time.monotonic()
        name, document, _ = await events.next()
        assert name == "beat"
        assert set(document) == {"at"}
        assert time.monotonic() - began < 3 * live.BEAT_S


async def test_frames_are_few_and_small_with_a_hundred_members_and_fifty_events_a_second() -> None:
    scene = Scene([f"web-{number}" for number in range(100)])
    async with (
        shown(websites=scene) as page,
        listening(page) as events,
        running(play(page, "websites", scene, per_s=50)),
    ):
        await events.next()
        sizes, until = [], time.monotonic() + 2
        while time.monotonic() < until:
            sizes.append((await events.next())[2])
    assert 10 <= len(sizes) <= 22
    assert max(sizes) < 16_000


async def test_nobody_looks_and_nothing_is_computed() -> None:
    asked = 0

    class Counted(Scene):
        def facts(self):  # type: ignore[no-untyped-def]
            nonlocal asked
            asked += 1
            return super().facts()

    async with shown(websites=Counted(["web-0"])) as page:
        before = asked
        await asyncio.sleep(0.5)
        assert asked == before
        async with listening(page) as events:
            await events.next()
        await asyncio.sleep(0.3)
        before = asked
        await asyncio.sleep(0.4)
        assert asked == before


async def test_one_who_was_away_gets_the_whole_picture_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene([f"web-{number}" for number in range(60)])
    async with shown(websites=scene) as page, listening(page) as events:
        await events.next()
        (connection,) = page._live._viewers
        monkeypatch.setattr(connection, "is_backed_up", True)
        scene.states["web-1"] = "expired"
        await asyncio.sleep(0.4)
        monkeypatch.setattr(connection, "is_backed_up", False)
        scene.states["web-2"] = "expired"
        name, picture, _ = await events.next()
        assert name == "picture"
        members = picture["rings"]["websites"]["members"]
        assert [members[f"web-{number}"]["state"] for number in (1, 2)] == ["expired", "expired"]


async def test_no_more_than_sixteen_look_at_once() -> None:
    async with shown(websites=Scene(["web-0"])) as page, AsyncExitStack() as streams:
        for _ in range(live.VIEWERS):
            await (await streams.enter_async_context(listening(page))).next()
        assert (await get(page, "/events"))[0] == 503


async def test_questions_do_not_hold_up_what_else_the_process_does() -> None:
    """A Lease is renewed three times in its duration, of a second at least."""
    longest, asking = 0.0, True

    async def look() -> None:
        nonlocal longest
        while asking:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - began)

    async with (
        shown(websites=Scene([f"web-{number}" for number in range(100)])) as page,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(look())
        answers = await asyncio.gather(
            *(ask(page, f"/whatif/websites/{number}") for number in (101, 150, 60))
        )
        asking = False
    assert [status for status, _ in answers] == [200, 200, 200]
    assert longest < 0.3


async def test_objects_are_looked_for() -> None:
    async with shown(websites=Scene(["web-0", "web-1"])) as page:
        status, found = await ask(page, "/where/websites/websites.example.com/default/blog")
        assert (status, found["key"], found["isPlaced"]) == (200, "example.com_default_blog", True)
        assert found["position"] == pytest.approx(int(found["hash"], 16) / 2**64)
        status, found = await ask(page, "/where/websites/websites.example.com/default/nothing")
        assert (status, found["problem"]) == (404, "no websites.example.com nothing in namespace default")
        assert (await ask(page, "/where/others/a/b/c"))[0] == 404
        assert (await ask(page, "/where/websites/a/b"))[0] == 400


async def test_the_slider_is_answered() -> None:
    async with shown(websites=Scene(["web-0", "web-1"])) as page:
        status, found = await ask(page, "/whatif/websites/3")
        assert (status, found["joined"], len(found["rows"])) == (200, ["web-2"], 3)
        for wrong in ("0", "-1", "201", "x", "1e1", "", "99999999999999999999", "²"):
            assert (await get(page, f"/whatif/websites/{wrong}"))[0] == 400
        assert (await ask(page, "/whatif/others/3"))[0] == 404


async def test_a_page_may_run_its_own_script_only_and_talk_to_nobody_else() -> None:
    async with shown(websites=Scene(["web-0"])) as page:
        _, head, body = await get(page, "/")
    rules = dict(
        rule.strip().partition(" ")[::2]
        for rule in re.search(r"Content-Security-Policy: (.*)\r\n", head)[1].split(";")  # type: ignore[index]
    )
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["form-action"] == rules["base-uri"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    for kind in ("script-src", "style-src"):
        assert re.fullmatch(r"'sha256-[A-Za-z0-9+/=]{44}'", rules[kind])
    assert b"unsafe" not in head.encode()
    assert b"http://" not in body
    assert b"https://" not in body


def test_the_page_makes_no_markup_of_data() -> None:
    text = home().body.decode()
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "new Function",
        "style=",
    ):
        assert forbidden not in text
    assert not re.search(r"\son[a-z]+=", text)


def test_the_policy_follows_the_text() -> None:
    first = dict(policy("<style>a</style><script>b</script>"))["Content-Security-Policy"]
    assert first != dict(policy("<style>a</style><script>c</script>"))["Content-Security-Policy"]
