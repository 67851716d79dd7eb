"""The table of faults: the name of each, what it does, and what it needs. `simulation` uses the same names.

A fault is a coroutine that strikes, waits until it is over, and undoes what has to be undone. To add one, write it
here with `@fault`: its first line is printed by `--list`.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from devcluster.faults import Fault
from devcluster.real import BinariesMissing
from devcluster.real.binaries import find_binaries
from devcluster.real.recipes import etcdutl_recipe
from kubeio.protocol import CONTROLLER_RINGS, PROTOCOL_VERSION
from kubeio.resource import CRDS, LEASES, NAMESPACES, ApiResource
from ringleader.testing.client import Doc, RequestFailedError
from ringleader.testing.commands import CONFIGMAPS
from ringleader.testing.objects import Ref
from ringleader.testing.prerequisites import prepare_kinds, prepare_namespaces
from tests.fleet.chaos.slowing import slowed
from tests.fleet.chaos.strike import FEWEST_MEMBERS, MOST_MEMBERS, MissedError, Site, Strike

Coroutine = Callable[[Strike], Awaitable[None]]
Need = Callable[[Site], str]
"""Why a fault cannot be made at a site; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosFault:
    """One row of the table."""

    name: str
    does: str
    strike: Coroutine
    needs: tuple[Need, ...]
    is_alone: bool
    """Nothing else strikes meanwhile, and all objects are at their places before: its promise holds only then."""
    is_gentle: bool
    """It ends no process by a signal: a soak strikes with these."""

    def missing(self, site: Site) -> str:
        """Why it cannot be made at *site*; empty if it can."""
        return next((reason for need in self.needs if (reason := need(site))), "")


FAULTS: dict[str, ChaosFault] = {}


def fault(*needs: Need, is_alone: bool = False, is_gentle: bool = False) -> Callable[[Coroutine], Coroutine]:
    """Put a coroutine into the table under its own name."""

    def put(strike: Coroutine) -> Coroutine:
        name = getattr(strike, "__name__", "")
        does = (strike.__doc__ or "").partition("\n")[0]
        FAULTS[name] = ChaosFault(
            name=name, does=does, strike=strike, needs=needs, is_alone=is_alone, is_gentle=is_gentle
        )
        return strike

    return put


# -- needs ----------------------------------------------------------------------------------------------------------


def real_servers(site: Site) -> str:
    return "" if site.real else "needs a real control plane"


def several_servers(site: Site) -> str:
    return "" if site.real and len(site.real.direct_kubeconfigs) > 1 else "needs two API servers"


def etcdutl(site: Site) -> str:
    try:
        find_binaries(["etcdutl"], etcdutl_recipe())
    except BinariesMissing as missing:
        return missing.reason
    return ""


# -- the network between a process and the API servers ----------------------------------------------------------------


@fault(is_gentle=True)
async def request_late(strike: Strike) -> None:
    """Requests of one account wait and are delivered in order, also when their sender has given up."""
    user, resource = strike.account(), strike.resource()
    await strike.order(Fault(what="hold", user=user, resource=resource, for_s=strike.span_s()))


@fault(is_gentle=True)
async def request_lost(strike: Strike) -> None:
    """Writes of one account never arrive: their connections are reset."""
    user, resource = strike.account(), strike.resource()
    await strike.order(Fault(what="cut", user=user, verb="write", resource=resource, for_s=strike.span_s()))


@fault(is_gentle=True)
async def answer_lost(strike: Strike) -> None:
    """Writes of one account arrive, and their answers are lost."""
    user, resource, for_s = strike.account(), strike.resource(), strike.span_s(1)
    lost = Fault(what="lose_answer", user=user, verb="write", resource=resource, count=10, for_s=for_s)
    await strike.order(lost)


@fault(is_gentle=True)
async def request_repeated(strike: Strike) -> None:
    """Writes of one account arrive a second time, up to two Lease durations later."""
    user, resource = strike.account(), strike.resource()
    delay_s, for_s = strike.rng.uniform(0, 2 * strike.lease_s), strike.span_s()
    twice = Fault(what="repeat", user=user, verb="write", resource=resource, delay_s=delay_s, for_s=for_s)
    await strike.order(twice)


@fault(is_gentle=True)
async def watch_cut(strike: Strike) -> None:
    """Watches of one account are reset, and new ones too for a moment."""
    await strike.order(Fault(what="cut", user=strike.account(), verb="watch", for_s=strike.span_s(1)))


@fault(is_gentle=True)
async def watch_silent(strike: Strike) -> None:
    """Watches of one account stay open without events, until their client notices."""
    await strike.order(Fault(what="mute_watches", user=strike.account(), for_s=strike.span_s(1)))


@fault(is_gentle=True)
async def watch_expired(strike: Strike) -> None:
    """Watches of one account end, and new ones say 410 Expired for a moment."""
    await strike.order(Fault(what="expire_watches", user=strike.account(), for_s=strike.span_s(1)))


