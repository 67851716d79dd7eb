"""Reads the rings of a cluster into a snapshot. Each part is read once; a refused or failed read becomes a gap."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, TypeVar

from kubeio.errors import Forbidden, InputError, KubeError, NotFound, Unauthorized, Unreachable
from kubeio.program.failures import failure
from kubeio.protocol import CONTROLLER_RINGS, activated_holder
from kubeio.resource import LEASES, NAMESPACES
from ringleader.cluster.ring import Ring, decode_ring, named_ring
from ringleader.cluster.shards import Shard, shards_of
from ringleader.cluster.snapshot import ELECTION_LEASE, Election, Gap, Leadership, RingState, Snapshot

if TYPE_CHECKING:
    from kubeio.models import Lease
    from kubeio.rest.client import Client

T = TypeVar("T")
V = TypeVar("V")
USUAL_NAMESPACE: Final = "ringleader-system"
READS_AT_ONCE: Final = 8
_DATE_S: Final = 1.0
"""Precision of a Date header: it is cut to seconds."""


class ClusterReader:
    """Reads through *client*; a refusal or a failure becomes a gap. Each request is bounded by *timeout_s*."""

    def __init__(self, client: Client, *, timeout_s: float) -> None:
        self.client = client
        self.timeout_s = timeout_s
        self.gaps: dict[str, Gap] = {}
        self.server_version = b""
        """The body of `/version`; empty if it could not be read."""
        self.clock_ahead_s = 0.0

    def now(self) -> datetime:
        """The server's clock, as its answers show it; this machine's if they do not."""
        is_off = abs(self.clock_ahead_s) > _DATE_S
        return datetime.now(UTC) - timedelta(seconds=self.clock_ahead_s if is_off else 0.0)

    async def attempt(
        self, part: str, asked: Awaitable[T], *, gaps: dict[str, Gap] | None = None
    ) -> T | None:
        """The answer; None, and a gap called *part*, if there is none. Raises Unreachable, Unauthorized.

        The gap is noted in *gaps*, else in those of this reader.
        """
        try:
            return await asked
        except (Unreachable, Unauthorized):
            raise
        except KubeError as error:
            (self.gaps if gaps is None else gaps)[part] = gap_of(error)
            return None

    async def each(self, things: Iterable[T], work: Callable[[T], Awaitable[V]]) -> list[V]:
        """*work* on all *things*, some at once; results in their order."""
        slots = asyncio.Semaphore(READS_AT_ONCE)

        async def one(thing: T) -> V:
            async with slots:
                return await work(thing)

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(one(thing), name="read cluster") for thing in things]
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the server went away: one message, not eight
        return [task.result() for task in running]

    async def snapshot(
        self, only: str | None = None, *, finds_strays: bool = False, reads_namespaces: bool = True
    ) -> Snapshot:
        """The rings of the cluster, or the one called *only*.

        *finds_strays*: Leases are sought in every namespace. *reads_namespaces*: for rings that select some of them.
        Raises: Unreachable, Unauthorized, InputError for an unknown ring.
        """
        gaps: dict[str, Gap] = {}
        rings, _ = await asyncio.gather(
            self.attempt("rings", read_rings(self.client, timeout_s=self.timeout_s), gaps=gaps),
            self.read_server(),
        )
        if only is not None and rings is not None:
            rings = [named_ring(rings, only)]
        chosen = rings or []
        elections, states, namespaces = await asyncio.gather(
            self.attempt("election", self._elections(chosen), gaps=gaps),
            self._states(chosen, gaps, finds_strays=finds_strays),
            self._namespaces(chosen if reads_namespaces else (), gaps),
        )
        now = self.now()
        leadership = Leadership(
            [Election(lease, now) for lease in elections or ()], is_known=elections is not None
        )
        return Snapshot(now, states, leadership, namespaces, gaps, self.clock_ahead_s)

    async def leadership(self) -> Leadership:
        """The sharders' elections alone. Raises: KubeError, but not Forbidden."""
        await self.read_server()
        try:
            elections = await self._elections([])
        except Forbidden:
            return Leadership(is_known=False)
        now = self.now()
        return Leadership([Election(lease, now) for lease in elections])

    async def read_server(self) -> None:
        """Learn the server's clock and version."""
        if self.server_version:
            return
        asked = self.client.request("GET", "/version", timeout_s=self.timeout_s)
        answer = await self.attempt("version", asked)
        if answer is None:
            return
        self.server_version = answer.body
        with suppress(ValueError):
            server = parsedate_to_datetime(answer.headers.get("date", ""))
            self.clock_ahead_s = (datetime.now(UTC) - server).total_seconds() - _DATE_S / 2

    async def _states(
        self, rings: Sequence[Ring], gaps: dict[str, Gap], *, finds_strays: bool
    ) -> list[RingState]:
        everywhere: dict[str, list[Lease] | None] = {}
        if finds_strays:
            for label in {ring.keys.ring_label for ring in rings}:
                everywhere[label] = await self.attempt("strays", self._leases(selector=label), gaps=gaps)

        async def state(ring: Ring) -> RingState:
            began, label, right = self.now(), ring.keys.ring_label, ring.spec.lease_namespace
            found = everywhere.get(label)
            if found is None and right:
                asked = self._leases(namespace=right, selector=f"{label}={ring.name}")
                found = await self.attempt(f"leases:{ring.name}", asked, gaps=gaps)
            named = [lease for lease in found or () if lease.metadata.labels.get(label) == ring.name]
            here = [lease for lease in named if lease.metadata.namespace == right]
            strays = [lease for lease in named if lease.metadata.namespace != right]
            former, now = await self._former_holder(ring), self.now()
            return RingState(ring, shards_of(ring, here, now=now), strays, former, began, now)

        return await self.each(rings, state)

    async def _former_holder(self, ring: Ring) -> str:
        """Holder of the former controller's Lease, if it is not the ring."""
        from kubeio.leases.lease import Leases

        former = ring.spec.activation
        if former is None:
            return ""
        try:
            lease = await Leases(self.client, former.namespace, timeout_s=self.timeout_s).get(former.name)
        except (NotFound, Forbidden):
            return ""
        holder = lease.spec.holder_identity or ""
        return "" if holder == activated_holder(ring.name) else holder

    async def _elections(self, rings: Sequence[Ring]) -> list[Lease]:
        """The election Leases, wherever they are; else where they usually are."""
        try:
            return await self._leases(name=ELECTION_LEASE)
        except Forbidden:
            found = []
            for namespace in sorted({USUAL_NAMESPACE, *(ring.spec.lease_namespace for ring in rings)} - {""}):
                with suppress(Forbidden):
                    found += await self._leases(namespace=namespace, name=ELECTION_LEASE)
            if not found:
                raise
            return found

    async def _leases(self, *, namespace: str = "", selector: str = "", name: str = "") -> list[Lease]:
        from kubeio.leases.lease import decode_lease

        pages = self.client.pages(
            LEASES,
            namespace=namespace,
            label_selector=selector,
            field_selector=f"metadata.name={name}" if name else "",
            timeout_s=self.timeout_s,
        )
        return [decode_lease(found.raw) async for page in pages for found in page.objects]

    async def _namespaces(
        self, rings: Sequence[Ring], gaps: dict[str, Gap]
    ) -> Mapping[str, Mapping[str, str]] | None:
        if all(ring.spec.namespace_selector is None for ring in rings):
            return None
        asked = read_namespaces(self.client, timeout_s=self.timeout_s)
        return await self.attempt("namespaces", asked, gaps=gaps)


