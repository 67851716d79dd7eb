"""Missing permissions per resource of a ring: recorded, reported, retried. Other resources are not affected.

The component that runs a list or watch retries it when it is refused or fails. A patch that is refused closes its
resource in that namespace. So do patches that fail (5xx) for a while, if none of them succeeds. The objects stay where
they are until one of them, tried every few seconds, is accepted. Fed by `unowned`, `handoffs`, `scan` and `objects`,
read by the status. Only `try_again` waits; the clock is passed in.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeio.errors import Forbidden
from kubeio.program.failures import failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubeio.errors import KubeError

TRY_AGAIN_S: Final = 5.0
"""A missing permission counts as missing for this long; then it is tried again."""
FORGET_S: Final = 60.0
"""A permission that no request needed for so long is not reported any more."""
CLOSED_AFTER_S: Final = 3.0
CLOSED_AFTER: Final = 3
"""So many patches in a row that fail (5xx), over so long, close a resource: a blip of etcd closes nothing."""
FAILING_S: Final = 10.0
"""A resource that failed for so long without a success is reported."""
_TRIES: Final = 10
"""Rights that are tried again at once."""

_VERB = re.compile(r'cannot (?P<verb>[a-z]+) resource "')


class Permission(NamedTuple):
    """*verb* on *resource* (`websites.example.com`) in *namespace* (empty: in the whole cluster)."""

    verb: str
    resource: str
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{where}"


@dataclass(slots=True)
class _Denial:
    """One permission that was refused; *again_at*: the next try is due."""

    message: str
    refused_at: float
    again_at: float


@dataclass(slots=True)
class _Failing:
    """Requests that fail since *since*, *times* in a row, the last time at *failed_at*."""

    message: str
    since: float
    failed_at: float
    times: int
    again_at: float

    @property
    def closes(self) -> bool:
        return self.times >= CLOSED_AFTER and self.failed_at - self.since >= CLOSED_AFTER_S


class MissingPermissions:
    """The rights that are missing at the moment. *on_change*(right, is_missing) is called when that changes."""

    def __init__(self, *, now: Callable[[], float], on_change: Callable[[Permission, bool], None]) -> None:
        self._now = now
        self._on_change = on_change
        self._missing: dict[Permission, _Denial] = {}
        self._failing: dict[Permission, _Failing] = {}

    def __len__(self) -> int:
        return len(self._missing)

    def failed(self, right: Permission, error: KubeError) -> None:
        """The server refused *right*, or the verb that it names instead, or could not carry the request out."""
        if isinstance(error, Forbidden):
            found = _VERB.search(error.message)
            self._denied(right._replace(verb=found["verb"]) if found else right, error)
        else:
            self._broken(right, error)

    def _denied(self, right: Permission, error: Forbidden) -> None:
        known = self._missing.get(right)
        now = self._now()
        self._missing[right] = _Denial(failure(error).message, now, now + TRY_AGAIN_S)
        if known is None:
            self._on_change(right, True)

    def granted(self, right: Permission) -> None:
        """The server accepted *right*; costs nothing while nothing is missing or fails."""
        failing = self._failing.pop(right, None) if self._failing else None
        missing = self._missing.pop(right, None) if self._missing else None
        if missing is not None or (failing is not None and failing.closes):
            self._on_change(right, False)

    def _broken(self, right: Permission, error: KubeError) -> None:
        """The server could not carry out *right*: 5xx, a conversion webhook, a request line that is too long."""
        now = self._now()
        known = self._failing.get(right)
        if known is None or now - known.failed_at > FORGET_S:
            known = self._failing[right] = _Failing("", now, now, 0, now)
        known.message, known.failed_at, known.again_at = failure(error).message, now, now + TRY_AGAIN_S
        known.times += 1

    def is_failing(self, right: Permission) -> bool:
        """Whether the last request that needed *right* failed: another failure says nothing new of the server."""
        return right in self._failing

    def may_try(self, right: Permission) -> bool:
        """Whether a request that needs *right* makes sense now: one every few seconds while it is closed."""
        if not self._missing and not self._failing:
            return True
        now = self._now()
        failing = self._failing.get(right)
        closed = self._missing.get(right) or (failing if failing is not None and failing.closes else None)
        if closed is None:
            return True
        if now < closed.again_at:
            return False
        closed.again_at = now + TRY_AGAIN_S
        return True

    def due(self, verb: str) -> list[Permission]:
        """Rights to *verb* that should be tried again, those that were tried longest ago first."""
        now = self._now()
        refused_at = {
            right: denial.refused_at for right, denial in self._missing.items() if denial.again_at <= now
        }
        failed_at = {
            right: failing.failed_at
            for right, failing in self._failing.items()
            if failing.closes and failing.again_at <= now
        }
        found = refused_at | failed_at
        return sorted((right for right in found if right.verb == verb), key=found.__getitem__)

    def forget_old(self) -> None:
        """Drop what nothing has asked for in a while."""
        now = self._now()
        refused = [right for right, found in self._missing.items() if now - found.refused_at > FORGET_S]
        failed = [right for right, found in self._failing.items() if now - found.failed_at > FORGET_S]
        for right in (*refused, *failed):
            self.granted(right)

    def failures(self) -> list[str]:
        """Requests that have failed for a while, with the server's messages."""
        now = self._now()
        return [
            f"{right}: {found.message}"
            for right, found in sorted(self._failing.items())
            if now - found.failed_at <= FORGET_S and found.failed_at - found.since >= FAILING_S
        ]

    def messages(self) -> list[str]:
        """Missing permissions, one text for each verb and resource: namespace, and the rule that grants it."""
        rights: dict[tuple[str, str], list[Permission]] = {}
        for right in sorted(self._missing):
            rights.setdefault((right.verb, right.resource), []).append(right)
        return [
            f"{verb} {resource}: {self._missing[found[0]].message}{_elsewhere(len(found) - 1)}"
            for (verb, resource), found in rights.items()
        ]


def _elsewhere(count: int) -> str:
    return f" (and in {count} more namespaces)" if count else ""


async def try_again(permissions: MissingPermissions, enqueue_some: Callable[[str, str], None]) -> None:
    """Have an object written for each resource that is closed to patches, every few seconds, until cancelled."""
    while True:
        await asyncio.sleep(TRY_AGAIN_S)
        permissions.forget_old()
        for right in permissions.due("patch")[:_TRIES]:
            enqueue_some(right.resource, right.namespace)


def is_missing_right(error: Forbidden) -> bool:
    """Whether the authorizer refused, by its usual message; else some admission did, for what the object is."""
    return _VERB.search(error.message) is not None
