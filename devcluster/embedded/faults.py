"""Faults that tests order: which request or watch they hit, and what they do to it. Pure; time is passed in.

Owns the list of active faults. `server` asks `on_request` for every request and carries the effects out.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from devcluster.embedded.status import bad_request

What = Literal["latency", "error", "lose_answer", "partition", "drop_watches", "mute_watches", "stale_lists"]


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One fault and whom it hits; an empty field matches everything.

    what:
      latency       wait *delay_s* before the request is carried out
      error         answer *code* (429, 500, ...) with *retry_after_s*; nothing is carried out
      lose_answer   carry it out, then cut the connection instead of answering
      partition     the user's requests are neither carried out nor answered, its watches are silent;
                    when the fault ends their connections are cut
      drop_watches  close matching watches now, and new ones while it lasts
      mute_watches  matching watches stay open and say nothing any more (half dead), new ones too while it lasts
      stale_lists   lists that allow it (with a resourceVersion) are answered as of *version*, or *behind*
                    versions ago
    A fault with *count* ends after so many hits, with *for_s* after so many seconds.
    """

    what: What
    user: str = ""
    verb: str = ""
    """get, list, watch, create, update, patch, delete, deletecollection; "write" for the last five."""
    resource: str = ""
    """`websites.example.com`, `configmaps`."""
    namespace: str = ""
    name: str = ""
    count: int | None = None
    for_s: float | None = None
    delay_s: float = 0.0
    code: int = 500
    retry_after_s: int | None = None
    message: str = ""
    version: int | None = None
    behind: int = 0
    id: str = ""
    hits: int = 0


class Hit(msgspec.Struct, frozen=True):
    """What a fault is matched against."""

    user: str
    verb: str
    resource: str
    namespace: str = ""
    name: str = ""


_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def matches(fault: Fault, hit: Hit) -> bool:
    """Whether *fault* is meant for *hit*."""
    return (
        (not fault.user or fault.user == hit.user)
        and (not fault.verb or fault.verb == hit.verb or (fault.verb == "write" and hit.verb in _WRITES))
        and (not fault.resource or fault.resource == hit.resource)
        and (not fault.namespace or fault.namespace == hit.namespace)
        and (not fault.name or fault.name == hit.name)
    )


class Faults:
    """The active faults, oldest first."""

    def __init__(self) -> None:
        self._active: dict[str, tuple[Fault, float | None]] = {}
        self._next = 1

    def __bool__(self) -> bool:
        return bool(self._active)

    def add(self, fault: Fault, *, now: float) -> Fault:
        """*fault* under an id of its own."""
        added = msgspec.structs.replace(fault, id=f"fault-{self._next}", hits=0)
        self._next += 1
        self._active[added.id] = (added, None if fault.for_s is None else now + fault.for_s)
        return added

    def remove(self, fault_id: str) -> Fault | None:
        found = self._active.pop(fault_id, None)
        return found[0] if found else None

    def active(self) -> list[Fault]:
        return [fault for fault, _ in self._active.values()]

    def expire(self, *, now: float) -> list[Fault]:
        """Take away the faults whose time is over, and give them."""
        over = [id_ for id_, (_, until) in self._active.items() if until is not None and until <= now]
        return [self._active.pop(id_)[0] for id_ in over]

    def hit(self, hit: Hit, *, now: float, only_id: str = "") -> list[Fault]:
        """The faults (or just that one) that strike *hit*; each is counted, and gone after its last count."""
        struck = []
        for fault, until in list(self._active.values()):
            if (until is not None and until <= now) or not matches(fault, hit):
                continue
            if only_id and fault.id != only_id:
                continue
            struck.append(fault)
            fault.hits += 1
            if fault.count is not None and fault.hits >= fault.count:
                self._active.pop(fault.id, None)
        return struck


def parse_fault(body: bytes) -> Fault:
    """Raises: 400 naming the wrong field."""
    try:
        fault = msgspec.json.decode(body, type=Fault)
    except msgspec.DecodeError as error:
        raise bad_request(f"fault: {error}") from error
    if fault.what == "partition" and fault.count is not None:
        raise bad_request("fault: a partition ends by its time or by order, not by a count")
    return fault
