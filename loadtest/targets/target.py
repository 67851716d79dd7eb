"""What every target of a load test offers. Written against by `loadtest.run`; built in `own` and `cluster`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from loadtest.inputs.scenario import Action
from loadtest.inputs.template import Template

NAMED: Final = 5
"""Findings of the checks that a report names."""


class LoadRefused(Exception):
    """The target does not allow the load; the message says what is missing."""


class ActionFailed(Exception):
    """An action on the fleet could not be carried out."""


class Way(StrEnum):
    """How the objects are worked."""

    SHARDED = "sharded"
    LEADER_ELECTED = "leader-elected"
    KOPF = "kopf"


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory now and CPU time so far of one process."""

    rss_bytes: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Testimony:
    """Results of the overlap check and the write check. *reason*: why they could not be made."""

    overlaps: int | None = None
    foreign_writes: int | None = None
    reconciles: int = 0
    named: list[str] = field(default_factory=list)
    """The findings, one sentence each."""
    reason: str = ""

    def since(self, before: Testimony) -> Testimony:
        """What was found after *before* was; each testimony is of the whole run."""
        if self.overlaps is None or self.foreign_writes is None:
            return self
        return Testimony(
            overlaps=self.overlaps - (before.overlaps or 0),
            foreign_writes=self.foreign_writes - (before.foreign_writes or 0),
            reconciles=self.reconciles - before.reconciles,
            named=[finding for finding in self.named if finding not in before.named][:NAMED],
        )


class Target(Protocol):
    """A fleet behind an API server."""

    description: str
    """For the report: what was loaded."""
    kubeconfig: str
    """File of the load's account; empty: what KUBECONFIG or the pod offers."""
    context: str
    namespace: str
    ring: str
    shares: bool
    """Whether a ring shares the objects among the replicas; if not, a leader has all of them."""

    async def resolve(self, client: Client, template: Template) -> ApiResource:
        """The resource of *template*, with everything there that its objects need. Raises: KubeError."""

    async def start(self) -> None:
        """Let the fleet work; returns when every replica is up. Raises: whatever keeps it from that."""

    async def size(self) -> int:
        """How many replicas there are. Raises: KubeError."""

    async def scale(self, replicas: int) -> None:
        """Have *replicas* replicas; does not wait until the objects have moved. Raises: ActionFailed, KubeError."""

    async def change_to(self, way: Way) -> None:
        """End every replica and sharder; what `scale` starts now works in the other *way*. Raises: ActionFailed."""

    async def act(self, action: Action) -> str:
        """Carry *action* out, until it is over, and say what was done. Raises: ActionFailed."""

    async def metrics(self) -> dict[str, str]:
        """The metrics page of each replica that answers."""

    def usage(self) -> Mapping[str, Usage]:
        """Memory and CPU of each process that can be seen from here."""

    async def testimony(self) -> Testimony:
        """Results of the checks over the whole run."""
