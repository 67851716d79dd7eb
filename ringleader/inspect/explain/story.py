"""`ringleader explain KIND/NAME`: the story of one object, and first of all what is the matter with it.

Owns the words of the story (`Story`, also the JSON document); `facts` reads, `diagnosis` finds the cause.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.models import ObjectKey
from ring import HASH_SPACE
from ringleader.inspect.cluster.dates import seconds_since
from ringleader.inspect.cluster.owner_page import check_url
from ringleader.inspect.cluster.rings import Rings
from ringleader.inspect.explain.diagnosis import diagnose
from ringleader.inspect.explain.facts import Way, read_facts
from ringleader.inspect.explain.finding import Finding
from ringleader.inspect.where.one import Placement, parse_target
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, age, print_document, print_line

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client
    from ringleader.inspect.cluster.happenings import ClusterEvent
    from ringleader.inspect.explain.facts import Facts

WRONG: Final = 5
"""Exit code: the question was answered, and something is off."""
Rows = list[tuple[str, str]]


class Story(msgspec.Struct, rename="camel"):
    """What is the matter with an object (*finding*), and everything that led to it."""

    object: str
    finding: Finding
    placement: Placement
    arc: str
    label: str
    lease: str
    working: str
    sharder: str
    events: list[ClusterEvent]
    unread: list[str]


def run_explain(
    where: ConnectionOptions,
    target: str,
    *,
    namespace: str | None,
    ring: str | None,
    way: Way,
    form: Form | None,
) -> int:
    """The command; `WRONG` if something is off."""
    kind, name = parse_target(target)
    if way.endpoint is not None:
        check_url(way.endpoint)

    async def ask(client: Client, cluster: Cluster) -> Facts:
        key = ObjectKey(namespace or cluster.namespace, name)
        return await read_facts(client, kind, key, ring_name=ring, way=way, timeout_s=where.timeout_s)

    facts = connected(where, ask)
    told = story(facts)
    match form:
        case Form.JSON | Form.YAML:
            print_document(told, form=form)
        case Form.NAME:
            print_line(told.object)
        case _:
            for line in lines(told, now=facts.now):
                print_line(line)
    return WRONG if told.finding.is_wrong else 0


def story(facts: Facts) -> Story:
    """The diagnosis of *facts*, with what it stands on."""
    return Story(
        object=facts.placement.object,
        finding=diagnose(facts),
        placement=facts.placement,
        arc=_arc(facts),
        label=_label(facts),
        lease=_lease(facts),
        working=_working(facts),
        sharder=_sharder(facts),
        events=facts.happenings,
        unread=facts.unread,
    )


def _arc(facts: Facts) -> str:
    """The part of the hash space that the object's hash lies in."""
    hashed = Rings(facts.ring, facts.lives).of(facts.main)
    if not facts.placement.hash or not len(hashed):
        return ""
    position, before = int(facts.placement.hash, 16), -1
    for end, owner in hashed.arcs():
        if position <= end:
            size = (end - before) / HASH_SPACE
            return f"{before + 1:016x} to {end:016x} of {owner}, {size:.4%} of the ring"
        before = end
    return ""


def _label(facts: Facts) -> str:
    """Who wrote the owner into the object, and when."""
    shard = facts.placement.owner
    if not shard:
        return f"no label {facts.ring.keys.shard}"
    entry = facts.meta.label_written(facts.ring.keys.shard)
    if entry is None:
        return f"{shard}; when it was written, the server does not tell"
    since = age(seconds_since(entry.time, facts.now))
    return f"{shard}, written {since} ago by {entry.manager or 'a nameless manager'}"


def _lease(facts: Facts) -> str:
    lease = facts.owner_lease
    if lease is None:
        return "none of the owner's name" if facts.placement.owner else "-"
    renewed = age(seconds_since(lease.spec.renew_time, facts.now))
    holder = lease.spec.holder_identity or "nobody"
    held = "itself" if holder == lease.metadata.name else holder
    keys = facts.ring.keys
    more = ", contested" if keys.contested in lease.metadata.annotations else ""
    return f"held by {held}, renewed {renewed} ago, lasts {lease.spec.lease_duration_seconds or '?'} s{more}"


def _working(facts: Facts) -> str:
    """What the owner says itself."""
    asked = facts.asked
    if asked is None:
        if facts.owner is None or not facts.owner.is_live:
            return "-"
        return "not asked: --endpoint URL (with kubectl port-forward) asks it"
    if asked.is_of_another(facts.placement.owner):
        at = facts.placement
        return f"the endpoint is {asked.shard}'s, not {at.owner}'s: forward the port of pod {at.owner_member}"
    if asked.page is None:
        return asked.problem or "it has never seen the object"
    page, now = asked.page, facts.now
    parts = [
        f"since {age(seconds_since(page.running_since, now))}" if page.running_since else "",
        f"queued {age(seconds_since(page.queued_since, now))} ago" if page.queued_since else "",
        f"failed {page.failures} times in a row" if page.failures else "",
        f"next try {page.next_try}" if page.next_try else "",
    ]
    if (last := page.last_outcome) is not None:
        ended = age(seconds_since(last.at, now))
        parts.append(f"last outcome {last.outcome} {ended} ago, took {last.took_seconds:.3g} s")
    return ", ".join(part for part in parts if part) or "it knows the object and has nothing to do"


def _sharder(facts: Facts) -> str:
    newest = facts.sharders.newest
    if not facts.sharders.is_known:
        return "not known: no right to list Leases in the whole cluster"
    if newest is None:
        return "none: no Lease ringleader-sharder in any namespace"
    leads = "leads" if newest.leads else "does not lead any more"
    return f"{newest.holder or 'nobody'} {leads} (Lease {newest.lease}, renewed {age(newest.age_s)} ago)"


def lines(told: Story, *, now: datetime) -> list[str]:
    """The story for people; its first line names the object and the cause."""
    at = told.placement
    since = told.finding.since_seconds
    rows: Rows = [("do", told.finding.do)] if told.finding.do else []
    rows += [
        ("ring", at.ring),
        ("owner", f"{at.owner or 'nobody'} ({at.owner_state})"),
        ("desired", f"{at.desired_shard or 'nobody'} (member {at.desired_member or 'none'})"),
        ("label", told.label),
        ("lease", told.lease),
        ("drain", "none" if at.drain_to is None else at.drain_to or "release"),
        ("key", f"{at.key} ({at.key_from})"),
        ("hash", f"{at.hash or '-'} (murmur3, first 64 bits)"),
        ("arc", told.arc or "-"),
        *(("why" if index == 0 else "", reason) for index, reason in enumerate(at.why)),
        ("working", told.working),
        ("sharder", told.sharder),
        *(("events" if index == 0 else "", _event(seen, now)) for index, seen in enumerate(told.events)),
        *(("unread", unread) for unread in told.unread),
    ]
    for_long = f" (for {age(since)})" if since is not None else ""
    return [f"{told.object} {told.finding.cause}{for_long}", *(f"{name:<9}{text}" for name, text in rows)]


def _event(seen: ClusterEvent, now: datetime) -> str:
    times = f" x{seen.count}" if seen.count > 1 else ""
    return f"{age(seconds_since(seen.last_seen, now))} ago {seen.type} {seen.reason}{times}: {seen.note}"
