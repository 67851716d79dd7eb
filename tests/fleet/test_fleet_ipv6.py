"""A fleet whose API server has an IPv6 address only: handoff, fail-over, and a restart of the server."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from devcluster.embedded import embedded_plane
from ringleader.testing.commands import WAIT_MS, FleetSpec
from ringleader.testing.fleet import open_fleet
from tests.fleet.judging import judge


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.fleet
@pytest.mark.timeout(300)
@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")
async def test_a_fleet_works_against_an_api_server_on_ipv6(tmp_path: Path) -> None:
    spec = FleetSpec(lease_s=2, environment={WAIT_MS: "0-50"})
    async with embedded_plane(tmp_path / "plane", host="::1") as plane:
        assert plane.url.startswith("https://[::1]:")
        async with open_fleet(plane, tmp_path / "fleet", spec=spec) as fleet:
            await fleet.start(replicas=3)
            await fleet.objects.create_many(40)
            await fleet.wait_converged()
            since = fleet.clock.now()
            await fleet.join()
            evidence = await judge(fleet, at_least=40)
            assert evidence.movement(since=since, until=fleet.clock.now()).moved > 0
            await fleet.kill("replica-1")
            await judge(fleet, at_least=40)
            assert "replica-1" not in fleet.lives().values()
            await plane.restart(away_s=0.5)
            await judge(fleet, at_least=40)
