"""A real Prometheus scrapes a real fleet: every query has data, nothing fires in health, faults fire their alerts."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.embedded import embedded_plane
from kubeio.protocol import CONTROLLER_RINGS
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from tests.chart.monitoring import RULES, panels
from tests.chart.prometheus import Prometheus, prometheus, wait_until

Doc = dict[str, Any]
WITHOUT_FAULT_EMPTY = {"ringleader_handoffs_overdue", 'code=~"401|403|429"', "ringleader:assignment"}
"""Queries about these have no data while nothing is wrong, or nothing is new."""
SCALING = """\
groups:
  - name: constants
    rules: [{record: "ringleader:objects_per_replica", expr: vector(60), labels: {ring: websites}}]
"""
"""What templates/scaling.yaml of the chart adds."""


def ports(fleet: Fleet) -> list[str]:
    """Where each process of *fleet* serves its metrics."""
    names = [*fleet.sharders, *fleet.members]
    return [f"127.0.0.1:{(fleet.directory / f'{name}.port').read_text().strip()}" for name in names]


@pytest.fixture
async def scraped(tmp_path: Path) -> AsyncIterator[tuple[Fleet, Prometheus]]:
    spec = FleetSpec(lease_s=5, settle_s=1)
    async with (
        embedded_plane(tmp_path / "plane") as plane,
        open_fleet(plane, tmp_path / "fleet", spec=spec) as fleet,
    ):
        await fleet.start(replicas=3)
        await fleet.objects.create_many(60)
        await fleet.wait_converged()
        async with asyncio.TaskGroup() as tasks:
            updates = fleet.objects.run_updates(per_s=10, rng=random.Random(7))
            traffic = tasks.create_task(updates, name="updates")
            rules = {"rules.yaml": RULES.read_text(), "scaling.yaml": SCALING}
            async with prometheus(tmp_path, rules) as server:
                server.scrape(ports(fleet))
                await server.wait_up(len(ports(fleet)))
                yield fleet, server
            traffic.cancel()


def queries() -> list[str]:
    """Every query of the dashboard, its variables filled, and every recording rule."""
    recorded = [
        rule["record"]
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if "record" in rule
    ]
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    filled = [
        re.sub(r"\$(ring|controller)\b", ".*", text.replace("$__rate_interval", "15s")) for text in shown
    ]
    return [*recorded, *filled]


@pytest.mark.timeout(400)
async def test_every_query_has_data_and_faults_fire_their_alerts_alone(
    scraped: tuple[Fleet, Prometheus],
) -> None:
    fleet, server = scraped
    joined = await fleet.join()  # handoffs

    async def all_have_data() -> bool | list[str]:
        empty = [
            text
            for text in queries()
            if not any(part in text for part in WITHOUT_FAULT_EMPTY) and not await server.query(text)
        ]
        return empty or True

    async def only(*alerts: str) -> None:
        async def fires() -> bool | set[str]:
            firing = await server.firing()
            return firing == set(alerts) or firing

        await wait_until(f"only {alerts} fire", fires, within_s=60)

    await wait_until("queries without data", all_have_data, within_s=60)
    await only()
    await fleet.leave(joined)

    fleet.freeze("replica-1")
    await only("RingleaderReplicaLost")
    fleet.wake("replica-1")
    await only()

    refused = {"spec": {"leaseNamespace": "elsewhere"}}
    await fleet.client.merge(CONTROLLER_RINGS, fleet.spec.ring, refused)
    await only("RingleaderRingNotReady")
    await fleet.client.merge(
        CONTROLLER_RINGS, fleet.spec.ring, {"spec": {"leaseNamespace": fleet.spec.lease_namespace}}
    )
    await only()

    for sharder in fleet.sharders.values():
        await sharder.stop()
    await only("RingleaderNobodyLeads")
