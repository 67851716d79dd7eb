"""Check of rings whose shards are proxies of unmodified controllers (docs/unmodified.md). Pure.

A Lease shows it by the field manager under which its shard writes. Rings without proxies are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kubeio.fence import policies_of
from ringleader.check.findings import Check, Finding, counted, error, warning
from ringleader.check.guard import covers, spec_of
from ringleader.check.server import version_parts
from ringleader.cluster.causes import some
from sharder.ringspec.spec import KeyKind

if TYPE_CHECKING:
    from ringleader.check.evidence import Evidence, RingEvidence

OLDEST_FENCE: Final = (1, 30)
"""The first version with ValidatingAdmissionPolicies of `admissionregistration.k8s.io/v1`."""


def judge_proxies(evidence: Evidence) -> Iterator[Finding]:
    """Rings of proxies move trees as a whole and in one batch, by proxies alone, and the API server fences them."""
    for ring in evidence.rings:
        if not ring.proxies:
            continue
        yield from _beside_others(ring)
        yield from _torn(ring)
        yield from _in_small_batches(ring)
        yield from _worked_twice(evidence, ring)
        yield from _unfenced(evidence, ring)


def _beside_others(ring: RingEvidence) -> Iterator[Finding]:
    for shard in ring.state.working:
        if shard not in ring.proxies:
            yield warning(
                f"shard {shard.name} (member {shard.member}) of ring {ring.name} is no proxy, and the others are: it "
                "hands objects over one by one, and each may restart a controller",
                ring=ring.name,
                about=ring.lease(shard.name),
                remedy="give native replicas and proxies rings of their own",
            )


def _torn(ring: RingEvidence) -> Iterator[Finding]:
    spec = ring.ring.spec
    controlled = {kind for entry in spec.resources for kind in entry.controlled}
    inner = [str(entry.main) for entry in spec.resources if entry.main in controlled and entry.controlled]
    if inner and spec.key is not KeyKind.OWNER:
        yield error(
            f"controllerring/{ring.name} has key {spec.key}: what {some(inner)} control has another owner than its "
            "root, and no controller works that tree",
            ring=ring.name,
            about=f"controllerring/{ring.name}",
            remedy="set spec.key: Owner",
        )


def _in_small_batches(ring: RingEvidence) -> Iterator[Finding]:
    """Each batch of handoffs costs a restart of the controller."""
    spec, where = ring.ring.spec, f"controllerring/{ring.name}"
    controlled = {str(kind) for entry in spec.resources for kind in entry.controlled}
    roots = [each for each in ring.counts if each.is_main and each.resource.group_resource not in controlled]
    of_shard = {name: sum(count.owners[name] for count in roots) for name in ring.state.by_name}
    if not of_shard:
        return
    name = max(of_shard, key=lambda each: (of_shard[each], each))
    most = of_shard[name]
    for field, limit in (
        ("maxInFlight", spec.max_in_flight),
        ("maxInFlightPerOwner", spec.max_in_flight_per_owner),
    ):
        if most > limit:
            yield warning(
                f"{where} has {field} {limit:,}: shard {name} has {counted(most, 'root')}, and its controller restarts "
                f"{counted(-(-most // limit), 'time')} until it has handed all over",
                ring=ring.name,
                about=where,
                evidence=["a proxy gives up in one restart what it was asked for until then"],
                remedy=f"set spec.{field} to more than a shard's roots, such as 10000",
            )


def _worked_twice(evidence: Evidence, ring: RingEvidence) -> Iterator[Finding]:
    """A kind of this ring that another one distributes too. `overlaps` reports two main resources."""
    mine, mains = {str(kind) for kind in ring.ring.kinds}, set(ring.ring.mains)
    for other in evidence.rings:
        theirs = set(other.ring.mains)
        is_reported = other.ring.spec.label_domain == ring.ring.spec.label_domain
        shared = mine & theirs - (mains if is_reported else set())
        if other is not ring and shared:
            yield warning(
                f"ring {ring.name}, of proxies, moves {some(sorted(shared))} with its trees, and ring {other.name} "
                "distributes them by themselves: two controllers work one object",
                ring=ring.name,
                about=f"controllerring/{ring.name}",
                remedy="right only if the two controllers write different things; else take the kind out of one ring",
            )


def _unfenced(evidence: Evidence, ring: RingEvidence) -> Iterator[Finding]:
    """Writes of an unmodified controller carry no tests: the policies alone refuse late ones."""
    where = f"controllerring/{ring.name}"
    parts = version_parts(evidence.version)
    if parts is not None and parts < OLDEST_FENCE:
        yield warning(
            f"the API server {evidence.server} is {evidence.version}: it cannot fence ring {ring.name}, whose "
            "controllers' late writes pass",
            ring=ring.name,
            about=evidence.server,
            remedy=f"upgrade to Kubernetes {OLDEST_FENCE[0]}.{OLDEST_FENCE[1]} or newer",
        )
        return
    if evidence.policies is None or "guard" in evidence.gaps:
        return
    remedy = f"ringleader fence {ring.name} | kubectl apply --server-side -f -"
    for name in policies_of(ring.name):
        policy, binding = evidence.policies.get(name), evidence.policy_bindings.get(name)
        if policy is None or binding is None:
            lacking = "validatingadmissionpolicy" if policy is None else "validatingadmissionpolicybinding"
            problem = f"there is no {lacking}/{name}"
        elif "Deny" not in (spec_of(binding).get("validationActions") or []):
            problem = f"validatingadmissionpolicybinding/{name} refuses nothing"
        elif missing := [
            each.resource.group_resource for each in ring.counts if not covers(spec_of(policy), each.resource)
        ]:
            problem = f"validatingadmissionpolicy/{name} does not know {some(missing)}"
        else:
            continue
        yield warning(
            f"ring {ring.name} is not fenced: {problem}, and late writes of its unmodified controllers pass",
            ring=ring.name,
            about=where,
            remedy=remedy,
        )


def _fine(evidence: Evidence) -> str:
    count = sum(1 for ring in evidence.rings if ring.proxies)
    return f"{counted(count, 'ring')} of proxies, fenced" if count else "no ring's shards are proxies"


CHECK = Check(
    "proxies",
    "rings of proxies that restart controllers often, or that nothing fences",
    judge_proxies,
    _fine,
    needs=("rings", "leases"),
)
