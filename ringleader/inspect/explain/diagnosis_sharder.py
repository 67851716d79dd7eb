"""Why no sharder helps an object that needs one: none leads, or the ring waits for something. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringleader.inspect.cluster.dates import seconds_since
from ringleader.inspect.cluster.kinds import ROLL, START, unworked
from ringleader.inspect.explain.finding import Finding

if TYPE_CHECKING:
    from ringleader.inspect.cluster.rings import Life
    from ringleader.inspect.explain.facts import Facts

_SEE_RING: Final = "as the message says"


def why_nobody_gets_it(facts: Facts) -> Finding | None:
    """Why no sharder gives the object to anybody now; None if one should."""
    ring, spec = facts.ring.name, facts.terms.spec
    if facts.sharders.lead is False:
        return no_sharder(facts)
    if spec is None:
        return Finding(
            f"the sharder refuses ring {ring}: {facts.terms.refusal}", do="correct that field of the ring"
        )
    if facts.former_holder and (former := spec.activation) is not None:
        return Finding(
            f"ring {ring} waits until {facts.former_holder} gives the former controller's Lease"
            f" {former.namespace}/{former.name} back",
            do="stop the former controller (scale it to zero)",
        )
    ready = facts.terms.condition("Ready")
    since = seconds_since(ready.get("lastTransitionTime"), facts.now)
    if ready.get("reason") in ("Forbidden", "InvalidSpec"):
        return Finding(f"ring {ring} is not ready: {ready.get('message')}", since_seconds=since, do=_SEE_RING)
    places = [life for life in facts.lives if life.fills_place]
    if not places:
        return Finding(
            f"no replica of ring {ring} lives (no held Lease in namespace {facts.ring.spec.lease_namespace})",
            since_seconds=since if ready.get("status") == "False" else None,
            do="start replicas, or look at their logs: why do they not join?",
        )
    if not any(life.works(facts.main) for life in places):
        return Finding(
            unworked(ring, facts.main),
            since_seconds=since if ready.get("reason") == "KindUnworked" else None,
            do=START,
        )
    if not facts.placement.desired_member:
        return Finding(f"every member of ring {ring} is cordoned", do="ringleader uncordon MEMBER")
    if len(places) < spec.min_members:
        return Finding(
            f"ring {ring} waits for {spec.min_members} members (spec.minMembers), {len(places)} live",
            since_seconds=since,
            do="start more replicas, or lower spec.minMembers",
        )
    # a kind that nobody works is another one than the object's
    if ready.get("status") == "False" and ready.get("reason") != "KindUnworked":
        return Finding(f"ring {ring} is not ready: {ready.get('message')}", since_seconds=since, do=_SEE_RING)
    return _not_taken(facts)


def _not_taken(facts: Facts) -> Finding | None:
    """Why the shard that is to have the object does not get it: it is silent, or does not watch its kind.

    A controlled object goes to its controller's owner while that one lives.
    """
    desired = facts.life(facts.placement.desired_shard)
    if desired is not None and desired.is_silent:
        return silence(facts, desired, "the shard at its place,")
    with_parent = facts.life(facts.above.owner) if facts.above is not None else None
    next_owner = with_parent or facts.life(facts.placement.desired_shard)
    if next_owner is None or not next_owner.ignores(facts.kind):
        return None
    return Finding(f"{next_owner.shard}, which is to have it, does not watch {facts.kind}", do=ROLL)


def no_sharder(facts: Facts) -> Finding:
    """That none leads: of use only where that is so."""
    newest = facts.sharders.newest
    if newest is None:
        return Finding(facts.sharders.warning, do="start sharders (docs/operate.md)")
    return Finding(
        facts.sharders.warning, since_seconds=newest.age_s, do="start sharders, or look at their logs"
    )


def silence(facts: Facts, life: Life, who: str) -> Finding:
    """*life*, which is *who* to the object, does not renew its Lease."""
    told = f"is not worked on: {who} {life.shard}" if who == "its owner" else f"{who} {life.shard}"
    more, do = "", "the sharder gives its objects away after two Lease durations"
    if facts.sharders.lead is False:
        missing = no_sharder(facts)
        more, do = (
            f", and {missing.cause}",
            f"nobody gives its objects away until a sharder leads: {missing.do}",
        )
    return Finding(
        f"{told} does not renew its Lease: frozen, cut off, or dead{more}",
        since_seconds=life.age_s,
        do=f"look at pod {life.member} and its log; {do}",
    )


def sharder_runs(facts: Facts) -> str:
    newest = facts.sharders.newest
    match facts.sharders.lead:
        case True if newest is not None:
            return f"the sharder {newest.holder} leads"
        case False:
            return "no sharder leads"
        case _:
            return "whether a sharder leads is not known (no right to list Leases everywhere)"
