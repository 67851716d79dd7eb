"""Work queue of one controller, with what its event handlers and its workers have to know per key.

Owns four notes per key: controlled objects to hand over with it, whether it waits for a newer version, the newest
version that woke it while it ran, and whether it failed for good. Knows no caches and decides nothing.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Collection
from typing import Final

from kubeio.clock import Clock
from kubeio.queues.metrics import QueueMetrics
from kubeio.queues.workqueue import WorkQueue
from shard_controller.declare.request import Request

ANY_VERSION: Final = sys.maxsize
"""Version of a change that counts whatever came before."""
_NONE: Collection[Request] = ()


class ReconcileQueue(WorkQueue[Request]):
    """Keys of the primary resource, or of roots that are unknown."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        base_delay_s: float = 0.005,
        max_delay_s: float = 1000.0,
        metrics: QueueMetrics | None = None,
    ) -> None:
        super().__init__(
            clock=clock, rng=rng, base_delay_s=base_delay_s, max_delay_s=max_delay_s, metrics=metrics
        )
        self._drained: dict[Request, dict[Request, None]] = {}
        self._awaited: set[Request] = set()
        self._under_way: dict[Request, int] = {}  # running, and the newest version that woke it meanwhile
        self._failed: dict[Request, int] = {}  # permanently, until a newer version than this

    # -- changes

    def is_newer(self, request: Request, version: int) -> bool:
        """Whether *version* is newer than the one with which *request* failed for good, if it did."""
        return version > self._failed.get(request, -1)

    def changed(self, request: Request, version: int = ANY_VERSION) -> None:
        """A change to *version* allows *request* to be reconciled again."""
        self._failed.pop(request, None)
        if request in self._under_way:
            self._under_way[request] = max(self._under_way[request], version)

    def await_version(self, request: Request, version: int, *, known: int | None) -> None:
        """The cache is behind *version* of *request*: the change that brings it enqueues it past every predicate.

        *known*: the version that the cache has by now. If it is not behind any more, *request* waits a moment that
        grows: after a restore of etcd every read stays behind the cache until the watch lists anew.
        """
        if known is not None and known >= version:
            self.changed(request)
            self.add_rate_limited(request)
        else:
            self._awaited.add(request)

    def take_awaited(self, request: Request) -> bool:
        """Whether *request* waited for a newer version; from now on it does not."""
        if request not in self._awaited:
            return False
        self._awaited.discard(request)
        return True

    # -- controlled objects that are drained

    def add_drained(self, root: Request, controlled: Request) -> None:
        """Have *controlled* handed over when *root* is taken from the queue."""
        self._drained.setdefault(root, {})[controlled] = None

    def take_drained(self, root: Request) -> Collection[Request]:
        """Controlled objects of *root* that are to be handed over, in their order; they are not named again."""
        return self._drained.pop(root, _NONE) if self._drained else _NONE

    # -- reconciles

    def begin(self, request: Request) -> None:
        """A reconcile of *request* begins: changes from now on are newer than what it sees."""
        self._under_way[request] = -1

    def end(self, request: Request) -> None:
        """The reconcile of *request* is over."""
        self._under_way.pop(request, None)

    def fail_permanently(self, request: Request, version: int) -> None:
        """Do not reconcile *request* until something newer than *version*, which may be an own write, enqueues it."""
        if self._under_way.get(request, -1) <= version:
            self._failed[request] = version

    def has_failed_permanently(self, request: Request) -> bool:
        return request in self._failed
