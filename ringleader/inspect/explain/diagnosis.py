"""What is the matter with one object: the first line of `explain`. Pure.

`diagnose` asks one question after the other, in the order in which the answers explain an object: does its ring want
it, has it an owner, does that owner live, is it where it belongs, does the owner get on with it. The first answer that
is not "yes" is the cause; what lies behind it would only follow from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubeio.protocol import is_shard_name
from ringleader.inspect.cluster.dates import seconds_since
from ringleader.inspect.cluster.kinds import ROLL, give_up, unwatched
from ringleader.inspect.cluster.rings import is_tombstone
from ringleader.inspect.explain import diagnosis_work
from ringleader.inspect.explain.diagnosis_sharder import no_sharder, sharder_runs, silence, why_nobody_gets_it
from ringleader.inspect.explain.finding import Finding

if TYPE_CHECKING:
    from kubeio.models import Lease
    from ringleader.inspect.explain.facts import Facts

NEW_S: Final = 10.0
"""A sharder answers within a second; what waits longer is not just new."""


def diagnose(facts: Facts) -> Finding:
    """The one cause that explains the object's state; that all is well, if nothing is off."""
    for question in (_unwanted, _unowned, _dead_owner, _silent_owner, _not_watched, _on_its_way, _elsewhere):
        found = question(facts)
        if found is not None:
            return found
    at_work = diagnosis_work.of_its_owner(facts)
    if at_work is not None and at_work.is_wrong:
        return at_work
    return _shared(facts) or at_work or diagnosis_work.well(facts)


# ---- does its ring want it ------------------------------------------------------------------------------------


def _unwanted(facts: Facts) -> Finding | None:
    """Rings that are refused, that go, or that do not select the object."""
    ring, at = facts.ring.name, facts.placement
    if facts.terms.is_deleted:
        since = seconds_since(facts.terms.document["metadata"].get("deletionTimestamp"), facts.now)
        what = f"is being given up by {at.owner}" if at.owner else "is not worked on by anybody"
        return Finding(
            f"{what}: ring {ring} is being deleted",
            since_seconds=since,
            do=f"wait until `kubectl get controllerring {ring}` finds nothing; {sharder_runs(facts)}",
        )
    if not facts.is_selected:
        what = f"is being given up by {at.owner}" if at.owner else "is not worked on by anybody"
        return Finding(
            f"{what}: the namespaceSelector of ring {ring} does not select namespace {facts.meta.namespace}",
            do=f"label the namespace, or change spec.namespaceSelector of ring {ring}",
        )
    if at.drain_to == "":
        return Finding(
            f"is being released: {at.owner or 'its owner'} is asked to give it up",
            is_wrong=_late(facts),
            since_seconds=_drain_age(facts),
            do=f"if nobody wants that, remove the label {facts.ring.keys.drain}",
        )
    return None


# ---- has it an owner ------------------------------------------------------------------------------------------


def _unowned(facts: Facts) -> Finding | None:
    if facts.placement.owner:
        return None
    age_s = seconds_since(facts.meta.creation_timestamp, facts.now)
    found = why_nobody_gets_it(facts)
    if found is not None:
        return Finding(f"has no owner: {found.cause}", since_seconds=found.since_seconds, do=found.do)
    if age_s is not None and age_s < NEW_S:
        return Finding(
            "is new: the sharder gives it an owner in a moment", is_wrong=False, since_seconds=age_s
        )
    desired = facts.placement.desired_shard
    return Finding(
        f"has no owner although {desired} could have it: the sharder has not written the label",
        since_seconds=None if facts.placement.owner else age_s,
        do=f"look at the sharder's log for {facts.placement.object}; {sharder_runs(facts)}",
    )


# ---- does its owner live --------------------------------------------------------------------------------------


