"""Rights that sharder and replicas need, and which of them an account lacks. Pure.

The same as docs/operate.md, "What the accounts may do". `environment` asks the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ringleader.check.evidence import Evidence, Right
from ringleader.check.findings import Check, Finding, error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kubeio.resource import ApiResource
    from ringleader.cluster.ring import Ring

SHARDER: Final = "sharder"
SHARD: Final = "shard"
_LOOK: Final = ("get", "list", "watch", "patch")


class Need(NamedTuple):
    """*verb* on a resource, in *namespace* (empty: everywhere), for *name* only (empty: all)."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    namespace: str = ""


WILDCARD: Final = Need("nobody", "ringleader.dev", "controllerrings")
"""A verb that no role grants by name."""


def needs(
    role: str, ring: Ring, resources: Iterable[ApiResource], *, is_guarded: bool = False
) -> Iterator[Need]:
    """The rights of an account in *role* for *ring*, whose objects are of *resources* and may be guarded."""
    where = ring.spec.lease_namespace
    leases: tuple[str, ...] = ("get", "list", "create", "update")
    if role == SHARDER:
        yield from (Need(verb, "ringleader.dev", "controllerrings") for verb in _LOOK)
        yield Need("patch", "ringleader.dev", "controllerrings", "status")
        if is_guarded:
            yield from (Need(verb, "ringleader.dev", "controllerrings") for verb in ("assign", "own"))
        leases = (*leases, "watch", "delete")
        if ring.spec.namespace_selector is not None:
            yield from (Need(verb, "", "namespaces") for verb in ("list", "watch"))
        if ring.spec.assign_at_admission:
            group, name = "admissionregistration.k8s.io", f"ringleader-{ring.name}"
            yield from (
                Need(verb, group, "mutatingwebhookconfigurations", name=name)
                for verb in ("get", "create", "patch", "delete")
            )
    else:
        verbs = ("get", "own") if is_guarded else ("get",)
        yield from (Need(verb, "ringleader.dev", "controllerrings", name=ring.name) for verb in verbs)
    yield from (Need(verb, "coordination.k8s.io", "leases", namespace=where) for verb in leases)
    yield from (Need(verb, "events.k8s.io", "events") for verb in ("create", "patch"))
    for resource in resources:
        yield from (Need(verb, resource.group, resource.plural) for verb in _LOOK)


def judge_rights(evidence: Evidence) -> Iterator[Finding]:
    """One finding for each account, resource and place that verbs are missing for."""
    missing: dict[tuple[str, str, str, str, str, str, str], list[Right]] = {}
    for right in evidence.rights:
        if not right.is_granted:
            place = (right.group, right.resource, right.subresource, right.name, right.namespace)
            missing.setdefault((right.role, right.account, *place), []).append(right)
    for found in missing.values():
        yield _missing(found)


def _missing(found: list[Right]) -> Finding:
    first = found[0]
    verbs = sorted({right.verb for right in found})
    rings = sorted({right.ring for right in found})
    resource = f"{first.resource}/{first.subresource}" if first.subresource else first.resource
    shown = f"{resource}.{first.group}" if first.group else resource
    where = f"in namespace {first.namespace}" if first.namespace else "in the whole cluster"
    kind = "Role" if first.namespace else "ClusterRole"
    quoted = ", ".join(f'"{verb}"' for verb in verbs)
    names = f', resourceNames: ["{first.name}"]' if first.name else ""
    rule = f'{{apiGroups: ["{first.group}"], resources: ["{resource}"]{names}, verbs: [{quoted}]}}'
    return error(
        f"{first.role} account {first.account} may not {', '.join(verbs)} {shown} {where}: "
        f"ring {', '.join(rings)} needs that",
        ring=rings[0],
        about=first.account,
        remedy=f"this rule in a {kind} bound to it grants that: {rule}",
    )


def _fine(evidence: Evidence) -> str:
    if not evidence.rights:
        return "there is no ring to need any"
    accounts = sorted({right.account for right in evidence.rights})
    return f"{len(evidence.rights)} rights of {', '.join(accounts)} are there"


CHECKS = (
    Check(
        "rights",
        "rights that sharders and replicas lack",
        judge_rights,
        _fine,
        needs=("rings", "rights", "accounts"),
    ),
)
