"""The command lines of a fleet's processes, and what a fleet is made of. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from ringleader.assets import website_controller, website_crd

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
SHARD_MODULE = "shard_controller"
WAIT_MS = "WEBSITE_WAIT_MS"
"""Environment of the example's controller: how long each reconcile waits, `20` or `0-200`."""
WAIT_FOR = "WEBSITE_WAIT_FOR"
"""`changes`: only reconciles of what is new or was changed wait; `updates`: only of what was changed."""
_MODULE = ("-P", "-m")
"""Without the folder that the fleet is started in: what is called `ring.py` there is not our `ring`."""


class Mode(StrEnum):
    """How the replicas of a controller share the work."""

    SHARDED = "sharded"
    LEADER_ELECTED = "leader-elected"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """What a fleet is made of; every time is in seconds."""

    controller: str = field(default_factory=lambda: f"{website_controller()}:websites")
    """`path/to/file.py:name`; the example's unless another is given."""
    ring: str = "websites"
    resource: ApiResource = WEBSITES
    controlled: tuple[ApiResource, ...] = (CONFIGMAPS,)
    definitions: tuple[Path, ...] = field(default_factory=lambda: (website_crd(),))
    """Files with the CustomResourceDefinitions that the controller needs."""
    namespace: str = "sites"
    """Where the objects are."""
    lease_namespace: str = "ringleader-fleet"
    """Where the shards' Leases and the sharders' election Lease are."""
    lease_s: int = 3
    settle_s: int = 1
    workers: int = 4
    sharders: int = 2
    patience_s: float = 60.0
    """How long a wait may see nothing change before it gives up; what moves, however slowly, is waited for."""
    shard_flags: tuple[str, ...] = ()
    """Further flags of every replica."""
    shard_wrapper: tuple[str, ...] = ()
    """What the command line of every replica is appended to, `{member}` in it replaced by the member's name."""
    sharder_flags: tuple[str, ...] = ()
    """Further flags of every sharder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    shard_module: str = SHARD_MODULE
    """What runs as a replica: `python -m MODULE run ...`."""
    shard_python: str = sys.executable
    """Interpreter of the replicas; that of another environment runs another version of Ringleader."""
    sharder_python: str = sys.executable
    ring_spec: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the ControllerRing's spec."""

    @property
    def keys(self) -> RingKeys:
        return RingKeys(self.ring)

    @property
    def resources(self) -> frozenset[str]:
        """Every resource whose objects bear the ring's labels: `websites.example.com`, `configmaps`."""
        return frozenset(kind.group_resource for kind in (self.resource, *self.controlled))

    def manifest(self) -> dict[str, Any]:
        """The fleet's ControllerRing."""
        controlled = [{"group": kind.group, "resource": kind.plural} for kind in self.controlled]
        distributed = {
            "group": self.resource.group,
            "resource": self.resource.plural,
            "controlledResources": controlled,
        }
        return {
            "apiVersion": "ringleader.dev/v1alpha1",
            "kind": "ControllerRing",
            "metadata": {"name": self.ring},
            "spec": {
                "resources": [distributed],
                "leaseNamespace": self.lease_namespace,
                "settleSeconds": self.settle_s,
                "maxLeaseDurationSeconds": 2 * self.lease_s,
                **self.ring_spec,
            },
        }


def shard_command(
    spec: FleetSpec, *, member: str, kubeconfig: Path, mode: Mode, journal: Path, ports: Path
) -> list[str]:
    """One replica of the controller."""
    return [
        *(part.replace("{member}", member) for part in spec.shard_wrapper),
        *(spec.shard_python, *_MODULE, spec.shard_module, "run", spec.controller),
        *("--kubeconfig", str(kubeconfig), "--namespace", spec.namespace),
        *("--ring", spec.ring, "--member", member, "--mode", mode.value),
        *("--lease-duration", str(spec.lease_s), "--workers", str(spec.workers), *spec.shard_flags),
        *("--journal", str(journal), "--log-format", "console"),
        *("--health-probe-bind-address", "127.0.0.1:0", "--probes-port-file", str(ports)),
    ]


def sharder_command(spec: FleetSpec, *, identity: str, kubeconfig: Path, ports: Path) -> list[str]:
    """One sharder; all of them compete for one election Lease."""
    return [
        *(spec.sharder_python, *_MODULE, "sharder", "--kubeconfig", str(kubeconfig), "--identity", identity),
        *("--lease-namespace", spec.lease_namespace, "--lease-duration", str(spec.lease_s)),
        *("--ring", spec.ring, "--log-format", "console"),
        *(
            "--health-probe-bind-address",
            "127.0.0.1:0",
            "--probes-port-file",
            str(ports),
            *spec.sharder_flags,
        ),
    ]
