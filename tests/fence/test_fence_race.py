"""A race on one object: two relabel it, three write it as one of two lives, without any condition (docs/adr/0051).

Two judges: the audit log, which shows the life of each request and the label of the version that it replaced; and a
watch of every version, in which no content of a life appears under the other's label.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count, cycle, pairwise

import msgspec
import pytest

from kubeio.access.cluster import load_cluster
from kubeio.rest.client import Client
from ringleader.testing.client import Doc, RequestFailedError
from tests.fence.fenced import KEYS, SITES, WEBSITES, A, B, Fenced

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SECONDS = float(os.environ.get("RINGLEADER_RACE_S", "20"))
NAME = "contended"
PLACE = WEBSITES.path(namespace=SITES, name=NAME)


@dataclass
class Race:
    relabelled: int = 0
    accepted: int = 0
    refused: int = 0
    versions: list[tuple[str, str]] = field(default_factory=list)
    """Of each version that the watch showed: the label, and what a life wrote last."""


@pytest.mark.timeout(300)
async def test_no_write_under_another_s_label_is_accepted(fenced: Fenced) -> None:
    race = Race()
    obj = await fenced.site(NAME)
    async with watched(fenced, race, obj["metadata"]["resourceVersion"]), asyncio.TaskGroup() as tasks:
        racing = [
            *(tasks.create_task(relabel(fenced, race)) for _ in range(2)),
            tasks.create_task(write(fenced, race, A)),
            tasks.create_task(write(fenced, race, B)),
            tasks.create_task(apply(fenced, race, B)),
        ]
        await asyncio.sleep(SECONDS)
        for task in racing:
            task.cancel()
    print(f"relabelled {race.relabelled}, accepted {race.accepted}, refused {race.refused}")
    assert min(race.relabelled, race.accepted, race.refused) > SECONDS
    assert foreign(race.versions) == []
    written = await replaced(fenced)
    assert len(written) >= race.accepted
    assert [each for each in written if each[0] != each[1]] == []


def foreign(versions: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Versions that a life wrote, by their content, while the label named the other one."""
    changed = [new for old, new in pairwise(versions) if old[1] != new[1]]
    return [(label, content) for label, content in changed if not content.startswith(label)]


async def relabel(fenced: Fenced, race: Race) -> None:
    for owner in cycle((B, A)):
        operations = [
            {"op": "replace", "path": f"/metadata/labels/{KEYS.shard.replace('/', '~1')}", "value": owner}
        ]
        await fenced.admin.request(
            "PATCH", PLACE, body=operations, content_type="application/json-patch+json"
        )
        race.relabelled += 1


async def write(fenced: Fenced, race: Race, life: str) -> None:
    client = await fenced.by(f"life {life}")
    for number in count():
        patch = {"spec": {"html": f"{life} {number}"}}
        try:
            await client.merge(WEBSITES, NAME, patch, namespace=SITES)
        except RequestFailedError as error:
            if error.status != 422:
                raise
            race.refused += 1
        else:
            race.accepted += 1


async def apply(fenced: Fenced, race: Race, life: str) -> None:
    """Server-side apply with force, which has no condition either, and names the label that it wants."""
    client = await fenced.by(f"life {life}")
    for number in count():
        wanted = {
            "apiVersion": WEBSITES.api_version,
            "kind": WEBSITES.kind,
            "metadata": {"name": NAME},
            "spec": {"html": f"{life} applied {number}"},
        }
        try:
            await client.request(
                "PATCH",
                PLACE,
                query={"fieldManager": "race", "force": "true"},
                body=wanted,
                content_type="application/apply-patch+yaml",
            )
        except RequestFailedError as error:
            if error.status not in (409, 422):
                raise
            race.refused += 1
        else:
            race.accepted += 1


@asynccontextmanager
async def watched(fenced: Fenced, race: Race, since: str) -> AsyncIterator[None]:
    """Every version of the object from *since* on, up to the last one when the block ends."""

    async def watch(client: Client) -> None:
        query = {"watch": "1", "resourceVersion": since, "fieldSelector": f"metadata.name={NAME}"}
        async with client.stream(WEBSITES.path(namespace=SITES), query=query) as lines:
            async for line in lines:
                obj: Doc = msgspec.json.decode(line)["object"]
                race.versions.append((obj["metadata"]["labels"][KEYS.shard], obj["spec"]["html"]))
                if obj["metadata"].get("annotations"):
                    return

    async with (
        Client(load_cluster(kubeconfig=str(fenced.plane.kubeconfig))) as client,
        asyncio.timeout(SECONDS + 60),
    ):
        watching = asyncio.create_task(watch(client), name="watch")
        yield
        end = {"metadata": {"annotations": {"the": "end"}}}
        await fenced.admin.merge(WEBSITES, NAME, end, namespace=SITES)
        await watching


async def replaced(fenced: Fenced) -> list[tuple[str, str]]:
    """Life, and the label of the version that was replaced, of each accepted write of a life, by the audit log.

    resourceVersions give the order. The policy's own annotation is no evidence: of a write that the server tried again,
    it shows what the first try met.
    """
    await asyncio.sleep(1)  # a line appears when its answer was sent
    lines = (fenced.plane.kubeconfig.parent / "audit.log").read_bytes().splitlines()
    events = [json.loads(line) for line in lines]
    accepted = [
        each
        for each in events
        if each["objectRef"].get("name") == NAME and each["responseStatus"]["code"] == 200
    ]
    accepted.sort(key=lambda each: int(each["responseObject"]["metadata"]["resourceVersion"]))
    return [
        (lives[0], before["responseObject"]["metadata"]["labels"][KEYS.shard])
        for before, after in pairwise(accepted)
        if (lives := after.get("impersonatedUser", {}).get("extra", {}).get(KEYS.life_extra))
    ]
