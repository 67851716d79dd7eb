"""A new version of the sharder after an old one, or beside it, moves nothing: the old one's labels are golden."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.sharder.io.environment import KEYS, ROOT, SharderEnvironment, eventually, is_balanced

GOLDEN: dict[str, Any] = json.loads((ROOT / "tests" / "ring" / "golden" / "owners-v1.json").read_text())
"""What the first released sharder wrote; key number i is `example.com_ns-<i mod 97>_site-<i>`."""
NAMESPACES = 4


def golden_ring(what: str) -> dict[str, Any]:
    return next(ring for ring in GOLDEN["rings"] if ring["what"] == what)


def spec_of(ring: dict[str, Any]) -> dict[str, Any]:
    weights = {name: float(weight) for name, weight in ring["weights"].items()}
    return {
        "virtualNodes": ring["virtual_nodes"],
        "imbalancePercent": round(float(ring["eps"]) * 100),
        "members": {name: {"weight": weight} for name, weight in weights.items() if weight not in (0, 1)},
        "auditIntervalSeconds": 1,
        "maxLeaseDurationSeconds": 4,
    }


async def as_the_old_one_left_it(env: SharderEnvironment, ring: dict[str, Any]) -> int:
    """Shards, and websites that carry the golden owners' names; how many."""
    owners = bytes.fromhex(ring["owners"])
    lives = {member: (await env.shard(member, duration_s=4)).name for member in ring["members"]}
    for number in range(NAMESPACES):
        await env.namespace(f"ns-{number}", {})
    keys = [i for i in range(len(owners)) if i % 97 < NAMESPACES]
    for i in keys:
        labels = {KEYS.shard: lives[ring["members"][owners[i]]]}
        await env.site(f"site-{i}", labels=labels, namespace=f"ns-{i % 97}")
    return len(keys)


def written(env: SharderEnvironment, *sharders: str) -> list[str]:
    """Writes of sharders to objects that the server accepted: two sharders race, and one of them is refused."""
    return [
        f"{write.verb} {write.namespace}/{write.name} by {write.user}"
        for write in env.plane.writes()
        if write.user in sharders and write.resource == "websites.example.com" and write.code == 200
    ]


@pytest.mark.parametrize("what", ["ten members", "weights", "seven members, three virtual nodes each"])
async def test_a_sharder_that_takes_over_what_an_old_one_left_moves_nothing(
    env: SharderEnvironment, what: str
) -> None:
    ring = golden_ring(what)
    assert await as_the_old_one_left_it(env, ring) > 400
    await env.ring(**spec_of(ring))
    async with env.sharder("new"):
        await env.until_balanced()
        await asyncio.sleep(2.0)  # settle windows and an audit
        assert await is_balanced(env)
        assert (await env.status())["availableShards"] == len(ring["members"]), "nobody to move to"
        assert await env.drains() == {}
    assert written(env, "new") == []


async def test_two_versions_that_act_side_by_side_agree_about_every_object(env: SharderEnvironment) -> None:
    """While a sharder is rolled, two may believe to lead: what one did the other leaves."""
    ring = golden_ring("ten members")
    await as_the_old_one_left_it(env, ring)
    await env.ring(**spec_of(ring))
    async with env.sharder("new"), env.sharder("old"):
        await env.until_balanced()
        await env.sites(20)
        await eventually(env.owners, lambda owners: all(owners.values()))
        await asyncio.sleep(2.0)
    touched = [reported.split()[1] for reported in written(env, "new", "old")]
    assert len(touched) == len(set(touched)), "an object was written twice"
    assert set(touched) == {f"default/site-{number}" for number in range(20)}
