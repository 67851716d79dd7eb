"""Facts of one Lease, and its state in the protocol's table. Pure values and pure functions.

A *shard* is one run of one process, named like its Lease. `read_lease` judges the content once, so that nothing above
has to read a Lease's fields. `Shard` adds the instants of *this* sharder's observations, on its own monotonic clock.
Rings, other shards and intents belong to `sharder.membership.membership`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kubeio.leases.record import heartbeat_of
from kubeio.protocol import PROTOCOL_VERSION, SHARDER_HOLDER, RingKeys, is_shard_name
from sharder.errors import FieldProblem
from sharder.ringspec.spec import LONGEST_LEASE_S

if TYPE_CHECKING:
    from kubeio.models import Lease

NEVER: Final = float("-inf")
MAX_MEMBER: Final = 253
"""A pod's name is the longest thing that lasts."""


class Holding(StrEnum):
    """Holder of a Lease: its own name, none, a sharder, or somebody else (protocol, section 1)."""

    HELD = "held"
    RELEASED = "released"
    TAKEN = "taken"
    FOREIGN = "foreign"


class ShardState(StrEnum):
    """The states of the protocol's table; `MISSING` is a name that has no Lease of this ring yet."""

    READY = "ready"
    EXPIRED = "expired"
    UNCERTAIN = "uncertain"
    RELEASED = "released"
    CONTESTED = "contested"
    DEAD = "dead"
    MISSING = "missing"

    @property
    def is_live(self) -> bool:
        """Exists and is not taken."""
        return self in _LIVE


_LIVE: Final = frozenset({ShardState.READY, ShardState.EXPIRED, ShardState.UNCERTAIN, ShardState.RELEASED})


def holding_of(lease: Lease) -> Holding:
    """Held if the holder is the Lease's own name, released if there is none, taken if it is a sharder."""
    holder = lease.spec.holder_identity
    if not holder:
        return Holding.RELEASED
    if holder == lease.metadata.name:
        return Holding.HELD
    return Holding.TAKEN if holder.startswith(SHARDER_HOLDER) else Holding.FOREIGN


def shows_held(lease: Lease, *, keys: RingKeys) -> bool:
    """Whether *lease*, read as evidence, allows objects to be given to its name (protocol, 6.3)."""
    return lease.metadata.labels.get(keys.ring_label) == keys.ring and holding_of(lease) is Holding.HELD


def newer(left: str, right: str) -> bool:
    """Whether resourceVersion *left* is newer than *right*; versions that are not numbers count as newer."""
    if not right:
        return True
    return int(left) > int(right) if left.isdigit() and right.isdigit() else left != right


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """Facts of one version of a Lease. `duration_s` is always usable; `fit`: the shard may be a member.

    `vouched`: the Lease states its duration twice, and alike. `edited`: it states two durations; the longer one counts.
    `synced`: its shard's caches are full. `leaving`: its replica is scaled away, so it gets no place. `resources`:
    the kinds that the shard watches with its name; None: all of them.
    """

    name: str
    member: str
    holding: Holding
    contested: bool
    protocol: str
    hold: bool
    duration_s: float
    created: str
    fit: bool
    problems: tuple[FieldProblem, ...] = ()
    vouched: bool = False
    edited: bool = False
    synced: bool = False
    leaving: bool = False
    resources: frozenset[str] | None = None

    @property
    def hands_over(self) -> bool:
        """Whether this shard speaks our protocol: it passes its objects on, children included, by itself."""
        return self.protocol == PROTOCOL_VERSION


