"""cordon, uncordon, weight, pause, resume, release: what is written, what is said of it, and what is refused."""

from __future__ import annotations

import asyncio
import os
import re
import signal
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
from tests.sharder.io.environment import (
    CONFIGMAPS,
    KEYS,
    RING,
    WEBSITES,
    SharderEnvironment,
    is_balanced,
    wait_until,
)
from tests.warm_python import warm_python


async def spec(env: SharderEnvironment) -> dict[str, Any]:
    found = await env.client.get(CONTROLLER_RINGS, RING, type=dict[str, Any])
    return dict(found["spec"])


async def three(env: SharderEnvironment, **ring: object) -> None:
    await env.ring(**ring)
    for member in ("a", "b", "c"):
        await env.shard(member, duration_s=15)


async def changed(env: SharderEnvironment, member: str, edit: Edit, order: Order | None = None) -> RingChange:
    return await change_member(env.client, member, edit, order or Order(), timeout_s=10)


async def run(
    env: SharderEnvironment, *words: str, stdin: str = "", kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [warm_python(), "-m", "ringleader", *words],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "KUBECONFIG": str(kubeconfig or env.plane.kubeconfig)},
        timeout=60,
        check=False,
    )


async def test_a_cordon_is_written_says_what_moves_and_is_taken_back_without_a_trace(
    env: SharderEnvironment,
) -> None:
    await three(env, members={"b": {"weight": 2}})
    told = await changed(env, "b", cordoned)
    assert (await spec(env))["members"] == {"b": {"weight": 2, "cordoned": True}}
    assert told.is_written
    assert told.moves == pytest.approx(0.5, abs=0.05)
    assert {(flow.source, flow.target) for flow in told.flows} >= {("b", "a"), ("b", "c")}
    assert lines(told, is_dry=False, is_wide=False)[0] == f"ring {RING}: member b: cordoned"
    assert not (await changed(env, "b", cordoned)).is_written
    await changed(env, "b", uncordoned)
    assert (await spec(env))["members"] == {"b": {"weight": 2, "cordoned": False}}
    await changed(env, "b", weighted("1"))
    assert "b" not in (await spec(env)).get("members", {})


async def test_nothing_is_written_on_a_dry_run(env: SharderEnvironment) -> None:
    await three(env)
    told = await changed(env, "a", weighted("3"), Order(is_dry=True))
    assert "not written" in lines(told, is_dry=True, is_wide=False)[0]
    assert told.moves > 0.1
    assert "members" not in await spec(env)


async def test_the_last_member_is_cordoned_only_if_that_is_meant(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a", duration_s=15)
    with pytest.raises(InputError, match="is the last member of ring websites"):
        await changed(env, "a", cordoned)
    assert "members" not in await spec(env)
    assert (await changed(env, "a", cordoned, Order(goes_on=True))).is_written


async def test_the_last_member_that_works_a_main_resource_is_cordoned_only_if_that_is_meant(
    env: SharderEnvironment,
) -> None:
    await env.ring(
        resources=[{"group": "example.com", "resource": "websites"}, {"group": "", "resource": "secrets"}]
    )
    await env.shard("a", duration_s=15, works="websites.example.com")
    await env.shard("b", duration_s=15, works="secrets")
    with pytest.raises(InputError, match="with a place that works secrets"):
        await changed(env, "b", cordoned)
    assert (await changed(env, "b", cordoned, Order(goes_on=True))).is_written


async def test_a_member_that_nobody_knows_is_refused_unless_it_is_still_to_come(
    env: SharderEnvironment,
) -> None:
    await three(env)
    with pytest.raises(
        InputError, match=r"'replica-a' is not a member of any ring; name another: known are a, b, c"
    ):
        await changed(env, "replica-a", cordoned)
    told = await changed(env, "d", weighted("2.0"), Order(RING, is_absent=True))
    assert told.is_written
    assert (await spec(env))["members"] == {"d": {"weight": 2, "cordoned": False}}


async def test_an_edit_by_somebody_else_in_between_is_not_lost(env: SharderEnvironment) -> None:
    """The write is conditional on the version that was read: a ring edited meanwhile is read again."""
    await three(env)
    edits = 0

    def edit_while_deciding(member: Any) -> Any:
        nonlocal edits
        edits += 1
        if edits == 1:
            words = ["kubectl-like", str(env.plane.kubeconfig)]
            subprocess.run([sys.executable, "-c", _WEIGHS_A, words[1]], check=True)
        return cordoned(member)

    await changed(env, "a", edit_while_deciding)
    assert edits == 2
    assert (await spec(env))["members"] == {"a": {"weight": 5, "cordoned": True}}


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


async def test_pause_and_resume_are_told_and_written_once(env: SharderEnvironment) -> None:
    await three(env)
    told = await change_pause(env.client, RING, Order(), pause=True, timeout_s=10)
    assert "nothing moves between live replicas" in told.what
    assert (await spec(env))["paused"] is True
    again = await change_pause(env.client, RING, Order(), pause=True, timeout_s=10)
    assert (again.what, again.is_written) == ("is paused already", False)
    await change_pause(env.client, RING, Order(), pause=False, timeout_s=10)
    assert (await spec(env))["paused"] is False
    with pytest.raises(InputError, match="did you mean websites"):
        await change_pause(env.client, "website", Order(), pause=False, timeout_s=10)


async def test_the_keys_of_a_paused_ring_move_when_it_is_resumed(env: SharderEnvironment) -> None:
    await three(env, paused=True)
    shown = lines(await changed(env, "a", cordoned), is_dry=False, is_wide=False)
    assert shown[1].endswith("% of the ring's keys move when the ring is resumed: it is paused")


async def test_a_ring_that_is_being_deleted_takes_no_change(env: SharderEnvironment) -> None:
    await three(env)
    finalizers = MergePatch({"metadata": {"finalizers": [FINALIZER]}})
    await env.client.patch(CONTROLLER_RINGS, RING, finalizers, type=bytes)
    await env.client.delete(CONTROLLER_RINGS, RING)
    with pytest.raises(InputError, match="RING: 'websites' is being deleted"):
        await changed(env, "a", cordoned)
    with pytest.raises(InputError, match="RING: 'websites' is being deleted"):
        await change_pause(env.client, RING, Order(), pause=True, timeout_s=10)


async def test_a_member_of_two_rings_needs_the_flag(env: SharderEnvironment) -> None:
    await three(env, members={"x": {"weight": 2}})
    other = {**await spec(env), "leaseNamespace": "other"}
    document = {
        "apiVersion": "ringleader.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": "o"},
        "spec": other,
    }
    await env.client.create(CONTROLLER_RINGS, document, type=bytes)
    with pytest.raises(InputError, match=r"--ring is needed: x is a member of o, websites"):
        await changed(env, "x", cordoned)
    assert (await changed(env, "x", cordoned, Order("o"))).ring == "o"


