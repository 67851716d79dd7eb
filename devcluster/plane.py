"""What every control plane of `devcluster` offers, whichever server stands behind it: the `ControlPlane`
protocol, and `Write`, one record of its write log.

Owns no process and no connection: `devcluster.embedded` and `devcluster.real` do. Fleets, tests, the demo and
the load test are written against this module only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec


class Write(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One write that reached the server, accepted or refused, in the order in which the server decided.

    *t* is CLOCK_BOOTTIME in seconds; *verb* is create, update, patch, delete or deletecollection; *resource*
    is `websites.example.com`. Labels are None where there is no object (before a create, after a delete).
    *object* holds a Lease's `annotations` and `spec` after the write, None for every other resource.
    """

    seq: int
    t: float
    user: str
    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    uid: str = ""
    resource_version: str = ""
    code: int = 0
    labels_before: dict[str, str] | None = None
    labels_after: dict[str, str] | None = None
    message: str = ""
    object: dict[str, Any] | None = None


class ControlPlane(Protocol):
    """A running API server with its own certificate authority."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, readable by its owner only."""

    @property
    def url(self) -> str:
        """`https://127.0.0.1:PORT`."""

    @property
    def pids(self) -> Sequence[int]:
        """Processes of the control plane that run now."""

    def rss_bytes(self) -> int:
        """Resident memory of all its processes."""

    async def kubeconfig_for(
        self, user: str, *, groups: Sequence[str] = (), server: str | None = None
    ) -> Path:
        """A kubeconfig with credentials of its own for *user*; *server* is another URL to reach it by (a link)."""

    def writes(self) -> list[Write]:
        """Every write so far, in the order in which the server decided them."""

    async def restart(self, *, away_s: float = 0.0) -> None:
        """Stop the API server, stay away for *away_s*, start it again: state is kept, connections are not."""

    async def stop(self) -> None:
        """End every process; the state is gone."""
