"""Resources that a ring distributes or once distributed: the list in its status that outlives edits of its spec. Pure.

Labels are written only for resources in the list. A resource leaves it when no object of the resource carries a label
any more. So a resource that is taken out of the spec is released (protocol, section 7), whichever sharder acts by then.
`sharder.rings.finalizer` reads and writes the list, `sharder.planning.keys` derives the resources to give up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kubeio.models import GroupResource
from kubeio.protocol import RingEntry
from sharder.ringspec.spec import RingResource

if TYPE_CHECKING:
    from collections.abc import Sequence


def read_resources(entries: object) -> tuple[RingResource, ...]:
    """Resources in *entries*, a list as `spec.resources` and `status.worked` are; none if it is no such list."""
    try:
        found = msgspec.convert(entries or [], list[RingEntry])
    except msgspec.ValidationError:
        return ()
    return tuple(
        RingResource(entry.main, tuple(kind for kind in entry.controlled_resources if kind.resource))
        for entry in found
    )


def written(worked: Sequence[RingResource]) -> list[dict[str, object]]:
    """*worked* as the status carries it."""
    return [
        {
            **_named(entry.main),
            "controlledResources": [_named(child) for child in entry.controlled],
        }
        for entry in worked
    ]


def united(before: Sequence[RingResource], now: Sequence[RingResource]) -> tuple[RingResource, ...]:
    """Union of *before* and *now*, in an order that does not depend on the number of unions."""
    controlled: dict[GroupResource, set[GroupResource]] = {}
    for entry in (*before, *now):
        controlled.setdefault(entry.main, set()).update(entry.controlled)
    return tuple(RingResource(main, tuple(sorted(controlled[main]))) for main in sorted(controlled))


def limited(before: Sequence[RingResource], to: Sequence[RingResource]) -> tuple[RingResource, ...]:
    """Entries of *before* that *to* has too, each with the controlled kinds that both have."""
    allowed = {entry.main: entry.controlled for entry in united((), to)}
    return tuple(
        RingResource(entry.main, tuple(child for child in entry.controlled if child in allowed[entry.main]))
        for entry in united((), before)
        if entry.main in allowed
    )


def _named(kind: GroupResource) -> dict[str, object]:
    return {"group": kind.group, "resource": kind.resource}
