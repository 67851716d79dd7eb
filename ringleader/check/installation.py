"""Checks of what is installed: the CustomResourceDefinition, webhooks with their certificates, the FlowSchema. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ringleader.check.evidence import Evidence, Hook
from ringleader.check.findings import Check, Finding, counted, error, warning
from ringleader.cluster.causes import some

RING_CRD: Final = "controllerrings.ringleader.dev"
RENEW_DAYS: Final = 7.0
_LEASE_VERBS: Final = ("get", "update")
_PRIORITIES: Final = ("leader-election", "system", "exempt")
"""Built-in priority levels in which Lease requests do not queue behind patches."""


def judge_crd(evidence: Evidence) -> Iterator[Finding]:
    """The ring's definition is there, established, and has every field that this version knows."""
    if "crd" in evidence.gaps:
        return
    remedy = (
        "ringleader crds | kubectl apply --server-side -f -; a sharder with --upgrade-crd does it by itself"
    )
    if evidence.crd is None:
        yield error(
            f"crd/{RING_CRD} is not installed: there are no rings, and nothing is distributed",
            about=f"crd/{RING_CRD}",
            remedy=remedy,
        )
        return
    conditions = (evidence.crd.get("status") or {}).get("conditions") or []
    states = {condition.get("type"): condition for condition in conditions}
    for kind in ("Established", "NamesAccepted"):
        if states.get(kind, {}).get("status") == "False":
            yield error(
                f"crd/{RING_CRD} is not {kind}: {states[kind].get('message', '')}",
                about=f"crd/{RING_CRD}",
                remedy=remedy,
            )
    here, wanted = _schema(evidence.crd), _schema(evidence.wanted_crd)
    if missing := sorted(_fields(wanted) - _fields(here)):
        yield error(
            f"crd/{RING_CRD} is older than this version: it lacks {some(missing)}, which the API server drops from "
            "every ring",
            about=f"crd/{RING_CRD}",
            evidence=[f"missing: {', '.join(missing)}"],
            remedy=remedy,
        )


