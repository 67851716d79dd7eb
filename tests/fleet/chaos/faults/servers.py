"""Faults of API servers and etcd, of namespaces and definitions."""

from __future__ import annotations

import contextlib
from functools import partial

from kubeio.resource import CRDS, NAMESPACES, ApiResource
from ringleader.testing.client import Doc, RequestFailedError
from ringleader.testing.commands import CONFIGMAPS
from ringleader.testing.objects import Ref
from ringleader.testing.prerequisites import prepare_kinds, prepare_namespaces
from tests.fleet.chaos.faults.processes import leader_killed, member_joined, member_left, process_killed
from tests.fleet.chaos.faults.requests import request_late
from tests.fleet.chaos.faults.table import etcdutl, fault, real_servers, several_servers
from tests.fleet.chaos.strike import MissedError, Strike


@fault(is_gentle=True)
async def server_restarted(strike: Strike) -> None:
    """All API servers stop, stay away for a while, and come back."""
    async with strike.site.servers:
        await strike.fleet.plane.restart(away_s=strike.span_s(3))


@fault(several_servers, is_gentle=True)
async def server_killed(strike: Strike) -> None:
    """SIGKILL of one of the API servers, which comes back later."""
    plane = strike.plane
    async with strike.site.servers:
        number = strike.rng.randint(1, len(plane.direct_kubeconfigs))
        strike.struck.append(f"server {number}")
        await plane.kill_apiserver(number)
        try:
            await strike.pause()
        finally:
            await plane.start_apiserver(number)


@fault(real_servers, etcdutl, is_alone=True)
async def etcd_restored(strike: Strike) -> None:
    """etcd is restored from an earlier snapshot with raised revisions, as docs/day2.md says."""
    plane, fleet = strike.plane, strike.fleet
    snapshot, taken_at = await plane.snapshot(), fleet.clock.now()
    others = [process_killed, member_joined, member_left, leader_killed, request_late]
    for each in strike.rng.sample(others, 2):  # so that the state before and after differ
        strike.struck.append(getattr(each, "__name__", ""))
        with contextlib.suppress(MissedError):
            await each(strike)
    await strike.pause()
    async with strike.site.servers:
        await plane.restore(snapshot, away_s=strike.lease_s)
    await take_stock(strike, since=taken_at)


async def take_stock(strike: Strike, *, since: float = 0.0) -> None:
    """Learn which objects there are now: demands since *since* and those of objects that are gone are void."""
    objects = strike.fleet.objects
    items: list[Doc] = []

    async def read() -> None:
        items[:] = await strike.fleet.client.list_all(
            objects.resource, namespace=objects.namespace, metadata_only=True
        )

    await strike.insist(read)
    found = {item["metadata"]["uid"]: item["metadata"]["name"] for item in items}
    objects.refs = [Ref(objects.resource, objects.namespace, name, uid) for uid, name in found.items()]
    objects.demands = [
        demand for demand in objects.demands if demand.uid in found and (not since or demand.t < since)
    ]
    strike.fleet.settled_since = None


@fault(is_alone=True)
async def namespace_recreated(strike: Strike) -> None:
    """The objects' namespace is deleted with all that is in it, and created again."""
    fleet = strike.fleet
    namespace, names = fleet.spec.namespace, [ref.name for ref in fleet.objects.refs]
    await fleet.client.delete(NAMESPACES, namespace)
    await _wait_gone(strike, NAMESPACES, namespace)
    await strike.pause(2)
    await strike.insist(lambda: prepare_namespaces(fleet.client, spec=fleet.spec))
    await _create_again(strike, names)


@fault(is_alone=True)
async def definition_recreated(strike: Strike) -> None:
    """The CustomResourceDefinition of the objects is deleted with all of them, and created again."""
    fleet = strike.fleet
    names = [ref.name for ref in fleet.objects.refs]
    name = fleet.spec.resource.group_resource
    await fleet.client.delete(CRDS, name)
    await _wait_gone(strike, CRDS, name)
    await strike.pause(4)
    await strike.insist(lambda: prepare_kinds(fleet.client, spec=fleet.spec))
    await _create_again(strike, names)


async def _wait_gone(strike: Strike, resource: ApiResource, name: str) -> None:
    async def is_gone() -> bool:
        try:
            await strike.fleet.client.get(resource, name)
        except RequestFailedError as error:
            return error.status == 404
        return False

    await strike.fleet.wait_for(is_gone, f"{resource.plural}/{name} to be gone", within_s=180)


async def _create_again(strike: Strike, names: list[str]) -> None:
    objects = strike.fleet.objects
    former, objects.refs = objects.refs, list(objects.refs)
    for name in names:
        await strike.insist(partial(objects.create, name), accepts=(409,))
    objects.refs = objects.refs[len(former) :]
    await take_stock(strike)
    await _delete_leftovers(strike)


async def _delete_leftovers(strike: Strike) -> None:
    """Delete ConfigMaps of former objects, as an operator does.

    The garbage collector takes an object that was created again under its name, while its watch was down, for the
    former one: that one's children are never deleted.
    """
    fleet = strike.fleet
    uids = {ref.uid for ref in fleet.objects.refs}

    async def delete() -> None:
        for item in await fleet.client.list_all(
            CONFIGMAPS, namespace=fleet.spec.namespace, metadata_only=True
        ):
            meta = item["metadata"]
            owners = {owner["uid"] for owner in meta.get("ownerReferences") or []}
            if owners and not owners & uids:
                with contextlib.suppress(RequestFailedError):
                    await fleet.client.delete(CONFIGMAPS, meta["name"], namespace=fleet.spec.namespace)

    await strike.insist(delete)
