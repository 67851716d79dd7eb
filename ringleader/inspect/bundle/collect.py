"""Reads the parts of a bundle. A part that cannot be read becomes an error beside the others.

Owns what goes into the bundle and what must not: Secrets are never asked for, and of objects that may carry values of
others (last-applied annotations, workloads) these are left out.
"""

from __future__ import annotations

import platform
import re
import traceback
from collections.abc import Awaitable, Callable
from datetime import datetime
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from kubeio.errors import KubeError, NotFound, Unauthorized, Unreachable
from kubeio.models import Lease
from kubeio.program.failures import failure
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, LEASES, ApiResource
from ringleader.check.command import Wanted, examine
from ringleader.check.hooks import CONFIGURATIONS
from ringleader.cluster.events import is_ours, read_events
from ringleader.cluster.reader import ClusterReader, read_rings
from ringleader.cluster.ring import Ring, named_ring
from ringleader.cluster.shards import Pod, shards_of
from ringleader.cluster.snapshot import ELECTION_LEASE
from ringleader.inspect.bundle.workloads import Doc, read_workloads
from ringleader.inspect.status.statuses import read_statuses

if TYPE_CHECKING:
    from kubeio.rest.client import Client

MOST_EVENTS: Final = 1000
"""Newest Events: some 300 KB. A server forgets them after an hour by default."""
RECHECK_AFTER_S: Final = 6.0
"""Between its two looks, as with `ringleader check` itself."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation with a copy of the whole object."""
_README: Final = """# Ringleader bundle

{what}, read at {at:%Y-%m-%d %H:%M:%S} UTC from {server}.

| file | content |
|---|---|
| errors.txt | parts that could not be read, and why; empty: everything was read |
| versions.json | API server, command, interpreter, packages |
| status.json | members, objects, handoffs: `ringleader status -o json` |
| check.json | findings: `ringleader check -o json` |
| events.json | Events of sharders and replicas, the newest first |
| controllerrings.ringleader.dev/NAME.json | rings |
| leases.coordination.k8s.io/NAMESPACE/NAME.json | Leases of replicas; ringleader-sharder is the sharders' election |
| customresourcedefinitions.apiextensions.k8s.io/NAME.json | definition of ControllerRing |
| mutatingwebhookconfigurations.admissionregistration.k8s.io/NAME.json | webhooks that assign at admission |
| deployments.apps, statefulsets.apps, pods: NAMESPACE/NAME.json | sharders and replicas: labels, images, status |

Not in it: Secrets, environment variables, arguments and annotations of workloads, credentials, logs. Of the objects
that rings distribute it has their number, and the names of those that a finding or an Event is about.
"""
T = TypeVar("T")