@fault(is_gentle=True)
async def bookmarks_withheld(strike: Strike) -> None:
    """Watches of one account get no bookmarks."""
    await strike.order(Fault(what="withhold_bookmarks", user=strike.account(), for_s=strike.span_s()))


@fault(is_gentle=True)
async def partition(strike: Strike) -> None:
    """One process and the API servers do not reach each other."""
    networks = [name for name in strike.site.running() if name in strike.site.networks]
    if networks and strike.rng.random() < 0.5:
        cut = strike.site.networks[strike.take(strike.rng.choice(networks))]
        strike.struck.append("network namespace")
        cut(True)
        try:
            await strike.pause()
        finally:
            cut(False)
    else:
        await strike.order(Fault(what="partition", user=strike.account(), for_s=strike.span_s()))


@fault(is_gentle=True)
async def server_errors(strike: Strike) -> None:
    """The API servers answer one account with 429, 500, 503 or 504."""
    user, resource = strike.account(), strike.resource()
    strike.struck.append(str(code := strike.rng.choice((429, 500, 503, 504))))
    retry_after_s = 1 if code in (429, 503) else None
    for_s = strike.span_s(2)
    await strike.order(
        Fault(what="error", user=user, resource=resource, code=code, retry_after_s=retry_after_s, for_s=for_s)
    )


# -- processes --------------------------------------------------------------------------------------------------------


@fault()
async def process_killed(strike: Strike) -> None:
    """SIGKILL; the next process fills the place."""
    place = strike.take_process()
    place.kill()
    await strike.pause(1)


@fault()
async def process_terminated(strike: Strike) -> None:
    """SIGTERM; the place stays empty for a while."""
    place = strike.take_process()
    try:
        await place.stop()
        await strike.pause()
    finally:
        place.want()


@fault()
async def process_restarted(strike: Strike) -> None:
    """SIGTERM; the next process follows at once."""
    await strike.take_process().restart()


@fault()
async def process_frozen(strike: Strike) -> None:
    """SIGSTOP, and SIGCONT later."""
    process = strike.take_process().freeze()
    try:
        await strike.pause()
    finally:
        process.wake()


@fault()
async def process_slowed(strike: Strike) -> None:
    """A process gets 2 to 30 % of a core (a cgroup's quota, else SIGSTOP and SIGCONT in turn)."""
    process = strike.take_process().current
    if process is None:
        raise MissedError("it has just ended")
    share = strike.rng.uniform(0.02, 0.3)
    async with slowed(process, share=share) as means:
        strike.struck.append(f"{100 * share:.0f} % by {means}")
        await strike.pause()


@fault(is_gentle=True)
async def log_blocked(strike: Strike) -> None:
    """The stderr of a replica is a full pipe that is not read."""
    pipe = strike.site.pipes[strike.take_member()]
    pipe.block()
    try:
        await strike.pause(6)
    finally:
        pipe.read()


@fault()
async def leader_killed(strike: Strike) -> None:
    """SIGKILL of the sharder that leads."""
    (await strike.take_leader()).kill()


@fault()
async def leader_frozen(strike: Strike) -> None:
    """SIGSTOP of the sharder that leads, and SIGCONT later."""
    process = (await strike.take_leader()).freeze()
    try:
        await strike.pause()
    finally:
        process.wake()


@fault()
async def member_joined(strike: Strike) -> None:
    """One more replica, under a new name or one that was used before."""
    fleet, places = strike.fleet, strike.fleet.members
    if sum(place.is_wanted for place in places.values()) >= MOST_MEMBERS:
        raise MissedError("the fleet is full")
    gone = [name for name, place in places.items() if not place.is_wanted and name not in strike.site.taken]
    fresh = [name for name in strike.site.pipes if name not in places and name not in strike.site.taken]
    await fleet.add_member(strike.take(strike.rng.choice(sorted([*gone, *fresh[:1]]) or [""])))


@fault()
async def member_left(strike: Strike) -> None:
    """A replica ends for good."""
    if sum(place.is_wanted for place in strike.fleet.members.values()) <= FEWEST_MEMBERS:
        raise MissedError("too few replicas")
    await strike.fleet.leave(strike.take_member())


@fault()
async def version_rolled(strike: Strike) -> None:
    """All replicas are restarted one after the other; to a former version and back if one is at hand."""
    fleet, former = strike.fleet, strike.site.former
    names = [name for name in strike.site.running() if name not in strike.site.spared]
    for name in names:
        strike.site.taken.add(name)
    pythons = [str(former), fleet.spec.shard_python] if former else [fleet.spec.shard_python]
    strike.struck.append("to the former version and back" if former else "one version")
    for python in pythons:
        fleet.spec = replace(fleet.spec, shard_python=python)
        for name in names:
            await fleet.members[name].restart()
            await fleet.wait_for(partial(fleet.life, name), f"{name} to be up again", within_s=120)


# -- servers ----------------------------------------------------------------------------------------------------------


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


# -- objects, Leases and the ring, written by hand --------------------------------------------------------------


