"""Faults to inject: the requests and watches that they match, and their effect. Pure; time is passed in.

Owns the list of active faults. `proxy` carries the effects out.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from kubeio.rest.request_info import RequestInfo

What = Literal[
    "latency",
    "error",
    "lose_answer",
    "repeat",
    "cut",
    "partition",
    "hold",
    "mute_watches",
    "slow_watches",
    "expire_watches",
    "withhold_bookmarks",
    "stale_lists",
]


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One fault and the requests that it matches; an empty field matches everything.

    what:
      latency       wait *delay_s* before the request is passed on
      error         answer *code* (429, 500, ...) with *retry_after_s*; nothing is passed on
      lose_answer   pass it on, and reset the connection when the server answers
      repeat        pass it on, and once more *delay_s* later on a connection of the proxy's own; the second answer is
                    dropped
      cut           reset connections now, with what is under way, and at each request while it lasts: nothing is
                    passed on. With the verb watch it strikes open watches and new ones.
      partition     requests are neither passed on nor answered, watches and what is under way are silent; when the
                    fault ends their connections are reset
      hold          requests and answers wait in order, as on a network that delays them; they are delivered when the
                    fault ends, requests also if their client is gone by then. Each request that waits is a hit.
      mute_watches  open watches stay open without events (half dead), new ones too while it lasts
      slow_watches  events of open watches and new ones come *delay_s* later, as long as they last
      expire_watches      reset open watches, and answer new ones with the event 410 Expired while it lasts
      withhold_bookmarks  reset open watches, and ask the server for no bookmarks on new ones while it lasts
      stale_lists   lists that allow it (with a resourceVersion) are answered as of *version*, which the server must
                    still have
    A fault with *count* ends after so many hits, with *for_s* after so many seconds.
    """

    what: What
    user: str = ""
    user_agent: str = ""
    """How the User-Agent begins."""
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
    version: int = 0
    id: str = ""
    hits: int = 0

    @property
    def strikes_only_watches(self) -> bool:
        return self.what in ("mute_watches", "slow_watches", "expire_watches", "withhold_bookmarks")

    @property
    def strikes_open_watches(self) -> bool:
        return self.strikes_only_watches or self.what in ("cut", "partition", "hold")


class Hit(msgspec.Struct, frozen=True):
    """A request as a fault is matched against it. *info* is None for an idle connection."""

    user: str
    user_agent: str
    info: RequestInfo | None


_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def matches(fault: Fault, hit: Hit) -> bool:
    """Whether *fault* is meant for *hit*."""
    if (fault.user and fault.user != hit.user) or not hit.user_agent.startswith(fault.user_agent):
        return False
    info = hit.info
    if info is None:
        return not (fault.verb or fault.resource or fault.namespace or fault.name)
    return (
        (not fault.verb or fault.verb == info.verb or (fault.verb == "write" and info.verb in _WRITES))
        and (not fault.resource or fault.resource == info.group_resource)
        and (not fault.namespace or fault.namespace == info.namespace)
        and (not fault.name or fault.name == info.name)
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
    """Raises: ValueError naming the wrong field."""
    fault = msgspec.json.decode(body, type=Fault)
    if fault.what in ("partition", "hold") and fault.count is not None:
        raise ValueError(f"{fault.what} ends by its time or by order, not by a count")
    if fault.what == "stale_lists" and fault.version < 1:
        raise ValueError("stale_lists needs the version of a list")
    return fault
