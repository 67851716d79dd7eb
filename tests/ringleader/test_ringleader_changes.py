"""cordon, uncordon, weight, pause, resume, release: what is written, what is said of it, and what is refused."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devcluster.faults import Fault
from kubeio.errors import InputError
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.rest.discovery import Discovery
from ringleader.cluster.handoffs import HandoffRow, read_handoffs
from ringleader.cluster.reader import ClusterReader
from ringleader.inspect.edit.changes import (
    Edit,
    Order,
    RingChange,
    change_member,
    change_pause,
    cordoned,
    lines,
    uncordoned,
    weighted,
)
from ringleader.inspect.edit.delete import FINALIZER
from tests.sharder.io.ground import CONFIGMAPS, KEYS, RING, WEBSITES, Ground, is_balanced, wait_until
from tests.warm_python import warm_python


async def spec(ground: Ground) -> dict[str, Any]:
    found = await ground.client.get(CONTROLLER_RINGS, RING, type=dict[str, Any])
    return dict(found["spec"])


async def three(ground: Ground, **ring: object) -> None:
    await ground.ring(**ring)
    for member in ("a", "b", "c"):
        await ground.shard(member, duration_s=15)


async def changed(ground: Ground, member: str, edit: Edit, order: Order | None = None) -> RingChange:
    return await change_member(ground.client, member, edit, order or Order(), timeout_s=10)


async def run(
    ground: Ground, *words: str, stdin: str = "", kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [warm_python(), "-m", "ringleader", *words],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "KUBECONFIG": str(kubeconfig or ground.plane.kubeconfig)},
        timeout=60,
        check=False,
    )


async def test_a_cordon_is_written_says_what_moves_and_is_taken_back_without_a_trace(ground: Ground) -> None:
    await three(ground, members={"b": {"weight": 2}})
    told = await changed(ground, "b", cordoned)
    assert (await spec(ground))["members"] == {"b": {"weight": 2, "cordoned": True}}
    assert told.is_written
    assert told.moves == pytest.approx(0.5, abs=0.05)
    assert {(flow.source, flow.target) for flow in told.flows} >= {("b", "a"), ("b", "c")}
    assert lines(told, is_dry=False, is_wide=False)[0] == f"ring {RING}: member b: cordoned"
    assert not (await changed(ground, "b", cordoned)).is_written
    await changed(ground, "b", uncordoned)
    assert (await spec(ground))["members"] == {"b": {"weight": 2, "cordoned": False}}
    await changed(ground, "b", weighted("1"))
    assert "b" not in (await spec(ground)).get("members", {})


async def test_nothing_is_written_on_a_dry_run(ground: Ground) -> None:
    await three(ground)
    told = await changed(ground, "a", weighted("3"), Order(is_dry=True))
    assert "not written" in lines(told, is_dry=True, is_wide=False)[0]
    assert told.moves > 0.1
    assert "members" not in await spec(ground)


async def test_the_last_member_is_cordoned_only_if_that_is_meant(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a", duration_s=15)
    with pytest.raises(InputError, match="is the last member of ring websites"):
        await changed(ground, "a", cordoned)
    assert "members" not in await spec(ground)
    assert (await changed(ground, "a", cordoned, Order(goes_on=True))).is_written


async def test_the_last_member_that_works_a_main_resource_is_cordoned_only_if_that_is_meant(
    ground: Ground,
) -> None:
    await ground.ring(
        resources=[{"group": "example.com", "resource": "websites"}, {"group": "", "resource": "secrets"}]
    )
    await ground.shard("a", duration_s=15, works="websites.example.com")
    await ground.shard("b", duration_s=15, works="secrets")
    with pytest.raises(InputError, match="with a place that works secrets"):
        await changed(ground, "b", cordoned)
    assert (await changed(ground, "b", cordoned, Order(goes_on=True))).is_written


async def test_a_member_that_nobody_knows_is_refused_unless_it_is_still_to_come(ground: Ground) -> None:
    await three(ground)
    with pytest.raises(
        InputError, match=r"'replica-a' is not a member of any ring; name another: known are a, b, c"
    ):
        await changed(ground, "replica-a", cordoned)
    told = await changed(ground, "d", weighted("2.0"), Order(RING, is_absent=True))
    assert told.is_written
    assert (await spec(ground))["members"] == {"d": {"weight": 2, "cordoned": False}}


async def test_an_edit_by_somebody_else_in_between_is_not_lost(ground: Ground) -> None:
    """The write is conditional on the version that was read: a ring edited meanwhile is read again."""
    await three(ground)
    edits = 0

    def edit_while_deciding(member: Any) -> Any:
        nonlocal edits
        edits += 1
        if edits == 1:
            words = ["kubectl-like", str(ground.plane.kubeconfig)]
            subprocess.run([sys.executable, "-c", _WEIGHS_A, words[1]], check=True)
        return cordoned(member)

    await changed(ground, "a", edit_while_deciding)
    assert edits == 2
    assert (await spec(ground))["members"] == {"a": {"weight": 5, "cordoned": True}}


_WEIGHS_A = """
import asyncio, sys
from kubeio.access.cluster import load_cluster
from kubeio.patch import MergePatch
from kubeio.protocol import (CONTROLLER_RINGS)
from kubeio.rest.client import Client

