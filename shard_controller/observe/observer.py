"""Observers of reconciles: metrics, history, journal, spans and log get each event once, through one interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kubeio.errors import ApiError
from kubeio.models import Meta
from shard_controller.declare.request import Request

Outcome = Literal["done", "requeue", "error", "cancelled", "lost"]


class Observer:
    """Events of one controller. An observer overrides those that it needs; it must neither wait nor raise."""

    def began(self, request: Request, meta: Meta) -> None:
        """A reconcile of the version *meta* begins."""

    def ended(
        self, request: Request, outcome: Outcome, error: Exception | None, at: float, took_s: float
    ) -> None:
        """The reconcile is over: in the task that began it, *at* a time of `time.perf_counter`.

        *error*: the reason to try again or to give up; None if the outcome was asked for.
        """

    def unfit(self, request: Request, meta: Meta, error: Exception) -> None:
        """The object does not fit the model: there is no reconcile of the version *meta*."""

    def refused(self, request: Request, error: ApiError) -> None:
        """The fence refused a write to *request*, an object of any resource of the tree."""


Observers = Sequence[Observer]
