"""Rings of kube-controller-manager's controllers, and the command lines of their programs. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubeio.models import GroupResource
from kubeio.protocol import RingEntry, RingKeys
from kubeio.resource import ApiResource

DEPLOYMENTS: Final = ApiResource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS: Final = ApiResource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS: Final = ApiResource("apps", "v1", "statefulsets", "StatefulSet")
JOBS: Final = ApiResource("batch", "v1", "jobs", "Job")
PODS: Final = ApiResource("", "v1", "pods", "Pod")
MANAGER: Final = "kube-controller-manager"
LEASE_NAMESPACE: Final = "rings"
_MODULE: Final = (sys.executable, "-P", "-m")


@dataclass(frozen=True, slots=True)
class ProxiedRing:
    """A ring whose members are proxies; *controllers* run behind each, the objects of *roots* are the roots.

    *controlled*: by the name of the resource that controls them, `replicasets.apps` by `deployments.apps`.
    """

    name: str
    roots: tuple[ApiResource, ...]
    controllers: tuple[str, ...]
    controlled: tuple[tuple[str, tuple[str, ...]], ...]
    leaves: tuple[str, ...]
    program: tuple[str, ...] = ()
    """Another controller's program with its arguments, instead of kube-controller-manager with *controllers*."""
    locks: tuple[str, ...] = (MANAGER,)

    @property
    def keys(self) -> RingKeys:
        return RingKeys(self.name)

    @property
    def resources(self) -> frozenset[str]:
        """Every resource whose objects carry the ring's labels."""
        below = {name for _, names in self.controlled for name in names}
        return frozenset({*(root.group_resource for root in self.roots), *below})

    def manifest(self) -> dict[str, Any]:
        """Its ControllerRing."""
        return {
            "apiVersion": "ringleader.dev/v1alpha1",
            "kind": "ControllerRing",
            "metadata": {"name": self.name},
            "spec": {
                "leaseNamespace": LEASE_NAMESPACE,
                "key": "Owner",
                "maxInFlight": 10_000,
                "maxInFlightPerOwner": 10_000,
                "resources": [_entry(entry) for entry in self.entries()],
            },
        }

    def entries(self) -> list[RingEntry]:
        """Its `spec.resources`."""
        return [
            RingEntry(_named(main).resource, _named(main).group, [_named(name) for name in names])
            for main, names in self.controlled
        ]


def _entry(entry: RingEntry) -> dict[str, Any]:
    below = [_kind(kind) for kind in entry.controlled_resources]
    return _kind(entry.main) | ({"controlledResources": below} if below else {})


def _kind(kind: GroupResource) -> dict[str, str]:
    return {"group": kind.group, "resource": kind.resource} if kind.group else {"resource": kind.resource}


def _named(name: str) -> GroupResource:
    resource, _, group = name.partition(".")
    return GroupResource(group, resource)


DEPLOYMENTS_RING: Final = ProxiedRing(
    "deployments",
    (DEPLOYMENTS,),
    ("deployment-controller", "replicaset-controller"),
    (("deployments.apps", ("replicasets.apps",)), ("replicasets.apps", ("pods",))),
    ("pods",),
)
WORKLOADS_RING: Final = ProxiedRing(
    "workloads",
    (DEPLOYMENTS, STATEFUL_SETS, JOBS),
    (*DEPLOYMENTS_RING.controllers, "statefulset-controller", "job-controller"),
    (
        *DEPLOYMENTS_RING.controlled,
        ("statefulsets.apps", ("pods", "controllerrevisions.apps")),
        ("jobs.batch", ("pods",)),
    ),
    ("pods", "controllerrevisions.apps"),
)
"""Three trees of one program."""


def proxy_command(
    ring: ProxiedRing, *, member: str, kubeconfig: Path, manager: Path, lease_s: int, qps: int = 200
) -> list[str]:
    """A proxy of *ring* as *member*, before kube-controller-manager at the path *manager*, or the ring's program."""
    controller = (
        *(str(manager), "--kubeconfig={kubeconfig}", f"--controllers={','.join(ring.controllers)}"),
        *("--secure-port=0", f"--kube-api-qps={qps}", f"--kube-api-burst={2 * qps}", "--profiling=false"),
    )
    return [
        *(*_MODULE, "proxy", "--ring", ring.name),
        *("--leaves", ",".join(ring.leaves), "--member", member, "--locks", ",".join(ring.locks)),
        *("--kubeconfig", str(kubeconfig), "--lease-duration", f"{lease_s}s", "--stop-within", "5s"),
        *("--", *(ring.program or controller)),
    ]


def sharder_command(*, kubeconfig: Path, lease_s: int) -> list[str]:
    """A sharder of all rings."""
    return [
        *(*_MODULE, "sharder", "--kubeconfig", str(kubeconfig)),
        *("--lease-namespace", LEASE_NAMESPACE, "--lease-duration", f"{lease_s}s"),
        *("--health-probe-bind-address", "127.0.0.1:0"),
    ]
