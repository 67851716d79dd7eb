"""The dashboard as a service: who is admitted, what it answers, and what a browser may do with its page."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from ringleader.dashboard.service import home, policy
from tests.ringleader.dashboard.scenes import shown
from tests.sharder.live.scenes import Scene
from tests.sharder.live.served import ask, get


@pytest.mark.parametrize(("token", "status"), [("", 401), ("bad", 401), ("poor", 403), ("good", 200)])
@pytest.mark.parametrize("target", ["/", "/whatif/websites/3", "/events"])
async def test_another_machine_needs_a_token_with_the_right(target: str, token: str, status: int) -> None:
    async with shown(websites=Scene(["web-0"])) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, local_addr=("127.0.0.2", 0))
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        writer.write(f"HEAD {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{bearer}\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
    assert int(answer.split()[1]) == status


async def test_the_page_alone_is_shown_without_a_token_so_that_one_can_be_given() -> None:
    headers = "X-Forwarded-For: 198.51.100.7\r\n"
    async with shown(websites=Scene(["web-0"])) as served:
        status, _, body = await get(served, "/", headers=headers)
        assert (status, body) == (401, home().body)
        status, _, body = await get(served, "/whatif/websites/3", headers=headers)
        assert (status, b"web-0" in body) == (401, False)
        assert (await get(served, "//"))[0] == (await get(served, "/other"))[0] == 404


async def test_a_question_does_not_hold_up_the_process() -> None:
    longest, asking = 0.0, True

    async def look() -> None:
        nonlocal longest
        while asking:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - began)

    async with (
        shown(websites=Scene([f"web-{number}" for number in range(100)])) as served,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(look())
        answers = await asyncio.gather(
            *(ask(served, f"/whatif/websites/{number}") for number in (101, 150, 60))
        )
        asking = False
    assert [status for status, _ in answers] == [200, 200, 200]
    assert longest < 1  # one of them computes for longer than that on a busy machine, in a thread


async def test_objects_are_looked_for() -> None:
    async with shown(websites=Scene(["web-0", "web-1"])) as served:
        status, found = await ask(served, "/where/websites/websites.example.com/default/blog")
        assert (status, found["key"], found["isPlaced"]) == (200, "example.com_default_blog", True)
        assert found["position"] == pytest.approx(int(found["hash"], 16) / 2**64)
        status, found = await ask(served, "/where/websites/websites.example.com/default/nothing")
        assert status == 404
        assert "websites.example.com/nothing does not exist" in found["problem"]
        assert (await ask(served, "/where/others/a/b/c"))[0] == 404
        assert (await ask(served, "/where/websites/a/b"))[0] == 400


async def test_the_slider_is_answered() -> None:
    async with shown(websites=Scene(["web-0", "web-1"])) as served:
        status, found = await ask(served, "/whatif/websites/3")
        assert (status, found["joined"], len(found["rows"])) == (200, ["web-2"], 3)
        for wrong in ("0", "-1", "201", "x", "1e1", "", "99999999999999999999", "²"):
            assert (await get(served, f"/whatif/websites/{wrong}"))[0] == 400
        assert (await ask(served, "/whatif/others/3"))[0] == 404
        status, found = await ask(served, "/whatif/websites/3/pages")
        assert (status, "has no member that works pages" in found["problem"]) == (404, True)


async def test_a_page_may_run_its_own_script_only_and_talk_to_nobody_else() -> None:
    async with shown(websites=Scene(["web-0"])) as served:
        _, head, body = await get(served, "/")
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
