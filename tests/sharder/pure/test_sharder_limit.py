"""The limit on writes under way against servers that are known: it finds what they take, without being told."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from sharder.writing.limit import FEW, FIRST, MEASURE_EVERY_S, MOST, PATIENCE, SOON_S, Limit

WIDE = 64
"""A limit with room to move: how it moves is the same whatever it may reach."""


@dataclass
class Server:
    """Carries writes out *workers* at a time, each for *service_s*; the rest queue. Always as many as allowed."""

    limit: Limit
    workers: int = 4
    service_s: float = 0.004
    now: float = 0.0
    done: int = 0
    most: int = 0
    _free_at: list[float] = field(default_factory=list)
    _under_way: list[tuple[float, float]] = field(default_factory=list)

    def run(self, until: float, *, wanted: Callable[[], int] | None = None) -> None:
        while self.now < until:
            while len(self._under_way) < min(self.limit.value, wanted() if wanted else self.limit.value):
                self._send()
            ends_at, begun_at = heapq.heappop(self._under_way)
            self.now = ends_at
            self.done += 1
            self.limit.answered(at=ends_at, took_s=ends_at - begun_at, in_flight=len(self._under_way) + 1)
            self.most = max(self.most, self.limit.value)

    def _send(self) -> None:
        while len(self._free_at) < self.workers:
            self._free_at.append(0.0)
        begins_at = max(heapq.heappop(self._free_at), self.now)
        ends_at = begins_at + self.service_s
        heapq.heappush(self._free_at, ends_at)
        heapq.heappush(self._under_way, (ends_at, self.now))


def test_it_goes_up_while_answers_come_in_time_and_the_limit_is_what_holds_back() -> None:
    server = Server(Limit(most=WIDE), workers=200)
    server.run(1)
    assert server.limit.value == WIDE


def test_a_server_with_room_for_hundreds_is_given_eight_at_most() -> None:
    """Everybody else at that server waits behind what is under way."""
    server = Server(Limit(), workers=200)
    server.run(2 * MEASURE_EVERY_S)
    assert server.most == MOST == 8


def test_it_does_not_go_up_while_less_is_wanted_than_it_allows() -> None:
    server = Server(Limit(most=WIDE), workers=200)
    server.run(30, wanted=lambda: FIRST - 2)
    assert server.limit.value == FIRST


def test_it_stops_where_the_server_only_queues() -> None:
    """4 workers of 4 ms take 1,000/s; with more than 160 in flight a write would take 40 times its own length."""
    server = Server(Limit(most=1000))
    server.run(60)
    assert server.limit.value == pytest.approx(PATIENCE * server.workers, rel=0.1)
    assert server.done / server.now == pytest.approx(1000, rel=0.01), "the server was never idle"


def test_a_quick_server_is_given_no_less_for_small_latencies() -> None:
    """2 workers of half a millisecond: many times that is still no time at all."""
    server = Server(Limit(most=WIDE), workers=2, service_s=0.0005)
    server.run(20)
    assert server.limit.value == pytest.approx(SOON_S / server.service_s * server.workers, rel=0.2) or (
        server.limit.value == WIDE
    )


def test_our_own_queue_does_not_pass_for_the_servers_usual_latency() -> None:
    """Ten minutes of full load: without an unhurried moment the baseline would creep up, and the limit with it."""
    server = Server(Limit(most=1000), workers=2, service_s=0.004)
    server.run(3 * MEASURE_EVERY_S)
    before = server.limit.value
    server.run(20 * MEASURE_EVERY_S)
    assert server.limit.value == pytest.approx(before, abs=4)
    assert server.limit.value < 250


def test_a_server_that_becomes_slow_is_given_less_within_a_second_and_more_once_that_is_usual() -> None:
    server = Server(Limit(most=WIDE), workers=64)
    server.run(5)
    assert server.limit.value == WIDE
    server.service_s = 0.5
    server.run(8.5)
    assert server.limit.value <= FEW + 1
    server.run(5 + 8 * MEASURE_EVERY_S)
    assert server.limit.value == WIDE, "it is slow for everybody, not because of us"


def test_latency_alone_leaves_a_few_in_flight() -> None:
    server = Server(Limit(most=WIDE), workers=64)
    server.run(1)
    for _ in range(1000):
        server.limit.answered(at=2.0, took_s=0.9, in_flight=server.limit.value)
    assert server.limit.value == FEW


def test_a_refusal_halves_it_once_however_many_were_sent_before() -> None:
    limit = Limit(first=32, most=WIDE)
    for _ in range(32):
        limit.refused(at=1.0, took_s=0.5)
    assert limit.value == 16
    limit.refused(at=1.2, took_s=0.3)
    assert limit.value == 16, "sent before the cut"
    limit.refused(at=1.6, took_s=0.3)
    assert limit.value == 8


def test_a_server_that_refuses_everything_is_tried_with_one_at_a_time() -> None:
    limit = Limit()
    for second in range(60):
        limit.refused(at=float(second), took_s=0.01)
    assert limit.value == 1


def test_it_recovers_after_refusals_step_by_step() -> None:
    server = Server(Limit(most=WIDE), workers=200)
    server.run(2)
    server.limit.refused(at=2.0, took_s=0.001)
    assert server.limit.value == WIDE // 2
    server.run(2.02)
    assert WIDE // 2 < server.limit.value < WIDE // 2 + 8, "not doubled: half was enough a moment ago"
    server.run(4)
    assert server.limit.value == WIDE
