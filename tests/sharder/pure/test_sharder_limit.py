"""The limit on writes under way against simulated servers: it finds what they carry, without being told."""

from __future__ import annotations

import heapq
import itertools
import random
import statistics
from collections import deque
from collections.abc import Callable
from functools import cache

import pytest

from sharder.ringspec.spec import Pace
from sharder.writing.adaptive_limit import ALLOWANCES, MEASURE_EVERY_S, MOST, AdaptiveLimit

CPU_S = 0.010
OTHER_S = 0.005
FOUND_WITHIN_S = 10.0


class Server:
    """An API server with *cores*: a write needs *cpu_s* of one, in order of arrival, and *other_s* of none.

    The CPU time scatters (gamma, coefficient of variation *noise*); one write in a thousand meets a pause of 50 ms.
    """

    def __init__(
        self, cores: int, *, cpu_s: float = CPU_S, other_s: float = OTHER_S, noise: float = 0.5, seed: int = 1
    ) -> None:
        self.cores, self.cpu_s, self.other_s = cores, cpu_s, other_s
        self.now = 0.0
        self._noise = noise
        self._rng = random.Random(seed)
        self._busy = 0
        self._queue: deque[Callable[[], None]] = deque()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, instant: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (instant, next(self._numbers), event))

    def send(self, on_answer: Callable[[float], None]) -> None:
        """A request; *on_answer* gets the seconds until its answer."""
        sent_at = self.now

        def answer() -> None:
            on_answer(self.now - sent_at)

        def serve() -> None:
            self._queue.append(answer)
            self._serve_next()

        self.at(self.now + self.other_s / 2, serve)

    def _serve_next(self) -> None:
        while self._busy < self.cores and self._queue:
            answer = self._queue.popleft()
            self._busy += 1
            shape = 1 / self._noise**2
            took_s = self._rng.gammavariate(shape, self.cpu_s / shape) + 0.05 * (self._rng.random() < 0.001)

            def end(answer: Callable[[], None] = answer) -> None:
                self._busy -= 1
                self.at(self.now + self.other_s / 2, answer)
                self._serve_next()

            self.at(self.now + took_s, end)

    def send_at_random(
        self, per_s: float, until: float, on_answer: Callable[[float], None] = lambda _: None
    ) -> None:
        """Others: requests at random instants, whatever becomes of them."""
        instant = self.now
        while (instant := instant + self._rng.expovariate(per_s)) < until:
            self.at(instant, lambda: self.send(on_answer))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until


class Writer:
    """Writes of one pace, always as many as the limit allows; of *count* at most."""

    def __init__(
        self, server: Server, limit: AdaptiveLimit | int, pace: Pace = Pace.NORMAL, *, count: int = 10**9
    ) -> None:
        self.server, self.limit, self.pace, self.count = server, limit, pace, count
        self.in_flight = self.done = 0
        self.fill()

    def allowed(self) -> int:
        return self.limit if isinstance(self.limit, int) else self.limit.allowed(self.pace)

    def fill(self) -> None:
        while self.in_flight < min(self.allowed(), self.count):
            self.in_flight += 1
            self.server.send(self._answered)

    def _answered(self, took_s: float) -> None:
        if isinstance(self.limit, AdaptiveLimit):
            self.limit.answered(
                at=self.server.now,
                took_s=took_s,
                in_flight=self.in_flight,
                held_back=self.in_flight < self.count,
            )
        self.in_flight -= 1
        self.done += 1
        self.fill()

    def per_s(self, seconds: float) -> float:
        """Writes per second in the *seconds* that follow."""
        before = self.done
        self.server.run(self.server.now + seconds)
        return (self.done - before) / seconds


@cache
def fixed(cores: int, in_flight: int, *, noise: float = 0.5, others_per_s: float = 0.0) -> float:
    """Writes per second with so many under way all the time."""
    server = Server(cores, noise=noise)
    if others_per_s:
        server.send_at_random(others_per_s, 7.0)
    writer = Writer(server, in_flight)
    server.run(1)
    return writer.per_s(6)


