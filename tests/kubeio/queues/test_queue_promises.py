"""What the work queue promises to workers, on virtual time."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest
from prometheus_client import CollectorRegistry

from kubeio.queues.metrics import QueueCollectors
from kubeio.queues.workqueue import Priority, QueueClosed, WorkQueue
from tests.kubeio.virtual import LoopClock, rng

pytestmark = pytest.mark.looptime


def new_queue(**options: float) -> WorkQueue[str]:
    return WorkQueue(clock=LoopClock(), rng=rng(), **options)  # type: ignore[arg-type]  # floats only


async def test_keys_come_out_in_the_order_in_which_they_were_first_added() -> None:
    queue = new_queue()
    for key in ("a", "b", "a", "c", "b"):
        queue.add(key)
    assert [await queue.get() for _ in range(len(queue))] == ["a", "b", "c"]


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
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == "a"
    assert first.cancelled() or first.cancelling()
    assert queue.processing == {"a"}


async def test_key_given_to_a_cancelled_getter_keeps_its_place_at_the_head() -> None:
    queue = new_queue()
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    getter.cancel()
    await asyncio.wait([getter])
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_a_getter_cancelled_while_nothing_came_loses_no_key() -> None:
    queue = new_queue()
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    getter.cancel()
    queue.add("a")
    assert await queue.get() == "a"


async def test_delayed_key_comes_at_its_time_and_of_several_times_the_earliest_counts() -> None:
    queue = new_queue()
    loop = asyncio.get_running_loop()
    start = loop.time()
    queue.add_after("a", 10)
    queue.add_after("b", 5)
    queue.add_after("a", 3)
    queue.add_after("a", 30)
    assert queue.delayed == 2
    assert await queue.get() == "a"
    assert loop.time() - start == pytest.approx(3)
    assert await queue.get() == "b"
    assert loop.time() - start == pytest.approx(5)
    queue.done("a")
    await asyncio.sleep(60)
    assert len(queue) == 0
    assert queue.delayed == 0


async def test_delays_beyond_a_minute_are_kept_exactly() -> None:
    queue = new_queue()
    loop = asyncio.get_running_loop()
    start = loop.time()
    queue.add_after("a", 3600.5)
    await queue.get()
    assert loop.time() - start == pytest.approx(3600.5)


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
    assert queue.failures("a") == 6
    queue.forget("a")
    assert queue.failures("a") == 0


async def test_close_hands_out_what_waits_and_then_ends_the_workers() -> None:
    queue = new_queue()
    queue.add("a")
    queue.add("b")
    queue.add_after("later", 1)
    assert await queue.get() == "a"
    queue.add("a")
    queue.close()
    queue.add("c")
    queue.add_after("d", 0)
    assert await queue.get() == "b"
    queue.done("a")
    assert await queue.get() == "a"
    with pytest.raises(QueueClosed):
        await queue.get()
    await asyncio.sleep(10)
    with pytest.raises(QueueClosed):
        await queue.get()


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


async def test_discarded_key_comes_neither_now_nor_later_nor_again() -> None:
    queue = new_queue()
    queue.add("now")
    queue.add_rate_limited("later")
    queue.add("again")
    assert await queue.get() == "now"
    assert await queue.get() == "again"
    queue.add("again")
    queue.add("now")
    for key in ("now", "later", "again"):
        queue.discard(key)
        queue.done(key)
    await asyncio.sleep(10)
    assert len(queue) == 0
    assert queue.delayed == 0
    assert queue.failures("later") == 0


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


async def test_superseded_delays_do_not_pile_up_in_memory() -> None:
    queue = new_queue()
    tracemalloc.start()
    try:
        for _ in range(10_000):
            queue.add_after("a", 1000)
            queue.discard("a")
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 500_000


async def test_metrics_have_the_names_that_dashboards_know() -> None:
    registry = CollectorRegistry()
    collectors = QueueCollectors(registry)
    queue: WorkQueue[str] = WorkQueue(clock=LoopClock(), rng=rng(), metrics=collectors.named("websites"))
    other: WorkQueue[str] = WorkQueue(clock=LoopClock(), rng=rng(), metrics=collectors.named("other"))
    other.add("x")

    def value(name: str) -> float | None:
        return registry.get_sample_value(name, {"name": "websites", "controller": "websites"})

    queue.add("a")
    queue.add("a")
    queue.add("b")
    await asyncio.sleep(2)
    await queue.get()
    await asyncio.sleep(3)
    await queue.get()
    assert value("workqueue_adds_total") == 2
    assert value("workqueue_queue_duration_seconds_sum") == pytest.approx(2 + 5)
    await asyncio.sleep(1)
    assert value("workqueue_unfinished_work_seconds") == pytest.approx(4 + 1)
    assert value("workqueue_longest_running_processor_seconds") == pytest.approx(4)
    queue.done("a")
    queue.add_rate_limited("a")
    assert value("workqueue_work_duration_seconds_sum") == pytest.approx(4)
    assert value("workqueue_retries_total") == 1
    assert value("workqueue_longest_running_processor_seconds") == pytest.approx(1)
    assert (
        registry.get_sample_value(
            "workqueue_depth", {"name": "other", "controller": "other", "priority": "0"}
        )
        == 1
    )
    assert (
        registry.get_sample_value(
            "workqueue_depth", {"name": "websites", "controller": "websites", "priority": "0"}
        )
        == 0
    )


async def test_the_histogram_of_waits_has_cumulative_buckets() -> None:
    registry = CollectorRegistry()
    metrics = QueueCollectors(registry).named("websites")
    queue: WorkQueue[str] = WorkQueue(clock=LoopClock(), rng=rng(), metrics=metrics)
    for key in ("a", "b"):
        queue.add(key)
        await asyncio.sleep(2)
        await queue.get()
    queue.add("c")
    await queue.get()

    def below(bound: str) -> float | None:
        return registry.get_sample_value(
            "workqueue_queue_duration_seconds_bucket",
            {"name": "websites", "controller": "websites", "le": bound},
        )

    assert [below(bound) for bound in ("0.0001", "1.0", "2.5", "+Inf")] == [1, 1, 3, 3]
    assert (
        registry.get_sample_value(
            "workqueue_queue_duration_seconds_count", {"name": "websites", "controller": "websites"}
        )
        == 3
    )


async def test_depth_is_told_by_priority() -> None:
    registry = CollectorRegistry()
    queue: WorkQueue[str] = WorkQueue(
        clock=LoopClock(), rng=rng(), metrics=QueueCollectors(registry).named("websites")
    )
    queue.add("asked for", priority=Priority.HANDOFF)
    queue.add("changed")
    for key in ("x", "y", "z"):
        queue.add(key, priority=Priority.RESYNC)
    depths = [
        registry.get_sample_value(
            "workqueue_depth", {"name": "websites", "controller": "websites", "priority": priority}
        )
        for priority in ("100", "0", "-100")
    ]
    assert depths == [1, 1, 3]


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


async def test_handoffs_go_before_changes_and_changes_before_resyncs() -> None:
    queue = new_queue()
    queue.add("same", priority=Priority.RESYNC)
    queue.add("changed")
    queue.add("asked for", priority=Priority.HANDOFF)
    assert await taken(queue, 3) == ["asked for", "changed", "same"]


async def test_waiting_key_is_raised_to_the_end_of_the_higher_level_and_comes_once() -> None:
    queue = new_queue()
    for key in ("a", "b"):
        queue.add(key, priority=Priority.RESYNC)
    queue.add("c")
    queue.add("a")
    assert await taken(queue, len(queue)) == ["c", "a", "b"]


async def test_waiting_key_is_never_lowered() -> None:
    queue = new_queue()
    queue.add("a", priority=Priority.HANDOFF)
    queue.add("b", priority=Priority.HANDOFF)
    queue.add("a", priority=Priority.RESYNC)
    queue.add("a")
    assert await taken(queue, len(queue)) == ["a", "b"]


async def test_raised_key_has_waited_since_it_was_first_added() -> None:
    queue = new_queue()
    queue.add("a", priority=Priority.RESYNC)
    await asyncio.sleep(5)
    queue.add("a")
    assert queue.oldest_wait_s() == pytest.approx(5)


async def test_key_wanted_again_comes_with_the_highest_priority_asked_for_meanwhile() -> None:
    queue = new_queue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("b")
    queue.add("a", priority=Priority.RESYNC)
    queue.add("a", priority=Priority.HANDOFF)
    queue.add("a")
    queue.done("a")
    assert await taken(queue, 2) == ["a", "b"]


async def test_delayed_key_comes_at_the_earliest_time_with_the_highest_priority_asked_for() -> None:
    queue = new_queue()
    loop = asyncio.get_running_loop()
    start = loop.time()
    queue.add_after("a", 5, priority=Priority.RESYNC)
    queue.add_after("a", 9, priority=Priority.HANDOFF)
    assert queue.delayed == 1
    await asyncio.sleep(4.9)
    queue.add("b")
    await asyncio.sleep(0.2)
    assert await taken(queue, 2) == ["a", "b"]
    assert loop.time() - start == pytest.approx(5.1)
    await asyncio.sleep(10)
    assert len(queue) == 0


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


async def test_key_that_was_discarded_and_added_again_has_lost_its_place() -> None:
    queue = new_queue()
    for key in ("a", "b", "c"):
        queue.add(key)
    queue.discard("a")
    queue.add("a")
    queue.discard("b")
    queue.add("b")
    assert await taken(queue, 3) == ["c", "a", "b"]


async def test_keys_that_left_do_not_pile_up_in_memory() -> None:
    queue = new_queue()
    queue.add("stays")
    tracemalloc.start()
    try:
        for _ in range(10_000):
            queue.add("a")
            queue.discard("a")
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 100_000
