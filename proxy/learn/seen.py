"""What a controller was seen to do. Filled by `requests`, `looks` and `survey`; read by what judges. Pure.

Memory follows the number of kinds, not of objects: examples are bounded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

EXAMPLES: Final = 5
"""Examples that are kept of each thing."""
MOST_NAMES: Final = 50
"""Names of objects that are counted one by one."""


class LockName(NamedTuple):
    """What may be a leader-election lock."""

    resource: str
    namespace: str
    name: str


@dataclass(slots=True)
class LockSeen:
    """Requests for a Lease, or for a ConfigMap or Endpoints that says who leads. *writes*: those that succeeded.

    *refused*: the status of the last create that did not.
    """

    reads: int = 0
    writes: int = 0
    refused: int = 0


@dataclass(slots=True)
class KindSeen:
    """What it did with the objects of one kind. Writes are those that the API server carried out.

    Kinds are named as in `deployments.apps`, objects as in `web/shop`.
    """

    namespaces: set[str] = field(default_factory=set)
    """Where it listed or watched; the empty one: everywhere."""
    selectors: set[str] = field(default_factory=set)
    """Selectors of its lists and watches; the empty one: it had none."""
    has_old_watch: bool = False
    writes: Counter[str] = field(default_factory=Counter)
    """By verb, with the subresource: `patch status`."""
    created: Counter[str] = field(default_factory=Counter)
    """By the kind of the controller's owner reference; empty: it had none."""
    names: Counter[str] = field(default_factory=Counter)
    """Writes by object, of those that no object is known to control."""
    before_lock: int = 0
    """Writes before it wrote a lock."""
    finalizers: int = 0
    """Writes that added or removed one."""
    adopted: int = 0
    """Writes that gave an object a controller."""
    orphans: int = 0
    """Writes to an object whose controller did not exist any more."""
    dropped: list[str] = field(default_factory=list)
    """Labels that a PUT removed."""
    templates: int = 0
    """Pod templates that were compared with the labels of their owner."""
    copied: list[str] = field(default_factory=list)
    """Labels of an owner that were found in a pod template, and nowhere else in the owner."""
    beside: Counter[str] = field(default_factory=Counter)
    """Written without a controller under the name of an object of this other kind."""
    left: Counter[str] = field(default_factory=Counter)
    """Deleted without a controller while this other kind had no object of that name: counts where `beside` does."""
    formats: set[str] = field(default_factory=set)
    """Encodings of creates, updates and applies that take no label."""
    named: dict[str, str] = field(default_factory=dict)
    """Other kinds that the spec of an object names, each with an example: `spec.issuerRef: ca`."""
    earlier_owners: Counter[str] = field(default_factory=Counter)
    """Objects from before the run whose controller reference it wrote, by the controller's kind."""
    earlier_writes: Counter[str] = field(default_factory=Counter)
    """Objects from before the run that it wrote, by what: `status`, `finalizers`."""

    @property
    def is_read(self) -> bool:
        """Whether it lists or watches the kind."""
        return bool(self.namespaces)

    @property
    def reads_all(self) -> bool:
        """Whether it lists or watches without a selector."""
        return "" in self.selectors

    @property
    def has_controllers(self) -> bool:
        """Whether it made objects of the kind that others control, in the run or before."""
        return any(self.created.keys() - {""}) or bool(self.earlier_owners)

    def made_for(self, parent: str) -> int:
        """How many objects of the kind it made, in the run or before, that objects of *parent* control."""
        return self.created[parent] + self.earlier_owners[parent]

    def note_name(self, name: str) -> None:
        """Count a write to the object *name*."""
        if name in self.names or len(self.names) < MOST_NAMES:
            self.names[name] += 1


@dataclass(slots=True)
class Seen:
    """One run of a controller. *seconds*: how long; *exit_code*: None if it ran to the end."""

    kinds: dict[str, KindSeen] = field(default_factory=dict)
    locks: dict[LockName, LockSeen] = field(default_factory=dict)
    agents: set[str] = field(default_factory=set)
    """User agents of its requests, up to the first slash: its usual field managers."""
    managers: set[str] = field(default_factory=set)
    """Field managers that its requests name."""
    connections: set[str] = field(default_factory=set)
    """Subresources such as `exec` that it connected to."""
    holders: dict[LockName, str] = field(default_factory=dict)
    """Holders of the Leases that it read and never wrote."""
    gaps: set[str] = field(default_factory=set)
    """What learn mode itself could not read."""
    seconds: float = 0.0
    exit_code: int | None = None

    def kind(self, name: str) -> KindSeen:
        """What was seen of the kind *name*; new if nothing was."""
        return self.kinds.setdefault(name, KindSeen())

    def lock_names(self) -> list[str]:
        """Names of its leader-election locks: written again and again."""
        return sorted({each.name for each, lock in self.locks.items() if lock.writes > 1})

    def awaited_locks(self) -> list[LockName]:
        """Leases that it read again and again and never wrote: others hold them."""
        return [
            each
            for each, lock in self.locks.items()
            if lock.reads > 1 and not lock.writes and not lock.refused
        ]

    def refused_locks(self) -> dict[LockName, int]:
        """Locks that it could not create, with the status."""
        return {each: lock.refused for each, lock in self.locks.items() if lock.refused and not lock.writes}


def keep(examples: list[str], example: str) -> None:
    """Keep *example* if it is new and few are kept."""
    if len(examples) < EXAMPLES and example not in examples:
        examples.append(example)