class Collector:
    """Files of a bundle by their path. *begin* is called with the name of each part before it is read."""

    def __init__(self, client: Client, *, timeout_s: float, begin: Callable[[str], None]) -> None:
        self.files: dict[str, bytes] = {}
        self.errors: list[str] = []
        self._client = client
        self._timeout_s = timeout_s
        self._begin = begin

    async def read(self, ring: str | None, *, at: datetime, server: str) -> None:
        """Read all about *ring*, or about every ring.

        Raises: InputError if it is unknown; Unreachable, Unauthorized if nothing could be read.
        """
        known = await self._attempt("API server", self._server())
        self._add("versions.json", {"server": {"url": server, **(known or {})}, **client_versions()})
        found = await self._attempt("rings", read_rings(self._client, timeout_s=self._timeout_s))
        rings = found or []
        if ring is not None and found is not None:
            rings = [named_ring(found, ring)]
        pods = await self._attempt("election", self._election()) or set()
        for each in rings:
            await self._attempt(f"ring {each.name}", self._object(CONTROLLER_RINGS, each.name))
            await self._attempt(f"webhook of {each.name}", self._webhook(each))
            pods |= await self._attempt(f"Leases of {each.name}", self._leases(each, at)) or set()
        await self._attempt("definition", self._object(CRDS, CONTROLLER_RINGS.group_resource))
        await self._attempt("Events", self._events())
        workloads = read_workloads(self._client, pods, attempt=self._attempt, timeout_s=self._timeout_s)
        for resource, document in await self._attempt("workloads", workloads) or ():
            self._add_object(resource, document)
        await self._attempt("status", self._status(ring))
        await self._attempt("check", self._check(ring))
        what = f"Ring {ring}" if ring else "Every ring"
        self.files["README.md"] = _README.format(what=what, at=at, server=server).encode()
        self.files["errors.txt"] = "".join(f"{error}\n" for error in self.errors).encode()

    async def _attempt(self, part: str, read: Awaitable[T]) -> T | None:
        """The answer, or None and an error. Raises: Unreachable, Unauthorized while nothing was read."""
        self._begin(part)
        try:
            return await read
        except KubeError as error:
            if not self.files and isinstance(error, Unreachable | Unauthorized):
                raise
            self.errors.append(f"{part}: {failure(error).message}")
        except Exception:  # a fault of ours in one part must not cost the others: bundles are for such faults
            self.errors.append(f"{part}: {traceback.format_exc()}")
        return None

    def _add(self, path: str, document: object) -> None:
        self.files[path] = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"

    def _add_object(self, resource: ApiResource, document: Doc) -> None:
        meta = document["metadata"]
        (meta.get("annotations") or {}).pop(LAST_APPLIED, None)
        place = f"{meta['namespace']}/" if resource.namespaced else ""
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}  # lists leave them out
        self._add(f"{resource.group_resource}/{place}{meta['name']}.json", kind | document)

    # -- parts ------------------------------------------------------------------------------------------------

    async def _server(self) -> dict[str, Any]:
        answer = await self._client.request("GET", "/version", timeout_s=self._timeout_s)
        return msgspec.json.decode(answer.body, type=dict[str, Any])

    async def _object(self, resource: ApiResource, name: str) -> None:
        document = await self._client.get(resource, name, type=Doc, timeout_s=self._timeout_s)
        self._add_object(resource, document)

    async def _webhook(self, ring: Ring) -> None:
        try:
            await self._object(CONFIGURATIONS, f"ringleader-{ring.name}")
        except NotFound:
            return  # a ring that is not assigned at admission

    async def _leases(self, ring: Ring, at: datetime) -> set[Pod]:
        """Add the Leases of *ring*; the pods of their replicas."""
        found = await self._add_leases(
            namespace=ring.spec.lease_namespace, label_selector=f"{ring.keys.ring_label}={ring.name}"
        )
        return {shard.pod for shard in shards_of(ring, found, now=at)}

    async def _election(self) -> set[Pod]:
        """Add the election Leases; the pods of those that lead."""
        found = await self._add_leases(field_selector=f"metadata.name={ELECTION_LEASE}")
        return {Pod(each.metadata.namespace, each.spec.holder_identity or "") for each in found}

    async def _add_leases(
        self, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> list[Lease]:
        pages = self._client.pages(
            LEASES,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout_s=self._timeout_s,
        )
        found = [each.raw async for page in pages for each in page.objects]
        for raw in found:
            self._add_object(LEASES, msgspec.json.decode(raw))
        return [msgspec.json.decode(raw, type=Lease) for raw in found]

    async def _events(self) -> None:
        found = await read_events(self._client, is_ours, limit=MOST_EVENTS, timeout_s=self._timeout_s)
        self._add("events.json", {"events": found})

    async def _status(self, ring: str | None) -> None:
        reader = ClusterReader(self._client, timeout_s=self._timeout_s)
        self._add("status.json", {"rings": await read_statuses(reader, ring)})

    async def _check(self, ring: str | None) -> None:
        wanted = Wanted(
            ring=ring, accounts={}, managers=frozenset(), again_s=RECHECK_AFTER_S, timeout_s=self._timeout_s
        )
        self._add("check.json", await examine(self._client, wanted))


def client_versions() -> dict[str, Any]:
    """Versions of this program, its interpreter and the packages that it requires."""
    packages = {}
    for requirement in sorted(requires("ringleader") or ()):
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        try:
            packages[name] = "" if "extra ==" in requirement else version(name)
        except PackageNotFoundError:
            continue  # not for this interpreter
    return {
        "ringleader": version("ringleader"),
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "packages": {name: found for name, found in packages.items() if found},
    }
