"""Questions about accounts, answered: who bears a token, and what an account may do. Pure.

RBAC is not enforced here: whoever is authenticated may do everything, and nobody else anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from devcluster.embedded import protobuf
from devcluster.embedded.accounts import Account

_AUTHENTICATED: Final = "system:authenticated"
KINDS: Final = {
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": "SubjectAccessReview",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews": "SelfSubjectReview",
    "/apis/authentication.k8s.io/v1/tokenreviews": "TokenReview",
}


def is_unread(content_type: str) -> bool:
    """Whether the question came in protobuf (Go clients): what they ask does not change the answer."""
    return content_type == protobuf.CONTENT_TYPE


def answer(
    path: str, question: Mapping[str, Any], *, asker: Account, account_of: Callable[[str], Account | None]
) -> bytes:
    """The review at *path* with its status. *account_of* gives the bearer of a token, None for a forged one."""
    kind, group = KINDS[path], path.split("/")[2]
    spec = question.get("spec") or {}
    match kind:
        case "SelfSubjectReview":
            status: dict[str, object] = {"userInfo": _user(asker)}
        case "TokenReview":
            bearer = account_of(str(spec.get("token", "")))
            status = (
                {"authenticated": True, "user": _user(bearer)}
                if bearer
                else {"error": "invalid bearer token"}
            )
        case "SubjectAccessReview":
            status = _judged(is_known=_AUTHENTICATED in (spec.get("groups") or []))
        case _:
            status = _judged(is_known=True)
    whole = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}, "spec": {}, **question}
    return msgspec.json.encode({**whole, "status": status})


def _user(account: Account) -> dict[str, object]:
    return {"username": account.user, "groups": [*account.groups, _AUTHENTICATED]}


def _judged(*, is_known: bool) -> dict[str, object]:
    return {"allowed": is_known, "reason": "the embedded control plane does not enforce RBAC"}
