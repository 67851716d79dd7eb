"""What the work queue promises to workers, on virtual time."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest
from prometheus_client import CollectorRegistry

from kubeio.queues.metrics import QueueCollectors, QueueMetrics
from kubeio.queues.workqueue import Priority, QueueClosed, WorkQueue
from tests.kubeio.virtual import LoopClock, rng

pytestmark = pytest.mark.looptime


def new_queue(metrics: QueueMetrics | None = None, **options: float) -> WorkQueue[str]:
    return WorkQueue(clock=LoopClock(), rng=rng(), metrics=metrics, **options)  # type: ignore[arg-type]  # floats only


async def test_key_added_while_processing_runs_once_more() -> None:
    queue = new_queue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0
    assert queue.processing == frozenset()


async def test_getters_are_served_in_the_order_in_which_they_came() -> None:
    queue = new_queue()
    served: list[tuple[int, str]] = []

    async def worker(number: int) -> None:
        served.append((number, await queue.get()))

    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(worker(number))
        await asyncio.sleep(0)
        for key in ("a", "b", "c"):
            queue.add(key)
    assert served == [(0, "a"), (1, "b"), (2, "c")]


async def test_key_given_to_a_cancelled_getter_goes_to_the_next_one() -> None:
    queue = new_queue()
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == "a"
    assert first.cancelled() or first.cancelling()
    assert queue.processing == {"a"}


@pytest.mark.parametrize("keys", [[], ["a"], ["a", "b"]], ids=len)
async def test_a_cancelled_getter_leaves_the_keys_in_their_places(keys: list[str]) -> None:
    queue = new_queue()
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    for key in keys:
        queue.add(key)
    getter.cancel()
    await asyncio.wait([getter])
    queue.add("last")
    assert [await queue.get() for _ in range(len(queue))] == [*keys, "last"]


@pytest.mark.parametrize("delay_s", [3, 3600.5])
async def test_a_delayed_key_comes_exactly_at_its_time(delay_s: float) -> None:
    queue = new_queue()
    start = asyncio.get_running_loop().time()
    queue.add_after("a", delay_s)
    await queue.get()
    assert asyncio.get_running_loop().time() - start == pytest.approx(delay_s)


async def test_time_spent_suspended_counts_towards_a_delay() -> None:
    clock = LoopClock()
    queue: WorkQueue[str] = WorkQueue(clock=clock, rng=rng())
    loop = asyncio.get_running_loop()
    start = loop.time()
    queue.add_after("a", 3600)
    await asyncio.sleep(1)
    clock.jump(3600)
    await queue.get()
    assert loop.time() - start <= 60


async def test_backoff_doubles_is_bounded_and_is_forgotten() -> None:
    queue = new_queue(base_delay_s=1.0, max_delay_s=8.0)
    loop = asyncio.get_running_loop()
    waits = []
    for _ in range(6):
        start = loop.time()
        queue.add_rate_limited("a")
        await queue.get()
        queue.done("a")
        waits.append(loop.time() - start)
    for wait, full in zip(waits, (1, 2, 4, 8, 8, 8), strict=True):
        assert 0.8 * full - 1e-3 <= wait <= full + 1e-3
    assert len(set(waits)) == len(waits), "jitter makes them differ"
    for forget in (queue.forget, queue.discard):
        queue.add_rate_limited("a")
        assert queue.failures("a") > 0
        forget("a")
        assert queue.failures("a") == 0


async def test_close_wakes_every_waiting_worker() -> None:
    queue = new_queue()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()
    results = await asyncio.gather(*getters, return_exceptions=True)
    assert [type(result) for result in results] == [QueueClosed] * 3


async def test_close_without_drain_drops_what_waits() -> None:
    queue = new_queue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("b")
    queue.close(drain=False)
    queue.done("a")
    with pytest.raises(QueueClosed):
        await queue.get()


async def test_oldest_wait_is_that_of_the_head_and_zero_when_empty() -> None:
    queue = new_queue()
    assert queue.oldest_wait_s() == 0
    queue.add("a")
    await asyncio.sleep(2)
    queue.add("b")
    await asyncio.sleep(1)
    assert queue.oldest_wait_s() == pytest.approx(3)
    await queue.get()
    assert queue.oldest_wait_s() == pytest.approx(1)


async def test_wait_of_a_key_wanted_again_begins_when_it_is_done() -> None:
    queue = new_queue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    await asyncio.sleep(50)
    queue.done("a")
    await asyncio.sleep(1)
    assert queue.oldest_wait_s() == pytest.approx(1)


@pytest.mark.parametrize(("delay_s", "held_bytes"), [(1000, 500_000), (0, 100_000)])
async def test_keys_that_left_do_not_pile_up_in_memory(delay_s: float, held_bytes: int) -> None:
    queue = new_queue()
    queue.add("stays")
    tracemalloc.start()
    try:
        for _ in range(10_000):
            queue.add_after("a", delay_s)
            queue.discard("a")
        assert tracemalloc.get_traced_memory()[0] < held_bytes
    finally:
        tracemalloc.stop()


class Measured:
    """A queue `websites` beside another one, and its samples."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        collectors = QueueCollectors(self.registry)
        self.queue = new_queue(collectors.named("websites"))
        new_queue(collectors.named("other")).add("x")

    def value(self, name: str, **labels: str) -> float | None:
        named = {"name": "websites", "controller": "websites", **labels}
        return self.registry.get_sample_value(f"workqueue_{name}", named)


