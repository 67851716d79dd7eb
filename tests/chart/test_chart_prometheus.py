"""A real Prometheus scrapes a real fleet: every query has data, nothing fires in health, faults fire their alerts."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
import yaml

from devcluster.children import start_child
from devcluster.embedded import embedded_plane
from kubeio.protocol import CONTROLLER_RINGS
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from tests.chart.monitoring import RULES, panels

Doc = dict[str, Any]
FASTER = 30
"""Windows and delays of the rules are so many times shorter here."""
WITHOUT_FAULT_EMPTY = {"ringleader_handoffs_overdue", 'code=~"401|403|429"', "ringleader:assignment"}
"""Queries about these have no data while nothing is wrong, or nothing is new."""
UNITS_S = {"s": 1, "m": 60, "h": 3600}


def shortened(text: str) -> str:
    """*text* of a rule file with every window and delay FASTER times shorter."""

    def short(match: re.Match[str]) -> str:
        seconds = int(match["number"]) * UNITS_S[match["unit"]] // FASTER
        return f"{match['before']}{max(seconds, 1)}s{match['after']}"

    window = r"(?P<before>\[|for: |interval: )(?P<number>\d+)(?P<unit>[smh])(?P<after>\]|\s)"
    return re.sub(window, short, text)


class Prometheus:
    """HTTP API of a running Prometheus."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def query(self, expression: str) -> list[Doc]:
        """Samples of an instant query."""
        answer = await self._get(f"/api/v1/query?{urlencode({'query': expression})}")
        assert answer["status"] == "success", (expression, answer)
        return list(answer["data"]["result"])

    async def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        answer = await self._get("/api/v1/alerts")
        return {
            alert["labels"]["alertname"] for alert in answer["data"]["alerts"] if alert["state"] == "firing"
        }

    async def _get(self, path: str) -> Doc:
        async with self._session.get(self._url + path) as answer:
            return dict(await answer.json())


async def wait_until(what: str, condition: Callable[[], Any], *, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while (left := await condition()) is not True:
        assert time.monotonic() < deadline, f"{what}: {left}"
        await asyncio.sleep(1)


@asynccontextmanager
async def prometheus(fleet: Fleet, directory: Path, binary: str) -> AsyncIterator[Prometheus]:
    """Scrapes every process of *fleet* once a second."""
    names = [*fleet.sharders, *fleet.members]
    ports = [(fleet.directory / f"{name}.port").read_text().strip() for name in names]
    (directory / "rules.yaml").write_text(shortened(RULES.read_text()))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "ringleader",
                "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
            }
        ],
    }
    path = directory / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    port = random.randrange(20000, 30000)
    address = f"127.0.0.1:{port}"
    command = [binary, f"--config.file={path}", f"--storage.tsdb.path={directory / 'data'}"]
    child = await start_child(
        [*command, f"--web.listen-address={address}"], name="prometheus", log=directory / "prometheus.log"
    )
    try:
        async with aiohttp.ClientSession() as session:
            server = Prometheus(f"http://{address}", session)

            async def is_up() -> bool | str:
                try:
                    return len(await server.query("up == 1")) == len(ports)
                except aiohttp.ClientError as error:
                    return str(error)

            await wait_until("Prometheus scrapes every process", is_up, within_s=30)
            yield server
    finally:
        await child.end(grace_s=5)


@pytest.fixture
async def scraped(tmp_path: Path) -> AsyncIterator[tuple[Fleet, Prometheus]]:
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not on PATH; install it (Debian: apt-get install prometheus)")
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
            async with prometheus(fleet, tmp_path, binary) as server:
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
