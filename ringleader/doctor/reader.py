"""Requests of the doctor, whose failures become gaps in the picture instead of ends.

Owns what a refusal or a failure is told as. A server that does not answer at all, or does not know us, ends the
command: then there is nothing to look at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, TypeVar

from kubeio.errors import Forbidden, InputError, KubeError, Unauthorized, Unreachable
from kubeio.program.failures import failure
from ringleader.doctor.seen import Gap

if TYPE_CHECKING:
    from kubeio.rest.client import Client
    from ringleader.doctor.seen import Seen

T = TypeVar("T")
V = TypeVar("V")
AT_ONCE: Final = 8


class Reader:
    """Reads through *client* for *seen*, each request within *timeout_s*."""

    def __init__(self, client: Client, seen: Seen, *, timeout_s: float) -> None:
        self.client = client
        self.seen = seen
        self.timeout_s = timeout_s
        self._ahead_s = 0.0

    def now(self) -> datetime:
        """The server's clock, as its answers told it; this machine's if they did not."""
        return datetime.now(UTC) - timedelta(seconds=self._ahead_s)

    def learn_clock(self, date: str) -> None:
        """Take the server's clock from a Date header, which is cut to seconds."""
        try:
            told = parsedate_to_datetime(date)
        except ValueError:
            return
        ahead_s = (datetime.now(UTC) - told).total_seconds() - 0.5
        self.seen.local_skew_s = ahead_s
        self._ahead_s = ahead_s if abs(ahead_s) > 1.0 else 0.0  # within what the header can tell

    async def attempt(self, part: str, asked: Awaitable[T]) -> T | None:
        """The answer; None, and a gap called *part*, if there is none. Raises Unreachable, Unauthorized."""
        try:
            return await asked
        except (Unreachable, Unauthorized):
            raise
        except KubeError as error:
            self.seen.gaps[part] = gap(error)
            return None

    async def each(self, things: Iterable[T], work: Callable[[T], Awaitable[V]]) -> list[V]:
        """*work* on all *things*, some at once; results in their order."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(thing: T) -> V:
            async with room:
                return await work(thing)

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(one(thing), name="doctor") for thing in things]
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the server went away: one message, not eight
        return [task.result() for task in running]


def gap(error: KubeError) -> Gap:
    """What *error* leaves unknown, and the rule or step that helps."""
    if isinstance(error, Forbidden) and '"/metrics"' in error.message:
        rule = '{nonResourceURLs: ["/metrics"], verbs: ["get"]}'
        return Gap("the features of the server could not be read", f"add this rule to a ClusterRole: {rule}")
    told = failure(error).message
    if isinstance(error, InputError):
        return Gap(f"{error.field}: {error.value!r} {error.problem}", error.remedy)
    summary, _, remedy = told.partition("; ")
    return Gap(summary, f"add this rule: {remedy}" if isinstance(error, Forbidden) else remedy)
