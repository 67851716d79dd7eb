"""Parser of a ControllerRing as a person wrote it: a `RingSpec`, or the list of all its problems. Pure.

The CRD's schema refuses much of this at the API server already; it is checked again, because a schema may be older
than the sharder and because some rules span fields. Unknown fields are refused, never ignored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kubeio.labels import MAX_NAME, is_dns_label, is_dns_subdomain, is_label_key
from kubeio.models import GroupResource
from kubeio.protocol import DEFAULT_DOMAIN
from ring.errors import InvalidRing
from ring.ring import HashRing
from sharder.errors import FieldProblem, RingRefused
from sharder.ringspec.fields import Fields, Problems
from sharder.ringspec.spec import (
    LONGEST_LEASE_S,
    DrainPolicy,
    KeyKind,
    LabelSelector,
    LeaseRef,
    MemberSpec,
    Pace,
    Requirement,
    RingResource,
    RingSpec,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

API_VERSION: Final = "ringleader.dev/v1alpha1"
KIND: Final = "ControllerRing"
MAX_VIRTUAL_NODES: Final = 10_000
DEFAULT_IMBALANCE_PERCENT: Final = 5
MAX_TOKENS: Final = 2_000_000
"""Members named in the spec times virtual nodes: about 100 MB of ring, and seconds to build it."""
_DAY_S: Final = 86_400
_LONGEST_DOMAIN: Final = 253 - len("shard.")
_NO_RIGHTS: Final = ("kubernetes.io", "k8s.io")
_OWN: Final = frozenset(
    {GroupResource("coordination.k8s.io", "leases"), GroupResource("ringleader.dev", "controllerrings")}
)


def parse_ring(document: Mapping[str, object]) -> RingSpec:
    """The ring that *document* (a whole ControllerRing, as a person wrote it) describes.

    Raises: RingRefused with every problem found, not only the first.
    """
    ring, problems = read_ring(document)
    return _accepted(ring, problems)


def read_ring(document: Mapping[str, object]) -> tuple[RingSpec, Sequence[FieldProblem]]:
    """The ring that *document* describes as far as it can be used, with defaults for the rest; and every problem."""
    problems = Problems()
    top = Fields(document, "", problems)
    _check_kind(top)
    ring = _read(top.mapping("metadata").text("name"), top.raw("spec"), problems)
    return ring, problems.found


def parse_spec(name: str, spec: object) -> RingSpec:
    """Ring *name* with this *spec*. Raises: RingRefused as `parse_ring` does."""
    problems = Problems()
    return _accepted(_read(name, spec, problems), problems.found)


def _accepted(ring: RingSpec, problems: Sequence[FieldProblem]) -> RingSpec:
    if problems:
        raise RingRefused(ring.name, problems)
    return ring


def _read(name: str, written: object, problems: Problems) -> RingSpec:
    _check_name(name, problems)
    spec = Fields(written, "spec", problems)
    if written is None:
        problems.add("spec", None, "is missing", "name at least resources and leaseNamespace")
    ring = _ring(name, spec, problems)
    spec.refuse_unknown()
    return _check_ring(ring, problems)


def worked_as(spec: RingSpec) -> str:
    """Immutable fields of a ring that is worked, in a form that an annotation keeps."""
    return f"{spec.label_domain} {spec.lease_namespace}"


def immutable_changes(old: str, new: RingSpec) -> list[FieldProblem]:
    """Changes of immutable fields in *new*: keys and Leases of running shards would not be seen any more.

    *old* is `worked_as` of the ring when it was first worked; empty if it never was.
    """
    domain, _, namespace = old.partition(" ")
    changes = {
        "spec.labelDomain": (domain or new.label_domain, new.label_domain),
        "spec.leaseNamespace": (namespace or new.lease_namespace, new.lease_namespace),
    }
    return [
        FieldProblem(field, after, f"was {before!r} and is immutable", "make a new ring, and delete this one")
        for field, (before, after) in changes.items()
        if before != after
    ]


def _check_kind(top: Fields) -> None:
    version, kind = top.text("apiVersion", API_VERSION), top.text("kind", KIND)
    if version != API_VERSION:
        top.problem("apiVersion", "is not worked by this sharder", f"use {API_VERSION}")
    if kind != KIND:
        top.problem("kind", "is not a ring", f"use {KIND}")


def _check_name(name: str, problems: Problems) -> None:
    if not is_dns_subdomain(name, longest=MAX_NAME):
        problems.add(
            "metadata.name",
            name,
            "cannot be the name of a ring: it becomes part of label keys",
            f"use at most {MAX_NAME} lower-case letters, digits, '-' and '.'",
        )


def _ring(name: str, spec: Fields, problems: Problems) -> RingSpec:
    members = dict(_members(spec))
    return RingSpec(
        name=name,
        resources=_resources(spec, problems),
        namespace_selector=_selector(spec),
        lease_namespace=_lease_namespace(spec, "leaseNamespace"),
        label_domain=_domain(spec),
        algorithm=spec.choice("algorithm", "v1", of=("v1",)),
        virtual_nodes=_virtual_nodes(spec, members),
        eps=spec.count("imbalancePercent", DEFAULT_IMBALANCE_PERCENT, least=1, most=100) / 100,
        key=KeyKind(spec.choice("key", KeyKind.OBJECT, of=KeyKind)),
        key_label=_key_label(spec),
        members=members,
        hold_s=spec.count("holdSeconds", 0, most=_DAY_S),
        settle_s=spec.number("settleSeconds", 2, most=3600),
        min_members=spec.count("minMembers", 1, least=1, most=10_000),
        start_delay_s=spec.count("startDelaySeconds", 0, most=3600),
        max_lease_duration_s=spec.count("maxLeaseDurationSeconds", 60, least=1, most=LONGEST_LEASE_S),
        max_in_flight=spec.count("maxInFlight", 1000, least=1, most=100_000),
        max_in_flight_per_owner=spec.count("maxInFlightPerOwner", 250, least=1, most=100_000),
        drain_timeout_s=spec.count("drainTimeoutSeconds", 60, least=1, most=_DAY_S),
        drain_policy=DrainPolicy(spec.choice("drainPolicy", DrainPolicy.WAIT, of=DrainPolicy)),
        audit_interval_s=spec.count("auditIntervalSeconds", 3600, least=1, most=7 * _DAY_S),
        paused=spec.boolean("paused"),
        pace=_pace(spec),
        assign_at_admission=spec.boolean("assignAtAdmission"),
        activation=_activation(spec),
    )


def _check_ring(ring: RingSpec, problems: Problems) -> RingSpec:
    """Report fields that do not go together, and values that the ring refuses, such as too many decimal places.

    Fields are compared only if each of them could be read. Gives the ring with defaults for the values that it refuses.
    """
    if not problems.found:
        _check_key(ring, problems)
    refused = [
        name for name, m in ring.members.items() if not _is_taken({name: m.weight}, ring.eps, problems)
    ]
    usual = {name: replace(ring.members[name], weight=1.0) for name in refused}
    return replace(ring, members={**ring.members, **usual}) if usual else ring


def _is_taken(weights: Mapping[str, float], eps: float, problems: Problems) -> bool:
    """Whether a ring can be made of these values; if not, that is reported."""
    try:
        HashRing(weights, virtual_nodes=1, eps=eps)
    except InvalidRing as error:
        problems.add(f"spec.{error.field}", error.value, error.problem, error.remedy)
        return False
    return True


def _pace(spec: Fields) -> Pace | None:
    pace = Pace(spec.choice("pace", Pace.NORMAL, of=Pace))
    return pace if "pace" in spec else None


def _key_label(spec: Fields) -> str:
    label = spec.text("keyLabel")
    if "keyLabel" in spec and not is_label_key(label):
        spec.problem(
            "keyLabel",
            "cannot be the key of a label",
            "use at most 63 letters, digits, '-', '_' and '.', after a DNS name and '/' if you like",
        )
    return label


def _check_key(ring: RingSpec, problems: Problems) -> None:
    if ring.key is KeyKind.LABEL and not ring.key_label:
        problems.add("spec.keyLabel", None, "is missing", "name the label whose value is hashed (key: Label)")
    if ring.key is not KeyKind.LABEL and ring.key_label:
        problems.add(
            "spec.keyLabel",
            ring.key_label,
            f"does not fit key {ring.key.value}",
            "leave it out, or use key: Label",
        )
    if ring.key is not KeyKind.OWNER:
        _refuse_chains(ring.resources, problems)


def _domain(spec: Fields) -> str:
    domain = spec.text("labelDomain", DEFAULT_DOMAIN)
    if not is_dns_subdomain(domain, longest=_LONGEST_DOMAIN):
        spec.problem(
            "labelDomain",
            "cannot be the prefix of a label key",
            f"use a DNS name of at most {_LONGEST_DOMAIN} characters, such as {DEFAULT_DOMAIN}",
        )
    elif any(domain == taken or domain.endswith(f".{taken}") for taken in _NO_RIGHTS):
        spec.problem("labelDomain", "belongs to Kubernetes", "use a domain of your own")
    else:
        return domain
    return DEFAULT_DOMAIN


def _lease_namespace(fields: Fields, name: str) -> str:
    namespace = fields.text(name, required=True)
    if namespace and not is_dns_label(namespace):
        fields.problem(name, "cannot be a namespace", "use at most 63 lower-case letters, digits and '-'")
    return namespace


def _virtual_nodes(spec: Fields, members: Mapping[str, MemberSpec]) -> int:
    count = spec.count("virtualNodes", 1000, least=1, most=MAX_VIRTUAL_NODES)
    weights = sum(member.weight for member in members.values())
    if count * weights > MAX_TOKENS:
        spec.problem(
            "virtualNodes",
            f"makes {count * weights:,.0f} tokens with the weights of spec.members: too many to hold",
            f"use at most {MAX_TOKENS / weights:.0f} with these weights",
        )
    return count


def _members(spec: Fields) -> Iterator[tuple[str, MemberSpec]]:
    for name, fields in spec.entries("members"):
        yield (
            name,
            MemberSpec(
                weight=fields.number("weight", 1, least=0.001, most=100),
                cordoned=fields.boolean("cordoned"),
            ),
        )
        fields.refuse_unknown()


def _activation(spec: Fields) -> LeaseRef | None:
    if "activation" not in spec:
        spec.raw("activation")
        return None
    activation = spec.mapping("activation")
    lease = activation.mapping("lease")
    if "lease" not in activation:
        activation.problem("lease", "is missing", "name the former controller's leader-election Lease")
        return None
    found = LeaseRef(_lease_namespace(lease, "namespace"), lease.text("name", required=True))
    if found.name and not is_dns_subdomain(found.name):
        lease.problem("name", "cannot be the name of a Lease", "use lower-case letters, digits, '-' and '.'")
    lease.refuse_unknown()
    activation.refuse_unknown()
    return found


def _selector(spec: Fields) -> LabelSelector | None:
    if "namespaceSelector" not in spec:
        spec.raw("namespaceSelector")
        return None
    selector = spec.mapping("namespaceSelector")
    found = LabelSelector(
        selector.texts("matchLabels"),
        tuple(_requirement(fields) for fields in selector.items("matchExpressions")),
    )
    selector.refuse_unknown()
    return found


def _requirement(fields: Fields) -> Requirement:
    operator = fields.choice("operator", "Exists", of=("In", "NotIn", "Exists", "DoesNotExist"))
    if "operator" not in fields:
        fields.problem("operator", "is missing", "use In, NotIn, Exists or DoesNotExist")
    values = fields.many("values")
    found = Requirement(fields.text("key", required=True), operator, tuple(str(value) for value in values))
    wants_values = operator in ("In", "NotIn")
    if any(not isinstance(value, str) for value in values):
        fields.problem("values", "has an item that is not a string", "put it in quotes")
    elif wants_values is not bool(values):
        remedy = "name at least one" if wants_values else "leave it out"
        fields.problem("values", f"does not fit {operator}", remedy)
    fields.refuse_unknown()
    return found


def _resources(spec: Fields, problems: Problems) -> tuple[RingResource, ...]:
    entries = spec.items("resources")
    if not spec.raw("resources"):
        spec.problem(
            "resources", "is empty", "name at least one resource: {group: example.com, resource: websites}"
        )
    found: dict[GroupResource, RingResource] = {}
    for fields in entries:
        main = _group_resource(fields)
        if main in found:
            fields.problem("resource", f"is there twice ({main})", "merge the two entries")
            fields.raw("controlledResources")
        else:
            found[main] = RingResource(main, _controlled(fields))
        fields.refuse_unknown()
    return tuple(found.values())


def _controlled(fields: Fields) -> tuple[GroupResource, ...]:
    found: list[GroupResource] = []
    for entry in fields.items("controlledResources"):
        child = _group_resource(entry)
        if child in found:
            entry.problem("resource", f"is there twice ({child})", "remove one")
        found.append(child)
        entry.refuse_unknown()
    return tuple(found)


def _refuse_chains(resources: tuple[RingResource, ...], problems: Problems) -> None:
    """A controlled kind that is itself distributed would have two keys: its own and its controller's."""
    mains = {entry.main for entry in resources}
    for entry in resources:
        for child in entry.controlled:
            if child in mains:
                problems.add(
                    "spec.resources",
                    str(child),
                    f"is controlled by {entry.main} and distributed itself, so it would have two keys",
                    "use key: Owner, or leave it out of one of the two lists",
                )


def _group_resource(fields: Fields) -> GroupResource:
    found = GroupResource(fields.text("group"), fields.text("resource", required=True))
    if found.group and not is_dns_subdomain(found.group):
        fields.problem(
            "group", "cannot be an API group", "use a DNS name, or leave it out for the core group"
        )
    if found.resource and not is_dns_label(found.resource):
        fields.problem(
            "resource",
            "cannot be a resource",
            "use the plural name in lower case, without group, version or '/'",
        )
    if found in _OWN:
        fields.problem("resource", "keeps the ring itself and cannot be distributed", "leave it out")
    return found
