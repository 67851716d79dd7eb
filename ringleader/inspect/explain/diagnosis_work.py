"""What the owner of an object does with it, as far as the owner said so; and what the object itself shows. Pure.

The last question of `diagnosis`: the object is where it belongs, its owner lives; does it get on?
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringleader.inspect.cluster.dates import seconds_since
from ringleader.inspect.cluster.writers import is_tool, writers_of
from ringleader.inspect.explain.finding import Finding

if TYPE_CHECKING:
    from datetime import datetime

    from ringleader.inspect.cluster.owner_page import ObjectPage
    from ringleader.inspect.explain.facts import Facts

LONG_S: Final = 60.0
"""A reconcile or a wait of that length is worth a look."""
UNSEEN_S: Final = 10.0


def of_its_owner(facts: Facts) -> Finding | None:
    """What keeps the owner from getting on, or what it is at; None if nothing is to be said."""
    asked = facts.asked
    if asked is not None and asked.is_of_another(facts.placement.owner):
        asked = None
    if asked is not None and (asked.is_unknown or (asked.page is not None and asked.page.cached is None)):
        return _unseen(facts)
    if asked is not None and asked.page is not None:
        found = _at_work(facts, asked.page)
        if found is not None:
            return found
    return _being_deleted(facts) or _unobserved(facts)


def well(facts: Facts) -> Finding:
    """Nothing is off; who else writes the object is told, for a controller that heeds no label looks like that."""
    told = f"is where it belongs: {facts.placement.owner} works on it"
    strangers = _strangers(facts)
    if not strangers:
        return Finding(told, is_wrong=False)
    return Finding(
        f"{told}, and {', '.join(strangers)} wrote it too",
        is_wrong=False,
        do=f"if that is a controller: it does not heed the label {facts.ring.keys.shard} (ringleader doctor)",
    )


def _strangers(facts: Facts) -> list[str]:
    """Field managers that wrote as a controller does since there is the ring, and are none of the ring's."""
    ours = writers_of(facts.ring, facts.lives)
    labelled = facts.meta.label_written(facts.ring.keys.shard)
    if labelled is not None:
        ours = ours | {labelled.manager}
    began = seconds_since(facts.ring.metadata.creation_timestamp, facts.now)
    found = {
        entry.manager
        for entry in facts.meta.managed_fields
        if (entry.is_of_status or facts.above is not None) and not _is_older(entry.time, began, facts.now)
    }
    return sorted(manager for manager in found - ours - {""} if not is_tool(manager))


def _is_older(written: str | None, began_s: float | None, now: datetime) -> bool:
    """Whether *written* is an instant more than *began_s* seconds before *now*."""
    age_s = seconds_since(written, now)
    return age_s is not None and began_s is not None and age_s > began_s


def _unobserved(facts: Facts) -> Finding | None:
    """Its status is behind its spec."""
    seen, generation = facts.observed, facts.meta.generation
    if seen is None or seen >= generation:
        return None
    entry, shard = facts.meta.spec_written(), facts.placement.owner
    age_s = seconds_since(entry.time if entry else None, facts.now)
    return Finding(
        f"has a change that its owner {shard} has not observed (generation {generation}, observed {seen})",
        is_wrong=age_s is None or age_s > UNSEEN_S,
        since_seconds=age_s,
        do=f"ask {shard} itself (--endpoint), and look at its log and its longest reconcile (/debug/queue)",
    )


def _unseen(facts: Facts) -> Finding:
    entry = facts.meta.label_written(facts.ring.keys.shard)
    age_s = seconds_since(entry.time if entry else None, facts.now)
    shard = facts.placement.owner
    return Finding(
        f"has not reached its owner: {shard} has never seen it",
        is_wrong=age_s is None or age_s > UNSEEN_S,
        since_seconds=age_s,
        do=f"look at {shard}'s log for its watches: a right that is missing, another version of the kind,"
        " or a controller that lists with another selector",
    )


def _at_work(facts: Facts, page: ObjectPage) -> Finding | None:
    shard, now = facts.placement.owner, facts.now
    running_s, queued_s = seconds_since(page.running_since, now), seconds_since(page.queued_since, now)
    if running_s is not None and running_s > LONG_S:
        return Finding(
            f"is stuck in its reconcile: {shard} has not ended it",
            since_seconds=running_s,
            do=f"kill -USR1 the process of {shard}: its log then shows where it waits (docs/debugging.md)",
        )
    if page.last_error is not None:
        error, tries = page.last_error, f", {page.failures} times in a row" if page.failures > 1 else ""
        return Finding(
            f"fails: {error.type}: {_line(error.message)} ({shard}{tries})",
            since_seconds=seconds_since(error.at, now),
            do=f"mend the cause; {_next_try(page)}",
        )
    if running_s is not None:
        return Finding(f"is being worked on by {shard}", is_wrong=False, since_seconds=running_s)
    if queued_s is not None and queued_s > LONG_S:
        return Finding(
            f"waits for a worker of {shard}",
            since_seconds=queued_s,
            do="more workers, more replicas, or a quicker reconcile: /debug/queue shows what runs longest",
        )
    return None


def _next_try(page: ObjectPage) -> str:
    return f"the next try is at {page.next_try}" if page.next_try else "it is tried again when it changes"


def _being_deleted(facts: Facts) -> Finding | None:
    meta = facts.meta
    if meta.deletion_timestamp is None:
        return None
    waiting = ", ".join(meta.finalizers) or "nothing"
    age_s = seconds_since(meta.deletion_timestamp, facts.now)
    return Finding(
        f"is being deleted and waits for its finalizers ({waiting}); {facts.placement.owner} owns it",
        is_wrong=age_s is not None and age_s > LONG_S,
        since_seconds=age_s,
        do="look at the log of whoever is to remove them",
    )


def _line(text: str) -> str:
    """*text* on one line."""
    return " ".join(text.split())
