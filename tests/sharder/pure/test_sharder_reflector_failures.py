"""Resources that cannot be listed or watched: reported and retried, and the others go on."""

from __future__ import annotations

import asyncio

import pytest

from kubeio.errors import BadRequest, NotFound, first_error
from sharder.unowned import reflector
from tests.sharder.pure.unowned_watches import Watched, broken, watching
from tests.sharder.pure.views import CONFIGMAPS, KEYS, WEBSITES

pytestmark = pytest.mark.looptime


async def test_a_resource_that_cannot_be_listed_delays_no_switch_of_the_others() -> None:
    async with watching(WEBSITES, CONFIGMAPS) as watched:
        watched.unowned.select({"a", "b", "c"})
        await asyncio.sleep(3)
        watched.servers.configmaps.refuse = broken()
        watched.unowned.select({"a", "b"})
        await asyncio.sleep(3)
        watched.unowned.select({"a"})
        await asyncio.sleep(3)
        assert watched.servers.selectors["websites"] == [
            f"{KEYS.shard} notin ({names})" for names in ("a,b,c", "a,b", "a")
        ]
        assert watched.server.open_streams == 1
        assert watched.servers.configmaps.open_streams == 1, "its last watch goes on"
        watched.servers.configmaps.put("page")
        await asyncio.sleep(0.1)
        assert watched.enqueued == ["default/page"]


async def test_a_controlled_kind_that_cannot_be_listed_holds_the_others_up_for_ten_seconds_at_most() -> None:
    async with watching(WEBSITES, CONFIGMAPS, controlled=(CONFIGMAPS,)) as watched:
        watched.fill(3)
        watched.servers.configmaps.refuse = broken()
        watched.unowned.select({"a"})
        await asyncio.sleep(reflector.GIVES_UP_S - 1)
        assert watched.enqueued == []
        await asyncio.sleep(reflector.GIVES_UP_S + 1)
        assert len(watched.enqueued) == 3
        assert watched.unowned.listed_at is not None


async def test_a_resource_that_fails_for_a_while_is_reported_with_the_servers_message_until_it_is_listed() -> (
    None
):
    async with watching(WEBSITES, CONFIGMAPS) as watched:
        watched.servers.configmaps.refuse = broken()
        watched.unowned.select({"a"})
        await asyncio.sleep(5)
        assert watched.permissions.failures() == []
        await asyncio.sleep(25)
        [reported] = watched.permissions.failures()
        assert reported.startswith("list configmaps: ")
        assert "conversion webhook for example.com/v1, Kind=Website failed" in reported
        watched.servers.configmaps.refuse = []
        await asyncio.sleep(15)
        assert watched.permissions.failures() == []


async def test_a_request_line_that_is_too_long_for_a_proxy_ends_nothing() -> None:
    async with watching(WEBSITES, CONFIGMAPS) as watched:
        watched.fill(3)
        watched.servers.configmaps.refuse = [BadRequest("LIST", status=431)] * 3
        watched.servers.configmaps.put("page")
        watched.unowned.select({"a"})
        await asyncio.sleep(30)
        assert len(watched.pending) == 4


async def test_a_resource_that_is_no_longer_found_ends_the_watches_so_that_its_version_is_asked_for() -> None:
    watched = Watched(WEBSITES)
    running = asyncio.create_task(watched.unowned.run())
    watched.unowned.select({"a"})
    await asyncio.sleep(3)
    watched.server.refuse = [NotFound("WATCH", status=404)] * 1000
    watched.server.cut_streams()
    done, _ = await asyncio.wait({running}, timeout=60)
    running.cancel()
    [result] = await asyncio.gather(running, return_exceptions=True)
    assert done
    assert isinstance(result, ExceptionGroup)
    assert isinstance(first_error(result), NotFound)
