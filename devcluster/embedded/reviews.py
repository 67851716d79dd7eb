"""Reviews: the account of a token, and the rights of an account. Pure.

Without an authorizer authenticated accounts may do everything, and the answer gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from devcluster.accounts import Account
from devcluster.embedded.rbac import AUTHENTICATED, Authorizer, Rule
from kubeio.rest.request_info import RequestInfo

_UNCHECKED: Final = "the embedded control plane does not enforce RBAC without --rbac"
_EVERYTHING: Final = [
    Rule(verbs=("*",), api_groups=("*",), resources=("*",)),
    Rule(verbs=("*",), non_resource_urls=("*",)),
]
KINDS: Final = {
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews": "SelfSubjectRulesReview",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": "SubjectAccessReview",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews": "SelfSubjectReview",
    "/apis/authentication.k8s.io/v1/tokenreviews": "TokenReview",
}


def answer(
    path: str,
    question: Mapping[str, Any],
    asker: Account,
    *,
    account_of: Callable[[str], Account | None],
    authorizer: Authorizer | None,
) -> bytes:
    """The review at *path* with its status. *account_of* gives the account of a token, None for a forged one."""
    kind, group = KINDS[path], path.split("/")[2]
    spec = question.get("spec") or {}
    groups = [*asker.groups, AUTHENTICATED]
    match kind:
        case "SelfSubjectReview":
            status: dict[str, object] = {"userInfo": _user(asker)}
        case "TokenReview":
            owner = account_of(str(spec.get("token", "")))
            user = {"authenticated": True, "user": _user(owner)} if owner else None
            status = user or {"error": "invalid bearer token"}
        case "SelfSubjectRulesReview":
            status = _rules(_EVERYTHING) | {"evaluationError": _UNCHECKED}
            if authorizer is not None:
                status = _rules(authorizer.rules(asker.user, groups, str(spec.get("namespace", ""))))
        case _:
            user_name = asker.user
            if kind == "SubjectAccessReview":
                user_name, groups = str(spec.get("user", "")), list(spec.get("groups") or [])
            status = _access(spec, user_name, groups, authorizer)
    whole = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}, "spec": {}, **question}
    return msgspec.json.encode({**whole, "status": status})


def _user(account: Account) -> dict[str, object]:
    return {"username": account.user, "groups": [*account.groups, AUTHENTICATED]}


def _access(
    spec: Mapping[str, Any], user: str, groups: list[str], authorizer: Authorizer | None
) -> dict[str, object]:
    if authorizer is None:
        return {"allowed": AUTHENTICATED in groups, "reason": _UNCHECKED}
    asked = spec.get("resourceAttributes") or spec.get("nonResourceAttributes") or {}
    return {"allowed": authorizer.allows(user, groups, msgspec.convert(asked, RequestInfo))}


def _rules(rules: Iterable[Rule]) -> dict[str, object]:
    listed = list(rules)
    return {
        "resourceRules": [rule for rule in listed if not rule.non_resource_urls],
        "nonResourceRules": [rule for rule in listed if rule.non_resource_urls],
        "incomplete": False,
    }