async def test_metrics_have_the_names_that_dashboards_know() -> None:
    measured = Measured()
    queue, value = measured.queue, measured.value
    for key in ("a", "a", "b"):
        queue.add(key)
    await asyncio.sleep(2)
    await queue.get()
    await asyncio.sleep(3)
    await queue.get()
    assert value("adds_total") == 2
    assert value("queue_duration_seconds_sum") == pytest.approx(2 + 5)
    await asyncio.sleep(1)
    assert value("unfinished_work_seconds") == pytest.approx(4 + 1)
    assert value("longest_running_processor_seconds") == pytest.approx(4)
    queue.done("a")
    queue.add_rate_limited("a")
    assert value("work_duration_seconds_sum") == pytest.approx(4)
    assert value("retries_total") == 1
    assert value("longest_running_processor_seconds") == pytest.approx(1)


async def test_the_histogram_of_waits_has_cumulative_buckets() -> None:
    measured = Measured()
    for key, wait_s in (("a", 2), ("b", 2), ("c", 0)):
        measured.queue.add(key)
        await asyncio.sleep(wait_s)
        await measured.queue.get()
    buckets = [
        measured.value("queue_duration_seconds_bucket", le=le) for le in ("0.0001", "1.0", "2.5", "+Inf")
    ]
    assert buckets == [1, 1, 3, 3]
    assert measured.value("queue_duration_seconds_count") == 3


async def test_depth_is_shown_by_priority() -> None:
    measured = Measured()
    assert measured.value("depth", priority="0") == 0
    measured.queue.add("asked for", priority=Priority.HANDOFF)
    measured.queue.add("changed")
    for key in ("x", "y", "z"):
        measured.queue.add(key, priority=Priority.RESYNC)
    assert [measured.value("depth", priority=level) for level in ("100", "0", "-100")] == [1, 1, 3]


def test_two_sets_of_queues_cannot_share_a_registry() -> None:
    registry = CollectorRegistry()
    QueueCollectors(registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        QueueCollectors(registry)


# -- priorities


async def taken(queue: WorkQueue[str], count: int) -> list[str]:
    keys = [await queue.get() for _ in range(count)]
    for key in keys:
        queue.done(key)
    return keys


async def test_raised_key_has_waited_since_it_was_first_added() -> None:
    queue = new_queue()
    queue.add("a", priority=Priority.RESYNC)
    await asyncio.sleep(5)
    queue.add("a")
    assert queue.oldest_wait_s() == pytest.approx(5)


@pytest.mark.parametrize("busy", [Priority.NORMAL, Priority.HANDOFF])
async def test_no_level_starves_while_higher_ones_never_run_dry(busy: Priority) -> None:
    queue = new_queue()
    low = [priority for priority in Priority if priority < busy]
    for priority in low:
        for number in range(20):
            queue.add(f"{priority.name} {number}", priority=priority)
    since = dict.fromkeys(low, 0)
    for round_ in range(150):
        queue.add(f"busy {round_}", priority=busy)
        (key,) = await taken(queue, 1)
        for priority in low:
            since[priority] = 0 if key.startswith(priority.name) else since[priority] + 1
            assert since[priority] < 10, f"{priority.name} was passed over ten times"
    assert len(queue) > 0


async def test_low_keys_take_no_more_than_their_share() -> None:
    queue = new_queue()
    for number in range(100):
        queue.add(f"low {number}", priority=Priority.RESYNC)
        queue.add(f"high {number}")
    keys = await taken(queue, 90)
    assert sum(key.startswith("high") for key in keys) == 80
