"""Surroundings of a shard: those of every process, its heartbeat, and the processes beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeio.program.host import Host
from kubeio.shard import process_proof
from kubeio.shard.exit_timer import ExitTimer
from kubeio.shard.heartbeat import HeartbeatThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubeio.access.cluster import Cluster
    from kubeio.models import Lease
    from kubeio.shard.lease_validity import LeaseValidity, Phase
    from kubeio.shard.progress import StallDetector


class ShardHost(Host):
    """The surroundings of a shard on an ordinary machine."""

    @property
    def processes(self) -> process_proof.ProcessTable:
        """The processes beside this one: they prove that an earlier one has ended."""
        return process_proof.LinuxProcesses()

    def identity(self) -> process_proof.Identity:
        return process_proof.this_process()

    def pod(self, member: str) -> str:
        """`NAMESPACE/NAME` of the pod of *member*; empty outside of pods."""
        return process_proof.this_pod(member)

    def mark_children(self, shard: str) -> None:
        """Mark the future children of this process as those of *shard*."""
        process_proof.mark_children(shard)

    def heartbeat(
        self,
        cluster: Cluster,
        lease: Lease,
        *,
        validity: LeaseValidity,
        progress: StallDetector,
        on_phase: Callable[[Phase], None],
    ) -> HeartbeatThread:
        """A heartbeat of *lease* that goes on while the event loop is blocked; not started."""
        return HeartbeatThread(
            self,
            cluster,
            lease,
            validity=validity,
            progress=progress,
            timer=self.exit_timer(validity),
            on_phase=on_phase,
        )

    def exit_timer(self, validity: LeaseValidity) -> ExitTimer:
        """A timer that ends this process if it outlives *validity*."""
        return ExitTimer(validity, clock=self.clock)