def best(cores: int, *, noise: float = 0.5, others_per_s: float = 0.0) -> float:
    return max(
        fixed(cores, count, noise=noise, others_per_s=others_per_s) for count in (1, 2, 4, 8, 16, 32, MOST)
    )


def fewest(cores: int) -> int:
    """The fewest writes under way that give nine tenths of the best rate."""
    return next(count for count in range(1, MOST) if fixed(cores, count) >= 0.9 * best(cores))


# -- the knee -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.2, 0.5])
@pytest.mark.parametrize(("pace", "part"), [(Pace.BACKGROUND, 0.85), (Pace.NORMAL, 0.9), (Pace.URGENT, 0.9)])
@pytest.mark.parametrize("cores", [1, 2, 8, 32])
def test_it_finds_nearly_the_best_rate_within_ten_seconds(
    cores: int, pace: Pace, part: float, noise: float
) -> None:
    server = Server(cores, noise=noise)
    writer = Writer(server, AdaptiveLimit(), pace)
    server.run(FOUND_WITHIN_S)
    assert writer.per_s(6) >= part * best(cores, noise=noise)


@pytest.mark.parametrize("cores", [1, 2, 8, 32])
def test_the_polite_pace_takes_few_more_than_the_fewest_that_give_that_rate(cores: int) -> None:
    server = Server(cores)
    writer = Writer(server, AdaptiveLimit(), Pace.BACKGROUND)
    server.run(FOUND_WITHIN_S)
    seen = []
    for _ in range(40):
        server.run(server.now + 0.25)
        seen.append(writer.allowed())
    assert statistics.median(seen) <= 1.5 * fewest(cores) + 1


@pytest.mark.parametrize(("pace", "times"), [(Pace.BACKGROUND, 1.5), (Pace.NORMAL, 3), (Pace.URGENT, 5)])
@pytest.mark.parametrize("cores", [2, 8, 32])
def test_others_wait_longer_the_more_urgent_the_pace_is(cores: int, pace: Pace, times: float) -> None:
    def median_wait_s(limit: AdaptiveLimit | None) -> float:
        server, waits = Server(cores), list[float]()
        if limit is not None:
            Writer(server, limit, pace)
            server.run(FOUND_WITHIN_S)
        server.send_at_random(40, server.now + 20, waits.append)
        server.run(server.now + 21)
        return statistics.median(waits)

    assert median_wait_s(AdaptiveLimit()) <= times * median_wait_s(None)


