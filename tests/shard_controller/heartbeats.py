"""A heartbeat under test, on virtual time, and the Lease that it renews."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from kubeio.errors import Conflict, NotFound, ServerFailure
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.shard.heartbeat import Heartbeat
from kubeio.shard.lease_validity import LeaseValidity, Phase
from kubeio.shard.progress import StallDetector
from tests.kubeio.virtual import LoopClock
from tests.shard_controller.noted_timer import NotedTimer

D = 15.0
NAME = "shard-a-00000001"


@dataclass
class FakeLeases:
    """One Lease on a server: compare-and-swap by version, outages, slow and lost answers."""

    lease: Lease | None
    clock: LoopClock
    is_down: bool = False
    loses_answers: bool = False
    takes_s: float = 0.0
    swaps: list[float] = field(default_factory=list)
    attempts: list[float] = field(default_factory=list)

    async def get(self, name: str) -> Lease:
        await self._reach()
        if self.lease is None:
            raise NotFound("GET lease", status=404)
        return self.lease

    async def swap(self, lease: Lease) -> Lease:
        await self._reach()
        if self.lease is None:
            raise NotFound("PUT lease", status=404)
        if lease.metadata.resource_version != self.lease.metadata.resource_version:
            raise Conflict("PUT lease", status=409)
        self.swaps.append(self.clock.now())
        self.edit(spec=lease.spec, annotations=lease.metadata.annotations)
        if self.loses_answers:
            raise ServerFailure("PUT lease", status=500)
        return self.lease

    def edit(
        self,
        *,
        spec: LeaseSpec | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> None:
        """Write the Lease as another client would."""
        assert self.lease is not None
        old = self.lease.metadata
        meta = msgspec.structs.replace(
            old,
            resource_version=str(int(old.resource_version) + 1),
            labels=labels if labels is not None else old.labels,
            annotations=annotations if annotations is not None else old.annotations,
        )
        self.lease = msgspec.structs.replace(self.lease, metadata=meta, spec=spec or self.lease.spec)

    def take(self, holder: str = "sharder") -> None:
        assert self.lease is not None
        self.edit(spec=msgspec.structs.replace(self.lease.spec, holder_identity=holder))

    async def _reach(self) -> None:
        self.attempts.append(self.clock.now())
        await asyncio.sleep(self.takes_s)
        if self.is_down:
            raise ServerFailure("lease", status=503)


class Life:
    """A heartbeat under test, with everything it was given."""

    def __init__(self, *, deadline_s: float = 60.0, seed: int = 1, duration_s: float = D) -> None:
        self.clock = LoopClock()
        lease = Lease(
            metadata=Meta(name=NAME, namespace="ns", resource_version="1"),
            spec=LeaseSpec(holder_identity=NAME, lease_duration_seconds=int(D)),
        )
        self.leases = FakeLeases(lease, self.clock)
        self.began_at = self.clock.now()
        self.validity = LeaseValidity(duration_s=duration_s, sent_at=self.began_at)
        self.progress = StallDetector(deadline_s=deadline_s, clock=self.clock)
        self.timer = NotedTimer(self.validity, clock=self.clock)
        self.phases: list[tuple[float, Phase]] = []
        self.deadline_s = deadline_s
        self.heartbeat = Heartbeat(
            self.leases,
            lease,
            validity=self.validity,
            progress=self.progress,
            timer=self.timer,
            clock=self.clock,
            rng=random.Random(seed),
            on_phase=lambda phase: self.phases.append((self.elapsed(), phase)),
        )

    def elapsed(self) -> float:
        return self.clock.now() - self.began_at

    def later(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        asyncio.get_running_loop().call_later(seconds, call, *arguments)

    def swapped_at(self) -> list[float]:
        return [at - self.began_at for at in self.leases.swaps]

    def annotations(self) -> dict[str, str]:
        assert self.leases.lease is not None
        return self.leases.lease.metadata.annotations

    async def beats(self) -> None:
        """The main loop's ticker: all is well."""
        while True:
            self.progress.tick(due=0, taken=0, is_fresh=True, is_held=True)
            await asyncio.sleep(1)

    async def run(self, during: Callable[[], object] | None = None, *, for_s: float) -> BaseException | None:
        """Let it beat for *for_s*; how it ended, None if it still beats. *during* is called at once."""
        ticking = asyncio.create_task(self.beats())
        beating = asyncio.create_task(self.heartbeat.run())
        if during is not None:
            during()
        await asyncio.wait({beating}, timeout=for_s)
        ticking.cancel()
        if not beating.done():
            beating.cancel()
            await asyncio.wait({beating})
            return None
        error: BaseException | None = beating.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return error
