"""`ringleader where KIND/NAME`: who owns an object now, who should, and why.

Owns the answer it gives (`Placement`, also the JSON document). Computes the desired owner with the same ring as
the sharder, from the lives that the ring's Leases show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from kubeio.errors import InputError, NotFound
from kubeio.models import ObjectKey
from kubeio.resource import ApiResource
from kubeio.suggestions import nearest
from ring import Explanation
from ringleader.inspect.cluster.dates import DatedMeta, HasDatedMeta
from ringleader.inspect.cluster.keys import Key, Target, read_key
from ringleader.inspect.cluster.kinds import unwatched, unworked
from ringleader.inspect.cluster.reading import read_lives, read_rings
from ringleader.inspect.cluster.rings import Kind, Life, Ring, Rings
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, age, print_document, print_line

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery


class Placement(msgspec.Struct, rename="camel"):
    """Where one object is, where it belongs, and how that follows."""

    object: str
    ring: str
    owner: str
    owner_member: str
    owner_state: str
    drain_to: str | None
    desired_member: str
    desired_shard: str
    is_placed: bool
    key: str
    key_from: str
    hash: str
    token: str
    why: list[str]
    main: str = ""
    """The main resource that the object is or follows: the ring is that of its members."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """An object as it was found: its ring, what is hashed for it, the ring's lives, and who wrote what when."""

    ring: Ring
    target: Target
    key: Key
    lives: Sequence[Life]
    dated: DatedMeta
    others: Sequence[Ring] = ()
    """Further rings with an owner for it, by labels of the same domain."""


def run_where(
    where: ConnectionOptions, target: str, *, namespace: str | None, ring: str | None, form: Form | None
) -> int:
    """The command."""
    kind, name = parse_target(target)

    async def ask(client: Client, cluster: Cluster) -> Placement:
        space = namespace or cluster.namespace
        return await find(client, kind, ObjectKey(space, name), ring_name=ring, timeout_s=where.timeout_s)

    placement = connected(where, ask)
    match form:
        case Form.JSON | Form.YAML:
            print_document(placement, form=form)
        case Form.NAME:
            print_line(placement.owner)
        case _:
            for line in lines(placement):
                print_line(line)
    return 0


def parse_target(text: str) -> tuple[str, str]:
    """Kind and name of `website/blog`. Raises: InputError."""
    kind, slash, name = text.partition("/")
    if not (kind and slash and name) or "/" in name:
        raise InputError("KIND/NAME", text, "does not name one object", "write it as website/blog")
    return kind, name


async def find(
    client: Client, kind: str, key: ObjectKey, *, ring_name: str | None, timeout_s: float
) -> Placement:
    """Where the object *key* of *kind* is and belongs. Raises InputError, KubeError."""
    from kubeio.rest.discovery import Discovery

    sighting = await look_up(client, Discovery(client), kind, key, ring_name=ring_name, timeout_s=timeout_s)
    return place(sighting.ring, sighting.target, sighting.key, sighting.lives)


async def look_up(
    client: Client,
    discovery: Discovery,
    kind: str,
    key: ObjectKey,
    *,
    ring_name: str | None,
    timeout_s: float,
) -> Sighting:
    """The object *key* of *kind*, its ring, its key there, and the ring's lives. Raises InputError, KubeError."""
    rings = await read_rings(client, timeout_s=timeout_s)
    resource = await resolve_kind(discovery, rings, kind)
    ring = choose_ring(rings, resource, ring_name)
    namespace = key.namespace if resource.namespaced else ""
    try:
        found = await client.get(
            resource,
            key.name,
            namespace=namespace,
            type=HasDatedMeta,
            metadata_only=True,
            timeout_s=timeout_s,
        )
    except NotFound:
        raise await _unknown(client, resource, key, timeout_s=timeout_s) from None
    target = Target(resource, found.metadata)
    return Sighting(
        ring,
        target,
        await read_key(client, discovery, ring, target),
        await read_lives(client, ring),
        found.metadata,
        [other for other in rings if _owns_too(other, ring, target)],
    )


def _owns_too(other: Ring, ring: Ring, target: Target) -> bool:
    """Whether *other* distributes *target* as well, by labels of the domain that *ring* uses."""
    kind = Kind(target.resource.plural, target.resource.group)
    is_like = other.name != ring.name and other.spec.label_domain == ring.spec.label_domain
    return is_like and kind in _kinds(other) and other.keys.shard in target.meta.labels


async def resolve_kind(discovery: Discovery, rings: Sequence[Ring], text: str) -> ApiResource:
    """The resource that *text* means; of several of one name the one that a ring distributes.

    Raises: InputError naming the candidates if several of them are distributed.
    """
    candidates = await discovery.candidates(text)
    distributed = {kind for ring in rings for kind in _kinds(ring)}
    fitting = [each for each in candidates if Kind(each.plural, each.group) in distributed]
    if len(fitting) > 1:
        names = ", ".join(each.group_resource for each in fitting)
        raise InputError("KIND", text, f"is ambiguous: rings distribute {names}", "write one of them out")
    return (fitting or candidates)[0]


