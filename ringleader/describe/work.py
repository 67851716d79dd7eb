"""Causes at the owner of an object: its own answer, the object's status and finalizers. Pure.

The last question: the object is where it belongs, and its owner lives. Does the owner get on with it?
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ringleader.cluster.causes import Cause
from ringleader.cluster.managed_fields import is_tool, writers_of
from ringleader.cluster.object_causes import unobserved
from ringleader.cluster.thresholds import LONG_S, UNSEEN_S

if TYPE_CHECKING:
    from ringleader.cluster.debug_endpoint import DebugAnswer, ObjectPage
    from ringleader.cluster.object_state import ObjectState


def cause_at_work(obj: ObjectState, asked: DebugAnswer | None, observed: int | None) -> Cause | None:
    """The obstacle or the work of the owner; None if nothing is to be said.

    *asked*: the owner's answer. *observed*: the generation in the object's status.
    """
    if asked is not None and asked.is_of_another(obj.row.owner):
        asked = None
    if asked is not None and (asked.is_unknown or (asked.page is not None and asked.page.cached is None)):
        return _unseen(obj)
    if asked is not None and asked.page is not None:
        found = _at_work(obj, asked.page)
        if found is not None:
            return found
    return _being_deleted(obj) or _unobserved(obj, observed)


def well(obj: ObjectState) -> Cause:
    """Nothing is off. Other writers are named: a controller that ignores the shard label looks like that."""
    text = f"is where it belongs: {obj.row.owner} works on it"
    others = _foreign_managers(obj)
    if not others:
        return Cause("Well", text, is_wrong=False)
    return Cause(
        "Well",
        f"{text}, and {', '.join(others)} wrote it too",
        is_wrong=False,
        remedy=f"if that is a controller: it ignores the label {obj.keys.shard} (ringleader check)",
    )


def _foreign_managers(obj: ObjectState) -> list[str]:
    """Field managers that wrote as a controller does since the ring was created, and are none of the ring's."""
    ours = writers_of(obj.ring, obj.state.shards)
    labelled = obj.meta.label_written(obj.keys.shard)
    if labelled is not None:
        ours = ours | {labelled.manager}
    began_s = obj.since(obj.ring.metadata.creation_timestamp)
    found = {
        entry.manager
        for entry in obj.meta.managed_fields
        if (entry.is_of_status or obj.controller is not None) and not _is_older(obj, entry.time, began_s)
    }
    return sorted(manager for manager in found - ours - {""} if not is_tool(manager))


def _is_older(obj: ObjectState, written: str | None, began_s: float | None) -> bool:
    """Whether *written* is an instant more than *began_s* seconds ago."""
    age_s = obj.since(written)
    return age_s is not None and began_s is not None and age_s > began_s


def _unobserved(obj: ObjectState, seen: int | None) -> Cause | None:
    """Its status is behind its spec."""
    generation = obj.meta.generation
    if seen is None or seen >= generation:
        return None
    entry = obj.meta.spec_written()
    age_s = obj.since(entry.time if entry else None)
    return msgspec.structs.replace(
        unobserved(obj.row.owner),
        is_wrong=age_s is None or age_s > UNSEEN_S,
        since_seconds=age_s,
        evidence=[f"its generation is {generation}, observed is {seen}"],
    )


def _unseen(obj: ObjectState) -> Cause:
    entry = obj.meta.label_written(obj.keys.shard)
    age_s = obj.since(entry.time if entry else None)
    shard = obj.row.owner
    return Cause(
        "Unseen",
        f"has not reached its owner: the watch of {shard} has never shown it",
        is_wrong=age_s is None or age_s > UNSEEN_S,
        since_seconds=age_s,
        remedy=f"look at {shard}'s log for its watches: a right that is missing, another version of the kind,"
        " or a controller that lists with another selector",
    )


def _at_work(obj: ObjectState, page: ObjectPage) -> Cause | None:
    shard = obj.row.owner
    running_s, queued_s = obj.since(page.running_since), obj.since(page.queued_since)
    if running_s is not None and running_s > LONG_S:
        return Cause(
            "Stuck",
            f"is stuck in its reconcile: {shard} has not ended it",
            since_seconds=running_s,
            remedy=f"kill -USR1 the process of {shard}: its log then shows where it waits (docs/debugging.md)",
        )
    if page.last_error is not None:
        error, tries = page.last_error, f", {page.failures} times in a row" if page.failures > 1 else ""
        return Cause(
            "Failing",
            f"fails: {error.type}: {_line(error.message)} ({shard}{tries})",
            since_seconds=obj.since(error.at),
            remedy=f"mend the cause; {_next_try(page)}",
        )
    if running_s is not None:
        return Cause("Working", f"is being worked on by {shard}", is_wrong=False, since_seconds=running_s)
    if queued_s is not None and queued_s > LONG_S:
        return Cause(
            "Queued",
            f"waits for a worker of {shard}",
            since_seconds=queued_s,
            remedy="more workers, more replicas, or a quicker reconcile: /debug/queue shows what runs longest",
        )
    return None


def _next_try(page: ObjectPage) -> str:
    return f"the next try is at {page.next_try}" if page.next_try else "it is tried again when it changes"


def _being_deleted(obj: ObjectState) -> Cause | None:
    meta = obj.meta
    if meta.deletion_timestamp is None:
        return None
    waiting = ", ".join(meta.finalizers) or "nothing"
    age_s = obj.since(meta.deletion_timestamp)
    return Cause(
        "Deleting",
        f"is being deleted and waits for its finalizers ({waiting}); {obj.row.owner} owns it",
        is_wrong=age_s is not None and age_s > LONG_S,
        since_seconds=age_s,
        remedy="look at the log of the controller that removes them",
    )


def _line(text: str) -> str:
    """*text* on one line."""
    return " ".join(text.split())