async def main():
    async with Client(load_cluster(kubeconfig=sys.argv[1])) as client:
        patch = MergePatch({"spec": {"members": {"a": {"weight": 5}}}})
        await client.patch(CONTROLLER_RINGS, "websites", patch, type=bytes)

asyncio.run(main())
"""


@pytest.mark.parametrize("weight", ["0", "-1", "101", "1.0005", "nan", "heavy", ""])
def test_a_weight_that_no_ring_takes_is_refused(weight: str) -> None:
    with pytest.raises(InputError, match=r"use 0\.001 to 100"):
        weighted(weight)


async def test_pause_and_resume_are_told_and_written_once(ground: Ground) -> None:
    await three(ground)
    told = await change_pause(ground.client, RING, Order(), pause=True, timeout_s=10)
    assert "nothing moves between live replicas" in told.what
    assert (await spec(ground))["paused"] is True
    again = await change_pause(ground.client, RING, Order(), pause=True, timeout_s=10)
    assert (again.what, again.is_written) == ("is paused already", False)
    await change_pause(ground.client, RING, Order(), pause=False, timeout_s=10)
    assert (await spec(ground))["paused"] is False
    with pytest.raises(InputError, match="did you mean websites"):
        await change_pause(ground.client, "website", Order(), pause=False, timeout_s=10)


async def test_a_member_of_two_rings_needs_the_flag(ground: Ground) -> None:
    await three(ground, members={"x": {"weight": 2}})
    other = {**await spec(ground), "leaseNamespace": "other"}
    document = {
        "apiVersion": "ringleader.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": "o"},
        "spec": other,
    }
    await ground.client.create(CONTROLLER_RINGS, document, type=bytes)
    with pytest.raises(InputError, match=r"--ring: None is needed: x is a member of o, websites"):
        await changed(ground, "x", cordoned)
    assert (await changed(ground, "x", cordoned, Order("o"))).ring == "o"


async def handoffs(ground: Ground) -> list[HandoffRow]:
    reader = ClusterReader(ground.client, timeout_s=10)
    seen = await reader.snapshot(RING)
    return await read_handoffs(reader, Discovery(ground.client), seen, seen.of(RING))


async def test_the_sharder_empties_a_cordoned_member_and_status_shows_the_handoffs(ground: Ground) -> None:
    """The command's one write is enough: the objects leave by handoffs, shown with both ends."""
    await ground.ring(maxLeaseDurationSeconds=10)
    await ground.shard("a", duration_s=5)
    await ground.shard("b", duration_s=5)
    async with ground.sharder():
        await ground.sites(8)
        await wait_until(lambda: is_balanced(ground))
        assert set((await ground.owners()).values()) == {"a-00000001", "b-00000001"}
        told = await changed(ground, "a", cordoned)
        assert told.is_written

        async def drained() -> bool:
            return set((await ground.drains()).values()) == {"b-00000001"}

        await wait_until(drained)
        found = await handoffs(ground)
        assert {(each.owner, each.to, each.note) for each in found} == {("a-00000001", "b-00000001", "")}
        shown = await run(ground, "status", "--handoffs", "--limit", "1")
        assert "websites.example.com/default/site-" in shown.stdout
        assert f"{len(found)} in flight; owed by a-00000001 {len(found)}" in shown.stdout
        assert f"... and {len(found) - 1} more" in shown.stdout


async def test_a_handoff_to_the_dead_is_noted(ground: Ground) -> None:
    await three(ground)
    await ground.site("one", labels={KEYS.shard: "gone-00000001", KEYS.drain: "a-00000001"})
    await ground.site("two", labels={KEYS.shard: "a-00000001", KEYS.drain: "gone-00000001"})
    await ground.site("three", labels={KEYS.shard: "a-00000001", KEYS.drain: ""})
    found = await handoffs(ground)
    assert {(each.object.rpartition("/")[2], each.to, each.note) for each in found} == {
        ("one", "a-00000001", "owner is dead"),
        ("two", "gone-00000001", "target is dead"),
        ("three", "", ""),
    }
    shown = (await run(ground, "status", "--handoffs", "websites")).stdout
    assert "(release)" in shown
    assert "owed by a-00000001 2, gone-00000001 1" in shown


async def test_nothing_in_flight_is_said(ground: Ground) -> None:
    await three(ground)
    assert (await run(ground, "status", "--handoffs")).stdout == "no handoff is in flight\n"


# -- release


