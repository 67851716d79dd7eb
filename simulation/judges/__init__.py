"""Judges of a run: what must never happen, at each step, and what must hold at its end.

They know the protocol (docs/protocol.md) and the store; of the processes they see what a bystander sees: requests, when
a reconcile runs, and the age of a Lease on the shard's own clock.

`known`: what the store showed so far, and what is excused. `reconciles`, `leases`, `objects`, `requests`: a judge each.
"""

from simulation.judges.judges import Judges
from simulation.judges.known import LEASES

__all__ = ["LEASES", "Judges"]
