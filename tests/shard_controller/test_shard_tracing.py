"""Spans as a backend gets them, of a whole replica in this process; and that nobody pays who has not asked for them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import shard_controller as sc
from devcluster.embedded import Fault
from shard_controller.process import app
from shard_controller.process.settings import Settings
from tests.shard_controller.bench import Bench

ROOT = Path(__file__).parents[2]
EXPORTER = InMemorySpanExporter()


class Spec(msgspec.Struct):
    html: str


class Website(msgspec.Struct):
    spec: Spec


WEBSITES = sc.Resource("websites.example.com/v1", Website)
CONFIGMAPS = sc.Resource("configmaps/v1", dict)


def act(html: str) -> bool:
    """Whether to publish. Raises: ValueError, PermanentError as *html* says."""
    if html == "fail":
        raise ValueError("as asked")
    if html == "give in":
        raise sc.PermanentError("as asked")
    return html == "publish"


@pytest.fixture(scope="module", autouse=True)
def _set_up_once() -> None:
    """As a program does it, before its controller runs."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)


@pytest.fixture(autouse=True)
def _nothing_is_left_over() -> Iterator[None]:
    EXPORTER.clear()
    yield
    EXPORTER.clear()


@asynccontextmanager
async def running(bench: Bench, controller: sc.Controller[Website]) -> AsyncIterator[None]:
    settings = Settings(kubeconfig=str(bench.plane.kubeconfig), namespace="default", member="web-0")
    replica = asyncio.create_task(app.serve(controller, sc.Single(), settings))
    try:
        yield
    finally:
        replica.cancel()
        assert await replica == 0


def async_controller() -> sc.Controller[Website]:
    controller = sc.Controller(WEBSITES, owns=[CONFIGMAPS], name="sites")

    @controller.reconcile
    async def publish(ctx: sc.Context[Website]) -> sc.Result:
        if act(ctx.object.spec.html):
            await ctx.apply(CONFIGMAPS, ctx.name, {"data": {"page": "hello"}})
        ctx.conditions.set("Ready", True, "Acted")
        return sc.Done()

    return controller


def sync_controller() -> sc.Controller[Website]:
    controller = sc.Controller(WEBSITES, owns=[CONFIGMAPS], name="sites")

    @controller.reconcile
    def publish(ctx: sc.SyncContext[Website]) -> sc.Result:
        with trace.get_tracer("user").start_as_current_span("of the user"):
            if act(ctx.object.spec.html):
                ctx.apply(CONFIGMAPS, ctx.name, {"data": {"page": "hello"}})
        ctx.conditions.set("Ready", True, "Acted")
        return sc.Done()

    return controller


def spans(prefix: str) -> list[ReadableSpan]:
    return [span for span in EXPORTER.get_finished_spans() if span.name.startswith(prefix)]


async def first_reconcile(bench: Bench, **wanted: str) -> ReadableSpan:
    """The first span of a reconcile with the attributes *wanted*, once it has ended."""

    def found() -> list[ReadableSpan]:
        named = {f"ringleader.{name}": value for name, value in wanted.items()}
        return [span for span in spans("reconcile ") if named.items() <= dict(span.attributes or {}).items()]

    await bench.until(found)
    return found()[0]


async def test_a_reconcile_is_a_span_and_its_writes_are_below_it(bench: Bench) -> None:
    site = await bench.site("blog", "publish")
    async with running(bench, async_controller()):
        parent = await first_reconcile(bench, name="blog", outcome="done")
    attributes = dict(parent.attributes or {})
    assert parent.name == "reconcile sites"
    assert attributes == {
        "ringleader.controller": "sites",
        "ringleader.shard": "web-0",
        "ringleader.resource": "websites.example.com",
        "ringleader.name": "blog",
        "ringleader.uid": site["metadata"]["uid"],
        "ringleader.resource_version": site["metadata"]["resourceVersion"],
        "ringleader.outcome": "done",
        "k8s.namespace.name": "default",
    }
    assert parent.status.status_code is trace.StatusCode.UNSET
    assert parent.context is not None
    below = [
        span
        for span in EXPORTER.get_finished_spans()
        if span.parent is not None and span.parent.span_id == parent.context.span_id
    ]
    assert [(span.name, span.kind) for span in below] == [
        ("create configmaps", trace.SpanKind.CLIENT),
        ("patch websites.example.com", trace.SpanKind.CLIENT),
    ]
    assert dict(below[1].attributes or {})["ringleader.subresource"] == "status"


async def test_a_failure_shows_with_its_stack_and_a_permanent_one_without(bench: Bench) -> None:
    await bench.site("bad", "fail")
    await bench.site("hopeless", "give in")
    async with running(bench, async_controller()):
        bad = await first_reconcile(bench, name="bad", outcome="error")
        hopeless = await first_reconcile(bench, name="hopeless", outcome="error")
    assert bad.status.status_code is hopeless.status.status_code is trace.StatusCode.ERROR
    assert bad.status.description == "ValueError: as asked"
    assert [event.name for event in bad.events] == ["exception"]
    assert "in act" in str(dict(bad.events[0].attributes or {})["exception.stacktrace"])
    assert hopeless.events == ()


async def test_a_refused_write_shows_the_answer_of_the_server(bench: Bench) -> None:
    site = await bench.site("blog", "publish")
    await bench.plane.faults.add(Fault(what="error", verb="create", resource="configmaps", code=403))
    async with running(bench, async_controller()):
        await first_reconcile(bench, uid=site["metadata"]["uid"], outcome="error")
    refused = spans("create configmaps")[0]
    assert dict(refused.attributes or {})["http.response.status_code"] == 403


async def test_spans_of_a_function_in_a_thread_are_below_its_reconcile(bench: Bench) -> None:
    await bench.site("blog", "publish")
    async with running(bench, sync_controller()):
        parent = await first_reconcile(bench, name="blog", outcome="done")
    assert parent.context is not None
    own = spans("of the user")[0]
    create = spans("create configmaps")[0]
    assert own.parent is not None
    assert own.parent.span_id == parent.context.span_id
    assert create.parent is not None
    assert own.context is not None
    assert create.parent.span_id == own.context.span_id


async def test_nothing_of_a_trace_gets_into_objects(bench: Bench) -> None:
    await bench.site("blog", "publish")
    async with running(bench, async_controller()):
        parent = await first_reconcile(bench, name="blog", outcome="done")
    assert parent.context is not None
    trace_id = f"{parent.context.trace_id:032x}"
    for plural in ("websites", "configmaps"):
        assert trace_id not in str(await bench.get(plural, "blog"))


def test_a_process_that_did_not_ask_for_spans_imports_nothing() -> None:
    program = (
        "import sys, shard_controller.process.replica\n"
        "from shard_controller.observe.tracing import find_spans\n"
        "assert find_spans(controller='c', shard='x') is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "import opentelemetry.trace\n"
        "assert find_spans(controller='c', shard='x') is None, 'the API alone exports nothing'\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