@fault(is_alone=True, is_gentle=True)
async def labels_forged(strike: Strike) -> None:
    """Labels are removed, or name no shard, a dead one, or another one in the drain label."""
    fleet, keys = strike.fleet, strike.fleet.spec.keys
    lives = fleet.lives()
    dead = sorted({record.shard for record in fleet.records()} - lives.keys())
    for ref in strike.rng.sample(fleet.objects.refs, min(8, len(fleet.objects.refs))):
        labels: Doc = strike.rng.choice(
            [
                {keys.shard: None},
                {keys.shard: f"nobody-{secrets.token_hex(4)}"},
                {keys.shard: "No.Lease_can-be-called-so"},
                {keys.shard: strike.rng.choice(dead or ["nobody-00000000"])},
                {keys.drain: strike.rng.choice(sorted(lives) or ["nobody-00000000"])},
                {keys.drain: f"nobody-{secrets.token_hex(4)}"},
                {keys.drain: ""},
            ]
        )
        key, value = next(iter(labels.items()))
        strike.struck.append(f"{ref.name} {key.partition('.')[0]}={value}")
        await strike.merge(ref.resource, ref.name, {"metadata": {"labels": labels}}, namespace=ref.namespace)


@fault(is_gentle=True)
async def children_deleted(strike: Strike) -> None:
    """ConfigMaps that objects control are deleted; their owners make them anew."""
    fleet = strike.fleet
    refs = strike.rng.sample(fleet.objects.refs, min(10, len(fleet.objects.refs)))
    for ref in refs:
        deletion = partial(fleet.client.delete, CONFIGMAPS, ref.name, namespace=ref.namespace)
        await strike.insist(deletion, accepts=(404,))

    async def are_back() -> bool:
        names = {
            item["metadata"]["name"]
            for item in await fleet.client.list_all(CONFIGMAPS, namespace=ref.namespace, metadata_only=True)
        }
        return all(ref.name in names for ref in refs)

    await fleet.wait_for(are_back, "deleted ConfigMaps to be back", within_s=180)


@fault()
async def lease_deleted(strike: Strike) -> None:
    """The Lease of a replica that works is deleted."""
    namespace = strike.fleet.spec.lease_namespace
    await strike.fleet.client.delete(LEASES, strike.live_shard(), namespace=namespace)


@fault()
async def lease_edited(strike: Strike) -> None:
    """Duration, renewTime or holder of the Lease of a replica that works is changed."""
    renewed = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    changes: list[Doc] = [
        {"leaseDurationSeconds": strike.lease_s + 1},
        {"renewTime": renewed},
        {"holderIdentity": "a-person"},
    ]
    change = strike.rng.choice(changes)
    strike.struck.append(next(iter(change)))
    namespace = strike.fleet.spec.lease_namespace
    await strike.merge(LEASES, strike.live_shard(), {"spec": change}, namespace=namespace)


@fault(is_gentle=True)
async def lease_forged(strike: Strike) -> None:
    """A Lease of the ring is created that no process renews, of a new member or of one that works."""
    fleet, keys = strike.fleet, strike.fleet.spec.keys
    member = strike.rng.choice(["ghost", *sorted(fleet.members)])
    name = f"{member}-{secrets.token_hex(4)}"
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    strike.struck.append(name)
    lease: Doc = {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {
            "name": name,
            "namespace": fleet.spec.lease_namespace,
            "labels": {keys.ring_label: keys.ring},
            "annotations": {keys.member: member, keys.protocol: PROTOCOL_VERSION, keys.synced: "true"},
        },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": strike.lease_s,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        },
    }
    await fleet.client.create(LEASES, lease, namespace=fleet.spec.lease_namespace)


@fault(is_gentle=True)
async def ring_edited(strike: Strike) -> None:
    """A member's weight, imbalancePercent, virtualNodes or paused is changed, and changed back."""
    member = strike.rng.choice(sorted(strike.fleet.members))
    edits: list[tuple[Doc, Doc]] = [
        (
            {"members": {member: {"weight": strike.rng.choice((0.3, 3))}}},
            {"members": {member: {"weight": None}}},
        ),
        ({"imbalancePercent": strike.rng.choice((1, 50))}, {"imbalancePercent": None}),
        ({"virtualNodes": strike.rng.choice((10, 300))}, {"virtualNodes": None}),
        ({"paused": True}, {"paused": None}),
    ]
    await _edit_for_a_while(strike, *strike.rng.choice(edits))


@fault(is_gentle=True)
async def member_cordoned(strike: Strike) -> None:
    """A member is cordoned for a while."""
    member = strike.rng.choice(sorted(strike.fleet.members))
    cordoned, undone = ({"members": {member: {"cordoned": value}}} for value in (True, None))
    await _edit_for_a_while(strike, cordoned, undone)


async def _edit_for_a_while(strike: Strike, edit: Doc, undo: Doc) -> None:
    ring = strike.fleet.spec.ring
    strike.struck.append(str(edit))
    try:
        await strike.merge(CONTROLLER_RINGS, ring, {"spec": edit})
        await strike.pause()
    finally:
        await strike.insist(lambda: strike.merge(CONTROLLER_RINGS, ring, {"spec": undo}))
