"""Settings of a replica's process, and its view of the ring. The only decision is whether a value can be used.

`Settings` come from flags or from `sc.run`; `RingView` is the part of a ControllerRing that a replica reads.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from kubeio.errors import InputError, KubeError, NotFound
from kubeio.labels import split_namespaces
from kubeio.models import GroupResource, Meta
from kubeio.program.failures import names_an_object
from kubeio.program.http_server import parse_bind
from kubeio.program.yaml_file import read_document
from kubeio.protocol import CONTROLLER_RINGS, DEFAULT_DOMAIN, RingEntry, RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from kubeio.suggestions import nearest

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


class RingViewSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of a ring's spec that a replica reads."""

    lease_namespace: str
    resources: list[RingEntry] = []
    label_domain: str = DEFAULT_DOMAIN
    max_lease_duration_seconds: int = 60


class RingView(msgspec.Struct, frozen=True):
    """The part of a ring that a replica reads."""

    metadata: Meta
    spec: RingViewSpec

    @property
    def keys(self) -> RingKeys:
        """Every label and annotation of the ring."""
        return RingKeys(self.metadata.name, self.spec.label_domain)

    def entry(self, resource: ApiResource) -> RingEntry:
        """The ring's entry for *resource*. Raises: InputError."""
        for entry in self.spec.resources:
            if str(entry.main) == resource.group_resource:
                return msgspec.structs.replace(entry, controlled_resources=self._below(entry))
        listed = ", ".join(str(entry.main) for entry in self.spec.resources) or "nothing"
        raise InputError(
            "--ring",
            self.metadata.name,
            f"does not distribute {resource.group_resource} (only {listed})",
            f"add {{group: {resource.group!r}, resource: {resource.plural}}} to its spec.resources",
        )

    def _below(self, entry: RingEntry) -> list[GroupResource]:
        """Resources that follow objects of *entry*, at any depth: a tree moves as a whole (key Owner)."""
        below = list(entry.controlled_resources)
        for kind in below:  # grows meanwhile
            deeper = (each.controlled_resources for each in self.spec.resources if each.main == kind)
            below += [found for kinds in deeper for found in kinds if found not in below]
        return [kind for kind in below if kind != entry.main]


def ring_from_file(path: Path, name: str = "") -> RingView:
    """The ring in the file at *path*; *name*: what it must be called. Raises: InputError."""
    try:
        view = msgspec.convert(read_document("--ring-file", path), RingView)
    except msgspec.ValidationError as error:
        raise InputError("--ring-file", str(path), f"cannot be read ({error})", "correct the ring") from None
    if name not in ("", view.metadata.name):
        raise InputError("--ring", name, f"is not the ring in {path}", f"leave it out: {view.metadata.name}")
    return view


async def read_ring(client: Client, name: str) -> RingView:
    """The ring *name*. Raises: InputError if it is missing or unreadable."""
    try:
        return await client.get(CONTROLLER_RINGS, name, type=RingView)
    except NotFound as error:
        if not names_an_object(error):
            raise  # the resource itself is not installed
        problem = f"does not exist on {client.cluster.server}"
        raise InputError("--ring", name, problem, await _other_ring(client, name)) from None
    except msgspec.ValidationError as error:
        raise InputError("--ring", name, f"cannot be read ({error})", "correct the ring's spec") from error


async def _other_ring(client: Client, name: str) -> str:
    """Text for a remedy: the ring that was perhaps meant by *name*."""
    try:
        page = await client.list_page(CONTROLLER_RINGS, metadata_only=True, limit=100)
    except KubeError:  # a replica needs no right to list rings
        return "create it (kubectl apply -f ring.yaml) or name another"
    known = nearest(name, [ring.meta.name for ring in page.objects])
    return f"create it (kubectl apply -f ring.yaml) or name another: {known}"


async def controlled_resources(
    discovery: Discovery, entry: RingEntry, owned: dict[str, ApiResource]
) -> list[ApiResource]:
    """Every resource that the ring says is controlled by *entry*, in the version that *owned* declares.

    Raises: InputError if something owned is not controlled: it would not move with its parent.
    """
    by_name = {resource.group_resource: resource for resource in owned.values()}
    listed = {str(controlled) for controlled in entry.controlled_resources}
    for text, resource in owned.items():
        if resource.group_resource not in listed:
            raise InputError(
                "owns",
                text,
                f"is not among the ring's controlledResources of {entry.main}",
                f"add {{group: {resource.group!r}, resource: {resource.plural}}} there",
            )
    return [by_name.get(name) or await discovery.resolve(name) for name in sorted(listed)]
