"""Reads the environment of the rings: server, definition, FlowSchemas, policies, accounts and their rights.

Rights are asked by SubjectAccessReview, and by SelfSubjectAccessReview for the account `self`: both create nothing.
Webhooks are `hooks`'s.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from kubeio.errors import InputError, NotFound
from kubeio.resource import CRDS, ApiResource
from ringleader.assets import ring_crd
from ringleader.check.evidence import Right
from ringleader.check.guard import labels_policy
from ringleader.check.rights import SHARD, SHARDER, WILDCARD, Need, needs
from ringleader.check.server import FEATURES
from ringleader.cluster.reader import ClusterReader
from ringleader.cluster.snapshot import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringleader.check.evidence import Evidence

FLOW_SCHEMAS: Final = ApiResource(
    "flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False
)
POLICIES: Final = ApiResource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
POLICY_BINDINGS: Final = ApiResource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
DEPLOYMENTS: Final = ApiResource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS: Final = ApiResource("apps", "v1", "statefulsets", "StatefulSet")
SELF: Final = "self"
_NOBODY: Final = "ringleader-check:nobody"
"""An account to which nobody has given a right."""
_PART: Final = "app.kubernetes.io/part-of=ringleader"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1"
_FEATURE: Final = re.compile(rb'kubernetes_feature_enabled\{name="(\w+)"[^}]*\} ([01])')


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


class _Allowed(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Allowed


class _ServiceAccountOf(msgspec.Struct, rename="camel"):
    service_account_name: str = "default"


class _Template(msgspec.Struct):
    spec: _ServiceAccountOf


class _WorkloadSpec(msgspec.Struct):
    template: _Template


class _WorkloadMeta(msgspec.Struct):
    namespace: str = ""
    labels: dict[str, str] = {}


class _Workload(msgspec.Struct):
    metadata: _WorkloadMeta
    spec: _WorkloadSpec


async def read_server(reader: ClusterReader, evidence: Evidence) -> None:
    """Version and features."""
    evidence.server = reader.client.cluster.server
    if reader.server_version:
        evidence.version = msgspec.json.decode(reader.server_version, type=_Version).git_version
    await reader.attempt("metrics", _read_features(reader, evidence))


async def _read_features(reader: ClusterReader, evidence: Evidence) -> None:
    """Feature gates from the server's metrics, line by line: these are megabytes on a large server."""
    try:
        async with reader.client.stream("/metrics", connect_timeout_s=reader.timeout_s) as lines:
            async for line in lines:
                found = _FEATURE.match(line)
                if found is not None and (name := found[1].decode()) in FEATURES:
                    evidence.features[name] = found[2] == b"1"
                if len(evidence.features) == len(FEATURES):
                    return
    except NotFound:
        return  # a server that shows nothing


async def read_installation(reader: ClusterReader, evidence: Evidence) -> None:
    """The ring's definition, here and as this version has it, the FlowSchemas, and the guard's policies."""
    evidence.wanted_crd = yaml.safe_load(ring_crd().read_text())
    evidence.crd = await reader.attempt("crd", _crd(reader, str(evidence.wanted_crd["metadata"]["name"])))
    evidence.flow_schemas = await reader.attempt("flowschemas", _served(reader, FLOW_SCHEMAS))
    policies = await reader.attempt("guard", _served(reader, POLICIES))
    if policies is not None:
        evidence.policies = {str(found["metadata"]["name"]): found for found in policies}
        bindings = await reader.attempt("guard", _served(reader, POLICY_BINDINGS))
        evidence.policy_bindings = {str(found["metadata"]["name"]): found for found in bindings or ()}


async def _crd(reader: ClusterReader, name: str) -> dict[str, Any] | None:
    try:
        return await reader.client.get(CRDS, name, type=dict, timeout_s=reader.timeout_s)
    except NotFound:
        return None


async def _served(reader: ClusterReader, resource: ApiResource) -> list[dict[str, Any]] | None:
    """Every object of *resource*; None if the server has no such resource."""
    pages = reader.client.pages(resource, timeout_s=reader.timeout_s)
    try:
        return [msgspec.json.decode(found.raw) async for page in pages for found in page.objects]
    except NotFound:
        return None


# -- accounts and their rights --------------------------------------------------------------------------------


def read_account(flag: str, text: str) -> str:
    """The user that *text* means: `NAMESPACE/NAME` of a ServiceAccount, `self`, or a user's own name.

    Raises: InputError naming *flag*.
    """
    namespace, slash, name = text.partition("/")
    if not slash and text:
        return text
    if not (namespace and name) or "/" in name:
        raise InputError(
            flag, text, "names no account", "write NAMESPACE/NAME of a ServiceAccount, a user, or self"
        )
    return f"system:serviceaccount:{namespace}:{name}"


