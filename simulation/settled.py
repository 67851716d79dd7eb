"""What has to hold in the end, when nothing fails any more. Every function says what does not hold yet; empty: all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from devcluster.embedded.store import Entry
from kubeio.decoding import meta_of
from ring.key import object_key
from ring.ring import HashRing
from sharder.planning.keys import label_key
from sharder.ringspec.parsing import parse_ring
from simulation.controllers import HTML, has_children, theme_of
from simulation.fleet import Fleet
from simulation.judges import LEASES
from simulation.scale import GROUP, KEYS, LEASE_NAMESPACE, RING, THEME

_WEBSITES: Final = ("example.com", "websites")
_PAGES: Final = ("example.com", "pages")
_CONDITIONS: Final = {"Ready": "True", "Balanced": "True", "DrainStuck": "False", "MembersUncertain": "False"}
_RINGS: Final = ("ringleader.dev", "controllerrings")


def unsettled(fleet: Fleet) -> str:
    """Every object is owned by a live shard, where the ring puts it, was reconciled as it is, and is not drained."""
    for kind in (_RINGS, *_kinds(fleet)):
        if fleet.store.endpoints.registry.get(*kind) is None:
            return f"{kind[1]} are not served"
    checks = (_ring_is_going, _unowned, _unseen, _unmade, _outdated, _misplaced, _misreported)
    return next(filter(None, (check(fleet) for check in checks)), "")


def _ring_is_going(fleet: Fleet) -> str:
    """Whether there is a ring that is not being deleted: a deleted one releases every object."""
    rings = fleet.store.kind(*_RINGS).collection.entries()
    stays = any("deletionTimestamp" not in ring.decoded()["metadata"] for ring in rings)
    return "" if stays else "the ring is gone, or going"


def _unowned(fleet: Fleet) -> str:
    leases = {
        entry.name
        for entry in fleet.store.kind(*LEASES).collection.entries()
        if entry.namespace == LEASE_NAMESPACE
    }
    for plural, entry in (*_roots(fleet), *(("configmaps", child) for child in _children(fleet))):
        shard = entry.labels.get(KEYS.shard, "")
        if KEYS.drain in entry.labels:
            return f"{plural} {entry.name} has a drain label, and belongs to {shard or 'no shard'}"
        replica = fleet.of_shard(shard) if shard else None
        if replica is None or not replica.may_work or shard not in leases:
            return f"{plural} {entry.name} belongs to {shard or 'no shard'}, which does not work"
    return ""


def _unseen(fleet: Fleet) -> str:
    for plural, entry in _roots(fleet):
        seen = (entry.decoded().get("status") or {}).get("observedGeneration")
        if seen != entry.generation:
            return f"{plural} {entry.name} is at generation {entry.generation}, and {seen} was reconciled"
    return ""


def _unmade(fleet: Fleet) -> str:
    """Each website controls ConfigMaps with its content, or none if it is to have none."""
    made: defaultdict[str, list[str]] = defaultdict(list)
    for child in _children(fleet):
        if (controller := meta_of(child.raw).controller) is not None:
            made[controller.uid].append(child.decoded()["data"].get(HTML))
    for site in fleet.store.kind(*_WEBSITES).collection.entries():
        html = site.decoded()["spec"].get("html", "")
        wanted = [html] * fleet.scale.children if has_children(html, fleet.scale) else []
        if (found := made[site.uid]) != wanted:
            return f"websites {site.name} made {found}, not {wanted}"
    return ""


def _outdated(fleet: Fleet) -> str:
    """What was made of another theme than the present one."""
    if not fleet.scale.watches:
        return ""
    themes = [entry.decoded() for entry in fleet.store.kind("", "serviceaccounts").collection.entries()]
    theme = theme_of(next(iter(themes), None))
    for entry in _children(fleet):
        if (found := entry.decoded()["data"].get(THEME)) != theme:
            return f"configmaps {entry.name} has the theme {found}, not {theme}"
    return ""


def _misplaced(fleet: Fleet) -> str:
    """Roots are where the ring of the replicas that work them puts them, and what they control is with them."""
    found = fleet.store.kind(*_RINGS).collection.get(("", RING))
    if found is None:
        return "there is no ring"
    spec = parse_ring(found.decoded())
    members = sorted(name for name in fleet.wanted if name.startswith("replica"))
    owners = {}
    for plural, entry in _roots(fleet):
        workers = tuple(name for name in members if fleet.scale.works_pages(name) is (plural == _PAGES[1]))
        ring = _ring(workers, spec.virtual_nodes, spec.eps)
        owner = owners[entry.uid] = entry.labels[KEYS.shard]
        member = ring.owner(_key(entry, by_group=fleet.scale.groups))
        replica = fleet.replicas.get(member)
        if replica is None or owner != replica.shard:
            return f"{plural} {entry.name} belongs to {owner}, not to a shard of {member}"
    return _left_behind(fleet, owners)


def _misreported(fleet: Fleet) -> str:
    """The ring's status says what is: how many objects each member has, and that nothing is to do."""
    ring = fleet.store.kind(*_RINGS).collection.get(("", RING))
    status = ring.decoded().get("status", {}) if ring is not None else {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
    owners = Counter(entry.labels[KEYS.shard] for _, entry in _roots(fleet))
    reported = {
        each.get("shard"): each["objects"] for each in status.get("members", ()) if each.get("objects")
    }
    left = {
        name: status.get(name) for name in ("unassigned", "inFlight", "misplaced") if status.get(name) != 0
    }
    if reported != owners or status.get("objects") != owners.total():
        return (
            f"the ring's status says {status.get('objects')} objects of {reported}, there are {dict(owners)}"
        )
    if conditions != _CONDITIONS or left:
        return f"the ring's status says {conditions} {left}"
    return ""


def _left_behind(fleet: Fleet, owners: Mapping[str, str]) -> str:
    for child in _children(fleet):
        controller = meta_of(child.raw).controller
        owner = child.labels[KEYS.shard]
        wanted = owners.get(controller.uid, owner) if controller is not None else owner
        if owner != wanted:
            return f"configmaps {child.name} belongs to {owner}, its controller to {wanted}"
    return ""


def _kinds(fleet: Fleet) -> tuple[tuple[str, str], ...]:
    return (_WEBSITES, _PAGES) if fleet.scale.pages else (_WEBSITES,)


def _roots(fleet: Fleet) -> list[tuple[str, Entry]]:
    """Objects of the ring's main resources, each with the name of its resource."""
    return [
        (kind[1], entry) for kind in _kinds(fleet) for entry in fleet.store.kind(*kind).collection.entries()
    ]


def _children(fleet: Fleet) -> list[Entry]:
    found = fleet.store.kind("", "configmaps").collection.entries()
    return [entry for entry in found if KEYS.shard in entry.labels]


def _key(root: Entry, *, by_group: bool) -> str:
    group = root.labels.get(GROUP) if by_group else None
    return label_key(group) if group else object_key(_WEBSITES[0], root.namespace, root.name)


@lru_cache(maxsize=4)
def _ring(members: tuple[str, ...], virtual_nodes: int, eps: float) -> HashRing:
    return HashRing(members, virtual_nodes=virtual_nodes, eps=eps)
