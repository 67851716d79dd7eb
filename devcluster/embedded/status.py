"""Failures of the API: `Refusal`, one constructor per reason, and its `Status` body. Pure.

Every module of this server raises these; `server` answers with them. Messages follow the real server's,
because clients and people read them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Refusal(Exception):
    """A request that is answered with a failure `Status`."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, object] | None = None,
        retry_after_s: int | None = None,
        continue_: str = "",
        plain: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s
        self.continue_ = continue_
        self.plain = plain
        """Answered as text, as the real server does for paths without a handler."""

    def status(self) -> dict[str, object]:
        """The `Status` object."""
        status: dict[str, object] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_} if self.continue_ else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details is not None or self.retry_after_s is not None:
            details = dict(self.details or {})
            if self.retry_after_s is not None:
                details["retryAfterSeconds"] = self.retry_after_s
            status["details"] = details
        status["code"] = self.code
        return status

    def body(self) -> bytes:
        if self.plain:
            return self.message.encode()
        return msgspec.json.encode(self.status())


class StatusSubject(msgspec.Struct, frozen=True, gc=False):
    """What a failure is about: `StatusSubject("example.com", "websites", "Website", "shop")`."""

    group: str
    plural: str
    kind: str
    name: str

    @property
    def resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def details(self) -> dict[str, object]:
        details: dict[str, object] = {"name": self.name}
        if self.group:
            details["group"] = self.group
        details["kind"] = self.plural
        return details


class Cause(msgspec.Struct, frozen=True, gc=False):
    """One wrong field of an object."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def unauthorized() -> Refusal:
    return Refusal(401, "Unauthorized", "Unauthorized")


def forbidden(subject: StatusSubject, why: str, *, causes: Sequence[Cause] = ()) -> Refusal:
    details = subject.details()
    if causes:
        details["causes"] = [_cause(cause) for cause in causes]
    return Refusal(
        403, "Forbidden", f'{subject.resource} "{subject.name}" is forbidden: {why}', details=details
    )


def not_found(subject: StatusSubject) -> Refusal:
    return Refusal(
        404, "NotFound", f'{subject.resource} "{subject.name}" not found', details=subject.details()
    )


def no_such_path() -> Refusal:
    return Refusal(404, "NotFound", "404 page not found\n", plain=True)


def no_such_resource() -> Refusal:
    return Refusal(404, "NotFound", "the server could not find the requested resource", details={})


def unsupported_verb() -> Refusal:
    message = "the server does not allow this method on the requested resource"
    return Refusal(405, "MethodNotAllowed", message, details={})


def not_acceptable(accept: str) -> Refusal:
    return Refusal(
        406,
        "NotAcceptable",
        f"only application/json is served (also as Table, PartialObjectMetadata), not {accept!r}",
    )


def unsupported_media(what: str) -> Refusal:
    return Refusal(415, "UnsupportedMediaType", what)


def already_exists(subject: StatusSubject) -> Refusal:
    return Refusal(
        409, "AlreadyExists", f'{subject.resource} "{subject.name}" already exists', details=subject.details()
    )


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(subject: StatusSubject, why: str = MODIFIED) -> Refusal:
    message = f'Operation cannot be fulfilled on {subject.resource} "{subject.name}": {why}'
    return Refusal(409, "Conflict", message, details=subject.details())


def invalid(subject: StatusSubject, causes: Sequence[Cause]) -> Refusal:
    """422 with every wrong field named."""
    texts = [f"{cause.field}: {_text(cause)}" for cause in causes]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    kind = f"{subject.kind}.{subject.group}" if subject.group else subject.kind
    details: dict[str, object] = {"name": subject.name}
    if subject.group:
        details["group"] = subject.group
    details["kind"] = subject.kind
    details["causes"] = [_cause(cause) for cause in causes]
    return Refusal(422, "Invalid", f'{kind} "{subject.name}" is invalid: {joined}', details=details)


def patch_failed() -> Refusal:
    """A JSON Patch that cannot be carried out on the object as it is, a failed `test` among them.

    Like the real server it does not say which operation failed.
    """
    message = "the server rejected our request due to an error in our request"
    return Refusal(422, "Invalid", message, details={})


def expired(message: str, *, continue_: str = "") -> Refusal:
    return Refusal(410, "Expired", message, continue_=continue_)


def too_large(version: int, current: int) -> Refusal:
    """A version from the future: the real server waits for it, then gives up like this."""
    return Refusal(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {version}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        },
        retry_after_s=1,
    )


def too_large_body(limit: int) -> Refusal:
    return Refusal(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


_PREFIX = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueRequired": "Required value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueTypeInvalid": "Invalid value",
    "FieldValueTooMany": "Too many",
    "FieldValueTooLong": "Too long",
}


def _text(cause: Cause) -> str:
    return ": ".join(filter(None, (_PREFIX.get(cause.reason, ""), cause.message)))


def _cause(cause: Cause) -> dict[str, str]:
    return {
        "reason": cause.reason,
        "message": _text(cause),
        "field": cause.field,
    }