async def read_rings(client: Client, *, timeout_s: float) -> list[Ring]:
    """Every ring of the cluster, by name. Raises KubeError; NotFound where the definition is missing."""
    rings: list[Ring] = []
    async for page in client.pages(CONTROLLER_RINGS, timeout_s=timeout_s):
        rings += [decode_ring(found.raw) for found in page.objects]
    return sorted(rings, key=lambda ring: ring.name)


async def read_shards(client: Client, ring: Ring) -> list[Shard]:
    """Every shard of *ring*, from a consistent read of its Leases. Raises KubeError."""
    from kubeio.leases.lease import Leases

    if not ring.spec.lease_namespace:  # a refused ring: an empty namespace would mean all
        return []
    leases, _ = await Leases(client, ring.spec.lease_namespace).list(f"{ring.keys.ring_label}={ring.name}")
    return shards_of(ring, leases, now=datetime.now(UTC))


async def read_namespaces(client: Client, *, timeout_s: float) -> dict[str, dict[str, str]]:
    """Labels of every namespace, by name. Raises KubeError."""
    pages = client.pages(NAMESPACES, metadata_only=True, timeout_s=timeout_s)
    return {found.meta.name: found.meta.labels async for page in pages for found in page.objects}


def gap_of(error: KubeError) -> Gap:
    """The gap that *error* leaves, with the rule or step that helps."""
    if isinstance(error, Forbidden) and '"/metrics"' in error.message:
        rule = '{nonResourceURLs: ["/metrics"], verbs: ["get"]}'
        return Gap(
            "the features of the server could not be read", f"add this rule to a ClusterRole: {rule}", error
        )
    if isinstance(error, InputError):
        return Gap(f"{error.field}: {error.value!r} {error.problem}", error.remedy, error)
    summary, _, remedy = failure(error).message.partition("; ")
    return Gap(summary, remedy, error)