async def _unknown(client: Client, resource: ApiResource, key: ObjectKey, *, timeout_s: float) -> InputError:
    """The error that says what was perhaps meant by an object that is not there."""
    namespace = key.namespace if resource.namespaced else ""
    page = await client.list_page(resource, namespace=namespace, metadata_only=True, timeout_s=timeout_s)
    place = f"namespace {namespace}" if namespace else "the cluster"
    remedy = f"name another: {nearest(key.name, [found.meta.name for found in page.objects])}"
    if namespace:
        remedy += " (-n NAME looks in another namespace)"
    shown = f"{resource.group_resource}/{key.name}"
    return InputError("KIND/NAME", shown, f"does not exist in {place}", remedy)


def choose_ring(rings: Sequence[Ring], resource: ApiResource, name: str | None) -> Ring:
    """The ring that distributes *resource*, or lets it follow its controllers; *name* chooses among several.

    Raises: InputError naming what there is.
    """
    if name is not None and name not in (all_names := [ring.name for ring in rings]):
        raise InputError(
            "--ring", name, "is not a ring of this cluster", f"name another: {nearest(name, all_names)}"
        )
    wanted = Kind(resource.plural, resource.group)
    fitting = [ring for ring in rings if wanted in _kinds(ring) and name in (None, ring.name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(ring.name for ring in fitting)
        raise InputError("--ring", name, f"is needed: {wanted.name} belongs to {names}", "give one of them")
    known = sorted({kind.name for ring in rings for kind in _kinds(ring)})
    remedy = f"these are distributed: {', '.join(known)}" if known else "create a ControllerRing first"
    where = f"ring {name}" if name else "any ring"
    raise InputError("KIND", wanted.name, f"does not belong to {where}", remedy)


def _kinds(ring: Ring) -> set[Kind]:
    mains = {each.kind for each in ring.spec.resources}
    return mains | {kind for each in ring.spec.resources for kind in each.controlled_resources}


def place(ring: Ring, target: Target, key: Key, found: Sequence[Life]) -> Placement:
    """Where *target* is and belongs, from its labels and the lives of its ring."""
    labels, keys = target.meta.labels, ring.keys
    shard = labels.get(keys.shard, "")
    owner = next((life for life in found if life.shard == shard), None)
    hashed = Rings(ring, found).of(key.main)
    explanation = hashed.explain(key.text) if len(hashed) else None
    member = explanation.owner if explanation else ""
    desired = next((life.shard for life in found if life.fills_place and life.member == member), "")
    kind = target.resource.group_resource
    is_ignored = owner is not None and owner.ignores(kind)
    return Placement(
        object=str(target),
        ring=ring.name,
        owner=shard,
        owner_member=owner.member if owner else "",
        owner_state=_state(owner, shard),
        drain_to=labels.get(keys.drain),
        desired_member=member,
        desired_shard=desired,
        is_placed=bool(shard) and shard == desired and keys.drain not in labels and not is_ignored,
        key=key.text,
        key_from=key.source,
        hash=f"{explanation.hash:016x}" if explanation else "",
        token=f"{explanation.token:016x}" if explanation else "",
        why=[
            *_why_member(explanation, ring, found, key.main),
            *(
                [unwatched(shard, kind)]
                if is_ignored
                else _why_owner(shard, owner, desired, labels.get(keys.drain))
            ),
        ],
        main=key.main,
    )


def _state(owner: Life | None, shard: str) -> str:
    if owner is None:
        return "no Lease" if shard else "unowned"
    return f"{owner.state}, Lease renewed {age(owner.age_s)} ago"


def _why_member(explanation: Explanation | None, ring: Ring, found: Sequence[Life], main: str) -> list[str]:
    """How the *ring* of the main resource *main* came to its member."""
    if explanation is None:
        places = [life for life in found if life.fills_place]
        if places and not any(life.works(main) for life in places):
            return [f"{unworked(ring.name, main)}: such objects wait"]
        return ["no member is on the ring: no shard of it is live"]
    first = f"the first token at or after the hash is one of {explanation.token_member}"
    if not explanation.passed:
        return [first]
    return [
        first,
        f"passed on clockwise, because full: {', '.join(explanation.passed)}",
        f"{explanation.owner} is the next with room",
    ]


def _why_owner(shard: str, owner: Life | None, desired: str, drain: str | None) -> list[str]:
    """Why the owner is not the desired one, if it is not."""
    if drain is not None:
        return [f"it is on its way to {drain}" if drain else "it is being released from the ring"]
    if not shard:
        return ["it has no owner: new, or waiting for the sharder (is one running? ringleader status)"]
    if owner is None or not owner.is_live:
        return [f"{shard} is dead: the sharder gives the object to a living shard"]
    if shard != desired:
        return ["its owner is live but not the desired one: the sharder will ask for a handoff"]
    return ["it is where it belongs"]


def lines(placement: Placement) -> list[str]:
    """The answer for people."""
    owner = placement.owner or "nobody"
    desired = placement.desired_shard or "nobody"
    rows = [
        ("object", f"{placement.object} on ring {placement.ring}"),
        ("owner", f"{owner} ({placement.owner_state})"),
        ("desired", f"{desired} (member {placement.desired_member or 'none'})"),
        ("drain", "none" if placement.drain_to is None else placement.drain_to or "release"),
        ("key", f"{placement.key} ({placement.key_from})"),
        ("hash", f"{placement.hash or '-'} (murmur3, first 64 bits)"),
        ("token", placement.token or "-"),
    ]
    rows += [("why" if index == 0 else "", reason) for index, reason in enumerate(placement.why)]
    return [f"{name:<9}{value}" for name, value in rows]
