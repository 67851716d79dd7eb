"""A relay that shows each request of its controller, with the status of its answer, to an observer."""

from __future__ import annotations

from collections.abc import Callable

from kubeio.access.cluster import Cluster
from proxy.director import Director
from proxy.headers import Request
from proxy.locks import EchoLocks
from proxy.loopback import Loopback
from proxy.pair import Pair
from proxy.relay import Relay


class ObservedRelay(Relay):
    """Calls *observe* once for each request, when the head of its answer comes. It must raise nothing."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        loopback: Loopback,
        director: Director,
        locks: EchoLocks,
        observe: Callable[[Request, int], None],
    ) -> None:
        super().__init__(cluster, loopback=loopback, director=director, locks=locks)
        self._observe = observe
        self._asked: dict[Pair, Request] = {}

    def handle(self, pair: Pair, request: Request) -> None:
        self._asked[pair] = request
        super().handle(pair, request)

    def answered(self, pair: Pair, status: int) -> None:
        super().answered(pair, status)
        if status >= 200 and (request := self._asked.pop(pair, None)) is not None:
            self._observe(request, status)

    def closed(self, pair: Pair) -> None:
        self._asked.pop(pair, None)
        super().closed(pair)
