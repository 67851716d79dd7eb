"""The ring's finalizer, its immutable fields, and what outlives an edit of its spec: resources, and a lease duration.

The finalizer keeps the ring until its objects are given up and no Lease of it is held.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.errors import KubeError, NotFound
from sharder.rings.store import FINALIZER, LONGEST_LEASE
from sharder.ringspec.parsing import worked_as
from sharder.ringspec.worked import limited, united, written

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from sharder.membership.activation import Activation
    from sharder.membership.controller import MembershipController
    from sharder.moving.scan import Scan
    from sharder.rings.store import Ring, RingStore
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingResource, RingSpec

log = structlog.get_logger("sharder")

WORKED_AS: Final = "ringleader.dev/worked-as"
"""Annotation of a ring: label domain and lease namespace under which its shards live (protocol, section 2)."""
READ_EVERY_S: Final = 1.0


async def ensure_finalizer(store: RingStore, spec: RingSpec) -> tuple[RingResource, ...]:
    """Prepare the ring for work; the resources that it has distributed so far, *spec* included. Raises KubeError.

    Without the finalizer a deletion would leave labels behind. The immutable fields, the distributed resources and the
    longest lease duration are written before the first label, so that they outlive fail-overs.
    """
    found = await store.read()
    worked = united(found.worked, spec.resources)
    if found.is_deleted:
        return worked
    if FINALIZER not in found.metadata.finalizers or WORKED_AS not in found.metadata.annotations:
        finalizers = [*(f for f in found.metadata.finalizers if f != FINALIZER), FINALIZER]
        changes = {"finalizers": finalizers, "annotations": {WORKED_AS: worked_as(spec)}}
        found = await store.merge(changes, version=found.metadata.resource_version)
    longest_s = max(found.longest_lease_s, spec.max_lease_duration_s)
    await _remember(store, found, worked=worked, longest_lease_s=longest_s)
    return worked


async def forget_former(store: RingStore, spec: RingSpec) -> None:
    """Forget resources that *spec* does not name: no object of them carries a label any more. Raises KubeError.

    Resources that a newer version of the ring names stay: that version has yet to be worked.
    """
    found = await store.read()
    now = limited(found.worked, united(spec.resources, found.resources))
    await _remember(store, found, worked=now, longest_lease_s=found.longest_lease_s)


async def _remember(
    store: RingStore, found: Ring, *, worked: tuple[RingResource, ...], longest_lease_s: float
) -> None:
    """Write what is new to the version that was read, so that no concurrent addition is lost."""
    status: dict[str, object] = {}
    if worked != found.worked:
        status["worked"] = written(worked)
    if longest_lease_s != found.longest_lease_s:
        status[LONGEST_LEASE] = int(longest_lease_s)
    if status:
        await store.merge_status(status, version=found.metadata.resource_version)


async def watch_former_maximum(
    store: RingStore, spec: RingSpec, membership: MembershipController, *, former_s: float, clock: Clock
) -> None:
    """Forget *former_s*, a maxLeaseDurationSeconds that was lowered, when no replica can work with it. Returns then.

    For *former_s* no Lease may be held that is longer than the present maximum: a replica whose Lease went before ends
    within that time. A status that says another maximum by then is left alone: a sharder raised it.
    """
    since = math.inf
    while True:
        await asyncio.sleep(READ_EVERY_S)
        now, is_held = clock.now(), membership.longest_held_s > spec.max_lease_duration_s
        since = math.inf if is_held else min(since, now)
        if now < since + former_s:
            continue
        try:
            await membership.reads.may_be_worked()
            if membership.longest_held_s <= spec.max_lease_duration_s:
                found = await store.read()
                if found.longest_lease_s == former_s:
                    longest_s = spec.max_lease_duration_s
                    await _remember(store, found, worked=found.worked, longest_lease_s=longest_s)
                    log.info("former maxLeaseDurationSeconds forgotten", ring=spec.name, seconds=former_s)
                return
        except NotFound:
            return
        except KubeError as error:
            log.warning(
                "former maxLeaseDurationSeconds could not be removed from status",
                ring=spec.name,
                error=str(error),
            )


async def watch_former(store: RingStore, spec: RingSpec, scan: Scan) -> None:
    """Forget the resources that the ring gave up, as soon as they are free of labels. Returns then."""
    await scan.former_free.wait()
    while True:
        try:
            await forget_former(store, spec)
        except NotFound:
            return
        except KubeError as error:
            log.warning(
                "released resources could not be removed from status",
                ring=spec.name,
                error=str(error),
            )
            await asyncio.sleep(READ_EVERY_S)
        else:
            log.info("removed resources released", ring=spec.name)
            return


async def watch_former_namespaces(store: RingStore, spec: RingSpec, scope: Scope, scan: Scan) -> None:
    """Forget the namespaces that the ring gave up, as soon as they are free of labels. Returns then."""
    while True:
        if scan.is_converged:
            try:
                await store.merge_status({"namespaces": list(scope.names)})
            except KubeError as error:
                log.warning(
                    "released namespaces could not be removed from status",
                    ring=spec.name,
                    error=str(error),
                )
            else:
                log.info("removed namespaces released", ring=spec.name, namespaces=list(scope.former))
                return
        await asyncio.sleep(READ_EVERY_S)


async def finalize(
    store: RingStore,
    name: str,
    scan: Scan,
    membership: MembershipController,
    activation: Activation,
) -> None:
    """Wait until no object carries or can get a label of the ring, and no Lease is held; then remove the finalizer.

    A contested Lease counts: its process may not have noticed yet, and an assignment that was on its way when the
    ring was given up would find it at work beside the former controller. The Leases are read once more at the end: a
    shard that started meanwhile may have found its name on an object. A last pass follows: the last thing that a shard
    created, for an object that was deleted under it, carries its name.
    """
    await scan.landed.wait()
    await _wait_free(name, scan, membership)
    scan.request_pass()
    await _wait_free(name, scan, membership)
    await activation.give_back()
    await store.leave()
    log.info("ring released", ring=name)


async def _wait_free(ring: str, scan: Scan, membership: MembershipController) -> None:
    """Return once the last pass found no label, and no process can work."""
    while True:
        if scan.is_converged and scan.last_seen == 0 and await _has_no_worker(membership, ring):
            return
        await asyncio.sleep(READ_EVERY_S)


async def _has_no_worker(membership: MembershipController, ring: str) -> bool:
    """Whether no process can work on the ring's objects any more."""
    if membership.view.may_be_worked:
        return False
    try:
        return not await membership.reads.may_be_worked()
    except KubeError as error:
        log.warning("leases could not be read", ring=ring, error=str(error))
        return False