def _dead_owner(facts: Facts) -> Finding | None:
    shard, owner, lease = facts.placement.owner, facts.owner, facts.owner_lease
    if owner is None:
        return _no_such_owner(facts, shard)
    if lease is not None and is_tombstone(facts.ring, lease):
        return _forged(facts, lease, shard)
    if owner.state == "contested" and facts.sharders.lead is not False:
        wait = facts.terms.spec.max_lease_duration_s if facts.terms.spec else 60.0
        return Finding(
            f"waits {wait:g} s before it is given away: the Lease of its owner {shard} was taken, and it may still"
            " work",
            since_seconds=_taken_age(facts),
            do="nothing; if this is often: who deletes Leases, or is drainPolicy Force needed?",
        )
    if owner.is_live and owner.state != "contested":
        return None
    renewed = seconds_since(lease.spec.renew_time if lease else None, facts.now)
    what = f"the Lease of its owner {shard} was taken" if owner.is_live else f"its owner {shard} is dead"
    return _orphan(facts, what, renewed)


def _forged(facts: Facts, lease: Lease, shard: str) -> Finding:
    """The sharder made a Lease for a name that had none; while it is contested, a process may still work under it."""
    cause = (
        f"its label names {shard}, whose Lease does not exist:"
        " it was deleted by hand, or the label was written by hand"
    )
    if facts.ring.keys.contested not in lease.metadata.annotations or facts.sharders.lead is False:
        return _orphan(facts, cause, _taken_age(facts))
    return Finding(
        f"waits to be given away: {cause}",
        since_seconds=_taken_age(facts),
        do="wait for maxLeaseDurationSeconds; do not delete Leases, and keep the label"
        f" {facts.ring.keys.shard} out of git and manifests",
    )


def _no_such_owner(facts: Facts, shard: str) -> Finding:
    ring = facts.ring
    if not is_shard_name(shard):
        return _orphan(facts, f"its label names {shard!r}, which no shard can be called", _shard_age(facts))
    if facts.owner_lease is not None:
        of = facts.owner_lease.metadata.labels.get(ring.keys.ring_label)
        whose = f"of ring {of}" if of else "of no ring"
        return _orphan(facts, f"its label names {shard}, a Lease {whose}", _shard_age(facts))
    where = ring.spec.lease_namespace
    return _orphan(
        facts,
        f"its label names {shard}, of which there is no Lease in namespace {where} (deleted, or the label was"
        " written by hand)",
        _shard_age(facts),
    )


def _orphan(facts: Facts, cause: str, since_s: float | None) -> Finding:
    """*cause* took the owner away: it waits for a sharder, or for what the sharder waits for."""
    behind = why_nobody_gets_it(facts)
    if behind is not None:
        return Finding(
            f"is worked on by nobody: {cause}, and {behind.cause}", since_seconds=since_s, do=behind.do
        )
    return Finding(
        f"is worked on by nobody: {cause}; the sharder gives it to {facts.placement.desired_shard}",
        since_seconds=since_s,
        do=f"if this lasts longer than a minute: the sharder's log; {sharder_runs(facts)}",
    )


def _silent_owner(facts: Facts) -> Finding | None:
    """The owner's Lease is held, but not renewed; or its shard has left and its place is kept."""
    owner = facts.owner
    if owner is None:
        return None
    if owner.state == "released":
        hold = facts.terms.spec.hold_s if facts.terms.spec else 0.0
        return Finding(
            f"waits for the next life of {owner.member}: its owner {owner.shard} has left",
            is_wrong=facts.sharders.lead is False or (owner.age_s or 0) > hold + NEW_S,
            since_seconds=owner.age_s,
            do=f"its place is kept for holdSeconds ({hold:g} s); {sharder_runs(facts)}",
        )
    if owner.is_silent:
        return silence(facts, owner, "its owner")
    return None


def _not_watched(facts: Facts) -> Finding | None:
    """Its owner lives and works, but on other kinds: nothing is asked of it."""
    owner = facts.owner
    if owner is None or not owner.ignores(facts.kind):
        return None
    is_new_kind = facts.above is not None and owner.works(
        facts.main
    )  # the ring controls it since after that start
    return Finding(
        f"is not worked on: {unwatched(owner.shard, facts.kind)}",
        since_seconds=_shard_age(facts),
        do=ROLL if is_new_kind else give_up(owner.member, facts.ring.keys.shard),
    )


# ---- is it where it belongs -----------------------------------------------------------------------------------


