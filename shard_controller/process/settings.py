"""Settings of a replica's process, from flags or from `sc.run`. The only decision is whether a value can be used."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kubeio.errors import InputError
from kubeio.labels import split_namespaces
from kubeio.program.http_server import parse_bind

_SHORTEST_BLOCK_S = 0.05


class Fence(StrEnum):
    """What keeps a shard's writes to its own objects."""

    TESTS = "tests"
    """The tests in its patches."""
    POLICY = "policy"
    """Those, and policies of the API server: each write names the life that sends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one process. *member*: its place on the ring.

    *namespace*: watched namespaces: one, several (`a,b`), or all (empty). *ring_file*: the ring is read from this
    file instead of the cluster.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str = ""
    ring_file: Path | None = None
    member: str = ""
    """Empty: the host's name."""
    hold: bool = False
    lease_duration_s: int = 15
    workers: int | None = None
    fence: Fence = Fence.TESTS
    journal: Path | None = None
    probes_bind: str = "127.0.0.1:0"
    probes_port_file: Path | None = None
    log_format: str = "auto"
    log_level: str = "info"
    progress_deadline_s: float = 60.0
    blocked_loop_s: float = 0.25
    """An event loop that is blocked for longer is reported, with the stack that blocks it; 0: never."""
    silence_s: float = 90.0
    """A watch without event or bookmark for longer is dead and is started again; bookmarks come once a minute."""
    termination_grace_s: float | None = None
    """The pod's terminationGracePeriodSeconds: a replica that is scaled away hands its objects over within it."""
    stop_within_s: float = 25.0
    """On SIGTERM: how long lost answers are waited for before the process exits without releasing its Lease."""

    def __post_init__(self) -> None:
        if self.lease_duration_s < 1:
            raise InputError(
                "--lease-duration", f"{self.lease_duration_s}s", "is too short", "use 1s or more"
            )
        if self.fence not in tuple(Fence):
            raise InputError("--fence", str(self.fence), "is no fence", f"use one of: {', '.join(Fence)}")
        if self.workers is not None and self.workers < 1:
            raise InputError("--workers", self.workers, "is too small", "use 1 or more")
        _ = self.namespaces
        if not self.silence_s > 0:
            raise InputError(
                "--watch-silence",
                f"{self.silence_s:g}s",
                "is too short",
                "use 90s, or more than a bookmark's interval",
            )
        if self.blocked_loop_s != 0 and not self.blocked_loop_s >= _SHORTEST_BLOCK_S:
            raise InputError(
                "--blocked-loop",
                f"{self.blocked_loop_s:g}s",
                "is too short",
                f"use {_SHORTEST_BLOCK_S:g}s or more, or 0 to report nothing",
            )
        if self.termination_grace_s is not None and not self.termination_grace_s > 0:
            raise InputError(
                "--termination-grace-period",
                f"{self.termination_grace_s:g}s",
                "is too short",
                "use the pod's terminationGracePeriodSeconds",
            )
        if not self.progress_deadline_s > 0:
            raise InputError(
                "--progress-deadline", f"{self.progress_deadline_s:g}s", "is too short", "use 1s or more"
            )

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Watched namespaces; none: all. Raises: InputError."""
        return split_namespaces(self.namespace)

    @property
    def member_name(self) -> str:
        """The member's name, as given or as the host is called."""
        return self.member or socket.gethostname().lower()

    @property
    def probes_address(self) -> tuple[str, int]:
        """Host and port of the probes. Raises: InputError."""
        return parse_bind("--health-probe-bind-address", self.probes_bind)
