"""Scale-down: whether this replica's StatefulSet has no place for it any more, and the wait for its objects to move.

Owns protocol 5.10 on the replica's side: the question to the StatefulSet, and how long the replica works on. The
annotation is written by the heartbeat, and the sharder moves the objects.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from kubeio.clock import Clock
from kubeio.errors import KubeError
from kubeio.leases.lease import Leases
from kubeio.models import Lease
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.shard.lease_acquisition import LeaseTemplate

log = structlog.get_logger("kubeio")

STATEFUL_SETS: Final = ApiResource("apps", "v1", "statefulsets", "StatefulSet")
QUESTION_TIMEOUT_S: Final = 1.0
"""A replica that is rolled should not wait: its objects have no worker while it ends."""
LEASES_TIMEOUT_S: Final = 5.0
STOP_S: Final = 15.0
"""Part of the grace period that is left for running reconciles and the release of the Lease."""
LOOKS_APART_S: Final = 0.2
"""Between two looks at the caches, which are in memory; a leaving replica looks for minutes, once in its life."""
_POD: Final = re.compile(r"(?P<namespace>[^/]+)/(?P<workload>.+)-(?P<ordinal>\d{1,9})")


class _Ordinals(msgspec.Struct, frozen=True):
    start: int = 0


class _StatefulSetSpec(msgspec.Struct, frozen=True):
    replicas: int = 1
    ordinals: _Ordinals = _Ordinals()


class _StatefulSet(msgspec.Struct, frozen=True):
    """Fields of a StatefulSet that say which ordinals it wants."""

    spec: _StatefulSetSpec

    def wants(self, ordinal: int) -> bool:
        return ordinal < self.spec.ordinals.start + self.spec.replicas


async def is_scaled_away(client: Client, pod: str) -> bool:
    """Whether the StatefulSet of *pod* (`NAMESPACE/NAME-ORDINAL`) has no place for its ordinal.

    False if that is not known: no such StatefulSet, no right to read it, no answer in time.
    """
    match = _POD.fullmatch(pod)
    if match is None:
        return False
    try:
        async with asyncio.timeout(QUESTION_TIMEOUT_S):
            found = await client.get(
                STATEFUL_SETS, match["workload"], namespace=match["namespace"], type=_StatefulSet
            )
    except (KubeError, TimeoutError, msgspec.ValidationError) as error:
        log.info("statefulset not read", pod=pod, error=str(error) or "timed out")
        return False
    return not found.wants(int(match["ordinal"]))


def is_heir(lease: Lease, *, keys: RingKeys, member: str) -> bool:
    """Whether *lease* is that of another member that is at work and stays."""
    marks = lease.metadata.annotations
    is_synced = marks.get(keys.synced) == "true" or keys.protocol not in marks
    return (
        lease.spec.holder_identity == lease.metadata.name
        and marks.get(keys.member, lease.metadata.name) != member
        and marks.get(keys.leaving) != "true"
        and is_synced
    )


class ScaleDown:
    """End of a replica that its StatefulSet may have scaled away. *objects*: how many are its own now."""

    def __init__(
        self,
        client: Client,
        leases: Leases,
        template: LeaseTemplate,
        *,
        objects: Callable[[], int],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.is_leaving = False
        self._client = client
        self._leases = leases
        self._keys = template.keys
        self._member = template.member
        self._pod = template.pod
        self._objects = objects
        self._clock = clock
        self._rng = rng

    async def hand_over(self, announce: Callable[[], None], *, grace_s: float, renews_each_s: float) -> None:
        """If the replica is scaled away, *announce* that, and return once nothing is its own or time is short.

        `is_leaving` is set before *announce* is called. *grace_s*: from now until the process is killed.
        """
        deadline = self._clock.now() + grace_s - STOP_S
        if not await is_scaled_away(self._client, self._pod):
            return
        self.is_leaving = True
        log.info("leaving: the statefulset is scaled down", pod=self._pod, objects=self._objects())
        announce()
        looks_at = self._clock.now()
        while self._objects() and self._clock.now() < deadline:
            if self._clock.now() >= looks_at:
                if not await self._has_heir():
                    log.info("leaving: no other replica can take the objects", objects=self._objects())
                    return
                looks_at = self._clock.now() + renews_each_s * self._rng.uniform(0.8, 1.2)
            await asyncio.sleep(LOOKS_APART_S)
        log.info("leaving: done", objects=self._objects())

    async def _has_heir(self) -> bool:
        """Whether another replica can take the objects; True while the Leases cannot be read."""
        try:
            async with asyncio.timeout(LEASES_TIMEOUT_S):
                leases, _ = await self._leases.list(f"{self._keys.ring_label}={self._keys.ring}")
        except (KubeError, TimeoutError) as error:
            log.info("leases not read", error=str(error) or "timed out")
            return True
        return any(is_heir(lease, keys=self._keys, member=self._member) for lease in leases)
