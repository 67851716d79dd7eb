"""RBAC: the rights that Roles, ClusterRoles and their bindings in the store give to an account. Pure.

Smaller than the real thing in two ways: ClusterRoles are not aggregated, and writers of roles may grant any right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from devcluster.accounts import Account
from devcluster.embedded.registry import Kind, Registry
from devcluster.embedded.status import Refusal
from devcluster.embedded.store import Event
from devcluster.plane import ADMINS
from kubeio.rest.request_info import RequestInfo

AUTHENTICATED: Final = "system:authenticated"
GROUP: Final = "rbac.authorization.k8s.io"
_MASTERS: Final = "system:masters"
_EVERYTHING: Final = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
_REVIEWS: Final = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
_DISCOVERY: Final = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
]
DEFAULT_ROLES: Final[dict[str, tuple[str, list[dict[str, Any]]]]] = {
    "cluster-admin": (_MASTERS, [_EVERYTHING, {"nonResourceURLs": ["*"], "verbs": ["*"]}]),
    "system:discovery": (
        AUTHENTICATED,
        [{"nonResourceURLs": [*_DISCOVERY, "/version", "/version/"], "verbs": ["get"]}],
    ),
    "system:basic-user": (
        AUTHENTICATED,
        [
            {"apiGroups": ["authorization.k8s.io"], "resources": _REVIEWS, "verbs": ["create"]},
            {
                "apiGroups": ["authentication.k8s.io"],
                "resources": ["selfsubjectreviews"],
                "verbs": ["create"],
            },
        ],
    ),
    "system:auth-delegator": (
        "",
        [
            {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
            {
                "apiGroups": ["authorization.k8s.io"],
                "resources": ["subjectaccessreviews"],
                "verbs": ["create"],
            },
        ],
    ),
}
"""ClusterRoles of a new server: the group that each is bound to, and its rules."""


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """PolicyRule."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")

    def covers(self, info: RequestInfo) -> bool:
        if not _has(self.verbs, info.verb):
            return False
        if not info.resource:
            return any(_is_under(info.path, url) for url in self.non_resource_urls)
        return (
            _has(self.api_groups, info.group)
            and self._covers_resource(info)
            and (not self.resource_names or info.name in self.resource_names)
        )

    def _covers_resource(self, info: RequestInfo) -> bool:
        if not info.subresource:
            return _has(self.resources, info.resource)
        full = f"{info.resource}/{info.subresource}"
        return _has(self.resources, full) or f"*/{info.subresource}" in self.resources


class Authorizer:
    """Decides from the roles and bindings of *registry*, which are read again when one of them changes."""

    def __init__(self, registry: Registry) -> None:
        self._kinds: Final = {plural: _kind(registry, plural) for plural in _PLURALS}
        self._grants: dict[tuple[str, str], list[tuple[str, list[Rule]]]] | None = None
        for kind in self._kinds.values():
            kind.collection.listeners.append(self._forget)

    def check(self, account: Account, info: RequestInfo) -> None:
        """Raises: 403 if *account*, which is authenticated, may not send *info*."""
        if not self.allows(account.user, [*account.groups, AUTHENTICATED], info):
            raise _refused(account.user, info)

    def allows(self, user: str, groups: Iterable[str], info: RequestInfo) -> bool:
        groups = list(groups)
        return _MASTERS in groups or any(
            rule.covers(info) for rule in self.rules(user, groups, info.namespace)
        )

    def rules(self, user: str, groups: Iterable[str], namespace: str) -> Iterator[Rule]:
        """The rules that hold for an account in *namespace*."""
        if self._grants is None:
            self._grants = self._read()
        for subject in (("User", user), *(("Group", group) for group in groups)):
            for where, rules in self._grants.get(subject, ()):
                if where in ("", namespace):
                    yield from rules

    def _forget(self, event: Event) -> None:
        self._grants = None

    def _read(self) -> dict[tuple[str, str], list[tuple[str, list[Rule]]]]:
        """The rules of each subject with the namespace they hold in; empty: everywhere."""
        grants: dict[tuple[str, str], list[tuple[str, list[Rule]]]] = {}
        for plural in ("clusterrolebindings", "rolebindings"):
            for entry in self._kinds[plural].collection.entries():
                doc = entry.decoded()
                rules = self._rules_of(doc["roleRef"], entry.namespace)
                for subject in doc.get("subjects") or []:
                    grants.setdefault(_subject(subject), []).append((entry.namespace, rules))
        return grants

    def _rules_of(self, ref: dict[str, Any], namespace: str) -> list[Rule]:
        is_role = ref.get("kind") == "Role"
        kind = self._kinds["roles" if is_role else "clusterroles"]
        role = kind.collection.get((namespace if is_role else "", str(ref.get("name"))))
        return msgspec.convert((role.decoded().get("rules") if role else None) or [], list[Rule])


_PLURALS: Final = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")


def impersonation(user: str, groups: Iterable[str]) -> Iterator[RequestInfo]:
    """The rights that acting as *user* with *groups* takes."""
    match user.split(":"):
        case ["system", "serviceaccount", namespace, name]:
            yield RequestInfo("impersonate", resource="serviceaccounts", namespace=namespace, name=name)
        case _:
            yield RequestInfo("impersonate", resource="users", name=user)
    for group in groups:
        yield RequestInfo("impersonate", resource="groups", name=group)


def default_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Plural and body of the roles and bindings of a new server."""
    groups = {role: [group] if group else [] for role, (group, _) in DEFAULT_ROLES.items()}
    groups["cluster-admin"].append(ADMINS)
    for role, (_, rules) in DEFAULT_ROLES.items():
        yield "clusterroles", {"metadata": {"name": role}, "rules": rules}
        for group in groups[role]:
            yield (
                "clusterrolebindings",
                {
                    "metadata": {"name": role if group != ADMINS else ADMINS},
                    "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
                    "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group}],
                },
            )


def _kind(registry: Registry, plural: str) -> Kind:
    kind = registry.get(GROUP, plural)
    if kind is None:
        raise LookupError(f"{plural} is a built-in resource")
    return kind


def _subject(subject: dict[str, Any]) -> tuple[str, str]:
    name = str(subject.get("name"))
    if subject.get("kind") == "ServiceAccount":
        return "User", f"system:serviceaccount:{subject.get('namespace', '')}:{name}"
    return str(subject.get("kind")), name


def _has(listed: tuple[str, ...], wanted: str) -> bool:
    return wanted in listed or "*" in listed


def _is_under(path: str, url: str) -> bool:
    return path == url or (url.endswith("*") and path.startswith(url.rstrip("*")))


def _refused(user: str, info: RequestInfo) -> Refusal:
    if not info.resource:
        message = f'forbidden: User "{user}" cannot {info.verb} path "{info.path}"'
        return Refusal(403, "Forbidden", message, details={})
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    scope = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    named = f' "{info.name}"' if info.name else ""
    message = (
        f'{info.group_resource}{named} is forbidden: User "{user}" cannot {info.verb} resource "{resource}" '
        f'in API group "{info.group}" {scope}'
    )
    details = {"name": info.name, "group": info.group, "kind": info.resource}
    return Refusal(403, "Forbidden", message, details={key: value for key, value in details.items() if value})
