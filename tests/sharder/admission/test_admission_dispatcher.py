"""Nothing that goes wrong here stops an object from being created. On virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from kubeio.clock import ManualClock
from sharder.admission.dispatcher import DEADLINE_S, Dispatcher
from sharder.admission.metrics import AdmissionMetrics
from sharder.admission.review import AdmissionRequest, Labelled, Skipped, Verdict
from tests.sharder.admission.reviews import answered, review, stored, website
from tests.sharder.pure.views import KEYS

pytestmark = pytest.mark.looptime
PATH = f"/assign/{KEYS.ring}"


class Clerk:
    """A handler that takes its time, and then says or raises what it was told to."""

    def __init__(self, verdict: Verdict | Exception, *, takes_s: float = 0.0) -> None:
        self._verdict = verdict
        self._takes_s = takes_s

    async def verdict(self, asked: AdmissionRequest) -> Verdict:
        await asyncio.sleep(self._takes_s)
        if isinstance(self._verdict, Exception):
            raise self._verdict
        return self._verdict


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def dispatcher(registry: CollectorRegistry) -> Dispatcher:
    return Dispatcher(metrics=AdmissionMetrics(registry), clock=ManualClock())


@pytest.fixture
def counted(registry: CollectorRegistry) -> Callable[[str], float]:
    def value(outcome: str) -> float:
        labels = {"ring": KEYS.ring, "outcome": outcome}
        return registry.get_sample_value("ringleader_admissions_total", labels) or 0.0

    return value


async def test_the_handlers_verdict_is_the_answer(
    dispatcher: Dispatcher, counted: Callable[[str], float]
) -> None:
    obj = website("blog")
    with dispatcher.open(KEYS, Clerk(Labelled("shard-a"))):
        reply = await dispatcher.answer(PATH, review(obj))
    assert reply.status == 200
    assert reply.content_type == "application/json"
    assert stored(obj, reply.body)["metadata"]["labels"] == {KEYS.shard: "shard-a"}
    assert counted("labelled") == 1


async def test_what_takes_too_long_is_allowed_before_the_api_server_gives_up(
    dispatcher: Dispatcher, counted: Callable[[str], float]
) -> None:
    with dispatcher.open(KEYS, Clerk(Labelled("shard-a"), takes_s=60)):
        began = asyncio.get_running_loop().time()
        reply = await dispatcher.answer(PATH, review(website("blog")))
        assert asyncio.get_running_loop().time() - began == DEADLINE_S < 1.0
    assert "patch" not in answered(reply.body)
    assert counted("late") == 1


async def test_a_fault_of_ours_is_allowed(dispatcher: Dispatcher, counted: Callable[[str], float]) -> None:
    with dispatcher.open(KEYS, Clerk(ZeroDivisionError("ours"))):
        reply = await dispatcher.answer(PATH, review(website("blog")))
    assert reply.status == 200
    assert "patch" not in answered(reply.body)
    assert counted("fault") == 1


@pytest.mark.parametrize("left", list(Skipped))
async def test_every_reason_is_counted_under_a_name_of_its_own(
    dispatcher: Dispatcher, counted: Callable[[str], float], left: Skipped
) -> None:
    with dispatcher.open(KEYS, Clerk(left)):
        await dispatcher.answer(PATH, review(website("blog")))
    assert counted(left.name.lower()) == 1


@pytest.mark.parametrize("path", ["/", "/assign", "/assign/", "/assign/other", f"{PATH}/x", "/metrics"])
async def test_another_path_is_not_found(dispatcher: Dispatcher, path: str) -> None:
    with dispatcher.open(KEYS, Clerk(Labelled("shard-a"))):
        assert (await dispatcher.answer(path, review(website("blog")))).status == 404


async def test_a_closed_handler_answers_no_more(dispatcher: Dispatcher) -> None:
    with dispatcher.open(KEYS, Clerk(Labelled("shard-a"))):
        pass
    assert (await dispatcher.answer(PATH, review(website("blog")))).status == 404


async def test_the_next_handler_of_a_ring_is_not_closed_with_the_one_before(dispatcher: Dispatcher) -> None:
    with dispatcher.open(KEYS, Clerk(Labelled("shard-b"))):
        before = dispatcher.open(KEYS, Clerk(Labelled("shard-a")))
        after = dispatcher.open(KEYS, Clerk(Labelled("shard-c")))
        before.__enter__()
        after.__enter__()
        before.__exit__(None, None, None)
        obj = website("blog")
        reply = await dispatcher.answer(PATH, review(obj))
        assert stored(obj, reply.body)["metadata"]["labels"] == {KEYS.shard: "shard-c"}
        after.__exit__(None, None, None)


async def test_what_is_no_review_is_a_bad_request(dispatcher: Dispatcher) -> None:
    with dispatcher.open(KEYS, Clerk(Labelled("shard-a"))):
        assert (await dispatcher.answer(PATH, b"{}")).status == 400


async def test_the_series_of_a_ring_that_is_gone_are_dropped() -> None:
    registry = CollectorRegistry()
    metrics = AdmissionMetrics(registry)
    for ring in ("gone", "kept"):
        metrics.answered(ring, Skipped.WAITS, 0.1)
        metrics.answered(ring, Labelled("shard-a"), 0.1)
    metrics.forget("gone")
    rings = {
        sample.labels["ring"] for found in registry.collect() for sample in found.samples if sample.labels
    }
    assert rings == {"kept"}


async def test_an_answer_for_a_ring_that_went_meanwhile_leaves_no_series_behind(
    registry: CollectorRegistry,
) -> None:
    metrics = AdmissionMetrics(registry)
    dispatcher = Dispatcher(metrics=metrics, clock=ManualClock())
    async with asyncio.TaskGroup() as tasks:
        with dispatcher.open(KEYS, Clerk(Labelled("shard-a"), takes_s=DEADLINE_S / 2)):
            answer = tasks.create_task(dispatcher.answer(PATH, review(website("blog"))))
            await asyncio.sleep(DEADLINE_S / 4)
        metrics.forget(KEYS.ring)
    assert answer.result().status == 200
    series = [sample for metric in registry.collect() for sample in metric.samples if "ring" in sample.labels]
    assert series == []
