"""All judges of one run, as the fleet and the faults call them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from devcluster.plane import Write
from kubeio.models import Meta
from kubeio.protocol import RingKeys
from ringleader.testing.ownership_checks import LEASES as LEASE_RESOURCE
from simulation.judges.known import Known
from simulation.judges.leases import LeaseJudge
from simulation.judges.objects import ObjectJudge
from simulation.judges.reconciles import ReconcileJudge
from simulation.judges.requests import RequestJudge
from simulation.judges.rings import RingJudge
from simulation.store import Store
from simulation.world import World

if TYPE_CHECKING:
    from simulation.fleet import Fleet, Replica


class Judges:
    """Watches one run; what a judge finds ends it."""

    def __init__(self, world: World, store: Store, fleet: Fleet, *, keys: RingKeys) -> None:
        self.known: Final = Known(world, fleet, keys=keys)
        requests = RequestJudge(self.known)
        self._reconciles: Final = ReconcileJudge(self.known)
        self.leases: Final = LeaseJudge(self.known, store, requests)
        self._objects: Final = ObjectJudge(self.known, store, self._reconciles, requests)
        self._rings: Final = RingJudge(self.known, store, self._reconciles)
        store.on_write.extend([self._judge_write, self._rings.judge_write])

    @property
    def reconciles(self) -> int:
        """How many began."""
        return self._reconciles.number

    def reconcile(self, replica: Replica, uid: str, key: str) -> AbstractContextManager[None]:
        """The length of one reconcile of *uid* by *replica*."""
        return self._reconciles.reconcile(replica, uid, key)

    def write_outside(self, replica: Replica, uid: str, token: int) -> bool:
        """An outside system gets a write with *token*; whether it accepts it."""
        return self._objects.write_outside(replica, uid, token)

    def admitted(self, owner: str, asked_at: float) -> None:
        """A sharder named *owner* for an object that is being created, asked at *asked_at*."""
        self._objects.admitted(owner, asked_at)

    def reads(self, replica: Replica, meta: Meta, html: str) -> None:
        """A reconcile of *replica* takes *html* for the content of the object that *meta* shows."""
        self._objects.reads(replica, meta, html)

    def reads_version(self, replica: Replica, uid: str, version: str) -> None:
        """A reconcile of *replica* reads a controlled object in *version*."""
        self._objects.reads_version(replica, uid, version)

    def ended(self, replica: Replica) -> None:
        """The process of *replica* has ended: nothing of it runs."""
        self._reconciles.ended(replica)

    def begin_history(self) -> None:
        """etcd was restored: lives that began before are not judged."""
        self._objects.begin_history()
        self._rings.begin_history()
        self._reconciles.begin_history()
        self.known.begin_history()
        self.leases.begin_history()

    def judge_all_writes(self) -> None:
        """The write check, over the log of the whole run."""
        self._objects.judge_all_writes()

    def _judge_write(self, write: Write) -> None:
        if write.resource == LEASE_RESOURCE:
            self.leases.judge_write(write)
        else:
            self._objects.judge_write(write)
