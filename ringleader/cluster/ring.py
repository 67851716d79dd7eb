"""One ControllerRing: its spec by the sharder's own parser, why a sharder refuses it, and its status. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kubeio.errors import InputError
from kubeio.models import GroupResource, Meta
from kubeio.suggestions import nearest
from sharder.ringspec.parsing import read_ring

if TYPE_CHECKING:
    from kubeio.protocol import RingKeys
    from kubeio.resource import ApiResource
    from sharder.ringspec.spec import RingSpec


class RingCondition(NamedTuple):
    """One condition of a ring's status. *since*: the time of its last transition, RFC 3339."""

    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class Ring:
    """A ControllerRing as read. A refused one has the fields that could be used, and defaults for the rest."""

    metadata: Meta
    spec: RingSpec
    status: Mapping[str, Any] = field(default_factory=dict)
    refusal: str = ""
    """The problems for which a sharder refuses it; empty if there are none."""

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def keys(self) -> RingKeys:
        return self.spec.keys

    @property
    def mains(self) -> list[str]:
        """Its main resources as `plural.group`, in their order."""
        return [str(each.main) for each in self.spec.resources]

    @property
    def kinds(self) -> list[GroupResource]:
        """Everything that it distributes: main resources first."""
        controlled = [kind for each in self.spec.resources for kind in each.controlled]
        return list(dict.fromkeys([*(each.main for each in self.spec.resources), *controlled]))

    @property
    def is_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def condition(self, kind: str) -> RingCondition:
        """The condition *kind*; status Unknown if the sharder has not written it."""
        for each in self.status.get("conditions") or []:
            if each.get("type") == kind:
                texts = (str(each.get(name) or "") for name in ("reason", "message", "lastTransitionTime"))
                return RingCondition(str(each.get("status")), *texts)
        return RingCondition()


def decode_ring(raw: bytes) -> Ring:
    """The ring in the JSON document *raw*."""
    return ring_of(msgspec.json.decode(raw))


def ring_of(document: Mapping[str, Any]) -> Ring:
    """The ring that *document* describes."""
    spec, problems = read_ring(document)
    metadata = msgspec.convert(document.get("metadata") or {}, Meta)
    return Ring(metadata, spec, document.get("status") or {}, "; ".join(map(str, problems)))


def named_ring(rings: Sequence[Ring], name: str, *, flag: str = "RING") -> Ring:
    """The ring *name*. Raises: InputError naming the nearest ones."""
    for ring in rings:
        if ring.name == name:
            return ring
    known = nearest(name, [ring.name for ring in rings])
    raise InputError(flag, name, "is not a ring of this cluster", f"name another: {known}")


def named_main(ring: Ring, name: str) -> str:
    """The main resource of *ring* that *name* means: `plural.group`, or the plural. Raises: InputError."""
    fitting = (
        [name] if name in ring.mains else [main for main in ring.mains if main.partition(".")[0] == name]
    )
    if len(fitting) == 1:
        return fitting[0]
    problem = "is ambiguous" if fitting else "is not a main resource"
    raise InputError(
        "--resource", name, f"{problem} of ring {ring.name}", f"name one of {', '.join(ring.mains)}"
    )


def choose_ring(rings: Sequence[Ring], resource: ApiResource, name: str | None) -> Ring:
    """The ring that distributes *resource*, or lets it follow its controllers; *name* chooses among several.

    Raises: InputError naming what there is.
    """
    if name is not None:
        named_ring(rings, name, flag="--ring")
    wanted = GroupResource(resource.group, resource.plural)
    fitting = [ring for ring in rings if wanted in ring.kinds and name in (None, ring.name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(ring.name for ring in fitting)
        raise InputError("--ring", name, f"is needed: {wanted} belongs to {names}", "give one of them")
    known = sorted({str(kind) for ring in rings for kind in ring.kinds})
    remedy = f"these are distributed: {', '.join(known)}" if known else "create a ControllerRing first"
    where = f"ring {name}" if name else "any ring"
    raise InputError("KIND", str(wanted), f"does not belong to {where}", remedy)