async def find_accounts(
    reader: ClusterReader, evidence: Evidence, given: Mapping[str, Sequence[str]]
) -> None:
    """The accounts that were given, else those of what the chart installed."""
    evidence.accounts = {role: list(accounts) for role, accounts in given.items() if accounts}
    if not evidence.rings:
        return
    for role, resource, component in (
        (SHARDER, DEPLOYMENTS, "sharder"),
        (SHARD, STATEFUL_SETS, "controller"),
    ):
        if role in evidence.accounts:
            continue
        selector = f"{_PART},app.kubernetes.io/component={component}"
        found = await reader.attempt(f"accounts:{role}", _accounts(reader, resource, selector))
        if found:
            evidence.accounts[role] = sorted(set(found))
        elif found is not None:
            evidence.gaps[f"accounts:{role}"] = Gap(
                f"no account of a {role} is known: nothing here was installed by the chart",
                f"name it: --{role}-account NAMESPACE/NAME",
            )


async def _accounts(reader: ClusterReader, resource: ApiResource, selector: str) -> list[str]:
    pages = reader.client.pages(resource, label_selector=selector, timeout_s=reader.timeout_s)
    found = []
    try:
        async for page in pages:
            for each in page.objects:
                workload = msgspec.json.decode(each.raw, type=_Workload)
                account = workload.spec.template.spec.service_account_name
                found.append(f"system:serviceaccount:{workload.metadata.namespace}:{account}")
    except NotFound:
        return []
    return found


async def read_rights(reader: ClusterReader, evidence: Evidence) -> None:
    """Ask the server about every right of every account. The first refusal to answer ends the asking."""
    wanted: dict[tuple[str, str, Need], str] = {}
    for ring in evidence.rings:
        resources = [count.resource for count in ring.counts]
        is_guarded = labels_policy(ring.name) in (evidence.policies or ())
        for role, accounts in evidence.accounts.items():
            for account in accounts:
                for need in needs(role, ring.ring, resources, is_guarded=is_guarded):
                    wanted.setdefault((role, account, need), ring.name)

    async def ask(item: tuple[tuple[str, str, Need], str]) -> None:
        (role, account, need), ring = item
        if "rights" in evidence.gaps:
            return
        granted = await reader.attempt("rights", _may(reader, account, need))
        if granted is not None:
            evidence.rights.append(Right(account, role, ring, *_fields(need), is_granted=granted))

    async def ask_wildcard(who: tuple[str, str]) -> None:
        if "rights" not in evidence.gaps and await reader.attempt("rights", _may(reader, who[1], WILDCARD)):
            evidence.wildcards.append(who)

    if wanted:
        await _refuse_to_judge_without_authorization(reader, evidence)
    await reader.each(wanted.items(), ask)
    if evidence.policies:
        await reader.each(
            [(role, a) for role, found in evidence.accounts.items() for a in found], ask_wildcard
        )
    order = {key: index for index, key in enumerate(wanted)}
    evidence.rights.sort(key=lambda right: order[right.role, right.account, _need(right)])


async def _refuse_to_judge_without_authorization(reader: ClusterReader, evidence: Evidence) -> None:
    """Leave the rights unchecked on a server that allows everybody everything."""
    asked = _may(reader, _NOBODY, WILDCARD)
    if await reader.attempt("rights", asked, gaps={}):  # who may not ask about others may ask about `self`
        evidence.gaps["rights"] = Gap(
            "this API server lets every account do everything",
            "ask a server that enforces RBAC: what it grants there says nothing about here",
        )


def _fields(need: Need) -> tuple[str, str, str, str, str, str]:
    return need.verb, need.group, need.resource, need.subresource, need.name, need.namespace


def _need(right: Right) -> Need:
    return Need(right.verb, right.group, right.resource, right.subresource, right.name, right.namespace)


async def _may(reader: ClusterReader, account: str, need: Need) -> bool:
    attributes = {
        "verb": need.verb,
        "group": need.group,
        "resource": need.resource,
        "subresource": need.subresource,
        "name": need.name,
        "namespace": need.namespace,
    }
    spec: dict[str, Any] = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
    kind = "SelfSubjectAccessReview"
    if account != SELF:
        kind = "SubjectAccessReview"
        spec |= {"user": account, "groups": _groups(account)}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = await reader.client.request(
        "POST", f"{_REVIEWS}/{kind.lower()}s", body=msgspec.json.encode(body), timeout_s=reader.timeout_s
    )
    return msgspec.json.decode(answer.body, type=_Review).status.allowed


def _groups(account: str) -> list[str]:
    groups = ["system:authenticated"]
    if account.startswith("system:serviceaccount:"):
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{account.split(':')[2]}"]
    return groups
