"""Log of reconciles: errors that need a person at error, retries at info, every end at debug."""

from __future__ import annotations

import logging
from typing import Final

import structlog

from kubeio.errors import ApiError, Conflict, KubeError
from kubeio.models import Meta
from kubeio.shard.errors import ShardError
from shard_controller.declare.errors import Elsewhere, LeaseNotHeld, PermanentError, Refused
from shard_controller.declare.request import Request
from shard_controller.observe.observer import Observer, Outcome

_RETRIED: Final[tuple[tuple[type[Exception], str], ...]] = (
    (Refused, "ownership in doubt"),
    (LeaseNotHeld, "ownership in doubt"),
    (Conflict, "another client wrote first"),
    (Elsewhere, "controlled object is elsewhere"),
)


class ReconcileLog(Observer):
    """Writes to *log*, which names the controller."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._shows_all = log.is_enabled_for(logging.DEBUG)

    def ended(
        self, request: Request, outcome: Outcome, error: Exception | None, at: float, took_s: float
    ) -> None:
        if error is None and not self._shows_all:
            return
        log = self._log.bind(object=str(request.key))
        if isinstance(error, PermanentError):
            log.error("reconcile failed for good", error=str(error), reason=error.reason)
        elif error is not None and outcome == "error":
            text = f"{type(error).__name__}: {error}"
            log.error("reconcile failed", error=text, exc_info=_trace(error))
        elif error is not None:
            event = next(
                (text for kind, text in _RETRIED if isinstance(error, kind)), "reconcile is repeated"
            )
            log.info(event, error=str(error))
        log.debug("reconciled", outcome=outcome, took_s=round(took_s, 4))

    def unfit(self, request: Request, meta: Meta, error: Exception) -> None:
        self._log.error(
            "object does not fit the model",
            object=str(request.key),
            error=str(error),  # the field and its type; never the value: it may be a Secret's
            version=meta.resource_version,
            remedy="correct the object, or give the model's field a default",
        )

    def refused(self, request: Request, error: ApiError) -> None:
        self._log.warning("write refused", object=str(request), status=error.status)


def _trace(error: BaseException) -> BaseException | None:
    """Exception to log with its stack: *error* of users' code; None if its text says all: refusals and timeouts."""
    return None if isinstance(error, KubeError | ShardError | TimeoutError) else error
