"""Contract: Leases: creation as the only way to a new name, compare-and-swap for everything else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.api import Api

pytestmark = pytest.mark.asyncio(loop_scope="session")


def lease(name: str, holder: str, **metadata: object) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name} | metadata,
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.123456Z",
            "leaseTransitions": 0,
        },
    }


async def test_lease_comes_back_as_it_was_written(api: Api, leases: str) -> None:
    body = lease("a", "a", labels={"ringleader.dev/controllerring": "r"}, annotations={"x": "y"})
    created = (await api.post(leases, body)).check(201)
    assert created.body["spec"] == body["spec"]
    found = (await api.get(f"{leases}/a")).check(200)
    assert found.body["spec"] == body["spec"]
    assert found.meta["annotations"] == {"x": "y"}
    assert "generation" not in found.meta


async def test_one_of_many_creates_wins(api: Api, leases: str) -> None:
    answers = await asyncio.gather(*(api.post(leases, lease("a", f"holder-{n}")) for n in range(8)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 7
    losers = [answer for answer in answers if answer.status == 409]
    assert {loser.body["reason"] for loser in losers} == {"AlreadyExists"}


async def test_one_of_many_swaps_wins(api: Api, leases: str) -> None:
    created = (await api.post(leases, lease("a", "a"))).check(201)
    bodies = [
        created.body | {"spec": created.body["spec"] | {"holderIdentity": f"holder-{n}"}} for n in range(8)
    ]
    answers = await asyncio.gather(*(api.put(f"{leases}/a", body) for body in bodies))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7
    (winner,) = [answer for answer in answers if answer.status == 200]
    assert (await api.get(f"{leases}/a")).body == winner.body


async def test_holder_may_be_empty_and_stays_so(api: Api, leases: str) -> None:
    created = (await api.post(leases, lease("a", "a"))).check(201)
    released = created.body
    released["spec"]["holderIdentity"] = ""
    answer = (await api.put(f"{leases}/a", released)).check(200)
    assert answer.body["spec"].get("holderIdentity", "") == ""


async def test_renewal_with_the_same_content_is_no_write(api: Api, leases: str) -> None:
    created = (await api.post(leases, lease("a", "a"))).check(201)
    assert (await api.put(f"{leases}/a", created.body)).check(200).version == created.version


async def test_deleted_lease_is_not_brought_back_by_a_swap(api: Api, leases: str) -> None:
    created = (await api.post(leases, lease("a", "a"))).check(201)
    options = {"preconditions": {"uid": created.meta["uid"], "resourceVersion": created.version}}
    (await api.delete(f"{leases}/a", options)).check(200)
    refused = await api.put(f"{leases}/a", created.body)
    assert refused.status in (404, 409), refused.text
    (await api.get(f"{leases}/a")).check(404)


async def test_swap_of_a_recreated_lease_fails(api: Api, leases: str) -> None:
    first = (await api.post(leases, lease("a", "a"))).check(201)
    await api.delete(f"{leases}/a")
    second = (await api.post(leases, lease("a", "b"))).check(201)
    (await api.put(f"{leases}/a", first.body)).check(409)
    assert (await api.get(f"{leases}/a")).body == second.body


async def test_delete_is_refused_once_the_lease_was_renewed(api: Api, leases: str) -> None:
    created = (await api.post(leases, lease("a", "a"))).check(201)
    (await api.merge(f"{leases}/a", {"spec": {"renewTime": "2026-01-01T00:00:05.000000Z"}})).check(200)
    options = {"preconditions": {"uid": created.meta["uid"], "resourceVersion": created.version}}
    (await api.delete(f"{leases}/a", options)).check(409)


@pytest.mark.parametrize(
    ("spec", "status", "words"),
    [
        (
            {"leaseDurationSeconds": 0},
            422,
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            {"leaseTransitions": -1},
            422,
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal",
        ),
        ({"leaseDurationSeconds": "15"}, 400, 'Lease in version "v1" cannot be handled as a Lease'),
        ({"renewTime": "yesterday"}, 400, 'Lease in version "v1" cannot be handled as a Lease'),
        ({"renewTime": "2026-01-01T00:00:00Z"}, 400, 'Lease in version "v1" cannot be handled as a Lease'),
    ],
    ids=str,
)
async def test_spec_is_checked(
    api: Api, leases: str, spec: dict[str, object], status: int, words: str
) -> None:
    body = lease("a", "a")
    body["spec"] |= spec
    assert words in (await api.post(leases, body)).check(status).message


async def test_lists_and_watches_pick_leases_by_label(api: Api, leases: str) -> None:
    for name, ring in (("a", "r1"), ("b", "r2"), ("c", "r1")):
        await api.post(leases, lease(name, name, labels={"ringleader.dev/controllerring": ring}))
    listed = await api.get(leases, labelSelector="ringleader.dev/controllerring=r1")
    assert listed.check(200).names == ["a", "c"]
    async with api.watch(
        leases, labelSelector="ringleader.dev/controllerring=r1", resourceVersion=listed.version
    ) as watch:
        await api.merge(f"{leases}/b", {"spec": {"leaseTransitions": 1}})
        await api.merge(f"{leases}/c", {"spec": {"leaseTransitions": 1}})
        assert await watch.short() == ("MODIFIED", "c")


async def test_read_after_write_is_consistent(api: Api, leases: str) -> None:
    """A list without a version shows every write that was answered before it began."""
    await api.post(leases, lease("a", "a"))
    for turn in range(20):
        written = await api.merge(f"{leases}/a", {"spec": {"leaseTransitions": turn + 1}})
        listed = await api.get(leases)
        assert listed.body["items"][0]["spec"]["leaseTransitions"] == turn + 1
        assert int(listed.version) >= int(written.version)
