"""The sharder that leads: found by its election Lease, and the ways to its probes port.

A URL if one is given; inside the cluster the pod's address, with the token of this pod's service account; else
`kubectl port-forward`. The pod has the name of the Lease's holder and lies in the Lease's namespace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kubeio.access.cluster import Cluster
from kubeio.errors import Forbidden, InputError, KubeError, NotFound
from kubeio.http.endpoint import Endpoint, Trust
from kubeio.program.failures import failure
from kubeio.rest.client import Client
from ringleader.cluster.debug_endpoint import PODS, PORT, check_url
from ringleader.cluster.reader import ClusterReader
from ringleader.cluster.snapshot import ELECTION_LEASE
from ringleader.dashboard.endpoint import SharderEndpoint, SharderLost
from ringleader.dashboard.port_forward import port_forward
from ringleader.output import age

if TYPE_CHECKING:
    from ringleader.options import ConnectionOptions

ENDPOINT: Final = "--endpoint"
LEADER: Final = "leader"
ANSWER_S: Final = 5.0
"""For one answer of a sharder."""
REMEDY: Final = (
    "forward the sharder's port yourself (kubectl -n NAMESPACE port-forward pod/NAME 8081) and add "
    "--endpoint http://127.0.0.1:8081"
)
Way = Callable[[], AbstractAsyncContextManager[SharderEndpoint]]
"""Opens the way to a sharder. Raises NoLeader, InputError, KubeError."""


class NoLeader(KubeError):
    """No sharder leads at the moment."""


class LeaderUnknown(KubeError):
    """A right is missing to find the sharder that leads."""


class LeaderPod(NamedTuple):
    """Pod of the sharder that leads, and its probes port."""

    namespace: str
    name: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Port(msgspec.Struct, rename="camel"):
    name: str = ""
    container_port: int = 0


class _Container(msgspec.Struct):
    ports: list[_Port] = []


class _PodSpec(msgspec.Struct):
    containers: list[_Container] = []


class _PodStatus(msgspec.Struct):
    phase: str = ""
    ip: str = msgspec.field(default="", name="podIP")


class _Pod(msgspec.Struct):
    spec: _PodSpec
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def address(self) -> str:
        """Its address while it runs: one that has ended keeps its address, which another pod may have by now."""
        return self.status.ip if self.status.phase == "Running" else ""

    @property
    def probes_port(self) -> int:
        """The port called `probes`, as the chart names it; else the usual one."""
        ports = [port for container in self.spec.containers for port in container.ports]
        return next((port.container_port for port in ports if port.name == "probes"), PORT)


async def find_leader(client: Client, *, only: str = "", timeout_s: float) -> LeaderPod:
    """Pod of the sharder that leads. *only*: elections of other namespaces do not count.

    Raises: NoLeader, LeaderUnknown, InputError if there is no pod of its name, KubeError.
    """
    found = await ClusterReader(client, timeout_s=timeout_s).leadership()
    if not found.is_known:
        rule = '{apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get", "list"]}'
        raise LeaderUnknown(f"no right to list Leases, which say who leads; grant {rule}, or {REMEDY}")
    elections = [each for each in found.elections if only in ("", each.lease.metadata.namespace)]
    newest = replace(found, elections=elections).newest
    if newest is None:
        raise NoLeader(f"no sharder leads: there is no Lease {ELECTION_LEASE} in {_place(only)}")
    if not newest.leads:
        last = f", {newest.holder} led last" if newest.holder else ""
        raise NoLeader(f"no sharder leads{last} (Lease {newest.where}, renewed {age(newest.age_s)} ago)")
    namespace, name = newest.lease.metadata.namespace, newest.holder
    try:
        pod = await client.get(PODS, name, namespace=namespace, type=_Pod, timeout_s=timeout_s)
    except NotFound:
        problem = f"leads, and namespace {namespace} has no pod of that name"
        raise InputError(LEADER, name, problem, REMEDY) from None
    except Forbidden as error:
        raise LeaderUnknown(f"{name} leads: {failure(error).message}; or {REMEDY}") from None
    return LeaderPod(namespace, name, pod.address, pod.probes_port)


def _place(namespace: str) -> str:
    return f"namespace {namespace}" if namespace else "any namespace"


def choose_way(where: ConnectionOptions, client: Client, *, endpoint: str | None) -> Way:
    """The way to the sharder at *endpoint*, else to the one that leads."""
    if endpoint is not None:
        return lambda: at_url(endpoint)
    if client.cluster.is_own:
        return lambda: at_pod_address(client, timeout_s=where.timeout_s)
    return lambda: through_kubectl(client, where)


@asynccontextmanager
async def at_url(url: str, *, field: str = ENDPOINT, value: str = "") -> AsyncIterator[SharderEndpoint]:
    """The sharder at *url*. No credentials go there: a kubeconfig's token is the API server's alone."""
    full, endpoint = check_url(url)
    async with _opened(
        Cluster(full, "", "anonymous", endpoint, Trust(), None), field, value or full
    ) as opened:
        yield opened


@asynccontextmanager
async def at_pod_address(client: Client, *, timeout_s: float) -> AsyncIterator[SharderEndpoint]:
    """The sharder that leads in this pod's namespace, with the token of this pod's service account."""
    own = client.cluster
    # a Lease of that name in another namespace may be anybody's: the token would go to a pod of theirs
    pod = await find_leader(client, only=own.namespace, timeout_s=timeout_s)
    if not pod.address:
        raise SharderLost(f"pod {pod} does not run, or has no address yet")
    endpoint = Endpoint("http", pod.address, pod.port, "")
    cluster = Cluster(
        f"http://{endpoint.authority}", "", own.user, endpoint, Trust(), None, credentials=own.credentials
    )
    async with _opened(cluster, LEADER, str(pod)) as opened:
        yield opened


@asynccontextmanager
async def through_kubectl(client: Client, where: ConnectionOptions) -> AsyncIterator[SharderEndpoint]:
    """The sharder that leads, through `kubectl port-forward`."""
    pod = await find_leader(client, timeout_s=where.timeout_s)
    forwarding = port_forward(where, namespace=pod.namespace, pod=pod.name, port=pod.port, remedy=REMEDY)
    async with (
        forwarding as forward,
        at_url(f"http://127.0.0.1:{forward.port}", field=LEADER, value=str(pod)) as endpoint,
    ):
        forward.on_end = lambda: endpoint.lose(forward.problem)
        yield endpoint


@asynccontextmanager
async def _opened(cluster: Cluster, field: str, value: str) -> AsyncIterator[SharderEndpoint]:
    async with Client(cluster, user_agent="ringleader-dashboard", max_connections=2) as client:
        yield SharderEndpoint(client, field=field, value=value, timeout_s=ANSWER_S)