def read_lease(lease: Lease, *, keys: RingKeys, max_duration_s: float) -> LeaseFacts:
    """Facts of *lease*, whatever its content; `problems` has what is wrong with it."""
    meta = lease.metadata
    at = f"leases/{meta.name}"
    problems: list[FieldProblem] = []
    protocol = meta.annotations.get(keys.protocol, "")
    fit = True
    if not is_shard_name(meta.name):
        fit = False
        problems.append(
            FieldProblem(
                f"{at}.metadata.name",
                meta.name,
                "cannot be a label value, so no object can be given to it",
                "use at most 63 lower-case letters, digits, '-' and '.'",
            )
        )
    if protocol not in ("", PROTOCOL_VERSION):
        fit = False
        problems.append(
            FieldProblem(
                f"{at}.metadata.annotations[{keys.protocol}]",
                protocol,
                "is a protocol that this sharder does not speak, so the shard gets no place",
                f"use {PROTOCOL_VERSION!r}",
            )
        )
    own_s = _own_duration(meta.annotations.get(keys.duration, ""))
    duration_s, problem = _duration(lease, own_s, at=at, max_duration_s=max_duration_s)
    if problem is not None:
        fit = False
        problems.append(problem)
    edited = own_s is not None and own_s != lease.spec.lease_duration_seconds
    if edited and problem is None:
        problems.append(
            FieldProblem(
                f"{at}.spec.leaseDurationSeconds",
                lease.spec.lease_duration_seconds,
                f"is not what its shard wrote ({own_s}): the shard ends when it notices",
                "do not edit Leases; to end a replica, delete its pod",
            )
        )
    holding = holding_of(lease)
    if holding is Holding.HELD and lease.spec.renew_time is None:
        problems.append(
            FieldProblem(
                f"{at}.spec.renewTime",
                None,
                "is missing: the Lease counts as silent from when it was first seen",
                "renew it every third of its duration",
            )
        )
    if holding is Holding.FOREIGN:
        problems.append(
            FieldProblem(
                f"{at}.spec.holderIdentity",
                lease.spec.holder_identity,
                "is neither its shard nor a sharder: the shard ends when it notices, and its objects wait for that",
                "do not edit Leases; to end a replica, delete its pod",
            )
        )
    return LeaseFacts(
        name=meta.name,
        member=_member(
            meta.annotations.get(keys.member, ""), name=meta.name, at=at, problems=problems, keys=keys
        ),
        holding=holding,
        contested=keys.contested in meta.annotations,
        protocol=protocol,
        hold=meta.annotations.get(keys.hold) == "true",
        duration_s=duration_s,
        created=meta.creation_timestamp or "",
        fit=fit,
        problems=tuple(problems),
        vouched=own_s is not None and not edited,
        edited=edited,
        synced=meta.annotations.get(keys.synced) == "true",
        leaving=meta.annotations.get(keys.leaving) == "true",
        resources=watched_kinds(meta.annotations.get(keys.resources, "")),
    )


@lru_cache(maxsize=256)
def watched_kinds(written: str) -> frozenset[str] | None:
    """The names in `plural.group,plural.group`, one set for all shards that write the same; None if there are none."""
    return frozenset(name for each in written.split(",") if (name := each.strip())) or None


def _own_duration(written: str) -> int | None:
    """The duration that a shard wrote beside its Lease's; None if it did not, or what stands there is none."""
    if not (written.isascii() and written.isdigit() and len(written) <= len(str(LONGEST_LEASE_S))):
        return None
    return int(written) if 0 < int(written) <= LONGEST_LEASE_S else None


def _duration(
    lease: Lease, own_s: int | None, *, at: str, max_duration_s: float
) -> tuple[float, FieldProblem | None]:
    """Duration of the Lease in seconds, and the problem with it, if any.

    The duration that the shard itself wrote, *own_s*, bounds the effect of an edit.
    """
    duration = lease.spec.lease_duration_seconds
    where = f"{at}.spec.leaseDurationSeconds"
    if duration is None or duration <= 0:
        return float(own_s or max_duration_s), FieldProblem(
            where,
            duration,
            "is not a duration, so the shard gets no place; its silence is judged by maxLeaseDurationSeconds",
            "set a positive number of seconds",
        )
    if duration > max_duration_s:
        return float(own_s or min(duration, LONGEST_LEASE_S)), FieldProblem(
            where,
            duration,
            f"is longer than the ring's maxLeaseDurationSeconds ({max_duration_s:g}), so the shard gets no place",
            "shorten it or raise maxLeaseDurationSeconds",
        )
    return float(max(duration, own_s or 0)), None


