"""One ring as the live page shows it, from what is read of the cluster: its Leases, and its objects as they change.

Owns the translation and the handoffs under way. Told to look by `ringleader.inspect.page.command`; what it shows is
`sharder.page`'s to draw.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kubeio.models import ObjectKey
from kubeio.rest.discovery import Discovery
from ring import HASH_SPACE, HashRing
from ringleader.cluster.causes import cause_of
from ringleader.cluster.picture import ideal_shares, picture
from ringleader.cluster.ring import Ring
from ringleader.cluster.shards import Shard
from ringleader.cluster.snapshot import ClusterReader
from ringleader.describe.object import read_placed, why_desired
from sharder.membership.hash_rings import mean_shares
from sharder.page.facts import ROWS, FoundObject, HandoffFacts, MemberFacts, RingCircles, RingFacts
from sharder.page.history import Move

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kubeio.rest.client import Client
    from ringleader.cluster.following import Watches
    from ringleader.cluster.inventory import Seen
    from ringleader.cluster.picture import RingPicture
    from ringleader.cluster.watched import WatchedRing
    from sharder.page.history import RingHistory


class ShownRing:
    """One ring of the cluster. `look` costs a few small reads; objects are watched."""

    def __init__(
        self,
        client: Client,
        watches: Watches,
        ring: Ring,
        history: RingHistory,
        *,
        now: Callable[[], float],
        timeout_s: float,
    ) -> None:
        self._client = client
        self._watches = watches
        self._ring = ring
        self._history = history
        self._now = now
        self._timeout_s = timeout_s
        self._shards: Sequence[Shard] = ()
        self._watched: WatchedRing | None = None
        self._picture: RingPicture | None = None
        self._read_at: float | None = None
        self._handovers: dict[str, HandoffFacts] = {}
        self._circles = RingCircles()
        self.problem = ""
        """Why nothing newer can be shown."""

    def take(self, ring: Ring) -> ShownRing:
        """A newer version of the ring was read."""
        self._ring = ring
        return self

    async def look(self) -> None:
        """Read the Leases, and count what the watches have seen. Raises KubeError."""
        reader = ClusterReader(self._client, timeout_s=self._timeout_s)
        snapshot = (await reader.snapshot(self._ring.name)).require("rings", "leases")
        shards = snapshot.of(self._ring.name).shards
        watched = await self._watches.of(self._ring, heard=self._heard)
        if watched is not self._watched:
            self._handovers.clear()  # what is under way is told again
        self._watched, self._shards = watched, shards
        watched.objects.take(self._ring, shards)
        if watched.is_synced:
            self._picture = picture(
                self._ring, shards, watched.objects.count(lambda name: snapshot.selects(self._ring, name))
            )
        self._read_at = self._now()
        self._history.saw(self._members(), at=self._read_at)
        watched.check()

    def by_main(self) -> Mapping[str, HashRing]:
        return self._watched.objects.by_main if self._watched is not None else {}

    def facts(self) -> RingFacts:
        circles = self._circles.of(self.by_main())
        status, shown = self._ring.status, self._picture
        return RingFacts(
            version=_number(status, "ringVersion") or 0,
            converged=self._ring.condition("Balanced").status == "True",
            note=_note(self._ring),
            problem=self.problem,
            read_at=self._read_at,
            objects=shown.objects if shown is not None else None,
            counted_at=self._read_at if shown is not None else None,
            unowned=_unowned(shown) if shown is not None else _number(status, "unassigned"),
            misplaced=shown.misplaced if shown is not None else None,
            in_flight=len(self._handovers),
            members=self._members(),
            handovers=list(self._handovers.values())[:ROWS],
            order=circles[0].order if circles else [],
            sectors=circles[0].sectors if circles else [],
            circles=circles if len(circles) > 1 else [],
            resources=_resources(self._ring),
        )

    async def find(self, resource: str, namespace: str, name: str) -> FoundObject:
        """As `ringleader describe`. Raises InputError, KubeError."""
        key = ObjectKey(namespace, name)
        reader = ClusterReader(self._client, timeout_s=self._timeout_s)
        found = await read_placed(reader, Discovery(self._client), resource, key, ring_name=self._ring.name)
        placement, cause = found.state.row, cause_of(found.state)
        return FoundObject(
            object=found.name,
            owner=placement.owner,
            owner_member=placement.owner_member,
            owner_state=placement.owner_state,
            desired_member=placement.desired_member,
            desired_shard=placement.desired_shard,
            drain_to=placement.drain_to,
            key=placement.key,
            hash=placement.hash,
            position=int(placement.hash, 16) / HASH_SPACE if placement.hash else None,
            is_placed=placement.is_placed,
            story=[*why_desired(found.state), cause.text if cause else "is where it belongs"],
            main=placement.main,
        )

    def _heard(self, resource: str, key: ObjectKey, before: Seen | None, after: Seen | None) -> None:
        """An object changed, or is seen for the first time."""
        name, at = f"{resource} {key}", self._now()
        asked_before, asked = before.drain if before else None, after.drain if after else None
        if asked_before is not None and asked is None:
            ended = self._handovers.pop(name, None)
            if ended is not None and after is not None:
                self._history.moved(Move("handedOver", name, ended.source, ended.target), at=at)
        elif after is not None and asked is not None and asked != asked_before:
            begun = HandoffFacts(name, self._member(after.owner), self._member(asked), at)
            self._handovers[name] = begun
            self._history.moved(Move("asked", name, begun.source, begun.target), at=at)
        elif after is not None and self._is_given(before, after):
            source = before.owner if before else ""
            kind = "takenOver" if source else "assigned"
            self._history.moved(Move(kind, name, self._member(source), self._member(after.owner)), at=at)

    def _is_given(self, before: Seen | None, after: Seen) -> bool:
        """Whether an object got an owner just now; those of the first list had theirs."""
        is_first = before is None and not (self._watched is not None and self._watched.is_synced)
        return bool(after.owner) and not is_first and after.owner != (before.owner if before else "")

    def _member(self, shard: str) -> str:
        return self._watched.objects.member_of(shard) if self._watched is not None else shard

    def _members(self) -> dict[str, MemberFacts]:
        by_main = self.by_main()
        weights = {name: weight for ring in by_main.values() for name, weight in ring.weights.items()}
        shares = mean_shares(by_main)
        ideal = ideal_shares(self._ring, self._shards)
        objects = {each.shard: each.objects for each in self._picture.members} if self._picture else {}
        leaving = Counter(each.source for each in self._handovers.values())
        found: dict[str, MemberFacts] = {}
        for shard in self._shards:
            has_place = shard.is_active and shard.member in weights
            if shard.member in found or not (has_place or shard.is_live):
                continue
            found[shard.member] = MemberFacts(
                place="filled" if has_place else "none",
                shard=shard.name,
                state=shard.state,
                weight=float(weights.get(shard.member, 0.0)),
                share=round(float(shares.get(shard.member, 0)), 6) if has_place else 0.0,
                ideal=round(ideal.get(shard.member, 0.0), 6) if has_place else 0.0,
                objects=objects.get(shard.name, 0) if self._picture is not None else None,
                in_flight=leaving[shard.member],
            )
        return found


def _unowned(shown: RingPicture) -> int:
    """Objects that wait for an owner; those of a ring that is being deleted do not."""
    return 0 if shown.releasing else shown.unowned


def _number(status: Mapping[str, Any], field: str) -> int | None:
    value = status.get(field)
    return value if isinstance(value, int) else None


def _note(ring: Ring) -> str:
    """Why the sharder does not work the ring as usual, in its own words."""
    for condition in ring.status.get("conditions") or []:
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            return str(condition.get("message") or condition.get("reason") or "the ring is not ready")
    return "" if ring.status else "no sharder has worked this ring yet"


def _resources(ring: Ring) -> list[str]:
    return [str(kind) for kind in ring.kinds]
