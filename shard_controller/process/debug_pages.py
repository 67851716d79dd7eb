"""`/debug/objects` and `/debug/queue`: what this replica knows and does, as JSON for a person. Reads, never changes.

Joins cache, queue and history; who may read it is decided elsewhere (`kubeio.program.access_gate`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, timedelta
from itertools import islice

import msgspec

from kubeio.clock import Clock
from kubeio.models import Meta, ObjectKey
from kubeio.queues.workqueue import WorkQueue
from shard_controller.declare.request import Request
from shard_controller.objects.caches import Caches, ResourceCache
from shard_controller.observe.history import History, ReconcileFailure, ReconcileRecord
from shard_controller.shard.ownership import Ownership

CLUSTER_SCOPED = "_"
"""Stands in the place of the namespace."""
_SHOWN = 50
"""Entries of each list: the page is for reading."""

Document = dict[str, object]


class Inspection:
    """The pages of one controller. Times are of the API's form; what is not known is null."""

    def __init__(
        self,
        caches: Caches,
        queue: WorkQueue[Request],
        history: History,
        *,
        ownership: Ownership,
        controller: str,
        clock: Clock,
    ) -> None:
        self._caches = caches
        self._queue = queue
        self._history = history
        self._ownership = ownership
        self._controller = controller
        self._clock = clock

    def object_page(self, below: list[str]) -> bytes | None:
        """`NAMESPACE/NAME`, or `_/NAME` of a cluster-scoped object; None if nothing is known of it."""
        if len(below) != 2 or not all(below):
            return None
        namespace, name = below
        found = self.describe("" if namespace == CLUSTER_SCOPED else namespace, name)
        return None if found is None else _encoded(found)

    def queue_page(self, below: list[str]) -> bytes | None:
        """The queue as a whole; nothing stands below it."""
        return None if below else _encoded(self.queue())

    def describe(self, namespace: str, name: str) -> Document | None:
        """One object of the controller's own resource."""
        primary = self._caches.primary
        request = Request(primary.name, ObjectKey(namespace, name))
        meta = primary.meta(request.key)
        state = self._queue.state(request)
        failure, last = self._history.failure(request), self._history.last(request)
        if meta is None and failure is None and last is None and state == _NOWHERE:
            return None
        return {
            **self._who(),
            "object": str(request),
            "cached": None if meta is None else self._cached(primary, meta),
            "controlled": [] if meta is None else self._controlled(meta),
            **self._request_state(request),
            "lastError": self._error(failure),
            "lastOutcome": None if last is None else self._outcome(last),
        }

    def queue(self) -> Document:
        """State of the queue: waiting, running, delayed and failing keys, and the last outcomes."""
        queue = self._queue
        running = sorted(queue.processing, key=lambda request: -(queue.state(request).running_s or 0.0))
        return {
            **self._who(),
            "waiting": len(queue),
            "oldestWaitSeconds": round(queue.oldest_wait_s(), 3),
            "running": len(running),
            "delayed": queue.delayed,
            "isClosed": queue.is_closed,
            "firstWaiting": self._request_states(queue.first_waiting(_SHOWN)),
            "longestRunning": self._request_states(running[:_SHOWN]),
            "nextDue": self._request_states(queue.next_due(_SHOWN)),
            "failing": [
                {"object": str(request), **(self._error(failure) or {})}
                for request, failure in islice(self._history.failing(), _SHOWN)
            ],
            "lastOutcomes": [
                {"object": str(ended.request), **self._outcome(ended)}
                for ended in islice(self._history.newest(), _SHOWN)
            ],
        }

    def _who(self) -> Document:
        return {"controller": self._controller, "shard": self._ownership.shard}

    def _cached(self, kind: ResourceCache, meta: Meta) -> Document:
        return {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "generation": meta.generation,
            "deletionTimestamp": meta.deletion_timestamp,
            "finalizers": meta.finalizers,
            "floor": self._ownership.floor(kind, meta.key),
            **self._labels(meta),
        }

    def _controlled(self, meta: Meta) -> list[Document]:
        return [
            {
                "object": f"{kind.name} {child.key}",
                "resourceVersion": child.resource_version,
                **self._labels(child),
            }
            for kind, child in self._caches.tree(self._caches.primary, meta)[:_SHOWN]
        ]

    def _labels(self, meta: Meta) -> Mapping[str, object]:
        """Owner and drain as the cache has them; nothing outside a ring."""
        keys = self._ownership.keys
        return (
            {}
            if keys is None
            else {
                "owner": meta.labels.get(keys.shard),
                "drain": meta.labels.get(keys.drain),
            }
        )

    def _request_states(self, requests: Iterable[Request]) -> list[Document]:
        return [{"object": str(request), **self._request_state(request)} for request in requests]

    def _request_state(self, request: Request) -> Document:
        state = self._queue.state(request)
        return {
            "queuedSince": self._ago(state.waiting_s),
            "runningSince": self._ago(state.running_s),
            "isWantedAgain": state.is_wanted_again,
            "nextTry": None if state.due_in_s is None else self._ago(-state.due_in_s),
            "failures": state.failures,
        }

    def _error(self, failure: ReconcileFailure | None) -> Document | None:
        if failure is None:
            return None
        return {"type": failure.type, "message": failure.message, "at": self._at(failure.at)}

    def _outcome(self, ended: ReconcileRecord) -> Document:
        at = self._ago(time.perf_counter() - ended.at)
        return {"outcome": ended.outcome, "at": at, "tookSeconds": round(ended.took_s, 6)}

    def _at(self, instant: float) -> str | None:
        return self._ago(self._clock.now() - instant)

    def _ago(self, seconds: float | None) -> str | None:
        """The time that was *seconds* ago."""
        if seconds is None:
            return None
        instant = self._clock.wall().astimezone(UTC) - timedelta(seconds=seconds)
        return instant.strftime("%Y-%m-%dT%H:%M:%S.") + f"{instant.microsecond // 1000:03d}Z"


class Pages:
    """The pages while there is something to inspect; before that they say so."""

    def __init__(self) -> None:
        self.inspection: Inspection | None = None

    def object_page(self, below: list[str]) -> bytes | None:
        return self._shown(lambda inspection: inspection.object_page(below))

    def queue_page(self, below: list[str]) -> bytes | None:
        return self._shown(lambda inspection: inspection.queue_page(below))

    def queue_document(self) -> object:
        """The queue for the log; None if there is none yet."""
        return None if self.inspection is None else self.inspection.queue()

    def _shown(self, page: Callable[[Inspection], bytes | None]) -> bytes | None:
        return _IDLE if self.inspection is None else page(self.inspection)


_NOWHERE = (None, None, False, None, 0)
_IDLE = b'{"state": "nothing is cached yet: this replica starts, or waits for its Lease"}\n'


def _encoded(document: Document) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