def _member(written: str, *, name: str, at: str, problems: list[FieldProblem], keys: RingKeys) -> str:
    if not written:
        return name
    if len(written) <= MAX_MEMBER and written.isprintable():
        return written
    problems.append(
        FieldProblem(
            f"{at}.metadata.annotations[{keys.member}]",
            written[:80],
            "cannot be a member's name, so the shard is its own member",
            f"use at most {MAX_MEMBER} printable characters",
        )
    )
    return name


@dataclass(frozen=True, slots=True)
class Shard:
    """One name and what this sharder saw of it. Instants are of the sharder's monotonic clock.

    `changed_at`: renewTime, holder or transitions last changed. `counted_from`: silence is counted from here
    (later than `changed_at` after a gap in our reads). `entered_at`: the present holding was first seen.
    `stray` is a Lease under this name that is not of this ring, but has to be taken before the name is dead.
    `had_lease`: a shard held a Lease of this name. Otherwise an object carries the name and nothing else is known.

    Of the process that holds it: `born_at`: it was first seen. `renewed`: it was seen to renew.
    `longest_duration_s`: the longest duration that its Lease had.
    `last_renewal`: resourceVersion of its last renewal, and of no release: a successor releases what a dead process
    held. `renewal_before`: of the one before, if two were seen: what was written since may not have been reconciled.

    Of a dead name: `carried_at`: an object was last found to carry it. `is_orphaned`: none carries it any more.
    """

    facts: LeaseFacts
    lease: Lease | None
    resource_version: str
    changed_at: float
    counted_from: float
    entered_at: float
    stray: bool = False
    had_lease: bool = True
    born_at: float = 0.0
    seen_in_first_list: bool = False
    renewed: bool = False
    longest_duration_s: float = 0.0
    had_several_durations: bool = False
    last_renewal: str = ""
    renewal_before: str = ""
    carried_at: float = NEVER
    is_orphaned: bool = False

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def member(self) -> str:
        return self.facts.member

    @property
    def is_missing(self) -> bool:
        return self.lease is None or self.stray

    @property
    def is_held(self) -> bool:
        return self.lease is not None and not self.stray and self.facts.holding is Holding.HELD

    @property
    def may_be_member(self) -> bool:
        """Whether a process holds the Lease, and nothing in it keeps that from a place."""
        return self.is_held and self.facts.fit and not self.facts.leaving

    def silence_s(self, fresh_at: float) -> float:
        """Seconds without a change of the Lease, as far as reads fresh at *fresh_at* show."""
        return max(0.0, fresh_at - self.counted_from)

    def state(self, fresh_at: float) -> ShardState:
        """The row of the protocol's table."""
        if self.is_missing:
            return ShardState.MISSING
        match self.facts.holding:
            case Holding.TAKEN:
                return ShardState.CONTESTED if self.facts.contested else ShardState.DEAD
            case Holding.FOREIGN:
                return ShardState.CONTESTED
            case Holding.RELEASED:
                return ShardState.RELEASED
            case Holding.HELD:
                return _held_state(self.silence_s(fresh_at), self.longest_duration_s)

    @property
    def works(self) -> bool:
        """Whether its process was seen at work: it says that its caches are full, and is no restored copy of a Lease.

        A shard that does not speak our protocol says nothing: that it renews has to do.
        """
        return (self.seen_in_first_list or self.renewed) and (self.facts.synced or not self.facts.protocol)

    @property
    def has_known_duration(self) -> bool:
        """Whether two durations of silence are two durations of its process, not of an edit of the Lease."""
        return not self.had_several_durations and (self.facts.vouched or self.renewed)

    def is_pure_renewal(self, before: Shard) -> bool:
        """Whether *before* differs from this only by a renewal: no decision changes."""
        return _steady(self) == _steady(before)

    def seen_again(self, facts: LeaseFacts, lease: Lease, *, at: float) -> Shard:
        """This shard after a newer version of its Lease was seen."""
        if facts.holding is Holding.HELD and not self._is_same_process(lease):
            return first_seen(facts, lease, at=at)
        changed = self.lease is None or _heartbeat(lease) != _heartbeat(self.lease)
        is_renewal = changed and facts.holding is Holding.HELD
        entered = (
            self.is_missing
            or facts.holding is not self.facts.holding
            or facts.contested is not self.facts.contested
            or (changed and facts.holding is not Holding.HELD)
        )
        return replace(
            self,
            facts=facts,
            lease=lease,
            resource_version=lease.metadata.resource_version,
            changed_at=at if changed else self.changed_at,
            counted_from=at if changed else self.counted_from,
            entered_at=at if entered else self.entered_at,
            stray=False,
            had_lease=self.had_lease or _shows_a_shard(lease),
            renewed=self.renewed or is_renewal,
            longest_duration_s=max(self.longest_duration_s, facts.duration_s),
            had_several_durations=self.had_several_durations
            or facts.edited
            or facts.duration_s != self.facts.duration_s,
            last_renewal=lease.metadata.resource_version if is_renewal else self.last_renewal,
            renewal_before=self.last_renewal if is_renewal else self.renewal_before,
            is_orphaned=self.is_orphaned and not entered,
        )

    def _is_same_process(self, lease: Lease) -> bool:
        """Whether it is the same Lease and was held, as far as a Lease shows."""
        return self.is_held and self.lease is not None and self.lease.metadata.uid == lease.metadata.uid