async def handoffs(env: SharderEnvironment) -> list[HandoffRow]:
    reader = ClusterReader(env.client, timeout_s=10)
    seen = await reader.snapshot(RING)
    return await read_handoffs(reader, Discovery(env.client), seen, seen.of(RING))


async def test_the_sharder_empties_a_cordoned_member_and_status_shows_the_handoffs(
    env: SharderEnvironment,
) -> None:
    """The command's one write is enough: the objects leave by handoffs, shown with both ends."""
    await env.ring(maxLeaseDurationSeconds=10)
    await env.shard("a", duration_s=5)
    await env.shard("b", duration_s=5)
    async with env.sharder():
        await env.sites(8)
        await wait_until(lambda: is_balanced(env))
        assert set((await env.owners()).values()) == {"a-00000001", "b-00000001"}
        told = await changed(env, "a", cordoned)
        assert told.is_written

        async def drained() -> bool:
            return set((await env.drains()).values()) == {"b-00000001"}

        await wait_until(drained)
        found = await handoffs(env)
        assert {(each.owner, each.to, each.note) for each in found} == {("a-00000001", "b-00000001", "")}
        shown = await run(env, "status", "--handoffs", "--limit", "1")
        assert "websites.example.com/default/site-" in shown.stdout
        assert f"{len(found)} in flight; owed by a-00000001 {len(found)}" in shown.stdout
        assert f"... and {len(found) - 1} more" in shown.stdout


async def test_a_handoff_to_the_dead_is_noted(env: SharderEnvironment) -> None:
    await three(env)
    await env.site("one", labels={KEYS.shard: "gone-00000001", KEYS.drain: "a-00000001"})
    await env.site("two", labels={KEYS.shard: "a-00000001", KEYS.drain: "gone-00000001"})
    await env.site("three", labels={KEYS.shard: "a-00000001", KEYS.drain: ""})
    found = await handoffs(env)
    assert {(each.object.rpartition("/")[2], each.to, each.note) for each in found} == {
        ("one", "a-00000001", "owner is dead"),
        ("two", "gone-00000001", "target is dead"),
        ("three", "", ""),
    }
    shown = (await run(env, "status", "--handoffs", "websites")).stdout
    assert "(release)" in shown
    assert "owed by a-00000001 2, gone-00000001 1" in shown


async def test_nothing_in_flight_is_said(env: SharderEnvironment) -> None:
    await three(env)
    assert (await run(env, "status", "--handoffs")).stdout == "no handoff is in flight\n"


# -- release


async def test_a_release_asks_first_and_needs_somebody_to_ask(env: SharderEnvironment) -> None:
    await three(env)
    done = await run(env, "delete", RING)
    assert done.returncode == 2
    assert "--yes is needed: there is no terminal to ask on" in done.stderr
    assert await env.exists(CONTROLLER_RINGS, RING)


async def test_a_ring_that_no_sharder_would_clean_up_is_not_deleted(env: SharderEnvironment) -> None:
    await three(env)
    await env.site("one", labels={KEYS.shard: "a-00000001"})
    done = await run(env, "delete", RING, "--yes")
    assert done.returncode == 2
    assert "would leave the labels of 1 objects" in done.stderr
    assert await env.exists(CONTROLLER_RINGS, RING)


