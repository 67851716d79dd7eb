"""Judge of rings that begin and go: what the controller may count on that worked before, or works afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from devcluster.plane import Write
from kubeio.protocol import activated_holder
from ringleader.testing.ownership_checks import LEASES as LEASE_RESOURCE
from simulation.judges.known import Known
from simulation.judges.reconciles import ReconcileJudge
from simulation.scale import FORMER, RESOURCES
from simulation.store import Store

_GONE: Final = "a gone ring leaves nothing"
_FORMER: Final = "the former controller has ended"
_RINGS: Final = "controllerrings.ringleader.dev"
_DRIFT: Final = 0.99
"""A clock that drifts may take so much of a duration for all of it."""


class RingJudge:
    """Judges when a sharder lets the ring go, and the former controller's Lease, and when it takes that."""

    def __init__(self, known: Known, store: Store, reconciles: ReconcileJudge) -> None:
        self._known: Final = known
        self._store: Final = store
        self._reconciles: Final = reconciles
        self._nothing_is_owned = known.fleet.scale.activates
        """Whether no object may get an owner: the ring has gone, or the former controller's Lease is to be taken."""
        self._unfenced: Final[set[str]] = set()
        """Uids of what was created too late."""
        self._worked: frozenset[str] = frozenset()
        """Resources that the ring distributes or has not released yet, by its status."""
        self._released: Final[set[str]] = set()
        """Those that it released, until it distributes them again."""
        self._former: dict[str, Any] = {}
        """Spec of the former controller's Lease, as it was written last."""
        self._former_at = 0.0
        """When that was."""

    def judge_write(self, write: Write) -> None:
        """A ring goes when nothing of it is left, and no object gets an owner until it works again."""
        if not 200 <= write.code < 300:
            return
        if write.resource == _RINGS:
            if write.subresource:
                self._judge_worked(write)
            else:
                self._judge_ring(write)
        elif write.resource == LEASE_RESOURCE and write.name == FORMER:
            self._judge_former(write)
        elif write.verb == "create" and self._known.is_unfenced(write):
            self._unfenced.add(write.uid)
        elif (self._nothing_is_owned or write.resource in self._released) and not self._known.is_forging:
            self._judge_owner(write)

    def begin_history(self) -> None:
        """etcd was restored, the ring with it perhaps, and the former controller's Lease."""
        self._nothing_is_owned = False  # the ring may be there again, and that Lease held
        self._former = {}
        self._former_at = self._known.world.now
        self._worked = frozenset()
        self._released.clear()

    def _judge_worked(self, write: Write) -> None:
        """A removed resource leaves the status when nothing of it is left."""
        kind = self._store.endpoints.registry.get("ringleader.dev", "controllerrings")
        entry = kind.collection.get(("", write.name)) if kind is not None else None
        status = (entry.decoded().get("status") or {}) if entry is not None else {}
        worked = frozenset(f"{each['resource']}.{each['group']}" for each in status.get("worked") or ())
        if write.user.startswith("sharder"):
            gone = self._worked - worked
            self._released.update(gone)
            self._judge_no_owner(each for each in RESOURCES if f"{each[1]}.{each[0]}" in gone)
        self._worked = worked
        self._released.difference_update(worked)

    def _judge_ring(self, write: Write) -> None:
        if write.labels_after is None:
            self._nothing_is_owned = write.user.startswith("sharder")
            if self._nothing_is_owned:
                self._judge_nothing_is_left()
                if self._former.get("holderIdentity") == self._holder:
                    self._known.violate(_GONE, f"{write.user} keeps the Lease {FORMER}")
        elif not self._known.fleet.scale.activates:
            self._nothing_is_owned = False

    def _judge_former(self, write: Write) -> None:
        spec: dict[str, Any] = (write.object or {}).get("spec") or {}
        before, after = self._former.get("holderIdentity"), spec.get("holderIdentity")
        if write.user.startswith("sharder"):
            if not after:
                self._judge_nothing_is_left()
            elif before not in (None, "", self._holder):
                silent_s = self._known.world.now - self._former_at
                if silent_s < self._former.get("leaseDurationSeconds", 15) * _DRIFT:
                    what = f"{write.user} takes the Lease of {before} after {silent_s:.1f} s"
                    self._known.violate(_FORMER, what)
        self._nothing_is_owned = self._nothing_is_owned and after != self._holder
        self._former, self._former_at = spec, self._known.world.now

    @property
    def _holder(self) -> str:
        return activated_holder(self._known.keys.ring)

    def _judge_nothing_is_left(self) -> None:
        """No object has an owner, and none is reconciled."""
        self._judge_no_owner(RESOURCES)
        for key, shard in self._reconciles.running():
            self._known.violate(_GONE, f"{key} is reconciled by {shard}")

    def _judge_no_owner(self, resources: Iterable[tuple[str, str]]) -> None:
        known = self._known
        for group, plural in resources:
            kind = self._store.endpoints.registry.get(group, plural)
            for entry in kind.collection.entries() if kind is not None else ():
                is_excused = entry.uid in known.forged or entry.uid in self._unfenced
                if (owner := entry.labels.get(known.keys.shard)) and not is_excused:
                    known.violate(_GONE, f"{plural} {entry.name} belongs to {owner}")

    def _judge_owner(self, write: Write) -> None:
        known = self._known
        owner = (write.labels_after or {}).get(known.keys.shard)
        if owner and owner != (write.labels_before or {}).get(known.keys.shard):
            known.violate(_GONE, f"{write.user} gives {write.resource} {write.name} to {owner}")
