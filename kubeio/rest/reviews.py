"""Questions to the API server about others: who bears a token, and whether that account may do something.

Owns the two reviews and nothing else: no cache, no decision what follows. Needs the rights of the ClusterRole
`system:auth-delegator`.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from kubeio.errors import ServerFailure
from kubeio.rest.client import Client

_BEARERS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_R = TypeVar("_R")


class User(msgspec.Struct, frozen=True, omit_defaults=True):
    """An account as the API server knows it."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: User = User()


class _TokenReview(msgspec.Struct):
    status: _TokenStatus


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


class Reviews:
    """Asks through *client*, each question within *timeout_s*. Raises what the client raises."""

    def __init__(self, client: Client, *, timeout_s: float = 5.0) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def bearer(self, token: str) -> User | None:
        """The user of *token*; None if the server does not accept it."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._ask(_BEARERS, body, _TokenReview)).status
        return status.user if status.authenticated else None

    async def may(self, user: User, *, verb: str, path: str) -> bool:
        """Whether *user* has the right to *verb* on the nonResourceURL *path*."""
        attributes = {"path": path, "verb": verb}
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": attributes,
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return (await self._ask(_ACCESS_REVIEWS, body, _AccessReview)).status.allowed

    async def _ask(self, path: str, body: object, kind: type[_R]) -> _R:
        raw = msgspec.json.encode(body)
        answer = await self._client.request("POST", path, body=raw, timeout_s=self._timeout_s)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.DecodeError as error:
            attempted = f"POST {path} on {self._client.cluster.server}"
            raise ServerFailure(
                attempted, status=answer.status, reason="UnexpectedAnswer", message=str(error)
            ) from error