def _on_its_way(facts: Facts) -> Finding | None:
    at = facts.placement
    if at.drain_to is None:
        return None
    age_s, target = _drain_age(facts), facts.life(at.drain_to)
    if target is None or not target.is_live:
        behind = f", and {no_sharder(facts).cause}" if facts.sharders.lead is False else ""
        return Finding(
            f"waits at {at.owner}: it was to go to {at.drain_to}, which is dead{behind}",
            is_wrong=bool(behind) or _late(facts),
            since_seconds=age_s,
            do=f"the sharder points it elsewhere, or the owner gives it up plainly; {sharder_runs(facts)}",
        )
    if _late(facts):
        limit = facts.terms.spec.drain_timeout_s if facts.terms.spec else 60.0
        return Finding(
            f"is stuck: its owner {at.owner} does not hand it over to {at.drain_to} (drainTimeoutSeconds {limit:g})",
            since_seconds=age_s,
            do=f"look at {at.owner}'s longest reconcile (/debug/queue) and log; delete pod {at.owner_member},"
            " or set spec.drainPolicy: Force",
        )
    return Finding(f"is on its way from {at.owner} to {at.drain_to}", is_wrong=False, since_seconds=age_s)


def _late(facts: Facts) -> bool:
    """Whether the owner owes an answer longer than the ring allows: by the date, or as the sharder says."""
    limit = facts.terms.spec.drain_timeout_s if facts.terms.spec else 60.0
    age_s = _drain_age(facts)
    if age_s is not None:
        return age_s > limit
    stuck = facts.terms.condition("DrainStuck")
    return stuck.get("status") == "True" and f"{facts.placement.owner} (" in str(stuck.get("message"))


def _elsewhere(facts: Facts) -> Finding | None:
    """Its owner lives, but another member should have it."""
    at, spec = facts.placement, facts.terms.spec
    if facts.above is not None:
        return _left_behind(facts)
    if not at.desired_shard or at.desired_shard == at.owner:
        return None
    stays = f"stays at {at.owner} although it belongs to {at.desired_shard}"
    if spec is not None and spec.paused:
        return Finding(
            f"{stays}: ring {facts.ring.name} is paused",
            is_wrong=False,
            do=f"ringleader resume {facts.ring.name}",
        )
    if spec is None or facts.sharders.lead is False or facts.former_holder:
        behind = why_nobody_gets_it(facts)
        return Finding(f"{stays}: {behind.cause if behind else 'no sharder'}", do=behind.do if behind else "")
    desired = facts.life(at.desired_shard)
    if desired is not None and desired.is_silent:
        return Finding(f"{stays}: {desired.shard} does not renew its Lease", since_seconds=desired.age_s)
    return Finding(
        f"{stays}: it waits its turn (maxInFlight {spec.max_in_flight}, per owner {spec.max_in_flight_per_owner})",
        is_wrong=False,
        do=f"ringleader status {facts.ring.name} says how many are in flight",
    )


def _left_behind(facts: Facts) -> Finding | None:
    above, at = facts.above, facts.placement
    if above is None or not at.owner:
        return None
    if not above.exists:
        return Finding(
            f"is left over: its controller {above.name} is gone", do="the garbage collector deletes it"
        )
    if above.owner and above.owner != at.owner:
        return Finding(
            f"is at {at.owner}, its controller {above.name} at {above.owner}",
            do="its owner or the audit sends it after its controller; until then nobody works on it",
        )
    return None


def _shared(facts: Facts) -> Finding | None:
    """It has one owner in each of several rings."""
    if not facts.other_owners:
        return None
    others = ", ".join(f"{owner} in ring {ring}" for ring, owner in sorted(facts.other_owners.items()))
    return Finding(
        f"has two owners: {facts.placement.owner} in ring {facts.ring.name}, {others}",
        do="right only if two different controllers work on it; else delete one of the rings",
    )


# ---- times ----------------------------------------------------------------------------------------------------


def _drain_age(facts: Facts) -> float | None:
    return _label_age(facts, facts.ring.keys.drain)


def _shard_age(facts: Facts) -> float | None:
    return _label_age(facts, facts.ring.keys.shard)


def _label_age(facts: Facts, label: str) -> float | None:
    entry = facts.meta.label_written(label)
    return seconds_since(entry.time, facts.now) if entry is not None else None


def _taken_age(facts: Facts) -> float | None:
    lease = facts.owner_lease
    return seconds_since(lease.spec.acquire_time, facts.now) if lease is not None else None