def _schema(crd: Mapping[str, Any]) -> Mapping[str, Any]:
    for version in (crd.get("spec") or {}).get("versions") or []:
        if version.get("name") == "v1alpha1":
            return (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return {}


def _fields(schema: Mapping[str, Any], prefix: str = "") -> set[str]:
    """Every field that a schema names, as paths."""
    found = set()
    for name, below in (schema.get("properties") or {}).items():
        path = f"{prefix}.{name}" if prefix else name
        found.add(path)
        found |= _fields(below, path)
        found |= _fields(below.get("items") or {}, f"{path}[]")
        extra = below.get("additionalProperties")
        found |= _fields(extra, f"{path}.*") if isinstance(extra, dict) else set()
    return found


def judge_hooks(evidence: Evidence) -> Iterator[Finding]:
    """Rings that want assignment at admission have a webhook that answers, with certificates that last."""
    for hook in evidence.hooks:
        shown = f"mutatingwebhookconfiguration/ringleader-{hook.ring}"
        if hook.configuration is None:
            yield warning(
                f"{shown} does not exist, and ring {hook.ring} has assignAtAdmission: objects are assigned a moment "
                "after their creation instead",
                ring=hook.ring,
                about=shown,
                remedy="serve the webhook (sharder --webhook-bind; chart: sharder.webhook.enabled), or set "
                "assignAtAdmission: false",
            )
            continue
        if hook.unreachable:
            yield warning(
                f"{shown} leads to {hook.target}, which does not answer: {hook.unreachable}",
                ring=hook.ring,
                about=shown,
                evidence=[
                    "creates are not refused (failurePolicy Ignore); a port that hangs costs each a second"
                ],
                remedy="start the sharders with the webhook, or delete the configuration; check network policies",
            )
        yield from _certificates(evidence, hook, shown)


def _certificates(evidence: Evidence, hook: Hook, shown: str) -> Iterator[Finding]:
    if hook.not_after is None:
        return
    days = (hook.not_after - evidence.now).total_seconds() / 86400
    if days >= RENEW_DAYS:
        return
    when = f"{hook.not_after:%Y-%m-%dT%H:%M:%SZ}"
    when_ended = f"ended at {when}" if days < 0 else f"ends in {days:.1f} days ({when})"
    yield (error if days < 0 else warning)(
        f"{shown}: {hook.certificate} {when_ended}",
        ring=hook.ring,
        about=shown,
        remedy="sharders renew it themselves: read the log of the one that leads; deleting its Secret makes new ones",
    )


def judge_flow_schemas(evidence: Evidence) -> Iterator[Finding]:
    """Lease requests of sharders and replicas have a queue of their own."""
    if evidence.flow_schemas is None or "flowschemas" in evidence.gaps or "accounts" in evidence.gaps:
        return
    for role, accounts in sorted(evidence.accounts.items()):
        for account in accounts:
            schema = flow_schema_of(account, evidence.flow_schemas)
            if not is_for_leases(_level(schema), evidence.flow_schemas):
                name = schema["metadata"]["name"] if schema else "none"
                yield warning(
                    f"Lease requests of {role} account {account} share a queue with its other requests: no FlowSchema "
                    "puts them first",
                    about=account,
                    evidence=[f"they match FlowSchema {name}, priority level {_level(schema) or 'none'}"],
                    remedy="install the chart's priority levels (priority.enabled, priority.extraServiceAccounts): a "
                    "busy API server then does not look like a dead replica",
                )


def is_for_leases(level: str, schemas: Iterable[Mapping[str, Any]]) -> bool:
    """Whether Lease requests in the priority level *level* do not queue behind others."""
    if level in _PRIORITIES:
        return True
    resources = [
        rule.get("resources") or []
        for schema in schemas
        if _level(schema) == level
        for subjects in schema["spec"].get("rules") or []
        for rule in [*(subjects.get("resourceRules") or []), *(subjects.get("nonResourceRules") or [])]
    ]
    return bool(resources) and all(each == ["leases"] for each in resources)


def _level(schema: Mapping[str, Any] | None) -> str:
    return str(((schema or {}).get("spec") or {}).get("priorityLevelConfiguration", {}).get("name", ""))


def flow_schema_of(account: str, schemas: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The FlowSchema that a Lease renewal of *account* falls under: the first match by precedence."""

    def precedence(schema: dict[str, Any]) -> tuple[int, str]:
        return int(schema["spec"].get("matchingPrecedence", 1000)), str(schema["metadata"]["name"])

    for schema in sorted(schemas, key=precedence):
        if not _is_dangling(schema) and any(
            _is_meant(rule, account) for rule in schema["spec"].get("rules") or []
        ):
            return schema
    return None


def _is_dangling(schema: Mapping[str, Any]) -> bool:
    """Whether its priority level does not exist: the server then passes it over."""
    conditions = (schema.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Dangling" and each.get("status") == "True" for each in conditions)


def _is_meant(rule: Mapping[str, Any], account: str) -> bool:
    return any(_is_subject(subject, account) for subject in rule.get("subjects") or []) and any(
        _covers(resource) for resource in rule.get("resourceRules") or []
    )


def _is_subject(subject: Mapping[str, Any], account: str) -> bool:
    parts = account.split(":")
    namespace, name = (parts[2], parts[3]) if account.startswith("system:serviceaccount:") else ("", "")
    match subject.get("kind"):
        case "User":
            return subject["user"]["name"] in ("*", account)
        case "Group":
            mine = {"system:authenticated", "*"}
            if namespace:
                mine |= {"system:serviceaccounts", f"system:serviceaccounts:{namespace}"}
            return subject["group"]["name"] in mine
        case "ServiceAccount" if namespace:
            wanted = subject["serviceAccount"]
            return wanted.get("namespace") == namespace and wanted.get("name") in ("*", name)
    return False


def _covers(rule: Mapping[str, Any]) -> bool:
    verbs, groups = rule.get("verbs") or [], rule.get("apiGroups") or []
    resources = rule.get("resources") or []
    return (
        all(verb in verbs or "*" in verbs for verb in _LEASE_VERBS)
        and ("*" in groups or "coordination.k8s.io" in groups)
        and ("*" in resources or "leases" in resources)
        and bool(rule.get("namespaces"))
    )


def _fine_hooks(evidence: Evidence) -> str:
    return (
        f"{counted(len(evidence.hooks), 'webhook')} answering"
        if evidence.hooks
        else "no ring is assigned at admission"
    )


def _fine_flow(evidence: Evidence) -> str:
    if evidence.flow_schemas is None:
        return "the server has no API priority and fairness"
    return (
        "Lease requests go first" if evidence.accounts else "there is no ring whose accounts would need one"
    )


CHECKS = (
    Check(
        "crd",
        "the ControllerRing definition: missing or old",
        judge_crd,
        lambda evidence: f"{RING_CRD} has every field of this version",
        needs=("crd",),
    ),
    Check(
        "webhook",
        "webhooks that do not answer, certificates that end soon",
        judge_hooks,
        _fine_hooks,
        needs=("rings", "hooks"),
    ),
    Check(
        "flowschema",
        "Lease requests that queue behind others",
        judge_flow_schemas,
        _fine_flow,
        needs=("rings", "flowschemas", "accounts"),
    ),
)
