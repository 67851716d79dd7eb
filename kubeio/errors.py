"""Errors of access to an API server: one class per decision a caller can take.

HTTP failures become these classes once, in `kubeio.rest.answers`; ERROR events, in `kubeio.watches.watch_events`.
Callers match classes rather than status codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, overload

E = TypeVar("E", bound=BaseException)


class KubeError(Exception):
    """Root of everything that `kubeio` raises."""


class InputError(KubeError):
    """Something a person wrote cannot be used: a flag, a file, a field. Commands print it and exit with 2.

    *field* says where, *value* what stands there, *remedy* what to write instead. A flag without a value of its own
    (None, True, False) is named alone.
    """

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        self.field = field
        self.value = value
        self.problem = problem
        self.remedy = remedy
        has_value = value is not None and not isinstance(value, bool)
        shown = field if field.startswith("-") and not has_value else f"{field}: {value!r}"
        super().__init__(f"{shown} {problem}; {remedy}")


class Unreachable(KubeError):
    """The request got no answer: refused, reset, timed out, or TLS failed.

    *maybe_done* is true when the request had been sent: the server may have carried it out.
    """

    def __init__(self, attempted: str, reason: str, *, maybe_done: bool) -> None:
        self.attempted = attempted
        self.reason = reason
        self.maybe_done = maybe_done
        super().__init__(f"{attempted}: {reason}")


class ApiError(KubeError):
    """The server answered with a failure `Status`."""

    def __init__(
        self,
        attempted: str,
        *,
        status: int,
        reason: str = "",
        message: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        self.attempted = attempted
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        super().__init__(f"{attempted}: {status} {reason}: {message}")


class BadRequest(ApiError):
    """400, 405, 406, 413, 415: the request itself is wrong; it will fail again."""


class Unauthorized(ApiError):
    """401: the server does not know who we are; fresh credentials did not help."""


class Forbidden(ApiError):
    """403: the account lacks a right; the message names verb and resource."""


class NotFound(ApiError):
    """404: no such object, or no such resource."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: a CREATE met its own name."""


class Conflict(ApiError):
    """409: a precondition (resourceVersion, uid) failed; read again and decide anew."""


class Expired(ApiError):
    """410: the version or continue token is older than the server's history; list again.

    *continue_*: the token that goes on after the last page, of a newer version; empty if the server gave none.
    """

    continue_ = ""


class Invalid(ApiError):
    """422: a JSON Patch `test` failed or validation refused the object. Never retried blindly."""


class TooManyRequests(ApiError):
    """429: come back after `retry_after_s`."""


class ServerFailure(ApiError):
    """5xx: the server is unwell; retry with back-off."""


class HistoryWentBack(Exception):
    """A consistent read is older than what was seen before it: etcd was restored from a backup.

    No KubeError: no retry helps, since what this process knows is of another history. It ends.
    """

    exit_code = 1

    def __init__(self, attempted: str, *, version: str, seen: str) -> None:
        self.attempted = attempted
        self.version = version
        self.seen = seen
        super().__init__(
            f"{attempted}: version {version} after {seen} was seen: the server's history went back"
        )


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions inside *error*, however deep the groups around them are, in order."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


@overload
def first_error(error: BaseExceptionGroup[E]) -> E: ...
@overload
def first_error(error: BaseException) -> BaseException: ...
def first_error(error: BaseException) -> BaseException:
    """The first of the `leaves` of *error*."""
    return next(leaves(error))


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


def api_error(
    attempted: str, *, status: int, reason: str, message: str, retry_after_s: float | None
) -> ApiError:
    """The class that fits *status* and *reason*."""
    if status == 409:
        kind: type[ApiError] = AlreadyExists if reason == "AlreadyExists" else Conflict
    elif status >= 500:
        kind = ServerFailure
    else:
        kind = _BY_STATUS.get(status, BadRequest)
    return kind(attempted, status=status, reason=reason, message=message, retry_after_s=retry_after_s)
