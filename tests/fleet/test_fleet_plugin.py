"""The fixtures as a user's own test takes them: the story of docs/writing-a-controller.md."""

from __future__ import annotations

import pytest

from ringleader.testing.commands import CONFIGMAPS
from ringleader.testing.fleet import Fleet
from ringleader.testing.plugin import control_plane, fleet, fleet_spec

__all__ = ["control_plane", "fleet", "fleet_spec"]
pytestmark = pytest.mark.fleet


async def test_a_site_survives_its_owner(fleet: Fleet) -> None:
    await fleet.start(replicas=3)
    site = await fleet.create("blog", {"spec": {"html": "hi"}})
    await fleet.wait(site, condition="Ready", within_s=20)
    victim = await fleet.owner(site)
    await fleet.kill(victim)
    await fleet.update(site, {"spec": {"html": "bye"}})
    await fleet.wait(site, condition="Ready", within_s=20)
    assert "bye" in (await fleet.objects.get(site, resource=CONFIGMAPS))["data"]["index.html"]
    assert await fleet.owner(site) != victim
    assert fleet.overlaps() == []
