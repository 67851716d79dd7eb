"""Acting as the own account with more extras: headers that name, beside the account, what a request is sent for.

Owns the question who the account is. The API server checks the right to impersonate with each request.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubeio.access.cluster import Cluster
from kubeio.access.identity import header_of_extra
from kubeio.errors import ServerFailure
from kubeio.rest.client import Client
from kubeio.rest.reviews import User

SELF_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
Headers = tuple[tuple[str, str], ...]
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_BY_ITSELF: Final = "system:authenticated"
"""The group that the server adds to whomever is impersonated."""


class _Status(msgspec.Struct, rename="camel"):
    user_info: User


class _Review(msgspec.Struct):
    status: _Status


async def read_own_account(client: Client) -> User:
    """The account that *client* acts as (SelfSubjectReview: Kubernetes 1.28). Raises: KubeError."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.request("POST", SELF_REVIEWS, body=msgspec.json.encode(body))
    try:
        return msgspec.json.decode(answer.body, type=_Review).status.user_info
    except msgspec.DecodeError as error:
        attempted = f"POST {SELF_REVIEWS} on {client.cluster.server}"
        raise ServerFailure(
            attempted, status=answer.status, reason="UnexpectedAnswer", message=str(error)
        ) from error


def acting_as(account: User, client: Client, *, extra: str, value: str) -> Client:
    """*client*, acting as *account*, its own, with *value* for *extra*."""
    return client.with_headers(headers_acting_as(account, client.cluster, extra=extra, value=value))


def headers_acting_as(account: User, cluster: Cluster, *, extra: str, value: str) -> Headers:
    """Headers beside those of *cluster*'s own impersonation: the request acts as *account* with *value* for *extra*.

    The server knows the groups of a ServiceAccount by itself. Who impersonates already adds the extra alone.
    """
    headers: list[tuple[str, str]] = []
    if not cluster.impersonation:
        headers.append(("Impersonate-User", account.username))
        if not account.username.startswith(_SERVICE_ACCOUNT):
            headers += [("Impersonate-Group", group) for group in account.groups if group != _BY_ITSELF]
    return (*headers, (header_of_extra(extra), value))
