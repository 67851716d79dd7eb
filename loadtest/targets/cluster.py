"""A cluster by kubeconfig, with the sharders and replicas that are deployed there.

What the API can do to a fleet is done through it: a pod deleted, a workload scaled, a roll asked for. What it cannot
(stop a process, keep a node away) is refused before the load begins.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from kubeio.access.cluster import load_cluster
from kubeio.clock import Clock, SystemClock, micro_time
from kubeio.errors import Forbidden, InputError, KubeError, NotFound
from kubeio.patch import MergePatch
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from loadtest.inputs.scenario import Action
from loadtest.inputs.template import Template
from loadtest.targets.target import ActionFailed, LoadRefused, Testimony, Usage, Way
from ringleader.cluster.causes import why_no_leader
from ringleader.cluster.debug_endpoint import PODS, PORT, in_pod
from ringleader.cluster.reader import ClusterReader, read_rings, read_shards
from ringleader.cluster.ring import Ring, named_ring
from ringleader.cluster.shards import Pod, Shard

_TIMEOUT_S: Final = 30.0
_SCRAPE_S: Final = 5.0
_SCALED_WITHIN_S: Final = 300.0
_POLL_S: Final = 1.0
_DO: Final = ("join", "leave", "roll", "kill", "failover", "node-loss")
_WORKLOADS: Final = {
    "StatefulSet": ApiResource("apps", "v1", "statefulsets", "StatefulSet"),
    "Deployment": ApiResource("apps", "v1", "deployments", "Deployment"),
    "ReplicaSet": ApiResource("apps", "v1", "replicasets", "ReplicaSet"),
}
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_VERBS: Final = ("create", "patch", "delete", "list", "watch")
"""What load, observer and teardown do with the objects."""
_RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Which cluster. Empty texts: what the kubeconfig, its context and the environment say."""

    kubeconfig: str
    context: str
    namespace: str
    ring: str
    port: int = PORT
    """Of the replicas' metrics."""

    @staticmethod
    def refuse(actions: list[Action]) -> None:
        """Raises InputError for the first action that the API cannot carry out."""
        for action in actions:
            if action.do not in _DO:
                raise InputError(
                    "SCENARIO",
                    action.do,
                    "cannot be done to a cluster through its API",
                    f"run it against an own fleet (without --kubeconfig and --context), or use {', '.join(_DO)}",
                )


