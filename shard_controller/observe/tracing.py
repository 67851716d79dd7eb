"""OpenTelemetry spans of reconciles and of the writes inside them, for processes that export them.

Owns names and attributes of spans. The program or `opentelemetry-instrument` sets the exporter up.
A process without OpenTelemetry set up pays nothing and imports nothing. Nothing of a trace is ever written into
objects or requests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from kubeio.errors import ApiError
from kubeio.models import Meta, ObjectKey
from kubeio.shard.errors import ShardError
from shard_controller.declare.request import Request
from shard_controller.observe.observer import Observer, Outcome

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer


def find_spans(*, controller: str, shard: str) -> Spans | None:
    """Spans, if this process has set OpenTelemetry up by now."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    tracer = trace.get_tracer("ringleader", _own_version())
    return Spans(tracer, controller=controller, shard=shard)


class Spans(Observer):
    """Spans by *tracer*: one per reconcile, and one per write below it.

    Names have few values; the attributes name the object.
    """

    def __init__(self, tracer: Tracer, *, controller: str, shard: str) -> None:
        self._tracer = tracer
        self._controller = controller
        self._shard = shard
        self._open: dict[Request, tuple[Span, Token[Context]]] = {}

    def began(self, request: Request, meta: Meta) -> None:
        from opentelemetry import context, trace

        span = self._tracer.start_span(
            f"reconcile {self._controller}",
            attributes={
                "ringleader.controller": self._controller,
                "ringleader.shard": self._shard,
                "ringleader.uid": meta.uid,
                "ringleader.resource_version": meta.resource_version,
                **_attributes(request.resource, request.key),
            },
        )
        self._open[request] = span, context.attach(trace.set_span_in_context(span))

    def ended(
        self, request: Request, outcome: Outcome, error: Exception | None, at: float, took_s: float
    ) -> None:
        from opentelemetry import context, trace

        span, token = self._open.pop(request)
        context.detach(token)
        span.set_attribute("ringleader.outcome", outcome)
        if outcome == "error" and error is not None:
            if not isinstance(error, ApiError | ShardError):  # the stack of a user's fault
                span.record_exception(error)
            text = f"{type(error).__name__}: {error}"
            span.set_status(trace.Status(trace.StatusCode.ERROR, text))
        span.end()

    @contextmanager
    def write(self, verb: str, resource: str, key: ObjectKey, *, subresource: str = "") -> Iterator[None]:
        """A span around one write."""
        from opentelemetry import trace

        attributes = _attributes(resource, key)
        if subresource:
            attributes["ringleader.subresource"] = subresource
        with self._tracer.start_as_current_span(
            f"{verb} {resource}",
            kind=trace.SpanKind.CLIENT,
            attributes=attributes,
            record_exception=False,
        ) as span:
            try:
                yield
            except ApiError as error:
                span.set_attribute("http.response.status_code", error.status)
                span.set_attribute("error.type", error.reason or type(error).__name__)
                raise


def _attributes(resource: str, key: ObjectKey) -> dict[str, str]:
    where = {"k8s.namespace.name": key.namespace} if key.namespace else {}
    return {"ringleader.resource": resource, "ringleader.name": key.name, **where}


def _own_version() -> str:
    try:
        return version("ringleader")
    except PackageNotFoundError:  # run from a checkout
        return ""
