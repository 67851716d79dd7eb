"""A real Prometheus (Debian package `prometheus`) with the chart's rules, whose windows are so much shorter."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
import yaml

from devcluster.children import start_child
from devcluster.listening import free_ports

Doc = dict[str, Any]
FASTER = 30
"""Windows and delays of the rules are so many times shorter unless a test says otherwise."""
UNITS_S = {"s": 1, "m": 60, "h": 3600}


def shortened(text: str, *, faster: int = FASTER) -> str:
    """*text* of a rule file with every window and delay *faster* times shorter."""

    def short(match: re.Match[str]) -> str:
        seconds = int(match["number"]) * UNITS_S[match["unit"]] // faster
        return f"{match['before']}{max(seconds, 1)}s{match['after']}"

    window = r"(?P<before>\[|for: |interval: )(?P<number>\d+)(?P<unit>[smh])(?P<after>\]|\s)"
    return re.sub(window, short, text)


class Prometheus:
    """HTTP API of a running Prometheus, and the list of what it scrapes."""

    def __init__(self, url: str, session: aiohttp.ClientSession, targets: Path) -> None:
        self._url = url
        self._session = session
        self._targets = targets

    def scrape(self, addresses: Iterable[str]) -> None:
        """Scrape *addresses* from now on."""
        scratch = self._targets.with_suffix(".new")
        scratch.write_text(json.dumps([{"targets": sorted(addresses)}]))
        scratch.rename(self._targets)

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

    async def wait_up(self, count: int) -> None:
        """Return when *count* targets answer."""

        async def is_up() -> bool | str:
            try:
                return len(await self.query("up == 1")) == count
            except aiohttp.ClientError as error:
                return str(error)

        await wait_until("Prometheus scrapes every process", is_up, within_s=60)

    async def _get(self, path: str) -> Doc:
        async with self._session.get(self._url + path) as answer:
            return dict(await answer.json())


async def wait_until(what: str, condition: Callable[[], Awaitable[Any]], *, within_s: float) -> None:
    """Return when *condition* is True; fail with what it is instead after *within_s*."""
    deadline = time.monotonic() + within_s
    while (left := await condition()) is not True:
        assert time.monotonic() < deadline, f"{what}: {left}"
        await asyncio.sleep(1)


@asynccontextmanager
async def prometheus(
    directory: Path, rules: Mapping[str, str], *, faster: int = FASTER
) -> AsyncIterator[Prometheus]:
    """A Prometheus that evaluates *rules* (texts by file name, shortened) and scrapes once a second."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not on PATH; install it (Debian: apt-get install prometheus)")
    for name, text in rules.items():
        (directory / name).write_text(shortened(text, faster=faster))
    targets = directory / "targets.json"
    targets.write_text("[]")
    found = {
        "job_name": "ringleader",
        "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}],
    }
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": list(rules),
        "scrape_configs": [found],
    }
    path = directory / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    command = [binary, f"--config.file={path}", f"--storage.tsdb.path={directory / 'data'}"]
    child = await start_child(
        [*command, f"--web.listen-address={address}"], name="prometheus", log=directory / "prometheus.log"
    )
    try:
        async with aiohttp.ClientSession() as session:
            yield Prometheus(f"http://{address}", session, targets)
    finally:
        await child.end(grace_s=5)