_RENEWED: Final = frozenset(
    ("lease", "resource_version", "changed_at", "counted_from", "last_renewal", "renewal_before")
)
"""Fields of a `Shard` that change with each renewal."""
_steady: Final = attrgetter(*(each.name for each in fields(Shard) if each.name not in _RENEWED))


def first_seen(facts: LeaseFacts, lease: Lease, *, at: float, in_first_list: bool = False) -> Shard:
    """A Lease that this sharder had not seen, or that another process holds now: all its counts begin."""
    version = lease.metadata.resource_version
    held = version if facts.holding is Holding.HELD else ""
    return Shard(
        facts,
        lease,
        version,
        at,
        at,
        at,
        had_lease=_shows_a_shard(lease),
        born_at=at,
        seen_in_first_list=in_first_list,
        longest_duration_s=facts.duration_s,
        had_several_durations=facts.edited,
        last_renewal=held,
        renewal_before=held,
    )


def without_lease(name: str, *, at: float, max_duration_s: float) -> Shard:
    """A name that an object carries and that has no Lease: a tombstone is wanted."""
    facts = LeaseFacts(name, name, Holding.TAKEN, True, "", False, max_duration_s, "", fit=False)
    return Shard(facts, None, "", at, at, at, had_lease=False, longest_duration_s=max_duration_s)


def _shows_a_shard(lease: Lease) -> bool:
    """Whether a shard held *lease* at some time: a tombstone is created taken, and stays so."""
    is_taken = holding_of(lease) in (Holding.TAKEN, Holding.FOREIGN)
    return not is_taken or (lease.spec.lease_transitions or 0) > 0


def _held_state(silence_s: float, duration_s: float) -> ShardState:
    if silence_s < duration_s:
        return ShardState.READY
    return ShardState.EXPIRED if silence_s < 2 * duration_s else ShardState.UNCERTAIN


def _heartbeat(lease: Lease) -> tuple[object, ...]:
    """Mark of the last change of a Lease; another uid is another Lease."""
    return lease.metadata.uid, heartbeat_of(lease.spec)
