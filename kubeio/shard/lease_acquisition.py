"""Lease of a shard: created or taken over when its process starts, released when it ends.

Owns the shape of the shard's Lease (protocol, 1 and 2), and its name. Does not renew: `heartbeat` does.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
from dataclasses import dataclass

import msgspec
import structlog

from kubeio.backoff import exponential_s, jittered_s
from kubeio.clock import Clock
from kubeio.errors import AlreadyExists, Conflict, InputError, KubeError, NotFound, Unreachable
from kubeio.leases import record
from kubeio.leases.lease import Leases
from kubeio.models import Lease, Meta
from kubeio.protocol import PROTOCOL_VERSION, RingKeys, is_shard_name
from kubeio.shard import process_proof
from kubeio.shard.process_proof import Identity, ProcessTable

log = structlog.get_logger("kubeio")

_MEMBER_IN_NAME = 54
_MAX_MEMBER = 253


@dataclass(frozen=True, slots=True)
class AcquiredLease:
    """A name, its Lease as last seen, and when the request that got it was sent."""

    name: str
    lease: Lease
    sent_at: float


def check_lease_member(member: str) -> str:
    """*member*, if a Lease can be named after it. Raises: InputError."""
    if len(member) > _MAX_MEMBER:
        raise InputError(
            "--member", f"{member[:20]}...", "is too long", f"use at most {_MAX_MEMBER} characters"
        )
    usable = is_shard_name(member[:_MEMBER_IN_NAME].rstrip("-."))
    if not usable or any(part.startswith("-") or part.endswith("-") for part in member.split(".")):
        raise InputError(
            "--member",
            member,
            "cannot be the name of a Lease",
            "use lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit",
        )
    return member


def fresh_name(member: str, rng: random.Random, *, length: int = 0) -> str:
    """*member* cut to 54 characters, a dash and 8 random hex digits, with zeros before them up to *length*."""
    stem = f"{member[:_MEMBER_IN_NAME].rstrip('-.')}-"
    return f"{stem}{rng.getrandbits(32):0{max(8, length - len(stem))}x}"


def member_hash(member: str) -> str:
    """*member* as the value of a label: a member's name may be longer than one can be."""
    return hashlib.sha256(member.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class LeaseTemplate:
    """Template of every Lease that one start of a process may write."""

    keys: RingKeys
    member: str
    duration_s: int
    hold: bool
    identity: Identity
    field_manager: str = ""
    """Field manager of the shard's writes: distinguishes them from others'."""
    resources: tuple[str, ...] = ()
    """Resources that the shard watches with its name, as `resource.group`."""
    pod: str = ""
    """`NAMESPACE/NAME` of the pod that it runs in, as far as it knows; for people and tools."""
    name_length: int = 0
    """How long the shard's name must be; 0: of any length."""
    max_duration_s: float = math.inf
    """The ring's maxLeaseDurationSeconds."""

    @property
    def validity_s(self) -> float:
        """How long a renewal lets the process work.

        At most half of *max_duration_s*: who takes the Lease without knowing its duration waits for all of that
        (protocol, 4), and code that does not end when its Lease lapses ends within two durations.
        """
        return min(float(self.duration_s), self.max_duration_s / 2)

    def fresh_name(self, rng: random.Random) -> str:
        """A name that no shard has had."""
        return fresh_name(self.member, rng, length=self.name_length)

    def annotations(self) -> dict[str, str]:
        marks = {
            self.keys.member: self.member,
            self.keys.protocol: PROTOCOL_VERSION,
            self.keys.process: self.identity.encode(),
            self.keys.duration: str(self.duration_s),
        }
        if self.resources:
            marks[self.keys.resources] = ",".join(sorted(self.resources))
        if self.field_manager:
            marks[self.keys.field_manager] = self.field_manager
        if self.hold:
            marks[self.keys.hold] = "true"
        if self.identity.pod:
            marks[self.keys.pod_uid] = self.identity.pod
        if self.pod:
            marks[self.keys.pod] = self.pod
        return marks

    def lease(self, name: str, namespace: str, clock: Clock) -> Lease:
        return Lease(
            metadata=Meta(
                name=name,
                namespace=namespace,
                labels={
                    self.keys.ring_label: self.keys.ring,
                    self.keys.member_hash: member_hash(self.member),
                    # for people; the sharder writes it when it is another: a thousand births cost it no write
                    self.keys.state: "ready",
                },
                annotations=self.annotations(),
            ),
            spec=record.claimed(None, name, wall=clock.wall(), duration_s=self.duration_s),
        )

    def is_ours(self, lease: Lease) -> bool:
        """Whether this process made *lease*, and nothing took or released it, or edited its duration, since."""
        return (
            lease.metadata.annotations.get(self.keys.process) == self.identity.encode()
            and lease.spec.holder_identity == lease.metadata.name
            and lease.spec.lease_duration_seconds == self.duration_s
        )

    def is_free(self, lease: Lease) -> bool:
        """Whether *lease* is of this member, released by its own holder, and not taken; its name fits."""
        return (
            lease.metadata.annotations.get(self.keys.member) == self.member
            and self.name_length in (0, len(lease.metadata.name))
            and lease.metadata.annotations.get(self.keys.protocol) == PROTOCOL_VERSION
            and lease.spec.holder_identity in (None, "")
            and self.keys.released_by not in lease.metadata.annotations
            and self.keys.contested not in lease.metadata.annotations
        )

    def is_provably_dead(self, lease: Lease, processes: ProcessTable) -> bool:
        """Whether *lease* is held by an earlier shard of this member whose process has provably ended."""
        marks = lease.metadata.annotations
        if marks.get(self.keys.member) != self.member or lease.spec.holder_identity != lease.metadata.name:
            return False
        old = process_proof.decode(marks.get(self.keys.process, ""), pod=marks.get(self.keys.pod_uid, ""))
        return old is not None and process_proof.proves_end(
            old, shard=lease.metadata.name, mine=self.identity, processes=processes
        )


async def acquire(
    leases: Leases,
    template: LeaseTemplate,
    *,
    namespace: str,
    clock: Clock,
    rng: random.Random,
    processes: ProcessTable,
) -> AcquiredLease:
    """Acquire the Lease of a new shard, under a name that no other shard ever had or will have.

    Takes over a Lease that this member released, else creates one; then releases the Leases of this member's
    earlier shards whose processes ended, so that their objects need not wait for these Leases to expire.
    """
    keys = template.keys
    known, _ = await leases.list(
        f"{keys.ring_label}={keys.ring},{keys.member_hash}={member_hash(template.member)}"
    )
    acquired = await _take_over(leases, template, known, clock) or await _create(
        leases, template, namespace=namespace, clock=clock, rng=rng
    )
    for lease in known:
        if lease.metadata.name != acquired.name and template.is_provably_dead(lease, processes):
            await _release_for(leases, template, lease, by=acquired.name)
    return acquired


async def release(leases: Leases, lease: Lease, *, without: str = "") -> None:
    """Release *lease* as its own holder, *without* that annotation. Raises: KubeError, Conflict if it was written."""
    marks = {key: value for key, value in lease.metadata.annotations.items() if key != without}
    meta = msgspec.structs.replace(lease.metadata, annotations=marks)
    await leases.swap(msgspec.structs.replace(lease, metadata=meta, spec=record.released(lease.spec)))


async def _take_over(
    leases: Leases, template: LeaseTemplate, known: list[Lease], clock: Clock
) -> AcquiredLease | None:
    for lease in known:
        if not template.is_free(lease):
            continue
        sent_at = clock.now()
        try:
            mine = await leases.swap(_reacquired(lease, template, clock))
        except (Conflict, NotFound):
            continue  # the sharder took it, or another shard of this member was faster
        log.info("lease taken over", shard=mine.metadata.name, member=template.member)
        return AcquiredLease(mine.metadata.name, mine, sent_at)
    return None


def _reacquired(lease: Lease, template: LeaseTemplate, clock: Clock) -> Lease:
    fresh = template.lease(lease.metadata.name, lease.metadata.namespace, clock)
    former = (
        template.keys.hold,
        template.keys.leaving,
        template.keys.pod,
        template.keys.pod_uid,
        template.keys.synced,
        template.keys.resources,
    )
    kept = {k: v for k, v in lease.metadata.annotations.items() if k not in former}
    meta = msgspec.structs.replace(lease.metadata, annotations=kept | fresh.metadata.annotations)
    spec = record.claimed(lease.spec, lease.metadata.name, wall=clock.wall(), duration_s=template.duration_s)
    return msgspec.structs.replace(lease, metadata=meta, spec=spec)


async def _create(
    leases: Leases, template: LeaseTemplate, *, namespace: str, clock: Clock, rng: random.Random
) -> AcquiredLease:
    """CREATE until an answer says that the Lease is ours; an unanswered one is settled under the same name.

    Any attempt under a name may be the one that was carried out, so the Lease's age counts from the first.
    """
    name, sent_at = template.fresh_name(rng), clock.now()
    for attempt in range(10):
        try:
            lease = await leases.create(template.lease(name, namespace, clock))
        except AlreadyExists:
            lease = await leases.get(name)
            if not template.is_ours(lease):
                name, sent_at = template.fresh_name(rng), clock.now()
                continue
        except Unreachable as error:
            if not error.maybe_done:
                raise
            await asyncio.sleep(jittered_s(exponential_s(attempt, base_s=0.1, max_s=5.0), rng, jitter=0.2))
            continue  # AlreadyExists decides, or the second CREATE is the first
        log.info("lease created", shard=name, member=template.member)
        return AcquiredLease(name, lease, sent_at)
    raise InputError("--member", template.member, "got no Lease in ten attempts", "see the API server's log")


async def _release_for(leases: Leases, template: LeaseTemplate, lease: Lease, *, by: str) -> None:
    marks = {k: v for k, v in lease.metadata.annotations.items() if k != template.keys.hold}
    meta = msgspec.structs.replace(lease.metadata, annotations=marks | {template.keys.released_by: by})
    try:
        await leases.swap(msgspec.structs.replace(lease, metadata=meta, spec=record.released(lease.spec)))
    except KubeError as error:
        log.warning("Lease of an ended process not released", lease=lease.metadata.name, error=str(error))
        return
    log.info("Lease of an ended process released", lease=lease.metadata.name, member=template.member)