class DeployedFleet:
    """Keeps the promises of `Target`. Made by `open_cluster`."""

    def __init__(self, client: Client, options: ClusterOptions, *, clock: Clock) -> None:
        self.description = f"the cluster at {client.cluster.server}, ring {options.ring}"
        self.kubeconfig = options.kubeconfig
        self.context = options.context
        self.namespace = options.namespace or client.cluster.namespace
        self.ring = options.ring
        self.shares = True
        self._port = options.port
        self._client = client
        self._clock = clock
        self._turns = itertools.count()

    async def resolve(self, client: Client, template: Template) -> ApiResource:
        try:
            ring = await self._ring()
        except InputError as error:
            raise InputError("--ring", self.ring, error.problem, error.remedy) from None
        resource = await Discovery(client).resolve(template.resource_name)
        if resource.group_resource not in ring.mains:
            raise InputError(
                "--template",
                resource.group_resource,
                f"is not distributed by ring {self.ring}",
                f"give the template of one of {', '.join(ring.mains)}, or name another --ring",
            )
        await self._check_rights(client, resource)
        await read_shards(client, ring)  # the audit at the end needs the right
        return resource

    async def _check_rights(self, client: Client, resource: ApiResource) -> None:
        """Raises LoadRefused if the account may not do what the load does: before anything is created."""
        namespace = self.namespace if resource.namespaced else ""
        missing = [verb for verb in _VERBS if not await _may(client, verb, resource, namespace)]
        if missing:
            rule = {"apiGroups": [resource.group], "resources": [resource.plural], "verbs": missing}
            kind = f"a Role in namespace {namespace}" if namespace else "a ClusterRole"
            raise LoadRefused(
                f"{client.cluster.user} may not {', '.join(missing)} {resource.group_resource}"
                f"{f' in namespace {namespace}' if namespace else ''}; this rule in {kind} bound to it grants that:"
                f" {json.dumps(rule)}"
            )

    async def start(self) -> None:
        """It runs already; whether it works is seen by what it does with the first objects."""

    async def size(self) -> int:
        try:
            return _replicas(await self._workload())
        except (ActionFailed, NotFound, Forbidden):  # nothing that could be scaled from here
            return len(await self._members())

    async def scale(self, replicas: int) -> None:
        members = len(await self._members())
        if replicas == members == await self.size():
            return
        workload = await self._workload()
        others = max(0, members - _replicas(workload))  # of the ring's other workloads
        if _replicas(workload) != replicas:
            await self._write_scale(*workload, replicas)
        try:
            async with asyncio.timeout(_SCALED_WITHIN_S):
                while len(await self._members()) != others + replicas:  # noqa: ASYNC110 - the API has no event for it
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            members = len(await self._members()) - others
            raise ActionFailed(
                f"{members} of {replicas} replicas are members after {_SCALED_WITHIN_S:g} s"
            ) from None

    async def change_to(self, way: Way) -> None:
        raise ActionFailed(f"{way.value}: what is deployed in a cluster stays as it is")

    # -- actions --------------------------------------------------------------------------------------------

    async def act(self, action: Action) -> str:
        match action.do:
            case "kill":
                pod = await self._choose(action)
                await self._delete_pod(pod)
                return f"pod {pod.namespace}/{pod.name} was deleted without grace"
            case "join" | "leave":
                return await self._scale_by(1 if action.do == "join" else -1)
            case "roll":
                return await self._roll()
            case "failover":
                return await self._fail_over()
            case "node-loss":
                return await self._lose_node()
            case other:
                raise ActionFailed(f"{other} cannot be done through the API")

    async def _choose(self, action: Action) -> Pod:
        members = {shard.member: shard.pod for shard in await self._members()}
        if action.replica in members:
            return members[action.replica]
        if action.replica or not members:
            raise ActionFailed(f"{action.do}: {action.replica or 'there'} is no member of the ring now")
        return list(members.values())[next(self._turns) % len(members)]

    async def _delete_pod(self, pod: Pod) -> None:
        path = PODS.path(namespace=pod.namespace, name=pod.name)
        await self._client.request("DELETE", path, body=b'{"gracePeriodSeconds":0}')

    async def _scale_by(self, change: int) -> str:
        resource, workload = found = await self._workload()
        before = _replicas(found)
        if before + change < 1:
            raise ActionFailed(f"{resource.kind} {workload['metadata']['name']} has one replica only")
        await self._write_scale(resource, workload, before + change)
        return f"{resource.kind} {workload['metadata']['name']} was scaled from {before} to {before + change}"

    async def _write_scale(self, resource: ApiResource, workload: Mapping[str, Any], replicas: int) -> None:
        name, namespace = workload["metadata"]["name"], workload["metadata"]["namespace"]
        patch = MergePatch({"spec": {"replicas": replicas}})
        await self._client.patch(resource, name, patch, namespace=namespace, subresource="scale", type=bytes)

    async def _roll(self) -> str:
        resource, workload = await self._workload()
        name, namespace = workload["metadata"]["name"], workload["metadata"]["namespace"]
        stamp = {_RESTARTED_AT: micro_time(self._clock.wall())}
        patch = MergePatch({"spec": {"template": {"metadata": {"annotations": stamp}}}})
        await self._client.patch(resource, name, patch, namespace=namespace, type=bytes)
        return f"{resource.kind} {name} rolls"

    async def _fail_over(self) -> str:
        leadership = await ClusterReader(self._client, timeout_s=_TIMEOUT_S).leadership()
        nobody, newest = why_no_leader(leadership), leadership.newest
        if nobody is not None or newest is None:
            raise ActionFailed(f"failover: {nobody.text if nobody else 'the account may not list Leases'}")
        holder = newest.holder
        await self._delete_pod(Pod(newest.lease.metadata.namespace, holder))
        return f"pod {holder} of the leading sharder was deleted without grace"

    async def _lose_node(self) -> str:
        """Delete every replica of the node that has most of them; where they come back is the scheduler's."""
        by_node: dict[str, list[Pod]] = {}
        for shard in await self._members():
            pod = await self._get(PODS, *shard.pod)
            by_node.setdefault(pod["spec"].get("nodeName", ""), []).append(shard.pod)
        if not by_node:
            raise ActionFailed("node-loss: no replica is a member of the ring now")
        node, lost = max(by_node.items(), key=lambda item: len(item[1]))
        await asyncio.gather(*(self._delete_pod(pod) for pod in lost))
        names = ", ".join(pod.name for pod in lost)
        return f"the pods of node {node} were deleted without grace: {names}"

    async def _workload(self) -> tuple[ApiResource, dict[str, Any]]:
        """The StatefulSet or Deployment that the replicas' pods belong to. Raises: ActionFailed."""
        members = await self._members()
        if not members:
            raise ActionFailed("no replica is a member of the ring now")
        pod = members[0].pod
        found: tuple[ApiResource, dict[str, Any]] = PODS, await self._get(PODS, *pod)
        while owner := _controller_of(found[1]):
            if owner["kind"] not in _WORKLOADS:
                raise ActionFailed(f"{owner['kind']} {owner['name']} cannot be scaled or rolled from here")
            resource = _WORKLOADS[owner["kind"]]
            found = resource, await self._get(resource, pod.namespace, owner["name"])
        if found[0] is PODS:
            raise ActionFailed(f"pod {pod.namespace}/{pod.name} belongs to no StatefulSet and no Deployment")
        return found

    async def _get(self, resource: ApiResource, namespace: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._client.get(resource, name, namespace=namespace, type=dict)
        return found

    async def _ring(self) -> Ring:
        return named_ring(await read_rings(self._client, timeout_s=_TIMEOUT_S), self.ring)

    async def _members(self) -> list[Shard]:
        shards = await read_shards(self._client, await self._ring())
        return [shard for shard in shards if shard.is_active]

    # -- measuring ------------------------------------------------------------------------------------------

    async def metrics(self) -> dict[str, str]:
        try:
            members = await self._members()
        except KubeError:
            return {}
        pages = await asyncio.gather(*(self._page(shard.pod) for shard in members))
        return {shard.member: page for shard, page in zip(members, pages, strict=True) if page}

    async def _page(self, pod: Pod) -> str:
        endpoint = in_pod(self._client, pod, port=self._port, timeout_s=_SCRAPE_S)
        try:
            return (await endpoint.read("/metrics")).decode()
        except KubeError:
            return ""

    def usage(self) -> Mapping[str, Usage]:
        return {}

    async def testimony(self) -> Testimony:
        return Testimony(reason="no check: only an own fleet has journals and a write log")


def _replicas(workload: tuple[ApiResource, Mapping[str, Any]]) -> int:
    return int(workload[1]["spec"].get("replicas", 1))


async def _may(client: Client, verb: str, resource: ApiResource, namespace: str) -> bool:
    attributes = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.request("POST", _REVIEWS, body=json.dumps(review).encode())
    return bool(json.loads(answer.body).get("status", {}).get("allowed"))


def _controller_of(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    references = document["metadata"].get("ownerReferences") or []
    return next((each for each in references if each.get("controller")), None)


@asynccontextmanager
async def open_cluster(options: ClusterOptions) -> AsyncIterator[DeployedFleet]:
    """The cluster; nothing of it is changed before the load. Raises: InputError."""
    cluster = load_cluster(kubeconfig=options.kubeconfig or None, context=options.context or None)
    async with Client(cluster, user_agent="ringleader-loadtest") as client:
        yield DeployedFleet(client, options, clock=SystemClock())