@pytest.mark.parametrize("cores", [2, 8])
def test_a_neighbour_comes_and_goes_and_the_rate_follows_within_ten_seconds(cores: int) -> None:
    half = cores / CPU_S / 2
    server = Server(cores)
    writer = Writer(server, AdaptiveLimit(), Pace.NORMAL)
    server.run(FOUND_WITHIN_S)
    alone = writer.allowed()
    server.send_at_random(half, server.now + FOUND_WITHIN_S + 6)
    server.run(server.now + FOUND_WITHIN_S)
    beside = writer.per_s(6)
    assert beside >= 0.9 * best(cores, others_per_s=half)
    server.run(server.now + FOUND_WITHIN_S)
    assert writer.per_s(6) >= 0.9 * best(cores)
    assert writer.allowed() == pytest.approx(alone, abs=2 + alone // 4)


def test_a_distant_server_is_given_more_and_measured_for_a_small_part_of_the_time() -> None:
    """200 ms on the way: 8 cores carry 168 writes without queueing them, more than may be under way."""
    server = Server(8, other_s=0.2)
    writer = Writer(server, AdaptiveLimit(), Pace.NORMAL)
    server.run(2 * FOUND_WITHIN_S)
    assert writer.allowed() == MOST
    assert writer.per_s(60) >= 0.9 * MOST / (0.2 + CPU_S)


def test_our_own_queue_does_not_pass_for_the_servers_usual_latency() -> None:
    """Ten minutes of full load: without writes on their own the latency alone would creep up, and the limit with it."""
    server = Server(2)
    writer = Writer(server, AdaptiveLimit(), Pace.URGENT)
    server.run(FOUND_WITHIN_S)
    before = writer.allowed()
    server.run(600)
    assert writer.allowed() == pytest.approx(before, abs=3)


def test_a_server_that_becomes_slow_is_given_no_more_than_it_carries() -> None:
    server = Server(8)
    writer = Writer(server, AdaptiveLimit(), Pace.NORMAL)
    server.run(FOUND_WITHIN_S)
    server.cores = 1
    server.run(server.now + FOUND_WITHIN_S)
    assert writer.allowed() <= 5


# -- what it does not do ------------------------------------------------------------------------------------


def test_it_does_not_go_up_while_less_is_wanted_than_it_allows() -> None:
    server, limit = Server(32), AdaptiveLimit()
    Writer(server, limit, Pace.URGENT, count=2)
    server.run(60)
    assert limit.allowed(Pace.URGENT) <= 4


def test_no_pace_ever_has_more_than_the_chart_lets_the_server_queue() -> None:
    server, limit = Server(500, cpu_s=0.001), AdaptiveLimit()
    Writer(server, limit, Pace.URGENT)
    server.run(3)
    assert [limit.allowed(pace) for pace in Pace] == [MOST] * 3


def test_the_first_writes_go_one_at_a_time_and_again_after_some_seconds_of_full_load() -> None:
    server, limit = Server(8), AdaptiveLimit()
    Writer(server, limit, Pace.URGENT)
    alone_at = [0.0]
    while server.now < 4 * MEASURE_EVERY_S:
        server.run(server.now + 0.001)
        if limit.allowed(Pace.URGENT) == 1 and server.now - alone_at[-1] > 1:
            alone_at.append(server.now)
    assert len(alone_at) in (3, 4)
    assert server.now - alone_at[-1] < 1.5 * MEASURE_EVERY_S


def test_paces_are_multiples_of_one_knee() -> None:
    assert ALLOWANCES[Pace.BACKGROUND] < ALLOWANCES[Pace.NORMAL] < ALLOWANCES[Pace.URGENT]
    server, limit = Server(8), AdaptiveLimit()
    Writer(server, limit, Pace.NORMAL)
    server.run(FOUND_WITHIN_S + 0.5)
    assert limit.allowed(Pace.BACKGROUND) < limit.allowed(Pace.NORMAL) < limit.allowed(Pace.URGENT)


# -- refusals -----------------------------------------------------------------------------------------------


def grown() -> tuple[Server, AdaptiveLimit]:
    server, limit = Server(500, cpu_s=0.001), AdaptiveLimit()
    Writer(server, limit, Pace.URGENT)
    server.run(2)
    assert limit.allowed(Pace.URGENT) == MOST
    return server, limit


def test_a_refusal_halves_what_is_allowed_once_however_many_were_sent_before() -> None:
    limit = grown()[1]
    for _ in range(MOST):
        limit.refused(at=3.0, took_s=0.5)
    assert limit.allowed(Pace.URGENT) == MOST // 2
    limit.refused(at=3.2, took_s=0.3)
    assert limit.allowed(Pace.URGENT) == MOST // 2, "sent before the cut"
    limit.refused(at=3.6, took_s=0.3)
    assert limit.allowed(Pace.URGENT) == MOST // 4


def test_a_server_that_refuses_everything_is_tried_with_one_at_a_time() -> None:
    limit = grown()[1]
    for second in range(3, 60):
        limit.refused(at=float(second), took_s=0.01)
    assert [limit.allowed(pace) for pace in Pace] == [1, 1, 1]


def test_it_recovers_after_refusals_step_by_step() -> None:
    server, limit = grown()
    limit.refused(at=server.now, took_s=0.001)
    assert limit.allowed(Pace.URGENT) == MOST // 2
    server.run(server.now + 0.1)
    assert MOST // 2 < limit.allowed(Pace.URGENT) < MOST, "half was enough a moment ago"
    server.run(server.now + 2)
    assert limit.allowed(Pace.URGENT) == MOST
