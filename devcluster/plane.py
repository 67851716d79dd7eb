"""The `ControlPlane` protocol of embedded and real control planes, and `Write`, one record of a write log.

Owns no process and no connection: `devcluster.embedded` and `devcluster.real` do. Fleets, tests, the demo and
the load test are written against this module only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from devcluster.faults import FaultClient

ADMINS: Final = "ringleader:devcluster-admins"
"""Group of the accounts that may do everything without being exempt from priority and fairness."""


class Write(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One write that reached the server, accepted or refused, in the order in which the server decided.

    *t* is CLOCK_BOOTTIME in seconds; *verb* is create, update, patch, delete or deletecollection; *resource*
    is `websites.example.com`. Labels are None where there is no object (before a create, after a delete).
    *object* holds a Lease's `annotations` and `spec` after the write, None for every other resource.
    *only_labels*: a JSON Patch that, its tests apart, changes single labels and nothing else. *controller*: of an
    accepted create the uid that the controlling ownerReference names, if there is one. *pod*: the pod of the writer,
    if a real server's token of it names one.
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
    only_labels: bool = False
    controller: str = ""
    pod: str = ""


def asks_for_labels_only(body: bytes) -> bool:
    """Whether *body* is a JSON Patch that, its tests apart, adds, replaces or removes single labels."""
    if not body.lstrip().startswith(b"["):
        return False
    try:
        operations = _operations(body)
    except msgspec.DecodeError:
        return False
    changes = [operation for operation in operations if operation.op != "test"]
    return bool(changes) and all(
        change.op in _SINGLE and change.path.startswith("/metadata/labels/") for change in changes
    )


class _Operation(msgspec.Struct, gc=False):
    op: str
    path: str


_SINGLE = ("add", "replace", "remove")
_operations = msgspec.json.Decoder(list[_Operation]).decode


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

    async def kubeconfig_for(self, user: str, *, groups: Sequence[str] = (), admin: bool = True) -> Path:
        """A kubeconfig with credentials of its own for *user*.

        With *admin* the account may do everything; otherwise what RBAC grants to it and to *groups*.
        """

    @property
    def faults(self) -> FaultClient:
        """Orders faults, on a plane that was started with them."""

    def writes(self) -> list[Write]:
        """Every write so far, in the order in which the server decided them."""

    async def restart(self, *, away_s: float = 0.0) -> None:
        """Stop the API server, stay away for *away_s*, start it again: state is kept, connections are not."""

    async def stop(self) -> None:
        """End every process; the state is gone."""
