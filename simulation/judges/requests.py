"""Judge of requests: what each write must test (protocol 4, 5.5, 6.3, 6.4), and which writes may still arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubeio.http.messages import Call
from kubeio.labels import json_pointer
from kubeio.protocol import RingKeys
from simulation.judges.known import Known
from simulation.network import Sent
from simulation.scale import RESOURCES

if TYPE_CHECKING:
    from simulation.process import Process

_ANSWER_WITHIN_S: Final = 59.0
"""A request that is older counts as lost: 60 s, on clocks that drift."""
_MOST_WRITES: Final = 12
_WITHIN_S: Final = 2.0
"""A Lease is written so often within so long at most: what fails comes again after 0.1 s at first, then more rarely."""
_JUDGED: Final = frozenset({plural for _, plural in RESOURCES} | {"leases"})


class RequestJudge:
    """Judges every request as it is sent."""

    def __init__(self, known: Known) -> None:
        self._known: Final = known
        self._lease_writes: Final[dict[tuple[Process, str], deque[float]]] = {}
        known.fleet.network.on_send.append(self._on_send)

    def under_way(self, process: Process) -> str:
        """A write of *process* to an object that may still arrive, in words; empty: none."""
        return next(map(str, self._under_way(process)), "")

    def creates_under_way(self, process: Process, *, controller: str) -> str:
        """A create of what *controller* controls that may still arrive, in words; empty: none."""
        for sent in self._under_way(process):
            if sent.call.method == "POST" and controller.encode() in (sent.call.body or b""):
                return str(sent)
        return ""

    def _under_way(self, process: Process) -> Iterator[Sent]:
        for sent in self._known.fleet.network.under_way(process):
            is_young = self._known.world.now - sent.sent_at < _ANSWER_WITHIN_S
            if is_young and _plural(sent.call.path) != "leases":
                yield sent

    def _on_send(self, process: Process, call: Call) -> None:
        if _plural(call.path) not in _JUDGED or call.method == "GET":
            return
        if _plural(call.path) == "leases" and call.method in ("POST", "PUT"):
            self._judge_pace(process, call)
        if call.method == "POST":
            return
        missing = what_is_missing(call, keys=self._known.keys, is_turn_known=self._is_turn_known)
        if missing:
            self._known.violate(
                "writes are tested", f"{process} sends {call.method} {call.path} without {missing}"
            )

    def _judge_pace(self, process: Process, call: Call) -> None:
        """Writes of one Lease come with pauses, whatever the answers are."""
        name = msgspec.json.decode(call.body or b"{}").get("metadata", {}).get("name", "")
        recent = self._lease_writes.setdefault((process, name), deque(maxlen=_MOST_WRITES))
        now = self._known.world.now
        if len(recent) == _MOST_WRITES and now - recent[0] < _WITHIN_S:
            self._known.violate(
                "rest", f"{process} writes Lease {name} {_MOST_WRITES} times in {now - recent[0]:.2f} s"
            )
        recent.append(now)

    def _is_turn_known(self, uid: str) -> bool:
        owner = self._known.owners.get(uid)
        return owner is not None and owner.turn > 0 and uid not in self._known.forged


def what_is_missing(call: Call, *, keys: RingKeys, is_turn_known: Callable[[str], bool]) -> str:
    """What *call*, a write to an object of the ring or to a Lease, has to test and does not; empty: nothing."""
    body = msgspec.json.decode(call.body) if call.body else {}
    if call.method == "DELETE":
        return _first_missing((body.get("preconditions") or {}), ("uid", "resourceVersion"))
    if isinstance(body, list):
        return _missing_in_json_patch(body, keys=keys, is_turn_known=is_turn_known)
    meta: dict[str, Any] = body.get("metadata") or {}
    missing = _first_missing(meta, ("uid", "resourceVersion"))
    if missing or _plural(call.path) == "leases":
        return missing
    label = (meta.get("labels") or {}).get(keys.shard)
    turn = (meta.get("annotations") or {}).get(keys.turn)
    return "a turn beside the owner's name" if label and turn != meta["resourceVersion"] else ""


def _missing_in_json_patch(
    operations: list[dict[str, Any]], *, keys: RingKeys, is_turn_known: Callable[[str], bool]
) -> str:
    tests = {each["path"]: each.get("value") for each in operations if each["op"] == "test"}
    drain = json_pointer("metadata", "labels", keys.drain)
    missing = _first_missing(tests, ("/metadata/uid", json_pointer("metadata", "labels", keys.shard)))
    if missing or all(each["op"] == "test" or each["path"] == drain for each in operations):
        return missing
    is_needed = is_turn_known(str(tests["/metadata/uid"]))
    return _first_missing(tests, (json_pointer("metadata", "annotations", keys.turn),)) if is_needed else ""


def _first_missing(found: Mapping[str, Any], wanted: Iterable[str]) -> str:
    return next((f"a test of {name}" for name in wanted if not found.get(name)), "")


def _plural(path: str) -> str:
    parts = path.split("/")
    at = parts.index("namespaces") + 2 if "namespaces" in parts else len(parts)
    return parts[at] if at < len(parts) else ""