async def test_a_release_asks_first_and_needs_somebody_to_ask(ground: Ground) -> None:
    await three(ground)
    done = await run(ground, "delete", RING)
    assert done.returncode == 2
    assert "--yes: False is needed: there is no terminal to ask on" in done.stderr
    assert await ground.exists(CONTROLLER_RINGS, RING)


async def test_a_ring_that_no_sharder_would_clean_up_is_not_deleted(ground: Ground) -> None:
    await three(ground)
    await ground.site("one", labels={KEYS.shard: "a-00000001"})
    done = await run(ground, "delete", RING, "--yes")
    assert done.returncode == 2
    assert "would leave the labels of 1 objects" in done.stderr
    assert await ground.exists(CONTROLLER_RINGS, RING)


async def test_a_release_that_takes_too_long_says_what_it_waits_for(ground: Ground) -> None:
    await three(ground)
    await ground.site("one", labels={KEYS.shard: "a-00000001"})
    await ground.client.patch(
        CONTROLLER_RINGS, RING, MergePatch({"metadata": {"finalizers": [FINALIZER]}}), type=bytes
    )
    done = await run(ground, "delete", RING, "--yes", "--timeout", "2s")
    assert done.returncode == 1
    assert "is not released after 2 s: it waits for 1 objects of a-00000001" in done.stderr
    assert done.stderr.startswith(f"counting the objects of ring {RING}\n")
    assert "warning: no sharder leads: there is no Lease ringleader-sharder in any namespace" in done.stderr


async def test_a_release_counts_once_and_then_reads_the_ring_alone(ground: Ground) -> None:
    await ground.ring(maxLeaseDurationSeconds=10)
    shard = await ground.shard("a", duration_s=5)
    seen = [
        Fault(what="latency", verb=verb, resource=resource.group_resource, user="ada")
        for verb, resource in (("list", WEBSITES), ("list", CONFIGMAPS), ("get", CONTROLLER_RINGS))
    ]
    async with ground.sharder():
        for name in ("one", "two"):
            site = await ground.site(name, labels={KEYS.shard: shard.name})
            await ground.page(site, labels={KEYS.shard: shard.name})
        await wait_until(lambda: is_balanced(ground))
        for each in seen:
            await ground.plane.faults.add(each)
        kubeconfig = await ground.plane.kubeconfig_for("ada")
        releasing = asyncio.create_task(run(ground, "delete", RING, "--yes", kubeconfig=kubeconfig))
        await wait_until(ground.drains, within_s=20)
        await ground.acknowledge("one")
        await asyncio.sleep(3.5)
        lists, lists_of_pages, gets = [each.hits for each in await ground.plane.faults.active()]
        await ground.acknowledge("two")
        for name in ("one", "two"):
            await ground.client.delete(CONFIGMAPS, name, namespace="default")
        await shard.release()
        done = await asyncio.wait_for(releasing, 30)
    assert (lists, lists_of_pages) == (1, 1)
    assert gets >= 3
    assert done.returncode == 0
    assert done.stderr.startswith(f"counting the objects of ring {RING}\n")
    assert re.search(r"^[01] of 2 objects given up", done.stderr, re.MULTILINE), (
        "what they control is no object more"
    )


async def test_a_release_outlasts_a_server_that_does_not_answer_for_a_while(ground: Ground) -> None:
    await ground.ring(maxLeaseDurationSeconds=10)
    shard = await ground.shard("a", duration_s=5)
    async with ground.sharder():
        await ground.site("one")
        await wait_until(lambda: is_balanced(ground))
        kubeconfig = await ground.plane.kubeconfig_for("ada")
        releasing = asyncio.create_task(run(ground, "delete", RING, "--yes", kubeconfig=kubeconfig))
        await wait_until(ground.drains, within_s=20)
        await ground.plane.faults.add(Fault(what="error", code=503, verb="get", user="ada", count=3))
        await asyncio.sleep(4)
        await ground.acknowledge("one")
        await shard.release()
        done = await asyncio.wait_for(releasing, 30)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the release goes on, and is looked at again") == 1


async def test_a_release_ends_when_the_ring_is_gone(ground: Ground) -> None:
    await ground.ring(maxLeaseDurationSeconds=10)
    shard = await ground.shard("a", duration_s=5)
    async with ground.sharder():
        await ground.site("one")
        await wait_until(lambda: is_balanced(ground))
        releasing = asyncio.create_task(run(ground, "delete", RING, "--yes"))

        async def asked() -> bool:
            return await ground.drains() == {"one": ""}

        await wait_until(asked)
        await ground.acknowledge("one")
        await shard.release()
        done = await asyncio.wait_for(releasing, 30)
    assert done.returncode == 0
    assert f"ring {RING} is released: no object carries its labels" in done.stdout
    assert not await ground.exists(CONTROLLER_RINGS, RING)
    assert KEYS.shard not in (await ground.labels(WEBSITES))["one"]
