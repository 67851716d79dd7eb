"""Errors that end a reconcile or a shard: one class per decision that a caller can take."""

from __future__ import annotations

import re

from kubeio.shard.errors import ShardError

_REASON = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}").fullmatch
STATUS_REMEDY = "add `subresources: {status: {}}` to the version in its CustomResourceDefinition"


class PermanentError(ShardError):
    """Raised by a reconciler: no retry until the object, or another one that enqueues it, changes.

    Staged status is written, with the condition `Stalled` (and `Ready` False, if the object has one) under *reason*,
    a reason in CamelCase; a Warning event says the same.
    """

    def __init__(self, message: str = "", *, reason: str = "PermanentError") -> None:
        if not _REASON(reason):
            raise ValueError(
                f"PermanentError(reason={reason!r}): one word in CamelCase is needed, as 'BadSpec'"
            )
        self.reason = reason
        super().__init__(message)


class Refused(ShardError):
    """The server refused a fenced write: the object has another owner, uid or version than the writer knew.

    Nothing was written. The worker reads the object again before it tries again.
    """

    def __init__(self, what: str, *, status: int, message: str) -> None:
        self.what = what
        self.status = status
        self.message = message
        super().__init__(f"{what}: refused with {status}: {message}")


class NotOurs(ShardError):
    """A name that we want to create is taken by an object of another controller, or of none."""

    def __init__(self, what: str, *, controller: str) -> None:
        self.what = what
        self.controller = controller
        owner = f"is controlled by {controller}" if controller else "has no controller"
        super().__init__(f"{what} exists and {owner}; it is left as it is")


class Elsewhere(ShardError):
    """A controlled object of ours still belongs to another shard; it has been asked to pass it on. Try later."""

    def __init__(self, what: str, *, shard: str) -> None:
        self.what = what
        self.shard = shard
        super().__init__(f"{what} belongs to {shard or 'no shard yet'}")


class StatusMissing(ShardError):
    """The server serves no status subresource of the resource: nothing can be written to the status."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} has no status subresource; {STATUS_REMEDY}")


class Overrun(ShardError):
    """A reconcile in a thread went on after its cancellation: its context does nothing more."""


class LeaseNotHeld(ShardError):
    """The shard's Lease is too old for anything to be started."""


class ReconcileTimeout(TimeoutError):
    """A reconcile was cancelled after the controller's `timeout_s`."""