async def test_a_release_that_takes_too_long_says_what_it_waits_for(env: SharderEnvironment) -> None:
    await three(env)
    await env.site("one", labels={KEYS.shard: "a-00000001"})
    await env.client.patch(
        CONTROLLER_RINGS, RING, MergePatch({"metadata": {"finalizers": [FINALIZER]}}), type=bytes
    )
    done = await run(env, "delete", RING, "--yes", "--timeout", "2s")
    assert done.returncode == 1
    assert "is not released after 2 s: it waits for 1 objects of a-00000001" in done.stderr
    assert done.stderr.startswith(f"counting the objects of ring {RING}\n")
    assert "warning: no sharder leads: there is no Lease ringleader-sharder in any namespace" in done.stderr


async def test_a_release_counts_once_and_then_reads_the_ring_alone(env: SharderEnvironment) -> None:
    await env.ring(maxLeaseDurationSeconds=10)
    shard = await env.shard("a", duration_s=5)
    seen = [
        Fault(what="latency", verb=verb, resource=resource.group_resource, user="ada")
        for verb, resource in (("list", WEBSITES), ("list", CONFIGMAPS), ("get", CONTROLLER_RINGS))
    ]
    async with env.sharder():
        for name in ("one", "two"):
            site = await env.site(name, labels={KEYS.shard: shard.name})
            await env.page(site, labels={KEYS.shard: shard.name})
        await wait_until(lambda: is_balanced(env))
        for each in seen:
            await env.plane.faults.add(each)
        kubeconfig = await env.plane.kubeconfig_for("ada")
        releasing = asyncio.create_task(run(env, "delete", RING, "--yes", kubeconfig=kubeconfig))
        await wait_until(env.drains, within_s=20)
        await env.acknowledge("one")
        await asyncio.sleep(3.5)
        lists, lists_of_pages, gets = [each.hits for each in await env.plane.faults.active()]
        await env.acknowledge("two")
        for name in ("one", "two"):
            await env.client.delete(CONFIGMAPS, name, namespace="default")
        await shard.release()
        done = await asyncio.wait_for(releasing, 30)
    assert (lists, lists_of_pages) == (1, 1)
    assert gets >= 3
    assert done.returncode == 0
    assert done.stderr.startswith(f"counting the objects of ring {RING}\n")
    assert re.search(r"^[01] of 2 objects given up", done.stderr, re.MULTILINE), (
        "what they control is no object more"
    )


async def test_a_release_outlasts_a_server_that_does_not_answer_for_a_while(env: SharderEnvironment) -> None:
    await env.ring(maxLeaseDurationSeconds=10)
    shard = await env.shard("a", duration_s=5)
    async with env.sharder():
        await env.site("one")
        await wait_until(lambda: is_balanced(env))
        kubeconfig = await env.plane.kubeconfig_for("ada")
        releasing = asyncio.create_task(run(env, "delete", RING, "--yes", kubeconfig=kubeconfig))
        await wait_until(env.drains, within_s=20)
        await env.plane.faults.add(Fault(what="error", code=503, verb="get", user="ada", count=3))
        await asyncio.sleep(4)
        await env.acknowledge("one")
        await shard.release()
        done = await asyncio.wait_for(releasing, 30)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the release goes on, and is looked at again") == 1


async def test_ctrl_c_ends_the_wait_and_says_that_the_release_goes_on(env: SharderEnvironment) -> None:
    await three(env)
    await env.site("one", labels={KEYS.shard: "a-00000001"})
    finalizers = MergePatch({"metadata": {"finalizers": [FINALIZER]}})
    await env.client.patch(CONTROLLER_RINGS, RING, finalizers, type=bytes)
    await env.report(released=0)
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", "delete", RING, "--yes"),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(env.plane.kubeconfig)},
    )
    assert process.stderr is not None
    await asyncio.wait_for(process.stderr.readuntil(b"objects given up\n"), 60)
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), 60)
    said = "note: ring websites is being given up all the same; ringleader status websites shows how far"
    assert (process.returncode, err.decode().splitlines()[-2:]) == (130, [said, "error: interrupted"])


async def test_a_release_ends_when_the_ring_is_gone(env: SharderEnvironment) -> None:
    await env.ring(maxLeaseDurationSeconds=10)
    shard = await env.shard("a", duration_s=5)
    async with env.sharder():
        await env.site("one")
        await wait_until(lambda: is_balanced(env))
        releasing = asyncio.create_task(run(env, "delete", RING, "--yes"))

        async def asked() -> bool:
            return await env.drains() == {"one": ""}

        await wait_until(asked)
        await env.acknowledge("one")
        await shard.release()
        done = await asyncio.wait_for(releasing, 30)
    assert done.returncode == 0
    assert f"ring {RING} is released: no object carries its labels" in done.stdout
    assert not await env.exists(CONTROLLER_RINGS, RING)
    assert KEYS.shard not in (await env.labels(WEBSITES))["one"]
