"""What a run is made of: names that all runs share, and how large a drawn world is. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from kubeio.protocol import RingKeys

RING: Final = "websites"
KEYS: Final = RingKeys(RING)
SITES: Final = "sites"
LEASE_NAMESPACE: Final = "leases"
STRANGER: Final = "another-program"
"""A Lease beside those of the ring, of a program that has nothing to do with it."""
FORMER: Final = "former-controller"
"""The leader-election Lease of the controller that the ring replaces."""
THEME: Final = "theme"
"""A ServiceAccount that every object depends on; its annotation of this name is the theme."""
SELECTED: Final = {"matchLabels": {"sites": "here"}}
"""What a ring with a namespaceSelector selects."""
GROUP: Final = "group"
"""The label whose value is the key of a ring with groups."""
RESOURCES: Final = (("example.com", "websites"), ("example.com", "pages"), ("", "configmaps"))
SHORT_AUDIT_S: Final = 100
"""An audit of so long reads every object within a run."""
DEFAULT_AUDIT_S: Final = 3600
"""An audit takes so long by default. No run waits for its end."""
_PAGES_EVERY: Final = 3
_MOST_REPLICAS: Final = 10
_OBJECTS_PER_REPLICA: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What a run is made of; every time is in seconds."""

    replicas: int
    sharders: int
    machines: int
    servers: int
    objects: int
    lease_s: int
    max_lease_s: int
    settle_s: int
    hold: bool
    finalizes: bool
    """Whether the controller has a finalizer."""
    watches: bool = False
    """Whether the controller watches a resource outside the ring, has an index and a predicate."""
    groups: bool = False
    """Whether the ring's key is a label of the objects: a child's key is not seen by its name."""
    activates: bool = False
    """Whether the ring replaces a controller with a leader election."""
    writes_more: bool = False
    """Whether the controller writes to its object before it ends, deletes children, and reconciles all now and then."""
    pages: bool = False
    """Whether the ring has a second resource, pages, which some of the replicas work, and nothing else."""
    selects: bool = False
    """Whether the ring selects namespaces by a label."""
    admits: bool = False
    """Whether sharders name owners at admission."""
    longest_reconcile_s: float
    timeout_s: float
    """Reconciles that take longer are cancelled."""
    updates_per_s: float
    children: int = 1
    """How many ConfigMaps a website controls that has any."""
    audit_s: int = DEFAULT_AUDIT_S
    """How long the sharder's audit takes."""
    faults_until_s: float = 240.0
    """Until then faults strike."""

    def works_pages(self, replica: str) -> bool:
        """Whether *replica* works pages; the others work websites."""
        return self.pages and int(replica.rpartition("-")[2]) % _PAGES_EVERY == 1

    @property
    def audits_within_run(self) -> bool:
        """Whether the audit reads every object within a run."""
        return self.audit_s <= SHORT_AUDIT_S

    @property
    def fewest_replicas(self) -> int:
        """So many stay: they reconcile every object in the time in which a fleet has to settle."""
        return max(2, self.objects // _OBJECTS_PER_REPLICA)

    @property
    def most_replicas(self) -> int:
        """With so many, no other joins."""
        return max(_MOST_REPLICAS, self.replicas)

    @property
    def requests_at_rest(self) -> float:
        """Requests per minute that a fleet at rest may send: renewals, election, watches that begin anew, the audit."""
        renewals = self.replicas * 180 / self.lease_s
        election = self.sharders * 60 / min(0.4, self.lease_s / 7.5)
        return 2 * (renewals + election) + 60 * self.replicas + 8 * self.objects + 500


def draw_large_scale(rng: random.Random, *, hours: float) -> Scale:
    """A large world: up to 100 replicas, 2,000 objects, *hours* of faults."""
    return Scale(
        replicas=rng.randint(30, 100),
        sharders=2,
        machines=10,
        servers=3,
        objects=2000,
        lease_s=15,
        max_lease_s=30,
        settle_s=2,
        hold=rng.random() < 0.5,
        finalizes=False,
        longest_reconcile_s=1.0,
        timeout_s=60.0,
        updates_per_s=5.0,
        faults_until_s=3600.0 * hours,
    )


def draw_scale(rng: random.Random) -> Scale:
    """A small world, five minutes of it."""
    lease_s = rng.choice((5, 10, 15))
    return Scale(
        replicas=rng.randint(3, 8),
        sharders=2,
        machines=rng.randint(2, 4),
        servers=rng.randint(1, 3),
        objects=rng.choice((20, 40, 80, 200)),
        lease_s=lease_s,
        max_lease_s=lease_s * rng.choice((1, 2)),
        settle_s=rng.choice((0, 1, 2)),
        hold=rng.random() < 0.5,
        finalizes=rng.random() < 0.3,
        watches=rng.random() < 0.3,
        groups=rng.random() < 0.2,
        activates=rng.random() < 0.2,
        longest_reconcile_s=rng.choice((0.01, 0.5, 3.0)),
        timeout_s=lease_s * rng.choice((2.0, 4.0)),
        updates_per_s=rng.choice((0.5, 1.0, 2.0)),
        writes_more=rng.random() < 0.3,
        pages=rng.random() < 0.2,
        selects=rng.random() < 0.2,
        admits=rng.random() < 0.2,
        audit_s=rng.choice((SHORT_AUDIT_S, *[DEFAULT_AUDIT_S] * 3)),
        children=rng.choice((1, 1, 3)),
    )
