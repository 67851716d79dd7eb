"""OpenTelemetry spans of reconciles and of the writes inside them, for processes that export them.

Owns names and attributes of spans. The program or `opentelemetry-instrument` sets the exporter up.
A process without OpenTelemetry set up pays nothing and imports nothing. Nothing of a trace is ever written into
objects or requests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Protocol

from kubeio.errors import ApiError
from kubeio.models import Meta, ObjectKey
from shard_controller.declare.errors import ShardError
from shard_controller.observe.journal import Outcome

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer


class Traced(Protocol):
    def end(self, outcome: Outcome, error: BaseException | None) -> None:
        """The reconcile is over; *error*: what it ended with. Exactly once, in the task that began it."""


class Tracing(Protocol):
    def reconcile(self, controller: str, resource: str, meta: Meta) -> Traced:
        """A reconcile begins: what is written until its end is below it."""

    def write(
        self, verb: str, resource: str, key: ObjectKey, *, subresource: str = ""
    ) -> AbstractContextManager[None]:
        """Around one write."""


class _Untraced:
    """No span: the reconcile is not traced."""

    def end(self, outcome: Outcome, error: BaseException | None) -> None: ...


class NoTracing:
    """No spans. Cost: two calls per reconcile and one per write, well below a microsecond."""

    def reconcile(self, controller: str, resource: str, meta: Meta) -> Traced:
        return _UNTRACED

    def write(
        self, verb: str, resource: str, key: ObjectKey, *, subresource: str = ""
    ) -> AbstractContextManager[None]:
        return _NOTHING


_UNTRACED = _Untraced()
_NOTHING = nullcontext()
NO_TRACING = NoTracing()


def find_tracing(*, shard: str) -> Tracing:
    """Spans, if this process has set OpenTelemetry up by now; else none. *shard* is told with every reconcile."""
    if "opentelemetry.trace" not in sys.modules:
        return NO_TRACING
    from opentelemetry import trace

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return NO_TRACING
    return Spans(trace.get_tracer("ringleader", _own_version()), shard=shard)


class Spans:
    """Spans by *tracer*. Names have few values; which object it was stands in the attributes."""

    def __init__(self, tracer: Tracer, *, shard: str) -> None:
        self._tracer = tracer
        self._shard = shard

    def reconcile(self, controller: str, resource: str, meta: Meta) -> Traced:
        from opentelemetry import context, trace

        span = self._tracer.start_span(
            f"reconcile {controller}",
            attributes={
                "ringleader.controller": controller,
                "ringleader.shard": self._shard,
                "ringleader.uid": meta.uid,
                "ringleader.resource_version": meta.resource_version,
                **_attributes(resource, meta.key),
            },
        )
        return _Reconcile(span, context.attach(trace.set_span_in_context(span)))

    @contextmanager
    def write(self, verb: str, resource: str, key: ObjectKey, *, subresource: str = "") -> Iterator[None]:
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


class _Reconcile:
    """A span that is the current one of its task until it ends."""

    def __init__(self, span: Span, token: Token[Context]) -> None:
        self._span = span
        self._token = token

    def end(self, outcome: Outcome, error: BaseException | None) -> None:
        from opentelemetry import context, trace

        context.detach(self._token)
        self._span.set_attribute("ringleader.outcome", outcome)
        if outcome == "error" and error is not None:
            if not isinstance(error, ApiError | ShardError):  # the stack of a user's fault
                self._span.record_exception(error)
            told = f"{type(error).__name__}: {error}"
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, told))
        self._span.end()


def _attributes(resource: str, key: ObjectKey) -> dict[str, str]:
    where = {"k8s.namespace.name": key.namespace} if key.namespace else {}
    return {"ringleader.resource": resource, "ringleader.name": key.name, **where}


def _own_version() -> str:
    try:
        return version("ringleader")
    except PackageNotFoundError:  # run from a checkout
        return ""
