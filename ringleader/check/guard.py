"""Check of the guard: the admission policies that keep a ring's labels and Leases (docs/operate.md, "The guard"). Pure.

Which accounts have the guard's verbs is a right like others: `rights`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubeio.resource import ApiResource
from ringleader.check.evidence import Evidence, RingEvidence
from ringleader.check.findings import Check, Finding, counted, error, warning
from ringleader.cluster.causes import some

_INSTALL: Final = "have a release of the chart bring the ring (rings), with labelGuard.mode: Enforce"
_UPGRADE: Final = "upgrade the release that brings the ring, with"


def labels_policy(ring: str) -> str:
    """Name of the policy, and of its binding, about objects of *ring*."""
    return f"ringleader-labels-{ring}"


def leases_policy(ring: str) -> str:
    """The same about Leases."""
    return f"ringleader-leases-{ring}"


def judge_guard(evidence: Evidence) -> Iterator[Finding]:
    """Every ring has its policies, they refuse, they know its kinds, and they do not refuse its own accounts."""
    if evidence.policies is None or "guard" in evidence.gaps:
        return
    for ring in evidence.rings:
        yield from _absent(evidence, ring)
        yield from _outdated(evidence, ring)
    if any(labels_policy(ring.name) in evidence.policies for ring in evidence.rings):
        for role, account in sorted(evidence.wildcards):
            yield error(
                f"the guard refuses every write of {role} account {account}: it has all verbs by a wildcard, which "
                "makes it a stranger",
                about=account,
                evidence=[
                    "it may `nobody` controllerrings.ringleader.dev, a verb that no role grants by name"
                ],
                remedy="bind it to the roles of docs/operate.md instead; where the authorizer allows everything, "
                "labelGuard.mode: Off",
            )


def _absent(evidence: Evidence, ring: RingEvidence) -> Iterator[Finding]:
    policies, bindings = evidence.policies or {}, evidence.policy_bindings
    for name, what in ((labels_policy(ring.name), "labels"), (leases_policy(ring.name), "Leases")):
        if name not in policies or name not in bindings:
            lacking = "policy" if name not in policies else "policybinding"
            yield _gap(
                ring,
                f"controllerring/{ring.name}",
                f"the {what} of ring {ring.name} are not guarded: there is no validatingadmission{lacking}/{name}, and "
                f"whoever may write {'its objects' if what == 'labels' else 'Leases there'} may forge them",
                remedy=_INSTALL,
            )
        elif "Deny" not in (actions := spec_of(bindings[name]).get("validationActions") or []):
            yield _gap(
                ring,
                f"validatingadmissionpolicybinding/{name}",
                f"the guard of the {what} of ring {ring.name} refuses nothing (labelGuard.mode: Warn)",
                f"validationActions: {', '.join(actions)}",
                remedy="mend what the audit log names under validation_failure, then labelGuard.mode: Enforce",
            )


def _outdated(evidence: Evidence, ring: RingEvidence) -> Iterator[Finding]:
    """A policy of an older edit of the ring: other kinds, another label domain, another lease namespace."""
    name = labels_policy(ring.name)
    policy = spec_of((evidence.policies or {}).get(name, {}))
    kinds = [count.resource for count in ring.counts]
    lacking = [kind.group_resource for kind in kinds if not covers(policy, kind)]
    if policy and lacking:
        yield _gap(
            ring,
            f"validatingadmissionpolicy/{name}",
            f"the guard of ring {ring.name} does not know {some(lacking)}: their labels can be forged",
            f"missing in its resourceRules: {', '.join(lacking)}",
            remedy=f"{_UPGRADE} the ring's present resources in rings",
        )
    elif policy and ring.ring.keys.shard not in str(policy.get("matchConditions")):
        yield _gap(
            ring,
            f"validatingadmissionpolicy/{name}",
            f"the guard of ring {ring.name} keeps other labels than {ring.ring.keys.shard}",
            remedy=f"{_UPGRADE} its spec.labelDomain",
        )
    binding = evidence.policy_bindings.get(leases_policy(ring.name))
    if binding is not None and (where := ring.ring.spec.lease_namespace) not in str(
        spec_of(binding).get("matchResources")
    ):
        yield _gap(
            ring,
            f"validatingadmissionpolicybinding/{leases_policy(ring.name)}",
            f"the guard of the Leases of ring {ring.name} is bound to another namespace than {where}",
            remedy=f"{_UPGRADE} its spec.leaseNamespace",
        )


def _gap(ring: RingEvidence, about: str, summary: str, *evidence: str, remedy: str) -> Finding:
    """A gap in the guard of *ring*."""
    return warning(summary, ring=ring.name, about=about, evidence=evidence, remedy=remedy)


def spec_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec of *document*; empty if it has none."""
    return document.get("spec") or {}


def covers(policy: Mapping[str, Any], kind: ApiResource) -> bool:
    """Whether the spec *policy* of an admission policy names *kind*."""
    rules = (policy.get("matchConstraints") or {}).get("resourceRules") or []
    return any(
        kind.group in (rule.get("apiGroups") or ()) and kind.plural in (rule.get("resources") or ())
        for rule in rules
    )


def _fine(evidence: Evidence) -> str:
    if evidence.policies is None:
        return "the server has no admission policies, so no guard"
    return f"labels and Leases of {counted(len(evidence.rings), 'ring')} are guarded"


CHECK = Check(
    "guard",
    "labels and Leases that strangers may write",
    judge_guard,
    _fine,
    needs=("rings", "guard"),
)
